"""Process columns of tables: check that values can be stored, and convert them to codes, numbers or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable
from hitl.tables.places import Place


def data_in(row: Mapping[str, Any], item: str) -> dict[str, Any]:
    """Return the data of an item from its row in items.*."""
    return {name: value for name, value in row.items() if name != item and value is not None}


def as_json(table: pa.Table) -> pa.Table:
    """Convert times, decimals and bytes of a table to text, because data of items is stored as JSON."""
    for place, field in enumerate(table.schema):
        if not _is_of_json(field.type):
            table = table.set_column(place, field.name, pa.chunked_array([_in_json(table.column(place), field.name)]))
    return table


def _in_json(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Convert values for JSON. Columns without a single type become text."""
    try:
        values = json.loads(json.dumps(column.to_pylist(), default=str))
    except (ArithmeticError, ValueError) as error:  # a year past 9999, or an unknown time zone
        raise BadTable(f"items.*: the column {name!r} cannot be read: {error}; save it as text") from None
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


def _is_of_json(kind: pa.DataType) -> bool:
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        inner = [kind.value_type]
    if inner:
        return all(map(_is_of_json, inner))
    same = pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_null
    return any(holds(kind) for holds in (*same, pa.types.is_integer, pa.types.is_floating)) or kind == pa.struct([])


def require_filled(coded: pa.DictionaryArray, rows: npt.NDArray[np.bool_], item: str, place_of: Place) -> None:
    """Raise BadTable for the first of these rows whose name is missing or cannot be stored."""
    names = pa.concat_arrays([coded.dictionary, pa.array([""])])
    bad = np.flatnonzero(np.asarray(pc.or_(pc.equal(names, ""), pc.match_substring(names, "\0")), bool))
    if len(bad) == 1 and not coded.null_count:
        return
    codes = np.asarray(coded.indices.fill_null(len(names) - 1))
    wrong = np.flatnonzero(rows & np.isin(codes, bad))
    empty = [row for row in wrong.tolist() if not names[codes[row]].as_py()]
    if empty:
        raise BadTable(f"{place_of(empty[0])}: the {item} is empty; expected a name in every row")
    if len(wrong):
        raise nul_error(item, place_of(int(wrong[0])))


def require_storable(coded: pa.DictionaryArray, name: str, place_of: Place) -> None:
    """Raise BadTable for the first row of a column whose value cannot be stored."""
    cut = np.flatnonzero(np.asarray(pc.match_substring(coded.dictionary, "\0"), dtype=bool))
    if cut.size:
        raise nul_error(name, place_of(int(np.argmax(np.isin(pc.fill_null(coded.indices, -1), cut)))))


def nul_error(item: str, where: str) -> BadTable:
    """Return the error for a name that no database stores unchanged."""
    return BadTable(f"{where}: the {item} holds a NUL character, which no database keeps; remove it")


def in_codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Encode a text column, with values in order of first appearance."""
    if pa.types.is_dictionary(column.type):
        return pa.concat_arrays(
            [*column.unify_dictionaries().chunks, pa.array([], column.type)][: column.num_chunks or 1]
        )
    coded = column.cast(pa.string()).dictionary_encode().chunks  # all chunks have the same dictionary
    if not coded:
        return pa.array([], pa.dictionary(pa.int32(), pa.string()))
    return pa.DictionaryArray.from_arrays(pa.concat_arrays([chunk.indices for chunk in coded]), coded[0].dictionary)


def number_of(value: Any) -> float:
    """Return a number, or NaN for anything else."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_nothing(value: Any) -> bool:
    """Return True if a field holds no number."""
    return value is None or str(value).lower() == "nan"
