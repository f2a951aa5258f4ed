"""Write tables to files, atomically: a temporary file beside the target, then a rename.

Text in CSV that a spreadsheet would run as a formula is written with a leading apostrophe, which reading removes. Such
text may come from anyone who writes on the platform, and a formula could send the table to someone else.

    =HYPERLINK("http://...")     in a file: '=HYPERLINK("http://...")
    '=1                          in a file: ''=1, so that reading restores what was written
    -3.5 and -                   stay as they are, because a number or a single sign is no formula
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable, Busy
from hitl.tables.columns import is_text

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Formats that are both written and read: suffix -> name."""

READ_ONLY = (".xlsx",)
LONGEST_NAME = 160
"""Maximum bytes of a name within a file name; file systems allow 255."""

FORMULA = r"(?s)^'*[=+\-@\t\r]."
"""Text that begins like a formula, perhaps after apostrophes."""

NUMBER = r"^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?$"
"""Number, which is no formula even if it begins with a sign."""

FIRST = ("'", "=", "+", "-", "@", "\t", "\r")


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format: the one before .gz, in lower case."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def writable_format_of(path: Path) -> str:
    """Return the format of a file to write, from its name. Raise BadTable for a suffix that is not written."""
    suffix = suffix_of(path)
    if suffix in READ_ONLY:
        raise BadTable(f"{path}: {suffix} is read but not written; write .csv, which Excel opens")
    if suffix not in FORMATS:
        raise BadTable(f"{path}: expected a file name that ends in one of {', '.join(FORMATS)} (.gz allowed)")
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
    """Return the contents of a file with this name and this table."""
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
    """Return the table with formulas defused. If it has a single column, null becomes empty text.

    Empty text is written in quotes. Null would be an empty line, which is skipped when the file is read.
    """
    table = defused(table)
    if table.num_columns != 1:
        return table
    return table.set_column(0, table.column_names[0], table.column(0).cast(pa.string()).fill_null(""))


# -- formulas ----------------------------------------------------------------------------------------------


def defused(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before each formula, in column names too."""

    def is_formula(text: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pc.any(pc.is_in(pc.utf8_slice_codeunits(text, 0, 1), value_set=pa.array(FIRST, text.type))).as_py():
            return pa.chunked_array([pa.nulls(len(text), pa.bool_())])  # avoids the slow patterns
        return pc.and_not(pc.match_substring_regex(text, FORMULA), pc.match_substring_regex(text, NUMBER))

    return _changed(table, is_formula, lambda text: pc.utf8_replace_slice(text, 0, 0, "'"))


def restored(table: pa.Table) -> pa.Table:
    """Undo `defused`: remove one apostrophe before each formula."""

    def is_defused(text: pa.ChunkedArray) -> pa.ChunkedArray:
        quoted = pc.starts_with(text, "'")
        return pc.and_(quoted, pc.match_substring_regex(text, FORMULA)) if pc.any(quoted).as_py() else quoted

    return _changed(table, is_defused, lambda text: pc.utf8_slice_codeunits(text, 1))


def _changed(
    table: pa.Table,
    concerns: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    change: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> pa.Table:
    """Apply `change` to the texts and column names for which `concerns` is true."""

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

    A link is followed. A replaced file keeps its permissions, unless the new one is `private`: only the owner may read
    it. Raise BadTable if the folder is missing, or if the path is a folder or a device.
    """
    path = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    require_place(path)
    rights = 0o600 if private else path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, rights)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk names no file, others the temporary one
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def exclusive_lock(path: Path, written: str) -> Iterator[None]:
    """Hold the lock file `path`. Raise Busy, naming the file or folder `written`, if another process holds it."""
    with open(path, "wb") as lock:
        with suppress(ImportError):  # no fcntl on Windows: users must avoid two runs at once
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(lock.fileno()), path.stat())  # the last holder may have removed it
            except OSError:
                ours = False
            if not ours:
                raise Busy(f"{written}: another process writes it; wait for it, or write elsewhere") from None
        yield


def file_name(name: str, harmless: str = "") -> str:
    """Turn a name into a file name: unchanged if plain and short, else with a digest, so that no two collide.

    Besides letters and digits, the characters _ . @ + - and those in `harmless` are plain.

    Example:
        >>> file_name("ann@home"), file_name("age: <18"), file_name("age: >18")
        ('ann@home', 'age___18-c5dd2fb1', 'age___18-5ac0316f')
    """
    plain = re.sub(rf"[^\w.@+{re.escape(harmless)}-]", "_", name)
    if plain == name and len(plain.encode()) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME // 4]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def require_place(*paths: str | Path | None) -> None:
    """Raise BadTable unless files can be written there: the folder exists, and no folder or device has the name."""
    for path in (Path(path) for path in paths if path is not None):
        if not path.parent.is_dir():
            raise BadTable(f"{path}: the folder {path.parent} does not exist; make it first, or write elsewhere")
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
            raise BadTable(f"{path} is {kind}; expected the name of a file to write")


def require_distinct(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raise BadTable if two files to write are the same, or a file to write is also read. None is skipped."""
    written, read = ([Path(path).resolve() for path in paths if path is not None] for paths in (outputs, inputs))
    twice = [path for path in written if path in read or written.count(path) > 1]
    if twice:
        raise BadTable(f"{twice[0]} is named twice, for an output and another file; each needs a file of its own")


def require_writable(
    *tables: Path | None, others: Sequence[Path | None] = (), read: Iterable[Path | None] = ()
) -> None:
    """Raise BadTable unless tables, and `others`, can be written, to different files that are not `read`. Skip None."""
    require_distinct([*tables, *others], read)
    for path in tables:
        if path is not None:
            writable_format_of(path)
    require_place(*tables, *others)


def packed_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a .npz file, in which only arrays that shrink are compressed. Probabilities seldom do."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            rows = np.atleast_1d(array)
            sample = rows[:: 1 + len(rows) // 1000].tobytes()
            shrinks = len(zlib.compress(sample, 1)) < 0.5 * len(sample)  # smaller gains are not worth the time
            method = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getbuffer(), method, compresslevel=1)
    return packed.getvalue()
