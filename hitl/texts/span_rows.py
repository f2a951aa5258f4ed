"""Spans of texts in tables: rows of a document, an annotator, where a span starts and ends, and its label.

    document,annotator,start,end,label
    a,ann,0,3,PER
    b,ann,,,                            the annotator marked nothing there

The texts are a column `text` of the same rows, or a table of their own: document, text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.arrow import table_of
from hitl.tables.columns import empty_as_null, require_columns, with_text
from hitl.tables.encoding import Name, names_of
from hitl.tables.places import Place, name_of, place_in


@dataclass(frozen=True)
class SpanRows:
    """A table of spans, and what its rows are called in messages."""

    table: pa.Table
    place_of: Place

    @classmethod
    def of(cls, given: Any, called: str, names: Sequence[str], more: dict[str, bool]) -> SpanRows:
        """Raises BadTable for a column that is not there."""
        table = table_of(given, called)
        where = name_of(table, called)
        wanted = [*names, "start", "end", *(name for name, needed in more.items() if needed)]
        require_columns(table, wanted, where, "A text may also be in a table of its own: document, text (--texts)")
        return cls(with_text(table, names), place_in(table, lambda row: f"{where}, row {row}"))

    def names(self, column: str) -> list[Any]:
        """The names in a column, None where it is empty."""
        found: list[Any] = empty_as_null(names_of(self.table.column(column))).to_pylist()
        return found

    def texts(self, document: str) -> dict[Name, str]:
        """Document -> its text, which all of its rows must share."""
        found: dict[Name, str] = {}
        for row, (name, text) in enumerate(
            zip(self.names(document), self.table.column("text").to_pylist(), strict=True)
        ):
            if name is None or text is None:
                raise BadTable(f"{self.place_of(row)}: expected a document and its text")
            if found.setdefault(name, str(text)) != str(text):
                raise BadTable(f"{self.place_of(row)}: document {name!r} has another text in an earlier row")
        return found

    def spans(self, document: str, label: str, texts: Mapping[Name, str]) -> list[tuple[int, int, Name] | None]:
        """Start, end and label of each row, without white space at the ends; None where nothing is marked."""
        columns = (self.names(document), self._offsets("start"), self._offsets("end"), self.names(label))
        found: list[tuple[int, int, Name] | None] = []
        for row, (name, start, end, kind) in enumerate(zip(*columns, strict=True)):
            if name not in texts:
                raise BadTable(f"{self.place_of(row)}: no text of document {name!r}")
            if start is None and end is None and kind is None:
                found.append(None)
                continue
            if start is None or end is None or kind is None:
                raise BadTable(f"{self.place_of(row)}: expected start, end and {label} together, or none of them")
            place = trimmed(texts[name], start, end)
            if place is None:
                raise BadTable(
                    f"{self.place_of(row)}: {start} to {end} is no part of the text of document {name!r}, which has "
                    f"{len(texts[name])} characters; expected 0 <= start < end, and more than white space"
                )
            found.append((*place, kind))
        return found

    def _offsets(self, column: str) -> list[int | None]:
        found: list[int | None] = []
        for row, value in enumerate(self.table.column(column).to_pylist()):
            text = "" if value is None else str(value).strip().removesuffix(".0")
            if text and not text.isdecimal():
                raise BadTable(f"{self.place_of(row)}: {column} is {value!r}; expected a whole number from 0")
            found.append(int(text) if text else None)
        return found


def trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without white space at its ends; None where it is no part of the text, or holds nothing else.

    Example:
        >>> trimmed("Ada met Bob", 3, 8)
        (4, 7)
    """
    if not 0 <= start < end <= len(text):
        return None
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    return (start, start + len(inside.strip())) if inside.strip() else None


def texts_of(given: Any, document: str) -> dict[Name, str]:
    """Document -> text of a table that has these columns. Raises BadTable, naming the row."""
    table = table_of(given, "texts")
    where = name_of(table, "texts")
    require_columns(table, [document, "text"], where)
    place_of = place_in(table, lambda row: f"{where}, row {row}")
    found: dict[Name, str] = {}
    names = with_text(table, [document]).column(document).to_pylist()
    for row, (name, text) in enumerate(zip(names, table.column("text").to_pylist(), strict=True)):
        if not name or text is None:
            raise BadTable(f"{place_of(row)}: expected a {document} and its text")
        if name in found:
            raise BadTable(f"{place_of(row)}: {document} {name!r} appears twice; expected one row")
        found[name] = str(text)
    return found
