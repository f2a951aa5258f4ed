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
from hitl.settings.learning import FeatureSettings as FeatureSettings
from hitl.settings.learning import GraphSettings as GraphSettings
from hitl.settings.learning import LearnSettings as LearnSettings
from hitl.settings.schedule import ScheduleSettings
from hitl.settings.section import AtLeastOne, Count, Price, Seconds, Section, Text, check, code_in
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
    """`label-studio`, `mlflow`, `phoenix`, `tables`, or a connector of another package."""

    def graph(self, folder: Path) -> GraphSettings:
        """Return settings of the graph file if the source has one, else empty ones. `folder`: folder of hitl.toml."""
        return GraphSettings()

    def crew(self, crew: CrewSettings) -> CrewSettings:
        """Return the crew with its names as the platform writes them."""
        return crew

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
    """Method that combines labels, or `file.py:Class` of your own."""
    paper: bool = False
    """Use the settings of the method's paper instead of hitl's."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method ([all](methods.md))."""

    @property
    def arguments(self) -> tuple[str, dict[str, Any], bool]:
        """The arguments of `hitl.models.registry.chosen`."""
        return self.method, self.options, self.paper


class CombineSettings(MethodSettings):
    """The combiner of all questions, and of single ones: `[combine.urgency]` is about the question "urgency"."""

    questions: dict[str, MethodSettings] = Field(default_factory=dict)
    """Method of one question: a table such as `[combine.urgency]` with method, options and paper."""

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
    """Maximum number of questions that may be open at a time."""
    target_confidence: float = Field(default=0.95, gt=0, le=1)
    """An item is done when the confidence of its label reaches this value."""
    min_labels: Count = 1
    """Answers that an item needs before it can be done by its confidence; 0: a model alone is enough."""
    max_labels: AtLeastOne = 10
    """Answers after which an item is done in any case."""
    cost: float = Field(default=math.inf, ge=0)
    """Maximum cost of all open questions together, in the unit of `crew.cost`."""
    answers: Count | None = None
    """The project is done when it has this many answers, those of before included (to each question, if several)."""
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    """The project is done when hitl believes that this share of all labels is right."""
    value_per_label: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Value of one more right label, in the unit of `crew.cost`. A question that costs more than it brings is not
    asked.
    """
    accept: Text | None = None
    """Table (item, label) of labels that need no annotator, written by `hitl models --skip-list`."""

    @model_validator(mode="after")
    def _can_be_done(self) -> BudgetSettings:
        if self.min_labels > self.max_labels:
            raise ValueError(f"min_labels {self.min_labels} is above max_labels {self.max_labels}")
        return self

    def within(self, folder: Path) -> BudgetSettings:
        """Return the settings with the path of `accept` resolved against this folder."""
        return self if self.accept is None else self.model_copy(update={"accept": str(folder / self.accept)})


class CrewSettings(Section):
    """Annotators who are asked by name (see hitl.crew.Crew). If empty, all annotators share one queue."""

    annotators: tuple[Text, ...] = ()
    """Annotators who are asked by name; empty: questions go to anyone."""
    judges: tuple[Text, ...] = ()
    """Annotators that are language models: their answers count as predictions of models."""
    capacity: Count = UNLIMITED
    """Maximum number of open questions per annotator; needs `crew.annotators`."""
    capacities: dict[str, Count] = Field(default_factory=dict)
    """Capacities of single annotators, by name."""
    cost: Price = 1.0
    """Cost of a label, in any one unit."""
    costs: dict[str, Price] = Field(default_factory=dict)
    """Costs of single annotators, by name."""
    skills: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Skills of annotators, by name; needs `crew.annotators`."""
    skill_field: Text | None = None
    """Field of an item's data that names the skills it requires."""
    expire_hours: float = Field(default=24.0, gt=0)
    """Hours after which an unanswered question goes to another annotator."""
    least_accuracy: float = Field(default=0.0, ge=0, le=1)
    """Annotators whose whole 95 % interval lies below this accuracy are named as needing training."""

    @model_validator(mode="after")
    def _has_an_effect(self) -> CrewSettings:
        unknown = [name for name in self.capacities if name not in self.annotators]
        if self.annotators and unknown:
            meant = did_you_mean(unknown[0], self.annotators)
            raise ValueError(
                f"capacities: {unknown[0]!r} is not in crew.annotators; fix the name, or add it there{meant}"
            )
        both = [name for name in self.judges if name in self.annotators]
        if both:
            raise ValueError(f"judges: {both[0]!r} is in crew.annotators too; expected people there, models in judges")
        if self.skill_field is not None and not self.skills:
            raise ValueError("skill_field without skills: no annotator could be asked; expected crew.skills as well")
        return self


class PolicySettings(Section):
    """The policy and its settings."""

    name: str = "expected-gain"
    """Policy that chooses the questions."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the policy ([all](policies.md))."""


class PushSettings(Section):
    """Kinds of operations that a run may push to the platform."""

    consensus: bool = True
    """Push the consensus."""
    order: bool = True
    """Push the order of the questions."""
    assignments: bool = True
    """Push the questions of each annotator."""
    labels_wanted: bool = True
    """Push how many labels each item needs."""


class RetentionSettings(Section):
    """Time for which the store keeps what is no longer needed."""

    deleted: Seconds = 30 * 24 * 3600.0
    """Time for which the store keeps items and annotations that were deleted on the platform."""
    cycles: int = Field(default=1000, ge=100, le=UNLIMITED)
    """Number of runs whose figures are stored. Consensus and plan are those of the last run."""


class ServeSettings(Section):
    """Settings of `hitl serve`."""

    suggest: Literal["model", "consensus", "never"] = "model"
    """What annotators see before they answer if hitl is Label Studio's model backend: predictions of models, the
    consensus, or nothing.
    """
    blind_share: float = Field(default=0.2, ge=0, lt=1)
    """Share of items, drawn at random, that get no suggestion, which shows how far suggestions pull answers."""
    url: Annotated[str, AfterValidator(check(_require_url))] | None = None
    """Address where people reach `hitl serve`, for links in events."""
    hosts: tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_.-]+)$")], ...] = ()
    """Other host names of the pages; `*`: any. Requests for other names are refused."""


class LimitSettings(Section):
    """Limits on files, so that a hostile file causes an error instead of a crash (see hitl.tables.limits)."""

    nesting: int = Field(default=Limits.nesting, ge=1)
    """Maximum depth of nested values in JSON."""
    unpacked: int = Field(default=Limits.unpacked, ge=1)
    """Maximum size in bytes of an unpacked file. Beyond 256 MiB it may be at most 200 times as large as the packed
    one.
    """
    rows: int = Field(default=Limits.rows, ge=1)
    """Maximum number of rows of a table."""
    columns: int = Field(default=Limits.columns, ge=1)
    """Maximum number of columns of a table."""
    classes: int = Field(default=Limits.classes, ge=2)
    """Maximum number of different labels."""
    name_length: int = Field(default=Limits.name_length, ge=1)
    """Maximum number of characters of a name in a table."""
    memory: int = Field(default=Limits.memory, ge=0)
    """Maximum bytes that a table or a fit may take, estimated before it begins; 0: what is available."""

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
    """Name of the project in the store."""
    source: SourceSettings
    store: str = "sqlite:///.hitl/hitl.db"
    """Database: `sqlite:///file`, or `postgresql://user@host/database` (extra `postgres`)."""
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
    """Addresses that receive events (`[[events]]`)."""
    models: dict[str, str] = Field(default_factory=dict)
    """Files of probabilities that every run reads: model = "probs.csv", relative to hitl.toml, by your own item ids."""
    webhook_secret: SecretStr | None = None
    """Secret of webhooks. It is never in the file: set `HITL_WEBHOOK_SECRET`."""

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
            "crew": self.source.crew(self.crew),
            "learn": self.learn.model_copy(update={"model": learned}),
        }
        return self.model_copy(update=sections)

    @model_validator(mode="after")
    def _one_model_a_name(self) -> Settings:
        if self.learn.model is not None and "learned" in self.models:
            raise ValueError("models.learned: [learn] gives its model this name; expected another name")
        return self
