"""Escape text that a spreadsheet would run as a formula: written with a leading apostrophe, and read without.

    =HYPERLINK("http://...")     in a file: '=HYPERLINK("http://...")
    '=1                          in a file: ''=1, so that reading restores what was written
    -3.5 and -                   stay as they are: a number and a single sign are no formula

Names, labels and texts come from a platform where many may write. A formula may send the contents of the table to
somebody else.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from hitl.tables.columns import is_text

FORMULA = r"(?s)^'*[=+\-@\t\r]."
"""Text that begins like a formula, with any apostrophes before it."""

NUMBER = r"^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?$"
"""Number that begins with a sign, which is no formula."""

FIRST = ("'", "=", "+", "-", "@", "\t", "\r")


def defused(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before each formula, in column names too."""
    return _changed(table, _is_formula, "'{}".format, lambda text: pc.utf8_replace_slice(text, 0, 0, "'"))


def restored(table: pa.Table) -> pa.Table:
    """Undo `defused`: remove one apostrophe before each formula."""
    return _changed(table, _is_defused, lambda name: name[1:], lambda text: pc.utf8_slice_codeunits(text, 1))


def _is_formula(text: pa.ChunkedArray) -> pa.ChunkedArray:
    first = pc.utf8_slice_codeunits(text, 0, 1)
    if not pc.any(pc.is_in(first, value_set=pa.array(FIRST, text.type))).as_py():  # before the slow pattern
        return pa.chunked_array([pa.nulls(len(text), pa.bool_())])
    begins = pc.match_substring_regex(text, FORMULA)
    return pc.and_not(begins, pc.match_substring_regex(text, NUMBER))


def _is_defused(text: pa.ChunkedArray) -> pa.ChunkedArray:
    quoted = pc.starts_with(text, "'")
    return pc.and_(quoted, pc.match_substring_regex(text, FORMULA)) if pc.any(quoted).as_py() else quoted


def _changed(
    table: pa.Table,
    concerned: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    change_name: Callable[[str], str],
    change_text: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> pa.Table:
    for place, column in enumerate(table.columns):
        if is_text(column.type):
            which = pc.fill_null(concerned(column), False)
            if pc.any(which).as_py():
                table = table.set_column(
                    place, table.column_names[place], pc.if_else(which, change_text(column), column)
                )
    names = pa.chunked_array([pa.array(table.column_names, pa.string())])
    which = pc.fill_null(concerned(names), False).to_pylist()
    if not any(which):
        return table
    return table.rename_columns(
        [change_name(name) if formula else name for name, formula in zip(names.to_pylist(), which, strict=True)]
    )
