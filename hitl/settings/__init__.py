"""Settings of a project: hitl.toml, overridden by the environment (HITL_BUDGET__OPEN_QUESTIONS=50), checked at start.

What `[source]` holds depends on its kind: each connector brings a class of its own for it (`SourceSettings`). Secrets
never stand in the file but in the environment (HITL_WEBHOOK_SECRET, and what a connector asks for), or in files that
it names (see `hitl.settings.environment`).
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from hitl.crew import UNLIMITED
from hitl.errors import BadSettings
from hitl.formatting import plain
from hitl.settings.environment import Environment, require_keys, secret, unreadable, variable_of
from hitl.settings.events import EventSettings, is_address, require_different
from hitl.settings.times import cron_fields, next_time, seconds_of, zone_of
from hitl.tables.limits import Limits

FILE = "hitl.toml"
WEBHOOK_SECRET = "HITL_WEBHOOK_SECRET"

_SECRET = re.compile(r"(token|secret|password)$")
"""How keys end that a file may not hold."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(_Part):
    """Where evidence comes from and plans go to. Each connector has a subclass with the keys it knows.

    Example:
        >>> class Folder(SourceSettings):
        ...     kind: str = "folder"
        ...     path: str
        >>> Folder(path="labels").kind
        'folder'
    """

    kind: str

    def graph(self, folder: Path) -> GraphSettings:
        """The graph among the files of the source, of a project in this folder; of no kind where there is none."""
        return GraphSettings()

    def table_at(self, path: Path, folder: Path) -> str | None:
        """What a project in this folder reads, or would read, from a file of this path: a name; None where nothing."""
        return None


@runtime_checkable
class Keyed(Protocol):
    """Settings of a source that can name the field of an item's data which holds the user's own id."""

    @property
    def key(self) -> str | None:
        """The field; None where none is named."""
        ...


class CombineSettings(_Part):
    """Which combiner judges, with what settings; `paper`: those of its paper, but for the options."""

    method: str = "default"
    paper: bool = False
    options: dict[str, Any] = Field(default_factory=dict)


class BudgetSettings(_Part):
    """How much may be asked at a time, and when items and the project are done (see hitl.crew.Budget)."""

    open_questions: int = Field(default=100, ge=0, le=UNLIMITED)
    target_confidence: float = Field(default=0.95, gt=0, le=1)
    min_labels: int = Field(default=1, ge=0, le=UNLIMITED)
    max_labels: int = Field(default=10, ge=1, le=UNLIMITED)
    cost: float = Field(default=math.inf, ge=0)
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    value_per_label: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _can_be_done(self) -> BudgetSettings:
        if self.min_labels > self.max_labels:
            raise ValueError(f"min_labels {self.min_labels} is above max_labels {self.max_labels}")
        return self


Price = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""What a label costs."""


class CrewSettings(_Part):
    """Who is asked by name. Empty: all have the same queue, and any annotator who comes is served next.

    `skill_field` names the field of an item's data that says which skills it takes. After `expire_hours` a question
    that was not answered is given to another annotator.
    """

    annotators: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    capacity: int = Field(default=UNLIMITED, ge=0, le=UNLIMITED)
    capacities: dict[str, Annotated[int, Field(ge=0, le=UNLIMITED)]] = Field(default_factory=dict)
    cost: Price = 1.0
    costs: dict[str, Price] = Field(default_factory=dict)
    skills: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    skill_field: str | None = Field(default=None, min_length=1)
    expire_hours: float = Field(default=24.0, gt=0)

    @model_validator(mode="after")
    def _skills_for_skill_field(self) -> CrewSettings:
        if self.skill_field is not None and not self.skills:
            raise ValueError("skill_field without skills: no annotator could be asked; expected crew.skills as well")
        return self


class PolicySettings(_Part):
    """Which policy plans, with what settings."""

    name: str = "expected-gain"
    options: dict[str, Any] = Field(default_factory=dict)


class FeatureSettings(_Part):
    """What features of items are made of, and how. None of file, columns, text and image: there are none.

    `file` has them by the user's own ids. `columns`, `text` and `image` name fields of an item's data. `model` is one
    of texts or images, `weights` what a torchvision model has learned. `folder` is what relative paths of images are
    relative to. `missing`: whether an item whose features cannot be made is left without, or stops the cycle.
    """

    file: str | None = Field(default=None, min_length=1)
    columns: tuple[str, ...] = ()
    text: str | None = Field(default=None, min_length=1)
    image: str | None = Field(default=None, min_length=1)
    model: str | None = Field(default=None, min_length=1)
    weights: str | None = Field(default=None, min_length=1)
    dimensions: int | None = Field(default=None, ge=1, le=UNLIMITED)
    folder: str = "."
    device: str = "auto"
    missing: Literal["skip", "refuse"] = "skip"

    @property
    def kind(self) -> Literal["file", "columns", "text", "image"] | None:
        """What they are made of; None where there are none."""
        return next((name for name in ("file", "columns", "text", "image") if getattr(self, name)), None)

    def within(self, folder: Path) -> FeatureSettings:
        """The same with its files in this folder, but for those that have a full path."""
        found: dict[str, str] = {"folder": str(folder / self.folder)}
        if self.file is not None:
            found["file"] = str(folder / self.file)
        if self.weights is not None and (folder / self.weights).is_file():
            found["weights"] = str(folder / self.weights)
        if self.model is not None and self.model.rpartition(":")[0].endswith(".py"):
            found["model"] = str(folder / self.model)
        return self.model_copy(update=found)

    @model_validator(mode="after")
    def _of_one_kind(self) -> FeatureSettings:
        given = [name for name in ("file", "columns", "text", "image") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other; expected one of them")
        if not given and self.model_fields_set:
            raise ValueError("nothing to make them of; expected one of file, columns, text and image")
        if self.model is not None and self.kind not in ("text", "image"):
            raise ValueError("model: sees a text or an image; expected features.text or features.image as well")
        if self.image is not None and self.model is None:
            raise ValueError(
                "image needs features.model, such as 'torchvision:resnet18', 'module:name', 'file.py:name'"
            )
        return self


class GraphSettings(_Part):
    """Which items are linked, for combiners that use a graph. Neither file nor neighbours: none are.

    `file` has the edges by the user's own ids: the columns `item`, neighbour and perhaps weight. `neighbours` links
    each item to so many with the nearest features.
    """

    file: str | None = Field(default=None, min_length=1)
    item: str = Field(default="item", min_length=1)
    neighbours: int | None = Field(default=None, ge=1, le=UNLIMITED)

    @property
    def kind(self) -> Literal["file", "neighbours"] | None:
        """What it is made of; None where there is none."""
        return next((name for name in ("file", "neighbours") if getattr(self, name)), None)

    def within(self, folder: Path) -> GraphSettings:
        """The same with its file in this folder, but for one that has a full path."""
        return self if self.file is None else self.model_copy(update={"file": str(folder / self.file)})

    @model_validator(mode="after")
    def _of_one_kind(self) -> GraphSettings:
        if (self.file is None) == (self.neighbours is None) and self.model_fields_set:
            raise ValueError("expected one of file and neighbours")
        return self


class LearnSettings(_Part):
    """What learns from the labels while they come, from the features. Without a model nothing does.

    `field` names one of an item's data that an estimator of yours learns from as it is, in place of features; `groups`
    one that near-duplicates have in common, which share a fold. It learns anew when `growth`, a share of the labels it
    learned from, are new.
    """

    model: str | None = Field(default=None, min_length=1)
    field: str | None = Field(default=None, min_length=1)
    folds: int = Field(default=5, ge=2)
    groups: str | None = Field(default=None, min_length=1)
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


class PushSettings(_Part):
    """What a cycle may change on the platform."""

    consensus: bool = True
    order: bool = True
    assignments: bool = True
    labels_wanted: bool = True


def _checked(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check that raises BadSettings, for pydantic, which adds the name of the key to a ValueError."""

    def checked(value: Any) -> Any:
        try:
            return check(value)
        except BadSettings as error:
            raise ValueError(str(error)) from None

    return checked


def _as_written(check: Callable[[Any], Any]) -> AfterValidator:
    """The same; what passes is kept as it is."""

    def kept(value: Any) -> Any:
        _checked(check)(value)
        return value

    return AfterValidator(kept)


CENTURY = 100 * 366 * 24 * 3600.0
"""Seconds of the longest time that can be said: dates end with the year 9999."""

Seconds = Annotated[
    float,
    Field(gt=0, le=CENTURY, allow_inf_nan=False),
    BeforeValidator(lambda value: _checked(seconds_of)(value) if isinstance(value, str) else value),
]
"""A time, written "15m", kept in seconds."""


def _require_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSettings(f"{text!r} is no address to listen at; expected for instance '127.0.0.1:8090'")


def _require_url(text: str) -> None:
    if not is_address(text) or "?" in text:
        raise BadSettings("this is no address of pages; expected for instance 'https://hitl.example'")


class RetentionSettings(_Part):
    """How long the store keeps what is over: rows that were deleted, and the figures of cycles."""

    deleted: Seconds = 30 * 24 * 3600.0
    cycles: int = Field(default=1000, ge=100, le=UNLIMITED)


class ServeSettings(_Part):
    """What `hitl serve` does beside showing pages.

    `suggest`: what Label Studio shows annotators before they answer, where hitl is its model backend: what the
    project's models predict, the consensus, or nothing. `url`: where people reach its pages, for links in events.
    """

    suggest: Literal["model", "consensus", "never"] = "model"
    url: Annotated[str, _as_written(_require_url)] | None = None


class LimitSettings(_Part):
    """What a file of the project may hold, so that a hostile one is an error and no crash (see hitl.tables.limits)."""

    nesting: int = Field(default=Limits.nesting, ge=1)
    unpacked: int = Field(default=Limits.unpacked, ge=1)
    rows: int = Field(default=Limits.rows, ge=1)
    columns: int = Field(default=Limits.columns, ge=1)
    classes: int = Field(default=Limits.classes, ge=2)
    name_length: int = Field(default=Limits.name_length, ge=1)

    def limits(self) -> Limits:
        """As the readers take them."""
        return Limits(**self.model_dump())


class ScheduleSettings(_Part):
    """When `hitl schedule` runs a cycle; after `late_after` times without a finished one, /health fails."""

    every: Seconds | None = None
    cron: Annotated[str, _as_written(cron_fields)] | None = None
    timezone: Annotated[str, _as_written(zone_of)] = "UTC"
    after_annotations: int | None = Field(default=None, ge=1, le=UNLIMITED)
    poll: Seconds = 60.0
    webhook: Annotated[str, _as_written(_require_address)] | None = None
    debounce: Seconds = 10.0
    debounce_at_most: Seconds = 120.0
    late_after: int = Field(default=3, ge=1, le=UNLIMITED)

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleSettings:
        if self.every is not None and self.cron is not None:
            raise ValueError("every and cron exclude each other; expected one of them")
        if self.debounce_at_most < self.debounce:
            raise ValueError("debounce_at_most is shorter than debounce; expected at least as long")
        return self

    def next_after(self, when: datetime) -> datetime | None:
        """When a cycle comes at the latest after this time; None where it has no times of its own."""
        if self.every is not None:
            return when + timedelta(seconds=self.every)
        if self.cron is None:
            return None
        return next_time(self.cron, zone_of(self.timezone), when + timedelta(microseconds=1))


class _FromFile(BaseSettings):
    """Values of a file, given as arguments, where the environment says nothing."""

    model_config = SettingsConfigDict(
        env_prefix="HITL_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file."""
        return Environment(settings_cls), init_settings


class Settings(_FromFile):
    """Everything hitl needs to know of a project.

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
    events: Annotated[tuple[EventSettings, ...], _as_written(require_different)] = ()
    models: dict[str, str] = Field(default_factory=dict)
    webhook_secret: SecretStr | None = None

    @model_validator(mode="after")
    def _one_model_a_name(self) -> Settings:
        if self.learn.model is not None and "learned" in self.models:
            raise ValueError("models.learned: [learn] gives its model this name; expected another name")
        return self


class _AnySource(SourceSettings):
    model_config = ConfigDict(extra="ignore")


class _Kind(_FromFile):
    """The first look at a file, which says whose settings `[source]` holds."""

    source: _AnySource


def load(path: str | Path, source_of: Callable[[str], type[SourceSettings]]) -> Settings:
    """The settings of the project whose hitl.toml this is. Raises BadSettings naming the key.

    `source_of` gives the class that a kind of source has for its keys, and raises BadSettings where there is no such
    kind (`hitl.connectors.catalog.settings_of`).
    """
    path = Path(path)
    if not path.is_file():
        raise BadSettings(f"{path}: no such file; make one with `hitl init`, or name it with --config")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: not valid TOML: {error}") from None
    for key in data:
        if _SECRET.search(key):
            raise BadSettings(f"{path}: {key} does not belong in a file; set HITL_{key.upper()} in the environment")
    require_keys(Settings)
    data |= {key: found for key in ("store", "webhook_secret") if (found := secret(f"HITL_{key.upper()}")) is not None}
    model: type[Settings] = Settings
    try:
        kind = _Kind(**data).source.kind
        model = create_model("Settings", __base__=Settings, source=(source_of(kind), ...))
        return model(**data)
    except ValidationError as error:
        raise BadSettings(f"{path}: {_in_words(error, model)}") from None
    except SettingsError as error:
        raise BadSettings(unreadable(error)) from None


def _in_words(error: ValidationError, model: type[BaseModel]) -> str:
    parts = []
    for problem in error.errors(include_url=False):
        place = [str(part) for part in problem["loc"]]
        key = ".".join(place)
        given = problem.get("input")
        private = any(word in key for word in ("token", "secret", "password")) or place[:1] == ["events"]
        hidden = problem["type"] == "missing" or private or isinstance(given, dict)
        shown = "" if hidden else plain(f" (got {given!r})")
        own = problem["type"] == "value_error"  # what one of our validators says, which shows the value itself
        said = str(problem["ctx"]["error"]) if own else problem["msg"].lower() + shown
        said = _unknown(place, model) if problem["type"] == "extra_forbidden" else said
        variable = variable_of(place)
        parts.append(f"{key}{f' (from {variable})' if variable else ''}: {said}")
    return "; ".join(parts)


def _unknown(place: list[str], part: type[BaseModel]) -> str:
    """That there is no such key, which there are, and which is nearest."""
    if place[:1] == ["events"]:
        place, part = place[2:], EventSettings
    for name in place[:-1]:
        inner = part.model_fields[name].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        part = inner
    keys = [name for name in part.model_fields if not _SECRET.search(name)]
    near = difflib.get_close_matches(place[-1], keys, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"no such key; {meant}expected one of {', '.join(keys)}"
