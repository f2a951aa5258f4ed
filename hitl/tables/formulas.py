"""Text that a spreadsheet would run as a formula: written with an apostrophe before it, and read without.

    =HYPERLINK("http://...")     in a file: '=HYPERLINK("http://...")
    '=1                          in a file: ''=1, so that what was written is what is read
    -3.5 and -                   stay as they are: a number and a single sign are no formula

Names, labels and texts come from a platform where many may write. A spreadsheet takes text that begins with such a sign
for a formula, and a formula may send what the table holds to somebody else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FORMULA = r"(?s)^'*[=+\-@\t\r]."
"""Begins as a formula does, with the apostrophes that it may have already."""

BEGINS = frozenset(b"'=+-@\t\r")
"""The first bytes of those."""

NUMBER = r"^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?$"
"""Begins with a sign, and is no formula."""


def defused(table: pa.Table) -> pa.Table:
    """The table with an apostrophe before each formula, in the names of columns too."""
    return _changed(table, _is_formula, "'{}".format, lambda text: pc.utf8_replace_slice(text, 0, 0, "'"))


def restored(table: pa.Table) -> pa.Table:
    """The table that `defused` was given: a formula behind an apostrophe loses it."""
    return _changed(table, _is_defused, lambda name: name[1:], lambda text: pc.utf8_slice_codeunits(text, 1))


def _is_formula(text: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    if not _first_bytes(text) & BEGINS:  # a look at a byte of each, where the pattern looks at all
        return pa.array(np.zeros(len(text), bool))
    begins = pc.match_substring_regex(text, FORMULA)
    return pc.and_not(begins, pc.match_substring_regex(text, NUMBER)) if pc.any(begins).as_py() else begins


def _first_bytes(text: pa.ChunkedArray | pa.Array) -> set[int]:
    """What the texts begin with."""
    found: set[int] = set()
    for chunk in text.chunks if isinstance(text, pa.ChunkedArray) else [text]:
        large = chunk.cast(pa.large_string())
        _, offsets, content = large.buffers()
        starts = np.frombuffer(offsets or b"", np.int64)[large.offset : large.offset + len(large) + 1]
        first = np.frombuffer(content or b"", np.uint8)[starts[:-1][np.diff(starts) > 0]]
        found.update(np.flatnonzero(np.bincount(first, minlength=256)).tolist())
    return found


def _is_defused(text: pa.ChunkedArray) -> pa.ChunkedArray:
    quoted = pc.starts_with(text, "'")
    return pc.and_(quoted, pc.match_substring_regex(text, FORMULA)) if pc.any(quoted).as_py() else quoted


def _changed(
    table: pa.Table,
    concerned: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    name_changed: Callable[[str], str],
    text_changed: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> pa.Table:
    for place, column in enumerate(table.columns):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        found = concerned(column)
        if pc.any(found).as_py():
            column = pc.if_else(pc.fill_null(found, False), text_changed(column), column)
            table = table.set_column(place, table.field(place).name, column)
    names = pa.array(table.column_names, pa.string())
    which = concerned(names).to_pylist()
    if not any(which):
        return table
    return table.rename_columns([name_changed(n) if w else n for n, w in zip(names.to_pylist(), which, strict=True)])
