"""Read hitl.toml and the environment. Errors name the key, what was expected, and what to do."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_settings import SettingsError

from hitl.errors import BadSettings
from hitl.formatting import plain
from hitl.settings import FromFile, MethodSettings, Settings, SourceSettings
from hitl.settings.environment import hide_secrets, require_keys, secret, unreadable, variable_of
from hitl.settings.events import EventSettings

_SECRET = re.compile(r"(token|secret|password)$")
"""Endings of keys that must not be in the file."""


class _AnySource(SourceSettings):
    model_config = ConfigDict(extra="ignore")


class _Kind(FromFile):
    """The kind of source, which is read first to choose the class for `[source]`."""

    source: _AnySource


def load(path: Path, source_of: Callable[[str], type[SourceSettings]]) -> Settings:
    """Load the settings of the project with this hitl.toml. Raises BadSettings, which names the key.

    `source_of` returns the settings class for a kind of source, or raises BadSettings if there is no such kind
    (`hitl.connectors.catalog.settings_of`).
    """
    if not path.is_file():
        raise BadSettings(f"{path}: no such file; make one with `hitl init`, or name it with --config")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: not valid TOML: {error}") from None
    for key in data:
        if _SECRET.search(key):
            raise BadSettings(f"{path}: {key} does not belong in a file; set HITL_{key.upper()} in the environment")
    hide_secrets()
    require_keys(Settings)
    secrets = {key: secret(f"HITL_{key.upper()}") for key in ("store", "webhook_secret")}
    data |= {key: value for key, value in secrets.items() if value is not None}
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
        key, value = ".".join(place).replace("combine.questions.", "combine."), problem.get("input")
        if problem["type"] == "value_error":  # the message of one of our validators, which includes the value
            message = str(problem["ctx"]["error"])
        elif problem["type"] == "extra_forbidden":
            message = _unknown(place, model)
        else:
            private = re.search("token|secret|password", key) or place[:1] == ["events"]
            hidden = problem["type"] == "missing" or private or isinstance(value, dict)
            message = problem["msg"].lower() + ("" if hidden else plain(f" (got {value!r})"))
        variable = variable_of(place)
        parts.append(f"{key}{f' (from {variable})' if variable else ''}: {message}")
    return "; ".join(parts)


def _unknown(place: list[str], part: type[BaseModel]) -> str:
    """Return a message about an unknown key: the most similar key, and all existing keys."""
    if place[:1] == ["events"]:
        place, part = place[2:], EventSettings
    if place[:2] == ["combine", "questions"]:
        place, part = place[3:], MethodSettings
    for name in place[:-1]:
        inner = part.model_fields[name].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        part = inner
    keys = [name for name in part.model_fields if not _SECRET.search(name)]
    near = difflib.get_close_matches(place[-1], keys, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"no such key; {meant}expected one of {', '.join(keys)}"
