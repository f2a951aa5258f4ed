"""Define the sections of hitl.toml: their keys, ranges and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hitl.crew import UNLIMITED
from hitl.errors import BadSettings
from hitl.settings.events import is_address
from hitl.settings.times import cron_fields, next_time, seconds_of, zone_of
from hitl.tables.limits import Limits


class Section(BaseModel):
    """A section of hitl.toml. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(Section):
    """Source of evidence and target of plans. Each connector has a subclass with its own keys.

    Example:
        >>> class Folder(SourceSettings):
        ...     kind: str = "folder"
        ...     path: str
        >>> Folder(path="labels").kind
        'folder'
    """

    kind: str

    def graph(self, folder: Path) -> GraphSettings:
        """Return the graph settings if the source's files include one. Paths are relative to the project's `folder`."""
        return GraphSettings()

    def table_at(self, path: Path, folder: Path) -> str | None:
        """Return the name of the table that a project in `folder` reads from this path, or None."""
        return None


@runtime_checkable
class Keyed(Protocol):
    """Source settings that can name the field of an item's data with the user's own id."""

    @property
    def key(self) -> str | None:
        """Field with the user's own id, or None."""
        ...


class CombineSettings(Section):
    """The combiner and its settings. `paper` uses the settings of its paper, overridden by the options."""

    method: str = "default"
    paper: bool = False
    options: dict[str, Any] = Field(default_factory=dict)


class BudgetSettings(Section):
    """Limits on open questions, and when items and the project are done (see hitl.crew.Budget)."""

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
"""Cost per label."""


class CrewSettings(Section):
    """Annotators who are asked by name. If empty, all share one queue and whoever comes next is served.

    `skill_field` names the field of an item's data that lists the skills it needs. After `expire_hours`, an unanswered
    question goes to another annotator.
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


class PolicySettings(Section):
    """The policy and its settings."""

    name: str = "expected-gain"
    options: dict[str, Any] = Field(default_factory=dict)


class FeatureSettings(Section):
    """Source of the features of items. Without file, columns, text and image, items have no features.

    `file` holds features by the user's own ids. `columns`, `text` and `image` name fields of an item's data. `model` is
    a model of texts or images, and `weights` are the pretrained weights of a torchvision model. Relative paths of
    images start at `folder`. `missing` says whether an item without features is skipped or stops the run.
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
        """Source of the features, or None."""
        return next((name for name in ("file", "columns", "text", "image") if getattr(self, name)), None)

    def within(self, folder: Path) -> FeatureSettings:
        """Return the settings with relative paths resolved against this folder."""
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


class GraphSettings(Section):
    """Links between items, for combiners that use a graph. Without file and neighbours, there are none.

    `file` holds the edges by the user's own ids: the columns `item`, neighbour and optionally weight. `neighbours`
    links each item to that many items with the nearest features.
    """

    file: str | None = Field(default=None, min_length=1)
    item: str = Field(default="item", min_length=1)
    neighbours: int | None = Field(default=None, ge=1, le=UNLIMITED)

    @property
    def kind(self) -> Literal["file", "neighbours"] | None:
        """Source of the graph, or None."""
        return next((name for name in ("file", "neighbours") if getattr(self, name)), None)

    def within(self, folder: Path) -> GraphSettings:
        """Return the settings with a relative path resolved against this folder."""
        return self if self.file is None else self.model_copy(update={"file": str(folder / self.file)})

    @model_validator(mode="after")
    def _of_one_kind(self) -> GraphSettings:
        if (self.file is None) == (self.neighbours is None) and self.model_fields_set:
            raise ValueError("expected one of file and neighbours")
        return self


class LearnSettings(Section):
    """A model that learns from labels and features while labels come in.

    `field` names a field of an item's data that a custom estimator learns from directly, instead of features. `groups`
    names a field that near-duplicates share, so that they end up in the same fold. The model is retrained when new
    labels make up `growth`, as a share of the labels it last learned from.
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


class PushSettings(Section):
    """Changes that a run may make on the platform."""

    consensus: bool = True
    order: bool = True
    assignments: bool = True
    labels_wanted: bool = True


def _checked(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a check for pydantic: turn BadSettings into a ValueError, to which pydantic adds the name of the key."""

    def checked(value: Any) -> Any:
        try:
            return check(value)
        except BadSettings as error:
            raise ValueError(str(error)) from None

    return checked


def as_written(check: Callable[[Any], Any]) -> AfterValidator:
    """Validate with a check, and keep the value as written."""

    def kept(value: Any) -> Any:
        _checked(check)(value)
        return value

    return AfterValidator(kept)


CENTURY = 100 * 366 * 24 * 3600.0
"""Longest duration that can be set, in seconds."""

Seconds = Annotated[
    float,
    Field(gt=0, le=CENTURY, allow_inf_nan=False),
    BeforeValidator(lambda value: _checked(seconds_of)(value) if isinstance(value, str) else value),
]
"""Duration in seconds, written as "15m" or a number."""


def _require_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSettings(f"{text!r} is no address to listen at; expected for instance '127.0.0.1:8090'")


def _require_url(text: str) -> None:
    if not is_address(text) or "?" in text:
        raise BadSettings("this is no address of pages; expected for instance 'https://hitl.example'")


class RetentionSettings(Section):
    """Retention times of deleted rows and the metrics of runs."""

    deleted: Seconds = 30 * 24 * 3600.0
    cycles: int = Field(default=1000, ge=100, le=UNLIMITED)


class ServeSettings(Section):
    """Settings of `hitl serve`.

    `suggest`: what Label Studio shows annotators before they answer, if hitl is its model backend: predictions of the
    project's models, the consensus, or nothing. `url`: where people reach the pages, for links in events.
    """

    suggest: Literal["model", "consensus", "never"] = "model"
    url: Annotated[str, as_written(_require_url)] | None = None


class LimitSettings(Section):
    """Limits on files, so that a hostile file causes an error instead of a crash (see hitl.tables.limits)."""

    nesting: int = Field(default=Limits.nesting, ge=1)
    unpacked: int = Field(default=Limits.unpacked, ge=1)
    rows: int = Field(default=Limits.rows, ge=1)
    columns: int = Field(default=Limits.columns, ge=1)
    classes: int = Field(default=Limits.classes, ge=2)
    name_length: int = Field(default=Limits.name_length, ge=1)

    def limits(self) -> Limits:
        """Return the limits in the form that readers take."""
        return Limits(**self.model_dump())


class ScheduleSettings(Section):
    """Times of runs. After `late_after` missed runs, /health fails."""

    every: Seconds | None = None
    cron: Annotated[str, as_written(cron_fields)] | None = None
    timezone: Annotated[str, as_written(zone_of)] = "UTC"
    after_annotations: int | None = Field(default=None, ge=1, le=UNLIMITED)
    poll: Seconds = 60.0
    webhook: Annotated[str, as_written(_require_address)] | None = None
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
        """Return the next scheduled time after `when`, or None if there is no schedule."""
        if self.every is not None:
            return when + timedelta(seconds=self.every)
        if self.cron is None:
            return None
        return next_time(self.cron, zone_of(self.timezone), when + timedelta(microseconds=1))
