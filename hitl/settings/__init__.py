"""Settings of a project: the sections of hitl.toml, their keys, ranges and defaults.

`hitl.settings.loading` reads hitl.toml. The keys of `[source]` depend on its kind, because each connector has its own
subclass of `SourceSettings`. Secrets are never in hitl.toml. They are in the environment, or in files that the
environment names (see `hitl.settings.environment`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hitl.crew import UNLIMITED
from hitl.errors import BadSettings
from hitl.formatting import did_you_mean
from hitl.settings.environment import Environment
from hitl.settings.events import EventSettings, is_address, require_different
from hitl.settings.schedule import ScheduleSettings
from hitl.settings.section import AtLeastOne, Count, Price, Seconds, Section, Text, check
from hitl.tables.limits import Limits

WEBHOOK_SECRET = "HITL_WEBHOOK_SECRET"


def _require_url(text: str) -> None:
    if not is_address(text) or "?" in text:
        raise BadSettings("this is no address of pages; expected for instance 'https://hitl.example'")


class SourceSettings(Section):
    """Platform or files from which data is pulled and to which plans are pushed. Each connector has its own subclass.

    Example:
        >>> class Folder(SourceSettings):
        ...     kind: str = "folder"
        ...     path: str
        >>> Folder(path="labels").kind
        'folder'
    """

    kind: str

    def graph(self, folder: Path) -> GraphSettings:
        """Return settings of the graph file if the source has one, else empty ones. `folder`: folder of hitl.toml."""
        return GraphSettings()

    def table_at(self, path: Path, folder: Path) -> str | None:
        """Return the name of the table that the source reads, or would read, from this path; None if it reads none."""
        return None


@runtime_checkable
class Keyed(Protocol):
    """Source settings with a `key`, which names the field of an item's data that has the user's own id."""

    @property
    def key(self) -> str | None:
        """Field with the user's own id, or None."""
        ...


class MethodSettings(Section):
    """The combiner and its settings. If `paper`, defaults are those of the method's paper. `options` override them."""

    method: str = "default"
    paper: bool = False
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def arguments(self) -> tuple[str, dict[str, Any], bool]:
        """The arguments of `hitl.models.registry.chosen`."""
        return self.method, self.options, self.paper


class CombineSettings(MethodSettings):
    """The combiner of all questions, and of single ones: `[combine.urgency]` is about the question "urgency"."""

    questions: dict[str, MethodSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _questions(cls, given: Any) -> Any:
        """Collect the tables of questions."""
        if not isinstance(given, dict):
            return given
        own = {name for name, value in given.items() if name not in cls.model_fields and isinstance(value, dict)}
        questions = {**given.get("questions", {}), **{name: given[name] for name in own}}
        return {name: value for name, value in given.items() if name not in own} | {"questions": questions}

    def of(self, question: str) -> MethodSettings:
        """Return the settings for a question; "topics=art" is one of the questions of the control "topics"."""
        return self.questions.get(question) or self.questions.get(question.partition("=")[0]) or self

    def require_known_questions(self, questions: Iterable[str]) -> None:
        """Raise BadSettings for a table about none of these questions."""
        known = {part for name in questions for part in (name, name.partition("=")[0])}
        for name in sorted(set(self.questions) - known):
            raise BadSettings(f"combine.{name}: the project has no such question{did_you_mean(name, sorted(known))}")

    def within(self, folder: Path) -> CombineSettings:
        """Return the settings with paths of code resolved against this folder."""
        moved = {
            name: own.model_copy(update={"method": code_in(folder, own.method)}) for name, own in self.questions.items()
        }
        return self.model_copy(update={"method": code_in(folder, self.method), "questions": moved})


class BudgetSettings(Section):
    """Limits on open questions, and when items and the project are done (see hitl.crew.Budget)."""

    open_questions: Count = 100
    target_confidence: float = Field(default=0.95, gt=0, le=1)
    min_labels: Count = 1
    max_labels: AtLeastOne = 10
    cost: float = Field(default=math.inf, ge=0)
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    value_per_label: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    accept: Text | None = None

    @model_validator(mode="after")
    def _can_be_done(self) -> BudgetSettings:
        if self.min_labels > self.max_labels:
            raise ValueError(f"min_labels {self.min_labels} is above max_labels {self.max_labels}")
        return self

    def within(self, folder: Path) -> BudgetSettings:
        """Return the settings with the path of `accept` resolved against this folder."""
        return self if self.accept is None else self.model_copy(update={"accept": str(folder / self.accept)})


class CrewSettings(Section):
    """Annotators who are asked by name (see hitl.crew.Crew). If empty, all annotators share one queue.

    `skill_field` names the field of an item's data that lists the skills it requires. After `expire_hours`, an
    unanswered question goes to another annotator. Annotators whose whole 95 % interval lies below
    `least_accuracy` are named as needing training.
    """

    annotators: tuple[Text, ...] = ()
    capacity: Count = UNLIMITED
    capacities: dict[str, Count] = Field(default_factory=dict)
    cost: Price = 1.0
    costs: dict[str, Price] = Field(default_factory=dict)
    skills: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    skill_field: Text | None = None
    expire_hours: float = Field(default=24.0, gt=0)
    least_accuracy: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _has_an_effect(self) -> CrewSettings:
        unknown = [name for name in self.capacities if name not in self.annotators]
        if self.annotators and unknown:
            raise ValueError(f"capacities: {unknown[0]!r} is not in crew.annotators; fix the name, or add it there")
        if self.skill_field is not None and not self.skills:
            raise ValueError("skill_field without skills: no annotator could be asked; expected crew.skills as well")
        return self


class PolicySettings(Section):
    """The policy and its settings."""

    name: str = "expected-gain"
    options: dict[str, Any] = Field(default_factory=dict)


def code_in(folder: Path, name: str) -> str:
    """Resolve the file of `file.py:name` against this folder. Return other names unchanged."""
    return str(folder / name) if name.rpartition(":")[0].endswith(".py") else name


class FeatureSettings(Section):
    """Source of the features of items: one of `file`, `columns`, `text` and `image`, or none.

    `file` has features by the user's own ids. `columns`, `text` and `image` name fields of an item's data. `model` is a
    model of texts or images, and `weights` are the pretrained weights of a torchvision model. `dimensions` is the
    number of features per item. Relative paths of images start at `folder`. `missing` says whether an item without
    features is skipped or stops the run.
    """

    file: Text | None = None
    columns: tuple[str, ...] = ()
    text: Text | None = None
    image: Text | None = None
    model: Text | None = None
    weights: Text | None = None
    dimensions: AtLeastOne | None = None
    folder: str = "."
    device: str = "auto"
    missing: Literal["skip", "refuse"] = "skip"

    @property
    def kind(self) -> Literal["file", "columns", "text", "image"] | None:
        """Source of the features, or None."""
        names: tuple[Literal["file", "columns", "text", "image"], ...] = ("file", "columns", "text", "image")
        return next((name for name in names if getattr(self, name)), None)

    def within(self, folder: Path) -> FeatureSettings:
        """Return the settings with relative paths resolved against this folder."""
        paths = {"folder": str(folder / self.folder)}
        if self.file is not None:
            paths["file"] = str(folder / self.file)
        if self.weights is not None and (folder / self.weights).is_file():
            paths["weights"] = str(folder / self.weights)
        if self.model is not None:
            paths["model"] = code_in(folder, self.model)
        return self.model_copy(update=paths)

    @model_validator(mode="after")
    def _of_one_kind(self) -> FeatureSettings:
        kinds = [name for name in ("file", "columns", "text", "image") if getattr(self, name)]
        if len(kinds) > 1:
            raise ValueError(f"{' and '.join(kinds)} exclude each other; expected one of them")
        if not kinds and self.model_fields_set:
            raise ValueError("nothing to make them of; expected one of file, columns, text and image")
        if self.model is not None and self.kind not in ("text", "image"):
            raise ValueError("model: sees a text or an image; expected one of these as well")
        if self.image is not None and self.model is None:
            raise ValueError("image: needs a model, such as 'torchvision:resnet18', 'module:name', 'file.py:name'")
        return self


class GraphSettings(Section):
    """Links between items, for combiners that use a graph: from `file`, from `neighbours`, or none.

    `file` has the edges between the user's own ids; its columns are the one named by `item`, neighbour, and optionally
    weight. `neighbours` is the number of items with the nearest features to which each item is linked.
    """

    file: Text | None = None
    item: Text = "item"
    neighbours: AtLeastOne | None = None

    @property
    def kind(self) -> Literal["file", "neighbours"] | None:
        """Source of the graph, or None."""
        return "file" if self.file else "neighbours" if self.neighbours else None

    def within(self, folder: Path) -> GraphSettings:
        """Return the settings with a relative `file` resolved against this folder."""
        return self if self.file is None else self.model_copy(update={"file": str(folder / self.file)})

    @model_validator(mode="after")
    def _of_one_kind(self) -> GraphSettings:
        if (self.file is None) == (self.neighbours is None) and self.model_fields_set:
            raise ValueError("expected one of file and neighbours")
        return self


class LearnSettings(Section):
    """A model trained on labels and features while the project is labeled.

    `field` names a field of an item's data that a custom estimator learns from directly, instead of features. `groups`
    names a field with the same value for near-duplicates, which are put into the same fold. The model is retrained
    when the number of changed labels (or items) exceeds the share `growth` of those in the last training.
    """

    model: Text | None = None
    field: Text | None = None
    folds: int = Field(default=5, ge=2)
    groups: Text | None = None
    growth: float = Field(default=0.1, ge=0)
    seed: int = Field(default=0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _field_of_own(self) -> LearnSettings:
        if self.field is not None and ":" not in (self.model or ""):
            raise ValueError(
                f'field is {self.field!r}: it is for an estimator of yours, model = "module:name"; others learn from '
                "[features]"
            )
        return self


class PushSettings(Section):
    """Kinds of operations that a run may push to the platform."""

    consensus: bool = True
    order: bool = True
    assignments: bool = True
    labels_wanted: bool = True


class RetentionSettings(Section):
    """Time for which deleted rows are stored (`deleted`), and number of runs whose metrics are stored (`cycles`)."""

    deleted: Seconds = 30 * 24 * 3600.0
    cycles: int = Field(default=1000, ge=100, le=UNLIMITED)


class ServeSettings(Section):
    """Settings of `hitl serve`.

    `suggest`: what annotators see before they answer if hitl is the model backend of Label Studio: predictions of the
    project's models, the consensus, or nothing. `url`: URL of the pages. `hosts`: their other host names; "*": any.
    """

    suggest: Literal["model", "consensus", "never"] = "model"
    url: Annotated[str, AfterValidator(check(_require_url))] | None = None
    hosts: tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_.-]+)$")], ...] = ()


class LimitSettings(Section):
    """Limits on files, so that a hostile file causes an error instead of a crash (see hitl.tables.limits)."""

    nesting: int = Field(default=Limits.nesting, ge=1)
    unpacked: int = Field(default=Limits.unpacked, ge=1)
    rows: int = Field(default=Limits.rows, ge=1)
    columns: int = Field(default=Limits.columns, ge=1)
    classes: int = Field(default=Limits.classes, ge=2)
    name_length: int = Field(default=Limits.name_length, ge=1)
    memory: int = Field(default=Limits.memory, ge=0)

    def limits(self) -> Limits:
        """Return the limits in the form that `hitl.tables` uses."""
        return Limits(**self.model_dump())


class FromFile(BaseSettings):
    """Settings from a file, given as arguments. The environment overrides them (HITL_BUDGET__OPEN_QUESTIONS=50)."""

    model_config = SettingsConfigDict(
        env_prefix="HITL_", env_nested_delimiter="__", env_ignore_empty=True, extra="ignore", frozen=True
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give the environment precedence over the file."""
        return Environment(settings_cls), init_settings


class Settings(FromFile):
    """All settings of a project.

    Example:
        >>> from hitl.connectors.tables import TablesSettings
        >>> Settings(name="pets", source=TablesSettings(path="."), budget={"open_questions": 20}).budget.open_questions
        20
    """

    model_config = SettingsConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    source: SourceSettings
    store: str = "sqlite:///.hitl/hitl.db"
    combine: CombineSettings = CombineSettings()
    budget: BudgetSettings = BudgetSettings()
    crew: CrewSettings = CrewSettings()
    policy: PolicySettings = PolicySettings()
    features: FeatureSettings = FeatureSettings()
    graph: GraphSettings = GraphSettings()
    learn: LearnSettings = LearnSettings()
    push: PushSettings = PushSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    retention: RetentionSettings = RetentionSettings()
    serve: ServeSettings = ServeSettings()
    limits: LimitSettings = LimitSettings()
    events: Annotated[tuple[EventSettings, ...], AfterValidator(check(require_different))] = ()
    models: dict[str, str] = Field(default_factory=dict)
    webhook_secret: SecretStr | None = None

    def within(self, folder: Path) -> Settings:
        """Return the settings with relative paths resolved against this folder, except those of source and store."""
        graph = self.source.graph(folder) if self.graph.kind is None else self.graph
        learned = None if self.learn.model is None else code_in(folder, self.learn.model)
        sections = {
            "models": {name: str(folder / path) for name, path in self.models.items()},
            "features": self.features.within(folder),
            "graph": graph.within(folder),
            "combine": self.combine.within(folder),
            "budget": self.budget.within(folder),
            "learn": self.learn.model_copy(update={"model": learned}),
        }
        return self.model_copy(update=sections)

    @model_validator(mode="after")
    def _one_model_a_name(self) -> Settings:
        if self.learn.model is not None and "learned" in self.models:
            raise ValueError("models.learned: [learn] gives its model this name; expected another name")
        return self
