"""Tables that lost many rows at once: a file that is half written looks like one of which rows were deleted.

Such a pull brings what is new and deletes nothing. The next one, if it finds the files as they were (content, size and
time of change), takes the rows for deleted: who writes a table does not stop in the middle for a whole cycle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitl.platform import Cursor

FEW = 10
"""So many rows may go where others stay: small tables are edited by hand."""


@dataclass(frozen=True)
class Look:
    """What a pull found the tables to be, kept in its cursor for the next one.

    `rows` counts those of each table when they were last believed, `classes` are those of then. `doubted` says which
    files (`state_of`) were not believed; None: they were.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    doubted: str | None = None

    @classmethod
    def of(cls, cursor: Cursor | None) -> Look:
        """That of the last pull; an empty one before the first, and after those of older versions."""
        kept: Any = (cursor or {}).get("look") or {}
        return cls(kept.get("rows", {}), tuple(kept.get("classes", ())), kept.get("doubted"))

    def as_json(self) -> dict[str, Any]:
        """For the cursor."""
        return {"rows": dict(self.rows), "classes": list(self.classes), "doubted": self.doubted}

    def lost(self, rows: Mapping[str, int], share: float) -> list[str]:
        """In words, which tables have fewer of these rows than they may have."""
        return [
            f"{name}.* has {now:,} rows where the last cycle found {before:,}"
            for name, before in self.rows.items()
            if before - (now := rows.get(name, 0)) > max(share * before, FEW if now else 0)
        ]


def state_of(files: Iterable[Path]) -> str:
    """A digest of the names, sizes and times of change of files."""
    digest = hashlib.sha256()
    for path in files:
        found = path.stat()
        digest.update(f"{path.name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def is_cut(path: Path | None) -> bool:
    """Whether the last line of a text has no end, as of one that is still being written."""
    if path is None or path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson") or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) not in b"\r\n"
