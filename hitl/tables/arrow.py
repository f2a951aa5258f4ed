"""Convert anything with named columns to an Arrow table.

pandas DataFrame                 its columns, and its index if that has a name
polars DataFrame, and others     through the Arrow C stream that they offer
Hugging Face Dataset             its rows as selected and ordered
dict of columns, list of dicts   as they are
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.columns import nan_as_null

TABLES = "a DataFrame (pandas, polars), an Arrow table, a Hugging Face dataset, a dict of columns or a list of dicts"


def table_of(given: Any, where: str = "the table") -> pa.Table:
    """Return an Arrow table, text as `string` and NaN as null. Raise BadTable, naming `where`, for anything else."""
    try:
        table = _table(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = "; ".join(str(part) for part in error.args)
        raise BadTable(
            f"{where}: not a table whose columns have one type each: {reason}; expected numbers or text, not both"
        ) from None
    if table is None:
        raise BadTable(f"{where}: {_description(given)}; expected {TABLES}")
    for place, (entry, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        plain = nan_as_null(_plain_text(column))
        if plain is not column:
            table = table.set_column(place, pa.field(entry.name, plain.type), plain)
    return table


def renamed(column: pa.DictionaryArray, names: Mapping[str, str]) -> pa.DictionaryArray:
    """Rename the values of a dictionary column; two values with the same new name are merged."""
    others = pa.array([names.get(name, name) for name in column.dictionary.to_pylist()], pa.string())
    coded = others.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.take(column.indices), coded.dictionary)


def is_pandas(given: Any, kind: str) -> bool:
    """Return True for a pandas `DataFrame` or `Series`, without importing pandas for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, getattr(pandas, kind))


def has_columns(given: Any) -> bool:
    """Return True for anything with named columns, which tables have and arrays do not."""
    return isinstance(given, Mapping | pa.Table | pa.RecordBatch) or hasattr(given, "columns") or _is_dataset(given)


def _table(given: Any) -> pa.Table | None:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, Mapping):
        if any(_is_dataset(part) for part in given.values()):
            return None
        arrow = (pa.Array, pa.ChunkedArray)
        return pa.table(
            {str(name): c if isinstance(c, arrow) else pa.array(c, from_pandas=True) for name, c in given.items()}
        )
    if is_pandas(given, "DataFrame"):
        unnamed = all(name is None or name in given.columns for name in given.index.names)
        return pa.Table.from_pandas(given if unnamed else given.reset_index(), preserve_index=False)
    if isinstance(given, list | tuple):
        return pa.Table.from_pylist(list(given)) if all(isinstance(row, Mapping) for row in given) else None
    if _is_dataset(given):
        return pa.table(given.with_format("arrow")[:])
    return pa.table(given) if hasattr(given, "__arrow_c_stream__") and has_columns(given) else None


def _is_dataset(given: Any) -> bool:
    return hasattr(given, "with_format") and hasattr(given, "column_names")  # of Hugging Face `datasets`


def _description(given: Any) -> str:
    """Describe what was given instead of a table, and what to do."""
    name = type(given).__name__
    if isinstance(given, str | Path):
        return f"got the name of a file, {str(given)!r}: read it first, for instance with pandas.read_csv"
    if isinstance(given, Mapping):
        return f"got several datasets ({', '.join(map(str, given))}): give one of them"
    if hasattr(given, "collect"):
        return f"got {name}: call its .collect() first"
    return f"got {name}"


def _plain_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text of any width or encoding as `string`, the type in which names are compared."""
    coded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if coded else column.type
    if pa.types.is_string(column.type) or not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        return column
    if coded:  # Arrow cannot cast a dictionary of views
        plain = [chunk.dictionary.cast(pa.string()).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(plain, pa.string())
    return column.cast(pa.string())
