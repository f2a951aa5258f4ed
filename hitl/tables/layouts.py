"""Recognize the columns of tables by name and content, and convert wide tables to long ones.

A wide table has one row per item and one column per annotator, with empty fields where there is no label. A long table
has one row per label.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadAnnotations
from hitl.tables.columns import FROM_WIDE, as_names, as_typed_names, empty_as_null, is_text, repeated, require_columns
from hitl.tables.encode import Name
from hitl.tables.limits import require_memory
from hitl.tables.read import column_names, is_arrow, name_of, place_in, read_table
from hitl.tables.write import suffix_of

LONG = ("item", "annotator", "label")
"""Columns of a long table."""

OTHERWISE = "Where each row is one label, name the columns: item=, annotator=, label= (--item, --annotator, --label)"

_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__|")
"""Column names that pandas gives to an index without a name, also in files."""


def is_wide(table: pa.Table, item: str, names: Collection[str]) -> bool:
    """Return True if a table has none of these columns but its items, in a column of this name or in one without."""
    columns = table.column_names
    return not {*names} & {*columns} and len(columns) > 1 and (item in columns or bool(_INDEX.fullmatch(columns[0])))


def with_item(table: pa.Table, item: str) -> pa.Table:
    """Return a wide table with its items in the column `item`: the one without a name, if none has this name.

    A column of row numbers beside `item` is left out.
    """
    first = table.column_names[0]
    if item not in table.column_names:
        renamed = table.rename_columns([item, *table.column_names[1:]])
        return renamed.replace_schema_metadata(table.schema.metadata)
    numbers = [str(row) for row in range(table.num_rows)]
    return table.drop_columns([first]) if _INDEX.fullmatch(first) and table[0].to_pylist() == numbers else table


def melted(table: pa.Table, names: Sequence[str] = LONG) -> pa.Table:
    """Convert a wide table to a long one with these columns of items, annotators and labels, in order of the items.

    An item that nobody labeled has a row without annotator and label. Raise BadAnnotations if an item has no name or
    two rows, and if a column has no label in common with the others or holds row numbers.
    """
    item, *_ = names
    require_columns(table, [item], name_of(table, "labels"))
    people = [name for name in table.column_names if name != item]
    column, where = empty_as_null(as_typed_names(table.column(item))), name_of(table, "")
    where += ": " if where else ""
    items: list[Name] = column.to_pylist()
    if column.null_count:
        raise BadAnnotations(f"{place_in(table)(items.index(None))}: {item!r} is empty; expected a name in every row")  # type: ignore[arg-type]
    twice = repeated(items)
    if twice is not None:
        raise BadAnnotations(
            f"{where}item {twice!r} has two rows; expected one row for each item and a column for each annotator. "
            f"{OTHERWISE}"
        )
    if not people:
        raise BadAnnotations(f"{where}no column other than {item!r}; expected a column for each annotator")
    index = next((name for name in people if _INDEX.fullmatch(name)), None)
    if index is not None:
        raise BadAnnotations(
            f"{where}column {index!r} holds the row numbers of a table that pandas wrote, and no labels; read the "
            "file with index_col=0, or drop the column"
        )
    labels = {}
    for name in people:
        answers = table.column(name)
        empty = pa.types.is_null(answers.type)  # a column without any value
        labels[name] = empty_as_null(as_typed_names(answers.cast(pa.string()) if empty else answers))
    if any(pa.types.is_string(answers.type) for answers in labels.values()):
        labels = {name: answers.cast(pa.string()) for name, answers in labels.items()}
    values = {name: set(answers.drop_null().unique().to_pylist()) for name, answers in labels.items()}
    for name, own in values.items():
        others = set().union(*(theirs for other, theirs in values.items() if other != name))
        if own and others and own.isdisjoint(others):  # it holds something else
            raise BadAnnotations(
                f"{where}column {name!r} has no label in common with the other columns (for instance "
                f"{min(map(str, own))!r}); expected a column for each annotator. {OTHERWISE}"
            )
    length = sum(len(str(name)) for name in items) // max(len(items), 1)
    answered = {name: len(answers) - answers.null_count for name, answers in labels.items()}
    size = sum(number * (length + len(name) + 8) for name, number in answered.items())
    require_memory(name_of(table, "labels"), size)
    rows, parts = [], []
    for name, answers in labels.items():  # cells without an answer never become rows
        there = np.flatnonzero(answers.is_valid())
        who = pa.array([name] * len(there), pa.string())
        rows.append(there)
        parts.append(pa.table([column.take(there), who, answers.take(there)], names=names))
    rows.append(np.setdiff1d(np.arange(len(items)), np.concatenate(rows)))
    parts.append(pa.table({item: column.take(rows[-1])}))
    long = pa.concat_tables(parts, promote_options="default").take(np.argsort(np.concatenate(rows), kind="stable"))
    return long.replace_schema_metadata({FROM_WIDE: ""})


def column_like(path: Path, name: str, known: pa.ChunkedArray, taken: Collection[str] = ()) -> str:
    """Return the column `name` of a file. If there is none, return the only one with mostly `known` names.

    A single column beside the `taken` ones is returned whatever it holds. Return `name` if no other column fits.
    """
    if not path.exists() or (suffix_of(path) in (".npy", ".npz") and not is_arrow(path)):
        return name
    left = [column for column in column_names(path) if column not in taken]
    if name in left or len(left) < 2:
        return name if name in left or not left else left[0]
    table, names = read_table(path), as_names(known).unique()
    like = [column for column in left if _share_among(table, column, names) > 0.5]
    return like[0] if len(like) == 1 else name


def _share_among(table: pa.Table, column: str, names: pa.Array) -> float:
    """Return the share of a column's different values that are among `names`; 0 if it holds no names."""
    if table.column_names.count(column) != 1:
        return 0.0
    values = table.column(column)
    if not (is_text(values.type) or pa.types.is_integer(values.type)):
        return 0.0
    values = as_names(values).drop_null().unique()
    return float(pc.mean(pc.is_in(values, value_set=names)).as_py() or 0.0)


def guess_columns(table: pa.Table, keys: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Guess which columns, except `known`, hold the items, annotators and labels (`keys`): most different values first.

    With another number of columns than of `keys`, the last key gets the one with the fewest.
    """
    left = [name for name in table.column_names if name not in known]
    left.sort(key=lambda name: -len(as_names(table.column(name)).unique()))
    columns = left if len(left) == len(keys) else [*left[: len(keys) - 1], *left[-1:]]
    return dict(zip(keys, columns, strict=False))
