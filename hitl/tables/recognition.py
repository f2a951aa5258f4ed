"""Recognize columns of items, annotators and labels by their content."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hitl.tables.columns import as_names, is_text
from hitl.tables.read import column_names, is_arrow, read_table
from hitl.tables.write import suffix_of

ARRAYS = (".npy", ".npz")


def column_like(path: Path, name: str, known: pa.ChunkedArray, taken: Collection[str] = ()) -> str:
    """Return the column `name` of a file. If there is none, return the only one with mostly `known` names.

    A single column beside the `taken` ones is returned whatever it holds. Return `name` if no other column fits.
    """
    if not path.exists() or (suffix_of(path) in ARRAYS and not is_arrow(path)):
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
