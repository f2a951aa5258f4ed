"""Load a project's settings: hitl.toml, overridden by the environment (HITL_BUDGET__OPEN_QUESTIONS=50), validated.

The keys of `[source]` depend on its kind: each connector has its own class for them (`SourceSettings`). Secrets are
never in hitl.toml. They are in the environment (HITL_WEBHOOK_SECRET, and those of the connector), or in files that it
names (see `hitl.settings.environment`).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, create_model, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from hitl.errors import BadSettings
from hitl.formatting import plain
from hitl.settings.environment import Environment, require_keys, secret, unreadable, variable_of
from hitl.settings.events import EventSettings, require_different
from hitl.settings.sections import BudgetSettings as BudgetSettings
from hitl.settings.sections import CombineSettings as CombineSettings
from hitl.settings.sections import CrewSettings as CrewSettings
from hitl.settings.sections import FeatureSettings as FeatureSettings
from hitl.settings.sections import GraphSettings as GraphSettings
from hitl.settings.sections import Keyed as Keyed
from hitl.settings.sections import LearnSettings as LearnSettings
from hitl.settings.sections import LimitSettings as LimitSettings
from hitl.settings.sections import PolicySettings as PolicySettings
from hitl.settings.sections import Price as Price
from hitl.settings.sections import PushSettings as PushSettings
from hitl.settings.sections import RetentionSettings as RetentionSettings
from hitl.settings.sections import ScheduleSettings as ScheduleSettings
from hitl.settings.sections import Seconds as Seconds
from hitl.settings.sections import ServeSettings as ServeSettings
from hitl.settings.sections import SourceSettings as SourceSettings
from hitl.settings.sections import as_written

FILE = "hitl.toml"
WEBHOOK_SECRET = "HITL_WEBHOOK_SECRET"

_SECRET = re.compile(r"(token|secret|password)$")
"""Endings of keys that a file may not contain."""


class _FromFile(BaseSettings):
    """Settings whose arguments come from a file, overridden by the environment."""

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
        """Give the environment precedence over the file."""
        return Environment(settings_cls), init_settings


class Settings(_FromFile):
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
    events: Annotated[tuple[EventSettings, ...], as_written(require_different)] = ()
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
    """Part of a file that names the kind of source, read first to choose the class of `[source]`."""

    source: _AnySource


def load(path: str | Path, source_of: Callable[[str], type[SourceSettings]]) -> Settings:
    """Load the settings of the project with this hitl.toml. Raises BadSettings that names the key.

    `source_of` returns the settings class for a kind of source. It raises BadSettings if there is no such kind
    (`hitl.connectors.catalog.settings_of`).
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
        own = problem["type"] == "value_error"  # the message of one of our validators, which includes the value
        said = str(problem["ctx"]["error"]) if own else problem["msg"].lower() + shown
        said = _unknown(place, model) if problem["type"] == "extra_forbidden" else said
        variable = variable_of(place)
        parts.append(f"{key}{f' (from {variable})' if variable else ''}: {said}")
    return "; ".join(parts)


def _unknown(place: list[str], part: type[BaseModel]) -> str:
    """Say that the key is unknown, which keys exist, and which is nearest."""
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
