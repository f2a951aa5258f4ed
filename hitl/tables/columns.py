"""Convert tables to Arrow, and columns to text, numbers and vectors.

pandas DataFrame                 its columns, and its index if the index has a name
polars DataFrame, and others     through their Arrow C stream
Hugging Face Dataset             its rows, as selected and ordered
dict of columns, list of dicts   as they are
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadSettings, BadTable
from hitl.formatting import listed
from hitl.tables.limits import FEWER_NUMBERS, require_memory

if TYPE_CHECKING:
    import pandas as pd


class ArrowStream(Protocol):
    """A table that offers an Arrow C stream: of polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Table: TypeAlias = "pd.DataFrame | ArrowStream | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
TABLES = "a DataFrame (pandas, polars), an Arrow table, a Hugging Face dataset, a dict of columns or a list of dicts"
Place = Callable[[int], str]
"""Row number -> description of its location."""
T = TypeVar("T")

FILE = b"hitl.file"
"""Key of a table's schema metadata: the file it was read from."""

FROM_WIDE = b"hitl.wide"
"""Key of the metadata of a table that was a wide one: its rows without a label are items that nobody labeled."""

ONE_NAME = (
    "expected one name in each row. A list is a set of labels: make a table per class, with the labels yes and no, or "
    "name another column (--label, source.label)"
)

BOXES_ELSEWHERE = "Boxes on images are combined in projects of Label Studio, and in Python (hitl.kinds.boxes)"

_UNPARSED = re.compile(r"Failed to parse string: '(.*)' as a scalar of type ", re.DOTALL)
_DECIMAL_COMMA = re.compile(r"'[+-]?\d+,\d+'")
_WHOLE_NUMBER = r"^(-?[1-9]\d{0,14}|0)\.0+$"
"""Integer of at most 15 digits, written as a float."""

EXACT = 2.0**53
"""Floats below this hold whole numbers exactly."""


def row_number(row: int) -> str:
    """Name a row of a table that is not from a file."""
    return f"row {row}"


# -- tables ------------------------------------------------------------------------------------------------


def table_of(given: Any, where: str = "the table") -> pa.Table:
    """Convert a table to Arrow, text to `string` and NaN to null. Raise BadTable, naming `where`, for anything else."""
    twice = repeated([*given.columns]) if is_pandas(given, "DataFrame") else None
    if twice is not None:
        raise BadTable(f"{where}: column {twice!r} appears twice; expected one column of each name")
    try:
        table = _table(given)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        parts = [error] if isinstance(error, UnicodeError) else error.args  # those of a UnicodeError hold the bad text
        reason = "; ".join(map(str, parts))
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


def is_pandas(given: Any, kind: str) -> bool:
    """Return True for a pandas object of this `kind`, "DataFrame" or "Series", without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, getattr(pandas, kind))


def has_columns(given: Any) -> bool:
    """Return True for a table with named columns, False for an array or a list, even a list of dicts."""
    return isinstance(given, Mapping | pa.Table | pa.RecordBatch) or hasattr(given, "columns") or _is_dataset(given)


def _table(given: Any) -> pa.Table | None:
    if isinstance(given, pa.Table):
        return given
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
    streamed = hasattr(given, "__arrow_c_stream__") or isinstance(given, pa.RecordBatch)
    return pa.table(given) if streamed and has_columns(given) else None


def _is_dataset(given: Any) -> bool:
    return hasattr(given, "with_format") and hasattr(given, "column_names")  # of Hugging Face `datasets`


def _description(given: Any) -> str:
    name = type(given).__name__
    if isinstance(given, str | Path):
        return f"got the name of a file, {str(given)!r}: read it first, for instance with pandas.read_csv"
    if isinstance(given, Mapping):
        return f"got several datasets ({', '.join(map(str, given))}): give one of them"
    if hasattr(given, "collect"):
        return f"got {name}: call its .collect() first"
    return f"got {name}"


def require_columns(table: pa.Table, names: Sequence[str], where: str, hint: str = "") -> None:
    """Raise BadTable unless the table has every column of `names` once."""
    for name in names:
        times = table.column_names.count(name)
        if times == 0:
            there = ", ".join(table.column_names) or "no columns"
            raise BadTable(f"{where}: no column {name!r}; found {there}{'. ' + hint if hint else ''}")
        if times > 1:
            raise BadTable(f"{where}: column {name!r} appears twice; expected one column of each name")


def unread_boxes(columns: Collection[str]) -> str | None:
    """Return a message if there are columns of boxes on images, because they are not read. Otherwise return None."""
    if not {"x", "y", "width", "height"} <= set(columns):
        return None
    return "the columns x, y, width and height are not read: each row is a label of a whole item. " + BOXES_ELSEWHERE


def unread_parts(columns: Collection[str]) -> str | None:
    """Return a message if there are columns of spans or boxes, because they are not read. Otherwise return None."""
    if not {"start", "end"} <= set(columns):
        return unread_boxes(columns)
    return (
        "the columns start and end are not read: each row is a label of a whole item; if they are spans of "
        "texts or recordings, call the column of the items 'document', as a file of spans has it"
    )


# -- streams of Arrow ---------------------------------------------------------------------------------------


def as_stream(*tables: pa.Table, compression: str | None = "lz4") -> bytes:
    """Return tables as Arrow streams, one after the other."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)  # a thread per column costs more
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def tables_in(content: bytes) -> list[pa.Table]:
    """Read the output of `as_stream`."""
    reader, tables = pa.BufferReader(content), []
    while reader.tell() < reader.size():
        tables.append(pa.ipc.open_stream(reader).read_all())
    return tables


# -- text --------------------------------------------------------------------------------------------------


def is_text(kind: pa.DataType) -> bool:
    """Return True for plain text, with 32-bit or 64-bit offsets."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def with_names(
    table: pa.Table, names: Sequence[str], convert: Callable[[pa.ChunkedArray], pa.ChunkedArray] | None = None
) -> pa.Table:
    """Return the table with these columns converted (default: `as_names`). Missing or repeated ones are left alone.

    Raise BadTable, naming the file and the column, for a column that holds no names.
    """
    for name in names:
        if table.column_names.count(name) == 1:
            try:
                column = (convert or as_names)(table.column(name))
            except BadTable as error:
                where = (table.schema.metadata or {}).get(FILE, b"").decode()
                raise BadTable(f"{where}{', ' if where else ''}column {name!r}: {error}") from None
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def as_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of names as strings. 1, 1.0 and "1.0" are one name, "1"; all other text stays as written.

    Raise BadTable for lists, and for whole numbers that are too large for a column of floats.
    """
    if is_vector(column.type):
        row = pc.index(pc.is_null(column), False).as_py()
        example = f", such as {column[row].as_py()!r} in row {row}" if row >= 0 else ""
        raise BadTable(f"holds lists{example}; {ONE_NAME}")
    if pa.types.is_floating(column.type):
        size = pc.max(pc.abs(nan_as_null(column))).as_py() or 0.0
        if EXACT <= size < 2.0**64:  # larger numbers never were integers
            raise BadTable(
                f"holds floats as large as {size:.0f}, which cannot tell neighboring whole numbers apart; save the "
                "names as text or as integers"
            )
    column = as_text(column)
    if not pc.any(pc.match_substring(column, ".0")).as_py():  # quick, and true for most tables
        return column
    return pc.replace_substring_regex(column, _WHOLE_NUMBER, r"\1")


def as_typed_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of names like `as_names`, but leave a column of whole numbers below 2**63 as integers."""
    if pa.types.is_dictionary(column.type) and pa.types.is_integer(column.type.value_type):  # a Categorical of numbers
        column = column.cast(column.type.value_type)
    if pa.types.is_uint64(column.type) and (pc.max(column).as_py() or 0) >= 2**63:  # as hashes are
        return as_names(column)
    if pa.types.is_integer(column.type):
        return column
    column = nan_as_null(column)
    if pa.types.is_floating(column.type) and pc.all(are_whole(column)).as_py():
        return column.cast(pa.int64())
    return as_names(column)


def values_of(names: Sequence[str | int], kind: pa.DataType) -> npt.NDArray[Any] | None:
    """Return names from a column of booleans, floats, dates or times as such values; None for any other column."""
    is_time = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    if not (is_time or pa.types.is_boolean(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    kind = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind  # as `datetime` has it
    try:
        return np.asarray(pa.array(names, pa.string()).cast(kind).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # whole numbers, or other names among them
        return None


def plain_name(name: T) -> T:
    """Return a name as `as_names` returns it. Names that are not text are left alone."""
    return cast("T", re.sub(_WHOLE_NUMBER, r"\1", name)) if isinstance(name, str) else name


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as strings, with NaN as null and whole numbers without ".0". Raise BadTable for lists."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column.type, pa.UuidType):
        return pa.chunked_array([[None if name is None else str(name) for name in column.to_pylist()]], pa.string())
    if pa.types.is_timestamp(column.type):  # one name in all units, and as Python has it
        text = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
        return pc.replace_substring_regex(text, r"\.0{6}", "")
    column = nan_as_null(column)
    if pa.types.is_floating(column.type):
        integers = pc.if_else(are_whole(column), column, None).cast(pa.int64()).cast(pa.string())
        return pc.coalesce(integers, column.cast(pa.string()))
    try:
        if isinstance(column.type, pa.BaseExtensionType) and not is_text(column.type.storage_type):
            raise pa.ArrowInvalid("what it stores is no name, such as the number of a month")
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # bytes that are not text
        raise BadTable(f"a column holds {column.type}; expected plain text or numbers") from None


def _plain_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text of any width or encoding as `string`, the type in which names are compared."""
    coded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if coded else column.type
    if pa.types.is_string(column.type) or not (is_text(kind) or pa.types.is_string_view(kind)):
        return column
    if coded:  # Arrow cannot cast a dictionary of views
        plain = [chunk.dictionary.cast(pa.string()).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(plain, pa.string())
    return column.cast(pa.string())


def empty_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with null for empty text, which is not a name."""
    return pc.if_else(pc.equal(column, ""), None, column) if is_text(column.type) else column


def nan_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with null for NaN, which pandas and others write for missing values."""
    if pa.types.is_float16(column.type):  # for which Arrow has few functions
        column = column.cast(pa.float32())
    if not pa.types.is_floating(column.type):
        return column
    missing = pc.is_nan(column)
    return pc.if_else(missing, None, column) if pc.any(missing).as_py() else column


def are_whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return True for floats that are whole numbers, which an integer holds exactly."""
    return pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), EXACT))


def repeated(names: Sequence[Any]) -> Any:
    """Return the first name that appears more than once, or None."""
    if len(set(names)) == len(names):
        return None
    return next(name for name, times in Counter(names).items() if times > 1)


def require_distinct(names: Sequence[str]) -> None:
    """Raise BadSettings for a name that appears more than once in a setting."""
    if (twice := repeated(names)) is not None:
        raise BadSettings(f"{twice!r} appears twice in {listed(names)}; expected different names")


def require_names(names: Sequence[str | None], column: str, where: str, place_of: Place | None = None) -> list[str]:
    """Return the names. Raise BadTable if there is none, or if one is empty or repeated, and name its row."""
    place_of = place_of or (lambda row: f"{where}: row {row}")
    filled = [name or "" for name in names]
    if not filled:
        raise BadTable(f"{where}: the table is empty; expected one row for each item")
    if "" in filled:
        raise BadTable(f"{place_of(filled.index(''))} has no {column}; expected a name in each")
    twice = repeated(filled)
    if twice is not None:
        row = filled.index(twice, filled.index(twice) + 1)
        raise BadTable(f"{place_of(row)}: {column} {twice!r} appears twice; expected one row each")
    return filled


# -- numbers -----------------------------------------------------------------------------------------------


def numbers_of(column: pa.ChunkedArray, where: str) -> npt.NDArray[np.float64]:
    """Return the (N,) numbers of a column, NaN for null. Raise BadTable, naming `where`, for anything else."""
    try:
        values = column.cast(pa.float64(), safe=not pa.types.is_uint64(column.type)).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        match = _UNPARSED.match(str(error))
        text = str(error) if match is None else repr(match[1])
        point = ", with a point before the decimals" if _DECIMAL_COMMA.fullmatch(text) else ""
        raise BadTable(f"{where}: not numeric: {text}; expected numbers{point}") from None
    return np.asarray(values, dtype=np.float64)


def is_vector(kind: pa.DataType) -> bool:
    """Return True for the type of a column with a list in each row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def vectors(column: pa.ChunkedArray, where: str, place_of: Place = row_number) -> npt.NDArray[np.float64]:
    """Return (N, D) from a column of numbers (D = 1) or of lists of D numbers; a null row is all NaN.

    Raise BadTable, naming `where`, for values that are not numbers. For lists of different lengths, also name a row.
    """
    if not is_vector(column.type):
        return numbers_of(column, where)[:, None]
    lengths = np.asarray(pc.list_value_length(column).fill_null(-1).to_numpy(), dtype=np.int64)
    full = lengths >= 0
    width = int(lengths[full][0]) if full.any() else 0
    if (lengths[full] != width).any():
        row = int(np.flatnonzero(full & (lengths != width))[0])
        raise BadTable(f"{where}: {place_of(row)} has {lengths[row]} numbers, others {width}; expected one length")
    require_memory(where, 2 * 8 * len(column) * width, instead=FEWER_NUMBERS)  # rows without a list too
    values = np.full((len(column), width), np.nan)
    flat = numbers_of(pc.list_flatten(column.filter(pa.array(full))), where)
    values[full] = flat.reshape(int(full.sum()), width)
    return values
