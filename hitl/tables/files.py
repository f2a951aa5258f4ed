"""Tables in files: CSV, JSON Lines and Parquet, read and written; the first sheet of an Excel workbook, read.

Names follow one rule: item, annotator and label are text as written ("007" and "NA" stay as they are). Files are
written atomically: a temporary file beside the target, then a rename.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from hitl.errors import BadTable, Busy, HitlError
from hitl.tables import delimited, excel, json_lines
from hitl.tables.columns import with_text
from hitl.tables.formulas import defused, restored
from hitl.tables.limits import require_fit, require_harmless, require_shape
from hitl.tables.places import from_file

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Formats that are read and written."""

READ = {**FORMATS, ".xlsx": "xlsx"}
SPREADSHEETS = (".xls", ".xlsb", ".xlsm", ".ods", ".numbers")
LONGEST_NAME = 160
"""Maximum bytes of a name within a file name; file systems allow 255."""


def format_of(path: Path) -> str:
    """Return the format of a file to read, by its name. Raise BadTable for an unknown ending."""
    suffix = suffix_of(path)
    if suffix in SPREADSHEETS:
        raise BadTable(f"{path}: {suffix} is not read; save it as .xlsx or .csv")
    if suffix not in READ or (suffix == ".xlsx" and path.suffix == ".gz"):
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {', '.join(READ)} (.gz allowed)")
    return READ[suffix]


def writable_format_of(path: Path) -> str:
    """Return the format of a file to write, by its name. Raise BadTable for an ending that is not written."""
    suffix = suffix_of(path)
    if suffix in READ and suffix not in FORMATS:
        raise BadTable(f"{path}: {suffix} is read but not written; write .csv, which Excel opens")
    if suffix not in FORMATS:
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {', '.join(FORMATS)} (.gz allowed)")
    return FORMATS[suffix]


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format: the one before .gz, in lower case."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


# -- reading -----------------------------------------------------------------------------------------------


def read_table(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """Read a file as an Arrow table; the columns named in `text` come back as strings.

    Columns of CSV and Excel are all text (an empty field is null); JSON Lines and Parquet keep their types elsewhere.
    Columns of a .csv file may be separated by commas, semicolons or tabs. Raise MissingExtra for Excel without its
    library, and BadTable when the file is missing, empty, or not of its format.
    """
    path = Path(path)
    tables = list(read_parts(path))
    if not tables:
        raise BadTable(f"{path}: cannot be read as {format_of(path)}: the file is empty")
    table = with_text(from_file(tables[0], path), text)
    require_fit(table, path, text)
    return table


def read_parts(path: Path, size: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of about `size` rows, or all in one table without a size.

    Parquet reads only the `columns`, if any are named; the other formats read all. Raise BadTable as `read_table`
    does.
    """
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    kind = format_of(path)
    with parsing(path, kind):
        require_harmless(path, kind)
        for part in _READERS[kind](path, size, columns):
            require_shape(path, part.num_rows, len(part.column_names))
            yield restored(part) if kind in ("csv", "tsv") else part


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Turn any error of a parser into BadTable that names the file."""
    try:
        yield
    except HitlError:
        raise
    except MemoryError:
        raise BadTable(f"{path}: cannot be read as {kind}: it takes more memory than there is") from None
    except Exception as error:  # parsers raise nearly anything for hostile bytes
        message = " ".join(f"{error}".split())[:300] or type(error).__name__
        raise BadTable(f"{path}: cannot be read as {kind}: {message}") from error


def require_valid(part: pa.Table) -> None:
    """Raise if text or names are not UTF-8, or offsets are out of range: accessing them would crash the process."""
    part.validate(full=True)
    fields = list(part.schema)
    while fields:
        field = fields.pop()
        assert field.name is not None  # reading a name decodes it
        if pa.types.is_struct(field.type):
            fields += [field.type.field(n) for n in range(field.type.num_fields)]
        elif pa.types.is_list(field.type):
            fields.append(field.type.value_field)


def table_in(folder: Path, name: str) -> Path | None:
    """Find the table of this name, in any format. Raise BadTable if there are two."""
    if not folder.is_dir():
        return None
    paths = sorted(
        path for path in folder.iterdir() if path.name.removesuffix(".gz") in {name + suffix for suffix in FORMATS}
    )
    if len(paths) > 1:
        raise BadTable(f"{folder}: {paths[0].name} and {paths[1].name} both are there; expected one {name} table")
    return paths[0] if paths else None


def _read_parquet(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    from pyarrow import parquet

    with pa.input_stream(path, compression="detect") as handle:
        source = pa.BufferReader(handle.read()) if path.suffix == ".gz" else path
    with parquet.ParquetFile(source, pre_buffer=False) as file:  # buffering would read all of it ahead
        require_shape(path, file.metadata.num_rows, file.metadata.num_columns)
        there = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in there]
        whole = size is None or not file.metadata.num_rows
        batches = file.iter_batches(batch_size=size or 1, columns=wanted, use_threads=False)
        for part in [file.read(wanted)] if whole else map(pa.Table.from_batches, ([batch] for batch in batches)):
            require_valid(part)
            yield part


# -- writing -----------------------------------------------------------------------------------------------


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write an Arrow table atomically in the format of the file name."""
    write_parts(path, [table])


def write_parts(path: str | Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of the same columns into one file, one after the other, atomically."""
    path = Path(path)
    writable_format_of(path)
    with atomic(path) as raw:
        _write_into(raw, path, tables)


def bytes_of(path: Path, table: pa.Table) -> bytes:
    """Return the bytes of a file of this name with this table in it."""
    sink = io.BytesIO()
    _write_into(sink, path, [table])
    return sink.getvalue()


def csv_bytes(table: pa.Table) -> bytes:
    """Return the bytes of a CSV file of this table."""
    return bytes_of(Path("a.csv"), table)


def _write_into(raw: IO[bytes], path: Path, tables: Iterable[pa.Table]) -> None:
    compressed = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if path.suffix == ".gz" else nullcontext(raw)
    with compressed as handle:
        _WRITERS[writable_format_of(path)](handle, tables)


def _write_csv(handle: IO[bytes], tables: Iterable[pa.Table], delimiter: str = ",") -> None:
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    safe = (_no_empty_lines(defused(table)) for table in tables)
    _write_with(partial(csv.CSVWriter, write_options=options), handle, safe)


def _no_empty_lines(table: pa.Table) -> pa.Table:
    """Return a one-column table with nulls replaced by empty text, which is quoted, because empty lines are skipped on
    read."""
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


@contextmanager
def atomic(path: str | Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` only when the block ends without an error.

    A link is followed; a replaced file keeps its permissions. `private`: only the owner may read it. Raises
    BadTable if the folder is missing, or the path is not a file.
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def exclusive_lock(path: Path, written: str, kind: str = "folder") -> Iterator[None]:
    """Hold the lock of a folder (or another `kind`) that is `written`. Raise Busy if another process holds it."""
    with open(path, "wb") as lock:
        with suppress(ImportError):  # no fcntl on Windows: users must avoid two runs at once
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(lock.fileno()), path.stat())  # its last holder may have removed it
            except OSError:
                ours = False
            if not ours:
                raise Busy(f"{written}: another process writes it; wait for it, or name another {kind}") from None
        yield


# -- names of files ----------------------------------------------------------------------------------------


def file_name(name: str, harmless: str = "") -> str:
    """Turn a name into a file name: unchanged if it is plain, else with a digest so that no two collide.

    The characters of `harmless` are kept too.

    Example:
        >>> file_name("ann@home"), file_name("age: <18"), file_name("age: >18")
        ('ann@home', 'age___18-c5dd2fb1', 'age___18-5ac0316f')
    """
    plain = re.sub(rf"[^\w.@+{re.escape(harmless)}-]", "_", name)
    if plain == name and len(plain.encode()) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME // 4]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def require_folder(path: str | Path) -> None:
    """Raise BadTable unless the folder a file is to be written to exists."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise BadTable(f"{path}: the folder {parent} does not exist; make it first, or write elsewhere")


def require_file(path: str | Path) -> None:
    """Raise BadTable if the path is something that a file must not replace: a folder, a device, a pipe."""
    path = Path(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise BadTable(f"{path} is {kind}; expected the name of a file to write")


def require_distinct(outputs: Sequence[Path | None], inputs: Sequence[Path] = ()) -> None:
    """Raise BadTable when a file to write is another file to write, or one that is read."""
    written = [Path(path).resolve() for path in outputs if path is not None]
    read = {Path(path).resolve() for path in inputs}
    twice = [path for path in written if path in read or written.count(path) > 1]
    if twice:
        raise BadTable(f"{twice[0]} is named twice, for an output and another file; each needs a file of its own")


def require_writable(*paths: Path | None) -> None:
    """Raise BadTable unless each table to write has a known format and a folder; None is skipped."""
    require_distinct(paths)
    for path in paths:
        if path is not None:
            writable_format_of(path)
            require_folder(path)
            require_file(path)


_READERS: dict[str, Any] = {
    "csv": delimited.read,
    "tsv": partial(delimited.read, separator="\t"),
    "jsonl": json_lines.read,
    "parquet": _read_parquet,
    "xlsx": excel.read,
}
_WRITERS: dict[str, Any] = {
    "csv": _write_csv,
    "tsv": partial(_write_csv, delimiter="\t"),
    "jsonl": json_lines.write,
    "parquet": _write_parquet,
}
