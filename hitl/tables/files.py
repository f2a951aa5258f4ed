"""Tables in files: CSV, JSON Lines and Parquet, in and out; the first sheet of an Excel workbook, in.

A table read from a file has one rule for names: item, annotator and label are text, as written ("007" and
"NA" stay what they are). Files are written whole or not at all: a temporary file beside the target, then a
rename.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadTable, HitlError
from hitl.tables import delimited, excel
from hitl.tables.formulas import defused, restored
from hitl.tables.limits import require_fit, require_harmless, require_shape
from hitl.tables.places import from_file

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Formats that are read and written."""

DELIMITED = ("csv", "tsv")
READ = {**FORMATS, ".xlsx": "xlsx"}
SPREADSHEETS = (".xls", ".xlsb", ".xlsm", ".ods", ".numbers")
"""What is not read, but can be saved as what is."""


def format_of(path: Path) -> str:
    """The format that a file to be read has by its name; raises BadTable for an unknown ending."""
    suffix = _suffix(path)
    if suffix in SPREADSHEETS:
        raise BadTable(f"{path}: {suffix} is not read; save it as .xlsx or .csv")
    if suffix not in READ or (suffix == ".xlsx" and path.suffix == ".gz"):
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {', '.join(READ)} (.gz allowed)")
    return READ[suffix]


def writable_format_of(path: Path) -> str:
    """The format that a file to be written has by its name; raises BadTable for an ending that is not written."""
    suffix, known = _suffix(path), ", ".join(FORMATS)
    if suffix in READ and suffix not in FORMATS:
        raise BadTable(f"{path}: {suffix} is read but not written; write .csv, which Excel opens")
    if suffix not in FORMATS:
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {known} (.gz allowed)")
    return FORMATS[suffix]


JSON_BLOCK = 1 << 20
_UNPARSED = re.compile(r"Failed to parse string: '(.*)' as a scalar of type ", re.DOTALL)
_COMMA = re.compile(r"'[+-]?\d+,\d+'")
_NULL = re.compile(rb"^[ \t\r]*+null", re.MULTILINE)
"""A line of JSON Lines that begins with null."""


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def read_table(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """Read a file as an Arrow table; the columns named in `text` come back as strings.

    Columns of CSV and Excel are all read as text (an empty field is null); JSON Lines and Parquet keep their types
    elsewhere. Columns of a .csv file may be separated by commas, semicolons or tabs. Raises MissingExtra for Excel
    without its library, and BadTable when the file is missing, empty, or not of its format.
    """
    path = Path(path)
    tables = list(read_parts(path))
    if not tables:
        raise BadTable(f"{path}: cannot be read as {format_of(path)}: the file is empty")
    table = with_text(from_file(tables[0], path), text)
    require_fit(table, path, text)
    return table


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Whatever a parser raises over the bytes of a file, as BadTable that names the file."""
    try:
        yield
    except HitlError:
        raise
    except MemoryError:
        raise BadTable(f"{path}: cannot be read as {kind}: it takes more memory than there is") from None
    except Exception as error:  # of hostile bytes parsers raise nearly everything
        said = " ".join(f"{error}".split())[:300] or type(error).__name__
        raise BadTable(f"{path}: cannot be read as {kind}: {said}") from error


def read_parts(path: Path, size: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows in order, in tables of about `size` rows, or in one table without a size.

    Parquet reads none but the `columns`, where any are named; the other formats read all. Raises BadTable as
    `read_table` does.
    """
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    kind = format_of(path)
    with parsing(path, kind):
        require_harmless(path, kind)
        for part in _READERS[kind](path, size, columns):
            part.validate(full=True)  # text that is no UTF-8, and what would end the process when it is looked at
            _require_text([*part.schema])
            require_shape(path, part.num_rows, len(part.column_names))
            yield restored(part) if kind in DELIMITED else part


def _require_text(fields: Iterable[pa.Field]) -> None:
    """Look at all names, also those of nested values; one that is no UTF-8 raises UnicodeDecodeError."""
    for field in fields:
        assert field.name is not None
        if pa.types.is_struct(field.type):
            _require_text(field.type.field(n) for n in range(field.type.num_fields))
        elif pa.types.is_list(field.type):
            _require_text([field.type.value_field])


LONGEST = 160
"""Bytes of a name in that of a file, which has more; file systems take 255."""


def file_name(name: str, harmless: str = "") -> str:
    """A name as that of a file: itself where it is plain, else with a digest so that no two collide.

    The characters of `harmless` stay too.

    Example:
        >>> file_name("ann@home"), file_name("age: <18"), file_name("age: >18")
        ('ann@home', 'age___18-c5dd2fb1', 'age___18-5ac0316f')
    """
    plain = re.sub(rf"[^\w.@+{re.escape(harmless)}-]", "_", name)
    if plain == name and len(plain.encode()) <= LONGEST:
        return plain
    return f"{plain[: LONGEST // 4]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def table_in(folder: Path, name: str) -> Path | None:
    """The table of this name, in any format; None where there is none. Raises BadTable where there are two."""
    if not folder.is_dir():
        return None
    found = sorted(
        path for path in folder.iterdir() if path.name.removesuffix(".gz") in {name + suffix for suffix in FORMATS}
    )
    if len(found) > 1:
        raise BadTable(f"{folder}: {found[0].name} and {found[1].name} both are there; expected one {name} table")
    return found[0] if found else None


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write an Arrow table in the format of the file name, whole or not at all."""
    write_parts(path, [table])


def csv_bytes(table: pa.Table) -> bytes:
    """What a CSV file of this table holds."""
    return bytes_of(Path("a.csv"), table)


def bytes_of(path: Path, table: pa.Table) -> bytes:
    """What a file of this name would hold with this table in it."""
    sink = io.BytesIO()
    _write_into(sink, path, [table])
    return sink.getvalue()


def write_parts(path: str | Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of the same columns into one file, one after the other; whole or not at all."""
    path = Path(path)
    writable_format_of(path)
    with atomic(path) as raw:
        _write_into(raw, path, tables)


def _write_into(raw: IO[bytes], path: Path, tables: Iterable[pa.Table]) -> None:
    """What a file of this name holds with these tables in it."""
    packed = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if path.suffix == ".gz" else nullcontext(raw)
    with packed as handle:
        _WRITERS[writable_format_of(path)](handle, tables)


@contextmanager
def atomic(path: str | Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` only when the block ends without an error.

    Where a link is, the file it leads to is written; a file that is replaced keeps its rights. `private`: the owner
    alone may read it. Raises BadTable where the folder is missing, or the path is of something else than a file.
    """
    path = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    require_folder(path)
    require_file(path)
    rights = 0o600 if private else path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, rights)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_folder(path: str | Path) -> None:
    """Raise BadTable unless the folder a file is to be written to exists."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise BadTable(f"{path}: the folder {parent} does not exist; make it first, or write elsewhere")


def require_file(path: str | Path) -> None:
    """Raise BadTable where there is something that a file must not replace: a folder, a device, a pipe."""
    path = Path(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise BadTable(f"{path} is {kind}; expected the name of a file to write")


def require_distinct(outputs: Sequence[Path | None], inputs: Sequence[Path] = ()) -> None:
    """Raise BadTable when a file that is to be written is another such file, or one that is read."""
    written = [Path(path).resolve() for path in outputs if path is not None]
    read = {Path(path).resolve() for path in inputs}
    twice = [path for path in written if path in read or written.count(path) > 1]
    if twice:
        raise BadTable(f"{twice[0]} is named twice, for an output and another file; each needs a file of its own")


def require_writable(*paths: Path | None) -> None:
    """Raise BadTable unless each table that is to be written has a known format and a folder; None is skipped."""
    require_distinct(paths)
    for path in paths:
        if path is not None:
            writable_format_of(path)
            require_folder(path)
            require_file(path)


def with_text(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with these columns, where it has them once, as strings."""
    for name in names:
        if table.column_names.count(name) == 1:
            table = table.set_column(table.column_names.index(name), name, as_text(table.column(name)))
    return table


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as strings, NaN as null; whole-numbered floats lose their ".0", so that 3 and 3.0 are one name."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    column = nan_as_null(column)
    if pa.types.is_floating(column.type) and are_whole(column):
        column = column.cast(pa.int64())
    try:
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # bytes that are no text
        raise BadTable(f"a column holds {column.type}; expected plain text or numbers") from None


def numbers_of(column: pa.ChunkedArray, where: str) -> npt.NDArray[np.float64]:
    """(N,) numbers of a column, NaN where it is null. Raises BadTable, naming `where`, for what is not a number."""
    try:
        values = column.cast(pa.float64(), safe=not pa.types.is_uint64(column.type)).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        said = unparsed(error)
        point = ", with a point before the decimals" if _COMMA.fullmatch(said) else ""
        raise BadTable(f"{where}: not numeric: {said}; expected numbers{point}") from None
    return np.asarray(values, dtype=np.float64)


def unparsed(error: Exception) -> str:
    """The text that Arrow could not parse, in quotes; where its error names none, the error."""
    found = _UNPARSED.match(str(error))
    return str(error) if found is None else repr(found[1])


def empty_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """An empty text is no name, as an empty field of a file is none."""
    import pyarrow.compute as pc

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return pc.if_else(pc.equal(column, ""), None, column) if is_text else column


def nan_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with null for NaN, with which pandas and others mark what is missing."""
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    missing = pc.is_nan(column)
    return pc.if_else(missing, None, column) if pc.any(missing).as_py() else column


def are_whole(column: pa.ChunkedArray) -> bool:
    """Whether all floats of the column are whole numbers that an integer holds exactly."""
    import pyarrow.compute as pc

    exact = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**53))
    return bool(pc.all(exact).as_py())


def repeated(names: Sequence[Any]) -> Any:
    """The first name that appears more than once; None where all differ."""
    if len(set(names)) == len(names):
        return None
    return next(name for name, times in Counter(names).items() if times > 1)


def require_names(names: Sequence[str | None], column: str, where: str) -> list[str]:
    """The names, in order. Raises BadTable for an empty or repeated one, and where there are none."""
    found = [name or "" for name in names]
    if not found:
        raise BadTable(f"{where}: the table is empty; expected one row for each item")
    if "" in found:
        raise BadTable(f"{where}: row {found.index('')} has no {column}; expected a name in each")
    twice = repeated(found)
    if twice is not None:
        raise BadTable(f"{where}: {column} {twice!r} appears twice; expected one row each")
    return found


def require_columns(table: pa.Table, names: Sequence[str], where: str, hint: str = "") -> None:
    """Raise BadTable unless the table has every column of `names`."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        found = ", ".join(table.column_names) or "no columns"
        raise BadTable(f"{where}: no column {missing[0]!r}; found {found}{'. ' + hint if hint else ''}")
    repeated = [name for name in names if table.column_names.count(name) > 1]
    if repeated:
        raise BadTable(f"{where}: column {repeated[0]!r} appears twice; expected one column of each name")


def _read_jsonl(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    from pyarrow import json as reader

    with pa.input_stream(path, compression="detect") as raw:
        lines = io.BufferedReader(raw)
        while text := lines.read() if size is None else b"".join(islice(lines, size)):
            if size is not None and text.isspace():
                continue
            # by one thread: by several, columns come in the order of the block that is ready first
            blocks = reader.ReadOptions(use_threads=False, block_size=_block_size(text))
            table = reader.read_json(pa.BufferReader(text), blocks)
            times = _times_as_text(pa.struct(list(table.schema)))
            if times is not None:  # Arrow guesses times from text; a name that looks like a date stays as written
                options = reader.ParseOptions(explicit_schema=pa.schema(list(times)))
                table = reader.read_json(pa.BufferReader(text), blocks, options).select(table.column_names)
            for name in _beyond_int64(table) if _LONG.search(text) else ():
                options = reader.ParseOptions(explicit_schema=pa.schema([(name, pa.decimal256(76, 0))]))
                try:
                    whole = reader.read_json(pa.BufferReader(text), blocks, options).column(name)
                except pa.ArrowInvalid:  # one has a fraction, or is larger than an identifier
                    continue
                table = table.set_column(table.column_names.index(name), name, _as_written(whole))
            yield table


_LONG = re.compile(rb"[:\[,\s]-?\d{19,}\s*[,}\]\r\n]")
"""An integer with as many digits, and no point or exponent, as some have that 64 bits with a sign do not hold."""


def _beyond_int64(table: pa.Table) -> list[str]:
    """Columns of floats that may have been written as integers: Arrow takes those of 64 bits and more for floats."""
    import pyarrow.compute as pc

    return [
        entry.name
        for entry, column in zip(table.schema, table.columns, strict=True)
        if pa.types.is_floating(entry.type) and pc.any(pc.greater_equal(pc.abs(column), 2.0**63)).as_py()
    ]


def _as_written(whole: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers as such where 64 bits hold them, else as text."""
    try:
        return whole.cast(pa.uint64())
    except pa.ArrowInvalid:
        return whole.cast(pa.string())


def _times_as_text(kind: pa.DataType) -> pa.DataType | None:
    """Of a type the parts that hold times, as text; None where none does."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = _times_as_text(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        found = ((kind.field(n).name, _times_as_text(kind.field(n).type)) for n in range(kind.num_fields))
        parts = [(name, inner) for name, inner in found if inner is not None]
        return pa.struct(parts) if parts else None
    return None


def _block_size(text: bytes) -> int:
    """Bytes of JSON Lines that Arrow is to read at a time: a block whose first value is null ends the process.

    Raises ValueError where that is the first value of all.
    """
    text = text.removeprefix(delimited.BOM)
    usual = text.count(b"\n{") + text.startswith(b"{") == text.count(b"\n") + (not text.endswith(b"\n"))
    if usual or not _NULL.search(text):
        return JSON_BLOCK
    if _NULL.match(text.lstrip()):
        raise ValueError("it begins with null; expected an object, {...}, in each line")
    return max(JSON_BLOCK, len(delimited.BOM) + len(text))


def _read_parquet(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    from pyarrow import parquet

    with pa.input_stream(path, compression="detect") as handle:
        source = pa.BufferReader(handle.read()) if path.suffix == ".gz" else path
    with parquet.ParquetFile(source, pre_buffer=False) as file:  # buffering would read all of it ahead
        require_shape(path, file.metadata.num_rows, file.metadata.num_columns)
        there = file.schema_arrow
        wanted = None if columns is None else [name for name in columns if name in there.names]
        if size is None or not file.metadata.num_rows:
            yield file.read(wanted)
            return
        for batch in file.iter_batches(batch_size=size, columns=wanted, use_threads=False):
            yield pa.Table.from_batches([batch])


def _write_csv(handle: IO[bytes], tables: Iterable[pa.Table], delimiter: str = ",") -> None:
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    shown = (_no_empty_lines(defused(table)) for table in tables)
    _write_with(partial(csv.CSVWriter, write_options=options), handle, shown)


def _no_empty_lines(table: pa.Table) -> pa.Table:
    """The table with empty text, which is quoted, for null in a single column: an empty line is read as no row."""
    if table.num_columns != 1:
        return table
    return table.set_column(0, table.column_names[0], table.column(0).cast(pa.string()).fill_null(""))


def _write_parquet(handle: IO[bytes], tables: Iterable[pa.Table]) -> None:
    from pyarrow import parquet

    _write_with(parquet.ParquetWriter, handle, tables)


def _write_with(open_writer: Any, handle: IO[bytes], tables: Iterable[pa.Table]) -> None:
    rest = iter(tables)
    first = next(rest)
    with open_writer(handle, first.schema) as writer:
        writer.write_table(first)
        for table in rest:
            writer.write_table(table)


def _write_jsonl(handle: IO[bytes], tables: Iterable[pa.Table]) -> None:
    for table in tables:
        for batch in table.to_batches(max_chunksize=10_000):
            lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())
            handle.write("".join(lines).encode())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_READERS: dict[str, Any] = {
    "csv": delimited.read,
    "tsv": partial(delimited.read, separator="\t"),
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "xlsx": excel.read,
}
_WRITERS: dict[str, Any] = {
    "csv": _write_csv,
    "tsv": partial(_write_csv, delimiter="\t"),
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
