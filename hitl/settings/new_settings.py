"""Write a new hitl.toml with the keys that most projects set, and comments."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitl.errors import BadSettings
from hitl.formatting import plain

NEW = Path(__file__).with_name("new.toml")
"""Template that `hitl init` writes."""


def require_new(path: Path) -> None:
    """Raise BadSettings if the file exists, or if it has no folder."""
    if path.exists() or path.is_symlink():
        raise BadSettings(f"{path} exists already; remove it first, or edit it")
    if not path.parent.is_dir():
        raise BadSettings(f"{path}: the folder {path.parent} does not exist")


def write(
    path: str | Path, name: str, source: dict[str, Any], store: str, crew: list[str], notes: Sequence[str] = ()
) -> None:
    """Write a new hitl.toml, with `notes` about the source as comments. Raises BadSettings if the file exists."""
    require_new(path := Path(path))
    keys = "\n".join(
        [f"{key} = {_toml(value)}" for key, value in source.items()]
        + [f"# {plain(' '.join(note.split()))}" for note in notes]
    )
    text = NEW.read_text(encoding="utf-8").format(name=_toml(name), store=_toml(store), source=keys, crew=_toml(crew))
    rights = 0o666 if plain(text) == text else 0o600  # only the owner may read a URL with a password
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights), "w", encoding="utf-8") as file:
        file.write(text)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON strings, numbers and arrays of them are valid TOML
