"""Settings of a project: hitl.toml, overridden by the environment (HITL_BUDGET__LABELS=50), checked at start.

Secrets never stand in the file: the Label Studio token is HITL_LABEL_STUDIO_TOKEN.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from hitl.crew import UNLIMITED
from hitl.errors import BadSettings

FILE = "hitl.toml"
TOKEN = "HITL_LABEL_STUDIO_TOKEN"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(_Part):
    """Where evidence comes from and plans go to."""

    kind: Literal["label-studio", "tables"]
    # label-studio
    url: str = "http://localhost:8080"
    project: int = 0
    control: str | None = None
    abstain: tuple[str, ...] = ()
    # tables
    path: str = ""
    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"
    time: str | None = None
    classes: tuple[str, ...] = ()
    output: str | None = None


class CombineSettings(_Part):
    """Which combiner judges, with what settings."""

    method: str = "default"
    options: dict[str, Any] = Field(default_factory=dict)


class BudgetSettings(_Part):
    """How many labels a cycle asks for, and when an item is done (see hitl.crew.Budget)."""

    labels: int = Field(default=100, ge=0)
    target_confidence: float = Field(default=0.95, gt=0, le=1)
    min_labels: int = Field(default=1, ge=0)
    max_labels: int = Field(default=10, ge=1)


class CrewSettings(_Part):
    """Who is asked by name. Empty: everybody gets the same queue, whoever comes next is served next."""

    annotators: tuple[str, ...] = ()
    capacity: int = Field(default=UNLIMITED, ge=0)
    capacities: dict[str, int] = Field(default_factory=dict)


class PushSettings(_Part):
    """What a cycle may change on the platform."""

    consensus: bool = True
    order: bool = True
    assignments: bool = True
    labels_wanted: bool = True


class Settings(BaseSettings):
    """Everything hitl needs to know of a project."""

    model_config = SettingsConfigDict(
        env_prefix="HITL_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    name: str = Field(min_length=1, max_length=100)
    source: SourceSettings
    store: str = "sqlite:///.hitl/hitl.db"
    combine: CombineSettings = CombineSettings()
    budget: BudgetSettings = BudgetSettings()
    crew: CrewSettings = CrewSettings()
    push: PushSettings = PushSettings()
    label_studio_token: SecretStr | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file (which arrives as init arguments)."""
        return env_settings, init_settings


def load(path: str | Path = FILE) -> Settings:
    """The settings of the project whose hitl.toml this is. Raises BadSettings naming the key."""
    path = Path(path)
    if not path.is_file():
        raise BadSettings(f"{path}: no such file; make one with `hitl init`, or name it with --config")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: not valid TOML: {error}") from None
    if "label_studio_token" in data:
        raise BadSettings(f"{path}: a token does not belong in a file; set {TOKEN} in the environment")
    try:
        return Settings(**data)
    except ValidationError as error:
        raise BadSettings(f"{path}: {_in_words(error)}") from None
    except SettingsError as error:
        raise BadSettings(f"environment: {error}; lists and tables are JSON, for instance '[\"ann\"]'") from None


def _in_words(error: ValidationError) -> str:
    parts = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        given = problem.get("input")
        shown = "" if problem["type"] == "missing" or "token" in key or isinstance(given, dict) else f" (got {given!r})"
        parts.append(f"{key}: {problem['msg'].lower()}{shown}")
    return "; ".join(parts)


def write(path: str | Path, name: str, source: dict[str, Any], store: str, crew: list[str]) -> None:
    """Write a commented hitl.toml; refuses to overwrite."""
    path = Path(path)
    if path.exists():
        raise BadSettings(f"{path} exists already; remove it first, or edit it")
    lines = [
        "# hitl project. Every key can be overridden: HITL_BUDGET__LABELS=50. Secrets: HITL_LABEL_STUDIO_TOKEN.",
        f"name = {_toml(name)}",
        f"store = {_toml(store)}  # or postgresql://user@host/database",
        "",
        "[source]",
        *(f"{key} = {_toml(value)}" for key, value in source.items()),
        "",
        "[budget]",
        "labels = 100               # questions a cycle",
        "target_confidence = 0.95   # an item is done when its label is this sure",
        "min_labels = 1             # answers an item needs before it can be done",
        "max_labels = 10            # answers after which an item is done in any case",
        "",
        "[crew]",
        f"annotators = {_toml(crew)}  # asked by name; empty: whoever comes next",
        "# capacity = 50            # items each may be given a cycle",
        "",
        "[combine]",
        'method = "default"         # see `hitl combine --help`',
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def _toml(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)  # JSON strings, numbers and arrays of them are TOML
