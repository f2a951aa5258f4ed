"""Settings and secrets in the environment; secrets may be in files, too.

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
from typing import Any

from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from hitl.errors import BadSettings

LARGEST = 100_000
"""Maximum size of a secret file, in bytes."""


def secret(name: str) -> str | None:
    """Return the secret of this name, from the environment or a file, or None.

    Raises BadSettings if it is in both, or if its file is empty or cannot be read.
    """
    value, file = os.environ.get(name), os.environ.get(f"{name}_FILE")
    if value and file:
        raise BadSettings(f"environment: {name} and {name}_FILE are both set; expected one of them")
    if value:
        return value
    if file:
        return _read(f"{name}_FILE", Path(file))
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = Path(folder) / name if folder else None
    # An empty file is no secret: some projects have none.
    if credential is not None and credential.is_file() and credential.stat().st_size:
        return _read("CREDENTIALS_DIRECTORY", credential)
    return None


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1).decode().strip()
    except OSError as error:
        raise BadSettings(f"environment: {name}: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        text = ""
    if not 0 < len(text) <= LARGEST:
        raise BadSettings(f"environment: {name}: {path}: empty, too large or not a text; expected the secret alone")
    return text


def variable_of(place: list[str]) -> str | None:
    """Return the environment variable that sets a key, or None."""
    wanted = "HITL_" + "__".join(place)
    return next((name for name in os.environ if name.upper() == wanted.upper()), None)


class Environment(EnvSettingsSource):
    """Settings in the environment. Options have no declared types, so they are parsed as JSON if possible."""

    def __call__(self) -> dict[str, Any]:
        """Map keys to the values that are set. An empty text counts as not set."""
        sections = super().__call__()
        for name, section in sections.items():
            options = section.get("options") if isinstance(section, dict) else None
            if isinstance(options, dict):
                for key, text in options.items():
                    if variable_of([name, "options", key]):  # others are parsed as JSON already
                        options[key] = _parsed(text)
        return sections


def require_keys(settings: type[BaseModel]) -> None:
    """Raise BadSettings for a nested variable of an unknown section, or one whose name would lose its capitals."""
    sections = {key: field.annotation for key, field in settings.model_fields.items() if _is_section(field.annotation)}
    for name in sorted(os.environ):
        section, *keys = name[len("HITL_") :].split("__")
        if not name.upper().startswith("HITL_") or not keys or section.upper().startswith("EVENTS_"):
            continue
        if section.lower() not in settings.model_fields:
            near = difflib.get_close_matches(section.lower(), sections, 1)
            meant = f"did you mean HITL_{near[0].upper()}__...? " if near else ""
            raise BadSettings(f"environment: {name}: no such section; {meant}expected one of {', '.join(sections)}")
        whole = f"HITL_{section}"
        kind: Any = sections.get(section.lower())
        if kind is not None:
            own, *keys = keys
            whole = f"{whole}__{own}"
            if not keys or own.lower() not in kind.model_fields or own.lower() == "options":
                continue  # keys of sections are checked along with those of the file
        raise BadSettings(
            f"environment: {name}: it has no keys of its own; give lists and tables as JSON: {whole}='...'"
        )


def unreadable(error: Exception) -> str:
    """Say which variable cannot be read, given a pydantic-settings error that names its section."""
    section = re.search(r'field "(\w+)"', str(error))
    head = f"HITL_{section[1]}".upper() if section else "HITL_"
    values = {name: text for name, text in os.environ.items() if f"{name.upper()}__".startswith(f"{head}__")}
    wrong = [name for name, text in values.items() if _parsed(text) is text] or values
    return (
        f"environment: {' or '.join(sorted(wrong)) or head} cannot be read; lists and tables are JSON, "
        "for instance '[\"ann\"]'"
    )


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _parsed(text: Any) -> Any:
    """Parse JSON. Return anything else unchanged."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
