"""Tables in files: CSV, JSON Lines and Parquet, in and out.

A table read from a file has one rule for names: item, annotator and label are text, as written ("007" and
"NA" stay what they are). Files are written whole or not at all: a temporary file beside the target, then a
rename.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from hitl.errors import BadTable

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def format_of(path: Path) -> str:
    """The table format a file name stands for; raises BadTable for an unknown ending."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    try:
        return FORMATS[suffix.lower()]
    except KeyError:
        known = ", ".join(FORMATS)
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {known} (.gz allowed)") from None


def read_table(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """Read a file as an Arrow table; the columns named in `text` come back as strings.

    CSV columns are all read as text (an empty field is null); JSON Lines and Parquet keep their types
    elsewhere. Raises BadTable when the file is missing, empty, or not of its format.
    """
    path = Path(path)
    kind = format_of(path)
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    try:
        table = _READERS[kind](path)
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError) as error:
        raise BadTable(f"{path}: cannot be read as {kind}: {error}") from error
    for name in text:
        if table.column_names.count(name) == 1:
            position = table.column_names.index(name)
            table = table.set_column(position, name, as_text(table.column(name)))
    return table


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write an Arrow table in the format of the file name, whole or not at all."""
    path = Path(path)
    kind = format_of(path)
    with atomic(path) as handle:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=handle, mode="wb", mtime=0) as packed:
                _WRITERS[kind](cast(IO[bytes], packed), table)
        else:
            _WRITERS[kind](handle, table)


@contextmanager
def atomic(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` only when the block ends without an error."""
    path = Path(path)
    require_folder(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_folder(path: str | Path) -> None:
    """Raise BadTable unless the folder a file is to be written to exists."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise BadTable(f"{path}: the folder {parent} does not exist; make it first, or write elsewhere")


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
            format_of(path)
            require_folder(path)
            if Path(path).is_dir():
                raise BadTable(f"{path} is a folder; expected the name of a file to write")


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as strings; whole-numbered floats lose their ".0", so that 3 and 3.0 are one name."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type) and are_whole(column):
        column = column.cast(pa.int64())
    try:
        return column.cast(pa.string())
    except pa.ArrowNotImplementedError:
        raise BadTable(f"a column holds {column.type}; expected plain text or numbers") from None


def empty_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """An empty text is no name, as an empty field of a file is none."""
    import pyarrow.compute as pc

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return pc.if_else(pc.equal(column, ""), None, column) if is_text else column


def are_whole(column: pa.ChunkedArray) -> bool:
    """Whether all floats of the column are whole numbers that an integer holds exactly."""
    import pyarrow.compute as pc

    exact = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**53))
    return bool(pc.all(exact).as_py())


def require_columns(table: pa.Table, names: Sequence[str], where: str, hint: str = "") -> None:
    """Raise BadTable unless the table has every column of `names`."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        found = ", ".join(table.column_names) or "no columns"
        raise BadTable(f"{where}: no column {missing[0]!r}; found {found}{'. ' + hint if hint else ''}")
    repeated = [name for name in names if table.column_names.count(name) > 1]
    if repeated:
        raise BadTable(f"{where}: column {repeated[0]!r} appears twice; expected one column of each name")


def _read_csv(path: Path, delimiter: str = ",") -> pa.Table:
    from pyarrow import csv

    if not path.stat().st_size:
        raise BadTable(f"{path}: the file is empty; expected a header line")
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as reader:
        names = reader.schema.names
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    return csv.read_csv(path, parse_options=parse, convert_options=convert)


def _read_tsv(path: Path) -> pa.Table:
    return _read_csv(path, "\t")


def _read_jsonl(path: Path) -> pa.Table:
    from pyarrow import json

    def read(options: Any = None) -> pa.Table:
        with pa.input_stream(path, compression="detect") as handle:
            return json.read_json(handle, parse_options=options)

    table = read()
    dates = [(entry.name, pa.string()) for entry in table.schema if pa.types.is_timestamp(entry.type)]
    if dates:  # Arrow guesses times from text; a name that looks like a date stays as written
        table = read(json.ParseOptions(explicit_schema=pa.schema(dates))).select(table.column_names)
    return table


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    with pa.input_stream(path, compression="detect") as handle:
        source = pa.BufferReader(handle.read()) if path.suffix == ".gz" else path
    return parquet.read_table(source, partitioning=None)


def _write_csv(handle: IO[bytes], table: pa.Table, delimiter: str = ",") -> None:
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    csv.write_csv(table, handle, write_options=options)


def _write_tsv(handle: IO[bytes], table: pa.Table) -> None:
    _write_csv(handle, table, "\t")


def _write_jsonl(handle: IO[bytes], table: pa.Table) -> None:
    import json

    for batch in table.to_batches(max_chunksize=10_000):
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())
        handle.write("".join(lines).encode())


def _write_parquet(handle: IO[bytes], table: pa.Table) -> None:
    from pyarrow import parquet

    parquet.write_table(table, handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_READERS: dict[str, Callable[[Path], Any]] = {
    "csv": _read_csv,
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
}
_WRITERS: dict[str, Callable[[IO[bytes], Any], None]] = {
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
