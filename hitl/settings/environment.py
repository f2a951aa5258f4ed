"""Read settings and secrets from the environment. A secret X is in one of three places:

HITL_X                           the secret itself
HITL_X_FILE                      path of a file that contains it (a mounted Secret of Kubernetes or Docker)
CREDENTIALS_DIRECTORY            path of a folder with a file HITL_X that contains it (LoadCredential of systemd)
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from hitl.errors import BadSettings
from hitl.formatting import remember

_log = logging.getLogger(__name__)
_SECRET = re.compile(r"HITL_\w*(TOKEN|SECRET|PASSWORD)")
"""Variables of the environment that hold secrets."""

COMMANDS = (
    *("CONFIG", "LOG_LEVEL", "LABEL_STUDIO_TOKEN", "LABEL_STUDIO_TOKEN_FILE", "STORE_FILE", "WEBHOOK_SECRET_FILE"),
    *("SERVE_ACCESS", "SERVE_ADDRESS", "SERVE_PROXY", "SERVE_PROXY_HEADER", "SERVE_PROXY_ROLE", "HOME"),
)
"""Variables HITL_... beside those of settings."""

LARGEST = 100_000
"""Maximum size of a secret file, in bytes."""


def secret(name: str) -> str | None:
    """Return the secret of this name, from the environment or a file, or None. Messages hide it from now on.

    Raises BadSettings if the variable and its _FILE are both set, or if the file is empty or cannot be read.
    """
    value = _secret(name)
    if (
        value is not None and "://" not in value
    ):  # of URLs, `masked` hides the password, and settings what else is secret
        remember(value)
    return value


def hide_secrets() -> None:
    """Hide the secrets of the environment in messages, also those that only other packages read."""
    for name, value in os.environ.items():
        if _SECRET.fullmatch(name):
            remember(value.strip())


def _secret(name: str) -> str | None:
    value, file = os.environ.get(name, "").strip(), os.environ.get(f"{name}_FILE")
    if value and file:
        raise BadSettings(f"environment: {name} and {name}_FILE are both set; expected one of them")
    if value:
        return value
    if file:
        return _read(f"{name}_FILE", Path(file))
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = Path(folder) / name if folder else None
    # An empty credential counts as none, because some projects need no secret.
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
    """Return the environment variable that sets the key at this place (["budget", "cost"]), or None."""
    wanted = "HITL_" + "__".join(place)
    return next((name for name in os.environ if name.upper() == wanted.upper()), None)


class Environment(EnvSettingsSource):
    """Source of settings in the environment. Options have no declared types, so they are parsed as JSON if possible."""

    def __call__(self) -> dict[str, Any]:
        """Return key -> value for keys that are set. Empty text counts as not set."""
        sections = super().__call__()
        for name, section in sections.items():
            options = section.get("options") if isinstance(section, dict) else None
            if isinstance(options, dict):
                for key, text in options.items():
                    if variable_of([name, "options", key]):  # other options were parsed along with their table
                        options[key] = _parsed(text)
        return sections


def require_keys(settings: type[BaseModel]) -> None:
    """Raise BadSettings for a variable of an unknown section, or one that sets a single entry of a list or table.

    Lists and tables are given as JSON, because names of variables are converted to lower case. A single name that looks
    like a slip is a warning, because others may set variables too (Kubernetes does for a service named hitl).
    """
    sections = {key: field.annotation for key, field in settings.model_fields.items() if _is_section(field.annotation)}
    for name in sorted(os.environ):
        section, *keys = name[len("HITL_") :].split("__")
        if name.upper().startswith("HITL_") and not keys and not section.upper().startswith("EVENTS_"):
            _warn_of_slip(name, [*settings.model_fields, *COMMANDS])
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
                continue  # keys of sections are checked later, together with those of the file
        raise BadSettings(
            f"environment: {name}: it has no keys of its own; give lists and tables as JSON: {whole}='...'"
        )


@cache
def _once(text: str) -> None:
    _log.warning(text)


def _warn_of_slip(name: str, variables: Iterable[str]) -> None:
    """Log, once, that a variable is ignored if its name is almost that of one of ours."""
    known, own = {variable.upper() for variable in variables}, name[len("HITL_") :].upper()
    near = difflib.get_close_matches(own, known, 1, cutoff=0.8)
    if own not in known and near:
        _once(f"environment: {name} is not a setting and is ignored; did you mean HITL_{near[0]}?")


def unreadable(error: Exception) -> str:
    """Return a message that names the variable that cannot be read. `error`: error of pydantic-settings."""
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
