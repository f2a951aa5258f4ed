"""What the environment says: secrets, which may be in files, and where a setting came from.

HITL_X            the secret
HITL_X_FILE       a file that holds it (a mounted Secret of Kubernetes or Docker)
a file HITL_X in the folder that CREDENTIALS_DIRECTORY names (LoadCredential of systemd)
"""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from hitl.errors import BadSettings

LARGEST = 100_000
"""Bytes of a file that can be a secret."""


def secret(name: str) -> str | None:
    """The secret of this name, from the environment or a file; None where there is none.

    Raises BadSettings where it is in both, or where its file cannot be read or is empty.
    """
    value, named = os.environ.get(name), os.environ.get(f"{name}_FILE")
    if value and named:
        raise BadSettings(f"environment: {name} and {name}_FILE are both set; expected one of them")
    if value:
        return value
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if named:
        return _read(f"{name}_FILE", Path(named))
    handed = Path(folder) / name if folder else None
    if handed is not None and handed.is_file() and handed.stat().st_size:  # one unit serves projects without it too
        return _read("CREDENTIALS_DIRECTORY", handed)
    return None


def _read(name: str, path: Path) -> str:
    """The text of a file, without the end of its line."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        text = content.decode().strip()
    except OSError as error:
        raise BadSettings(f"environment: {name}: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadSettings(f"environment: {name}: {path}: not a text; expected the secret and nothing else") from None
    if not text or len(content) > LARGEST:
        size = "empty" if not text else "too large"
        raise BadSettings(f"environment: {name}: {path}: {size}; expected the secret and nothing else")
    return text


def variable_of(place: list[str]) -> str | None:
    """The environment variable that a key was read from, if it is set."""
    wanted = "HITL_" + "__".join(place)
    return next((name for name in os.environ if name.upper() == wanted.upper()), None)


class Environment(EnvSettingsSource):
    """The settings in the environment. Options, which have no type of their own, are JSON where they can be read so.

    A text that is empty is not set, as for `secret`: what a file says is not hidden by it.
    """

    def __call__(self) -> dict[str, Any]:
        """Key -> what is set."""
        found = super().__call__()
        for name, section in found.items():
            options = section.get("options") if isinstance(section, dict) else None
            if isinstance(options, dict):
                own = {key for key in options if variable_of([name, "options", key])}  # others are JSON already
                section["options"] = {key: _value(said) if key in own else said for key, said in options.items()}
        return found


def require_keys(settings: type[BaseModel]) -> None:
    """Raises BadSettings where a nested variable names a section that there is not, or cannot say which key it means.

    Keys of sections are checked with those of the file.
    """
    for name in sorted(os.environ):
        place = name[len("HITL_") :].split("__")
        if name.upper().startswith("HITL_") and len(place) > 1 and not place[0].upper().startswith("EVENTS_"):
            _require_key(name, place, settings)


def _require_key(name: str, place: list[str], settings: type[BaseModel]) -> None:
    kind: Any = settings
    depth = 0
    while depth < len(place) and _has_keys(kind):
        field = kind.model_fields.get(place[depth].lower())
        kind, depth = field and field.annotation, depth + 1
    if kind is None and depth == 1:
        sections = [key for key, field in settings.model_fields.items() if _has_keys(field.annotation)]
        near = difflib.get_close_matches(place[0].lower(), sections, 1)
        meant = f"did you mean HITL_{near[0].upper()}__...? " if near else ""
        raise BadSettings(f"environment: {name}: no such section; {meant}expected one of {', '.join(sections)}")
    if kind is None or depth == len(place) or place[depth - 1].lower() == "options":
        return
    whole, inner = "HITL_" + "__".join(place[:depth]), "__".join(place[depth:])
    if get_origin(kind) is not dict:
        raise BadSettings(f"environment: {name}: it has no keys of its own; expected {whole} alone")
    said = json.dumps({inner: _value(os.environ[name])})
    raise BadSettings(
        f"environment: {name}: a variable does not keep capitals of names; give the table as JSON: {whole}='{said}'"
    )


def _has_keys(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def unreadable(error: Exception) -> str:
    """Which variable could not be read, of those that set a part of the settings."""
    found = re.search(r'field "(\w+)"', str(error))
    head = f"HITL_{found[1]}".upper() if found else "HITL_"
    names = [name for name in os.environ if name.upper() == head or name.upper().startswith(f"{head}__")]
    wrong = [name for name in names if not _is_json(os.environ[name])] or names
    return (
        f"environment: {' or '.join(sorted(wrong)) or head} cannot be read; lists and tables are JSON, "
        "for instance '[\"ann\"]'"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _value(given: Any) -> Any:
    """What a text says as JSON; other than that the text."""
    return json.loads(given) if isinstance(given, str) and _is_json(given) else given
