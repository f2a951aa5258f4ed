"""A pull of the items alone that a change of annotations.* touches; without reading the rest of the file.

The pieces of the file that are new or gone (`table_index`) tell which items may say something else, and the pieces that
name these hold all their rows. That is one page, saved with its cursor in one transaction: it is whole, or not at all.

What is not plain is looked at as a whole: a file that is no CSV, of which a row does not count or repeats an answer,
where other tables, or the settings, have changed too, an item is gone, or much has changed. So is everything that has
anything wrong with it, and says so then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors import table_spans
from hitl.connectors.table_blocks import in_codes
from hitl.connectors.table_files import TableFiles, stamp_of
from hitl.connectors.table_index import Digests, Index, Said, pieces_in, said_in
from hitl.connectors.table_pages import Told
from hitl.connectors.table_reading import Answers, Columns, Reading
from hitl.errors import BadInput
from hitl.platform import Cursor
from hitl.tables import delimited, pieces
from hitl.tables.columns import with_text
from hitl.tables.formulas import restored
from hitl.tables.limits import require_fit, require_shape

MOST = 1_000
"""Items that are sent alone since all were looked at, at most: so many names the cursor may hold."""

PART = 4
"""If more than one byte in so many has to be read, all are."""

AT_ONCE = 50
"""Pieces that are read at a time."""

ALIKE = ("columns", "name", "header", "hash")
"""What is the same where the bytes of a piece say the same."""


@dataclass(frozen=True)
class Changed:
    """What is told of the items that a change has touched, and the new index."""

    reading: Reading
    told: Told
    index: Index
    again: tuple[str, ...]
    came: bool
    """Whether any of them had no row before."""


class Changes:
    """The tables as they are now, annotations.* beside its index at the last pull.

    Attributes:
        digests: of the bytes of each file. That of a text in rows is made of those of its pieces.
    """

    def __init__(self, files: TableFiles, columns: Columns) -> None:
        self._files, self._of = files, columns
        path = files.find("annotations")
        is_text = path is not None and path.suffix.lower() in (".csv", ".tsv") and columns.time is None
        self._path = path if is_text else None
        known = {} if self._path is None or self._pieces is None else {self._path: self._pieces.digest}
        self.digests: dict[Path, bytes] = files.digests(known)

    def since(self, before: Cursor) -> Changed | None:
        """What has changed since this cursor; None where all has to be looked at."""
        kept = self._kept
        if kept is None or self._text is None or kept.read_as != {**self._read_as, "files": before.get("files")}:
            return None
        with suppress(BadInput):  # the pull of all items says what is wrong, and where
            return self._since(kept, self._text, before.get("again") or ())
        return None

    def index(self, answers: Answers) -> Index | None:
        """That of a file of which each row counts as one of these answers; of another one no more than its pieces."""
        if self._pieces is None:
            return None
        pieces_alone = Index(self._read_as, self._pieces.digests, self._pieces.lengths, ())
        if answers.problems or answers.rows is None or self._text is None:
            return pieces_alone
        if not self._text.is_still_there():
            return None
        index = self._indexed(self._text)
        return index if index is not None and index.rows == answers.count else pieces_alone

    def _since(self, kept: Index, text: _Text, again: Sequence[str]) -> Changed | None:
        index = self._indexed(text)
        if index is None:
            return None
        items = index.touched(kept)
        places = index.naming(items)
        if len(items) + len(again) > MOST or text.share(places) > 1 / PART:
            return None
        require_shape(text.path, index.rows, 0)
        table = text.table(places)
        if table is None:
            return None
        coded = in_codes(pc.fill_null(table.column(self._of.item), ""))
        touched = np.isin(Digests().of_names(coded.dictionary), items)
        rows = table.filter(pa.array(touched[np.asarray(coded.indices)])) if table.num_rows else table
        reading = _Touched(self._files, self._of, rows, index.labels)
        answers = reading.answers
        names = frozenset(coded.dictionary.filter(pa.array(touched)).to_pylist())
        if answers.problems or answers.count != rows.num_rows or len(names) != len(items):
            return None
        told = Told.of(reading, answers).about(names)
        return Changed(reading, told, index, tuple(sorted({*again, *names})), not kept.are_there(items).all())

    def _indexed(self, text: _Text) -> Index | None:
        """The index of the text; None where a piece of it cannot be read alone."""
        kept = self._kept
        same = kept is not None and all(kept.read_as.get(name) == self._read_as[name] for name in ALIKE)
        known = dict(zip(kept.digests, kept.said, strict=True)) if kept is not None and same else {}
        fresh = [place for place, digest in enumerate(text.digests) if digest not in known]
        hashed = Digests()
        for first in range(0, len(fresh), AT_ONCE):
            places = fresh[first : first + AT_ONCE]
            said = self._said(text, places, hashed)
            if said is None:
                return None
            known |= zip((text.digests[place] for place in places), said, strict=True)
        return Index(self._read_as, text.digests, text.lengths, tuple(map(known.__getitem__, text.digests)))

    def _said(self, text: _Text, places: Sequence[int], hashed: Digests) -> list[Said] | None:
        """What each of these pieces says; None where one cannot be read alone."""
        parts = text.parts(places)
        table = None if parts is None else text.table_of(parts)
        if parts is None or table is None:
            return None
        counts = _rows_of(parts, table.num_rows)
        if counts is None:  # lines that are no rows: where the rows of a piece end is not seen in all of them
            each = [self._said(text, [place], hashed) for place in places]
            return None if any(one is None for one in each) else [said for one in each for said in one or ()]
        return said_in(table, counts, self._of.item, self._of.label, self._others(table), hashed)

    def _others(self, table: pa.Table) -> list[str]:
        """What is read of a row beside its item and label."""
        return [name for name in (self._of.annotator, "duration") if name in table.column_names]

    @cached_property
    def _kept(self) -> Index | None:
        return Index.read(self._files.index)

    @cached_property
    def _pieces(self) -> pieces.Pieces | None:
        """Those of the text; None where it is no text in rows that can be read piece by piece."""
        return None if self._path is None else pieces.Pieces.of(self._path, pieces_in(self._files.index))

    @cached_property
    def _text(self) -> _Text | None:
        """The text; None where a row of it is no answer."""
        if self._path is None or self._pieces is None:
            return None
        text = _Text(self._path, self._pieces, self._of)
        header = text.table([])
        return None if header is None or not text.is_plain(header) else text

    @cached_property
    def _read_as(self) -> dict[str, Any]:
        """Which files they are, and as what and how they are read."""
        path = self._files.find("annotations")
        others = {each: digest for each, digest in self.digests.items() if each != path}
        header = b"" if self._text is None else self._text.header
        return {
            "files": stamp_of(self.digests),
            "others": stamp_of(others),
            "columns": self._of.digest,
            "hash": Digests().of_a_name,
            "name": "" if path is None else path.name,
            "header": hashlib.sha256(header).hexdigest()[:16],
        }


class _Text:
    """A file with columns, of which some pieces are read."""

    def __init__(self, path: Path, cut: pieces.Pieces, columns: Columns) -> None:
        self.path, self._cut, self._of = path, cut, columns
        self.header, self.digests, self.lengths = cut.header, cut.digests, cut.lengths
        self._separator = delimited.separator_of(path)

    def is_still_there(self) -> bool:
        """Whether the file is the same as when it was cut."""
        known = [*zip(self.digests, self.lengths, strict=True)]
        return pieces.Pieces.of(self.path, known) == self._cut

    def is_plain(self, table: pa.Table) -> bool:
        """Whether a row is an answer, by its columns."""
        named = [table.column_names.count(name) for name in (self._of.item, self._of.label)]
        return named == [1, 1] and len({*table.column_names}) == table.num_columns and not table_spans.are_in(table)

    def share(self, places: Sequence[int]) -> float:
        """Which part of all bytes these pieces are; 0 where they are few."""
        size = sum(self.lengths[place] for place in places)
        return size / self._cut.size if size > pieces.MOST else 0.0

    def table(self, places: Sequence[int]) -> pa.Table | None:
        """The rows of these pieces, as `hitl.tables.files.read_table` has them; None where it has to look at all."""
        parts = self.parts(places)
        return None if parts is None else self.table_of(parts)

    def parts(self, places: Sequence[int]) -> list[bytes] | None:
        """The bytes of these pieces; None where the file has changed."""
        return self._cut.read(self.path, places)

    def table_of(self, parts: Sequence[bytes]) -> pa.Table | None:
        """The same of the bytes of pieces."""
        table = delimited.read_rows(self.header, b"".join(parts), self._separator)
        if table is None:
            return None
        table.validate(full=True)
        names = [self._of.item, self._of.annotator, self._of.label]
        table = with_text(restored(table), names)
        require_fit(table, self.path, names)
        return table


def _rows_of(parts: Sequence[bytes], count: int) -> list[int] | None:
    """How many rows each of these pieces has, of so many in all; None where that cannot be seen from line ends."""
    if len(parts) < 2:
        return [count] * len(parts)
    if any(part.count(b"\r") != part.count(b"\r\n") for part in parts):
        return None  # a line ends with it alone
    ends = [part.count(b"\n") + (part[-1] != 10) for part in parts]
    return ends if sum(ends) == count else None  # no piece has more rows than ends of lines


class _Touched(Reading):
    """Tables of whose answers only some are read."""

    def __init__(self, files: TableFiles, columns: Columns, rows: pa.Table, labels: Sequence[str]) -> None:
        super().__init__(files, columns)
        self._tables["annotations"], self._labels = rows, labels

    def _labels_of(self, name: str, table: pa.Table) -> list[str]:
        return [*self._labels] if name == "annotations" else super()._labels_of(name, table)
