"""Encode and check columns of tables for the store, which keeps text, numbers and JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable
from hitl.tables.columns import Place


def in_codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Dictionary-encode a column as text, with values in order of first appearance."""
    kind = pa.dictionary(pa.int32(), pa.string())
    if column.type == kind:
        return pa.concat_arrays([*column.unify_dictionaries().chunks, pa.array([], kind)][: column.num_chunks or 1])
    # One chunk is encoded ten times faster than many. It may exceed 2 GB, the limit of `pa.string()`.
    coded = column.cast(pa.string()).cast(pa.large_string()).combine_chunks().dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))


def codes_of_names(column: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """Return the codes. Null and empty text get the code after the last."""
    names = column.dictionary
    codes, empty = np.asarray(column.indices.fill_null(len(names))), pc.index(names, "").as_py()
    return codes if empty < 0 else np.where(codes == empty, np.int32(len(names)), codes)


def require_storable(
    coded: pa.DictionaryArray,
    name: str,
    place_of: Place,
    rows: npt.NDArray[np.bool_] | None = None,
    *,
    filled: bool = False,
) -> None:
    """Raise BadTable for the first of these rows with a NUL character or, if `filled`, without a name."""
    names = coded.dictionary
    cut = np.flatnonzero(np.asarray(pc.match_substring(names, "\0"), dtype=bool))
    if not filled and not len(cut):
        return
    codes = codes_of_names(coded)
    empty = (codes == len(names)) & filled
    wrong = np.flatnonzero((empty | np.isin(codes, cut)) & (True if rows is None else rows))
    if len(wrong):
        first = int(wrong[0])
        problem = "is empty; expected a name in every row"
        if not empty[first]:
            problem = "holds a NUL character, which no database keeps; remove it"
        raise BadTable(f"{place_of(first)}: the {name} {problem}")


def as_json(table: pa.Table) -> pa.Table:
    """Convert times, decimals and bytes in a table to text, because the data of items is stored as JSON."""
    for place, field in enumerate(table.schema):
        if _is_of_json(field.type):
            continue
        try:
            values = json.loads(json.dumps(table.column(place).to_pylist(), default=str))
        except (ArithmeticError, ValueError) as error:  # a year past 9999, or an unknown time zone
            raise BadTable(f"items.*: the column {field.name!r} cannot be read: {error}; save it as text") from None
        try:
            column = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # values without a single type become text
            column = pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
        table = table.set_column(place, field.name, column)
    return table


def _is_of_json(kind: pa.DataType) -> bool:
    inner = [kind.value_type] if pa.types.is_dictionary(kind) else [kind.field(n).type for n in range(kind.num_fields)]
    if inner:
        return all(map(_is_of_json, inner))
    same = pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_null
    return any(holds(kind) for holds in (*same, pa.types.is_integer, pa.types.is_floating)) or kind == pa.struct([])


def number_of(value: Any) -> float:
    """Return a number, or NaN for anything else."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
