"""Write tables to files, atomically: a temporary file beside the target, then a rename.

Text in CSV that a spreadsheet would run as a formula is written with a leading apostrophe, and read without. Names,
labels and texts come from a platform where many may write, and a formula may send a table's contents to somebody else.

    =HYPERLINK("http://...")     in a file: '=HYPERLINK("http://...")
    '=1                          in a file: ''=1, so that reading restores what was written
    -3.5 and -                   stay as they are: a number and a single sign are no formula
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from hitl.errors import BadTable, Busy
from hitl.tables.columns import is_text

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Formats that are written and read."""

READ_ONLY = (".xlsx",)
LONGEST_NAME = 160
"""Maximum bytes of a name within a file name; file systems allow 255."""

FORMULA = r"(?s)^'*[=+\-@\t\r]."
"""Text that begins like a formula, with any apostrophes before it."""

NUMBER = r"^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?$"
"""Number that begins with a sign, which is no formula."""

FIRST = ("'", "=", "+", "-", "@", "\t", "\r")


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format: the one before .gz, in lower case."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def writable_format_of(path: Path) -> str:
    """Return the format of a file to write, by its name. Raise BadTable for an ending that is not written."""
    suffix = suffix_of(path)
    if suffix in READ_ONLY:
        raise BadTable(f"{path}: {suffix} is read but not written; write .csv, which Excel opens")
    if suffix not in FORMATS:
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {', '.join(FORMATS)} (.gz allowed)")
    return FORMATS[suffix]


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


def _write_into(raw: IO[bytes], path: Path, tables: Iterable[pa.Table]) -> None:
    from pyarrow import csv, parquet

    kind = writable_format_of(path)
    compressed = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if path.suffix == ".gz" else nullcontext(raw)
    with compressed as handle:
        if kind == "jsonl":
            for batch in (batch for table in tables for batch in table.to_batches(max_chunksize=10_000)):
                lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())
                handle.write("".join(lines).encode())
            return
        rest = iter(tables if kind == "parquet" else map(_for_spreadsheets, tables))
        first = next(rest)
        options = csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",", quoting_style="needed")
        opened: Any = (
            parquet.ParquetWriter(handle, first.schema)
            if kind == "parquet"
            else csv.CSVWriter(handle, first.schema, write_options=options)
        )
        with opened as writer:
            writer.write_table(first)
            for table in rest:
                writer.write_table(table)


def _for_spreadsheets(table: pa.Table) -> pa.Table:
    """Return the table with formulas defused and, in a single column, empty text for null.

    Empty text is quoted; an empty line would be skipped when the file is read.
    """
    table = defused(table)
    if table.num_columns != 1:
        return table
    return table.set_column(0, table.column_names[0], table.column(0).cast(pa.string()).fill_null(""))


# -- formulas ----------------------------------------------------------------------------------------------


def defused(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before each formula, in column names too."""
    import pyarrow.compute as pc

    def is_formula(text: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pc.any(pc.is_in(pc.utf8_slice_codeunits(text, 0, 1), value_set=pa.array(FIRST, text.type))).as_py():
            return pa.chunked_array([pa.nulls(len(text), pa.bool_())])  # without the slow patterns
        return pc.and_not(pc.match_substring_regex(text, FORMULA), pc.match_substring_regex(text, NUMBER))

    return _changed(table, is_formula, lambda text: pc.utf8_replace_slice(text, 0, 0, "'"))


def restored(table: pa.Table) -> pa.Table:
    """Undo `defused`: remove one apostrophe before each formula."""
    import pyarrow.compute as pc

    def is_defused(text: pa.ChunkedArray) -> pa.ChunkedArray:
        quoted = pc.starts_with(text, "'")
        return pc.and_(quoted, pc.match_substring_regex(text, FORMULA)) if pc.any(quoted).as_py() else quoted

    return _changed(table, is_defused, lambda text: pc.utf8_slice_codeunits(text, 1))


def _changed(
    table: pa.Table,
    concerns: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    change: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> pa.Table:
    """Return the table with the texts, and names of columns, changed that it concerns."""
    import pyarrow.compute as pc

    def changed(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        which = pc.fill_null(concerns(column), False)
        return pc.if_else(which, change(column), column) if pc.any(which).as_py() else None

    for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        if is_text(field.type) and (other := changed(column)) is not None:
            table = table.set_column(place, field.name, other)
    names = changed(pa.chunked_array([pa.array(table.column_names, pa.string())]))
    return table if names is None else table.rename_columns(names.to_pylist())


# -- files -------------------------------------------------------------------------------------------------


@contextmanager
def atomic(path: str | Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` only when the block ends without an error.

    A link is followed; a replaced file keeps its permissions. `private`: only the owner may read it. Raise BadTable if
    the folder is missing, or the path is not a file.
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
def exclusive_lock(path: Path, written: str) -> Iterator[None]:
    """Hold the lock of a file or folder that is `written`. Raise Busy if another process holds it."""
    with open(path, "wb") as lock:
        with suppress(ImportError):  # no fcntl on Windows: users must avoid two runs at once
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(lock.fileno()), path.stat())  # its last holder may have removed it
            except OSError:
                ours = False
            if not ours:
                raise Busy(f"{written}: another process writes it; wait for it, or write elsewhere") from None
        yield


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
