"""A platform that says what is new, as Label Studio does: the tables of a folder, read on from where they ended before.

Tables are read and sent anew as a whole whenever they change, which would be what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hitl.connectors.catalog import CONNECTORS
from hitl.connectors.tables import Tables
from hitl.platform import AnnotationRow, AnnotatorRow, Cursor, ItemRow, Page

NEVER = "2026-01-01T00:00:00Z"


class Growing(Tables):
    """Answers are only ever added to annotations.csv."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._read, self._of = 0, dict[str, list[AnnotationRow]]()

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """One page: the items that were answered since, each with all its answers."""
        before = int(str((cursor or {}).get("offset", 0)))
        touched = dict.fromkeys(self._of) if before == 0 else {}
        with (self._path / "annotations.csv").open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # being written
                self._read += len(line)
                if self._read == len(line):
                    continue  # the header
                item, who, label = line.decode().strip().split(",")
                row = AnnotationRow(f"{item}/{who}", item, "label", who, label, "answer", NEVER, NEVER)
                self._of.setdefault(item, []).append(row)
                if self._read > before:
                    touched[item] = None
        if not touched:
            return
        items = tuple(ItemRow(item, {"text": item}, str(len(self._of[item]))) for item in touched)
        answers = tuple(row for item in touched for row in self._of[item])
        people = tuple(AnnotatorRow(who, who) for who in {str(row.annotator) for row in answers})
        yield Page({"offset": self._read}, items, answers, annotators=people)


def install() -> None:
    """It stands for tables, in this process."""
    CONNECTORS.own["tables"] = f"{__name__}:Growing"  # type: ignore[index]
