"""Read tables from files, at once or in parts, and find the file and line of a row for messages.

    .csv .tsv .jsonl .parquet (.gz allowed)    .xlsx: the first sheet
    .arrow .feather, and the folder that `Dataset.save_to_disk` of Hugging Face writes

Item, annotator and label are text as written: "007" and "NA" stay as they are. Only whole numbers written as floats
lose their decimals, because 1 and 1.0 are one name. If a file is read in parts, memory is bounded by a part (in
Parquet, by a row group), not by the file. The exception is .parquet.gz, which is read into memory completely.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable, HitlError
from hitl.tables import parsers
from hitl.tables.columns import FILE, Place, is_text, require_columns, row_number, with_names
from hitl.tables.limits import require_fit, require_harmless, require_shape
from hitl.tables.memory import memory_limit, require_memory
from hitl.tables.write import FORMATS, restored, suffix_of

READ = {**FORMATS, ".xlsx": "xlsx"}
SPREADSHEETS = (".xls", ".xlsb", ".xlsm", ".ods", ".numbers")
ARROW = (".arrow", ".feather")
STATE = "state.json"

MANY_TEXTS = 10_000
"""Texts of a column of a Parquet file from which their lengths are counted before they are read."""

COPIES = 2
"""Times that a table is held at the peak: as it was read, and with its names as text. Measured: 1.4 to 1.7."""


def format_of(path: Path) -> str:
    """Return the format of a file to read, from its name. Raise BadTable for an unknown suffix."""
    suffix = suffix_of(path)
    if suffix in SPREADSHEETS:
        raise BadTable(f"{path}: {suffix} is not read; save it as .xlsx or .csv")
    if suffix not in READ or (suffix == ".xlsx" and path.suffix == ".gz"):
        raise BadTable(f"{path}: unknown table format {suffix!r}; expected one of {', '.join(READ)} (.gz allowed)")
    return READ[suffix]


def is_arrow(path: Path) -> bool:
    """Return True for an Arrow IPC file or a folder, which is assumed to be a Hugging Face dataset."""
    return path.is_dir() or path.suffix.lower() in ARROW


def read_table(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """Read a file as an Arrow table, with the columns in `text` as names of items, annotators or labels (`as_names`).

    In CSV and Excel, all columns are text, and empty fields are null. In other formats, columns that are not in `text`
    keep their types. Columns of a .csv file may be separated by commas, semicolons or tabs. Raise MissingExtra for
    Excel without its library, and BadTable if the file is missing, empty, too large, or not of its format.
    """
    path = Path(path)
    tables, size, most = list[pa.Table](), 0, memory_limit()
    for part in read_parts(path):
        size += sum(_bytes_of(chunk) for column in part.columns for chunk in column.chunks)
        require_memory(path, COPIES * size, most)
        tables.append(part)
    if not tables and not is_arrow(path):
        raise BadTable(f"{path}: cannot be read as {format_of(path)}: the file is empty")
    with parsing(path, "a table"):
        tables = parsers.with_long_integers_as_text(tables)
        table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), FILE: str(path)})
    table = with_names(table, text)
    require_fit(table, path, text)
    return table


def read_parts(path: Path, size: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of about `size` rows; `read_table` joins those that come if it is None.

    Arrow files are always read in the parts in which they were written. Only `columns`, if given, are read from
    Parquet, and all columns from other formats. Raise BadTable as `read_table` does.
    """
    if not (path.is_file() or path.is_dir()):
        raise BadTable(f"{path}: no such file")
    kind = "arrow" if is_arrow(path) else format_of(path)
    with parsing(path, kind):
        if kind == "arrow":
            yield from chain.from_iterable(map(_read_arrow, files_of(path)))
            return
        require_harmless(path, kind)
        for part in _parts(path, kind, size, columns):
            require_shape(path, part.num_rows, len(part.column_names))
            yield restored(part) if kind in ("csv", "tsv") else part


def column_names(path: str | Path) -> list[str]:
    """Return the names of the columns from the beginning of a file. Later lines of JSON Lines may have more."""
    path = Path(path)
    if path.is_file() and not is_arrow(path) and (kind := format_of(path)) in ("csv", "tsv"):
        with parsing(path, kind):
            require_harmless(path, kind)
            names = parsers.csv_header(path)
            return list(restored(pa.table([pa.array([], pa.string())] * len(names), names=names)).column_names)
    first = next(read_parts(path, 1_000), None)
    return [] if first is None else list(first.column_names)


def batches(path: str | Path, columns: Sequence[str], size: int) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of `size` rows (the last may be shorter) with exactly these columns.

    CSV columns are text; a column missing from JSON Lines is null. Raise BadTable as `read_table` does.
    """
    path = Path(path)
    waiting: list[pa.Table] = []
    for number, part in enumerate(read_parts(path, size, columns)):
        if number == 0:
            require_columns(part, columns, str(path))
        for name in columns:
            if name not in part.column_names:
                part = part.append_column(name, pa.nulls(part.num_rows))
        waiting.append(part.select(list(columns)))
        while sum(table.num_rows for table in waiting) >= size:
            rows = pa.concat_tables(waiting, promote_options="permissive")
            yield rows.slice(0, size)
            waiting = [rows.slice(size)] if rows.num_rows > size else []
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")


def files_of(path: str | Path) -> list[Path]:
    """Return the files that hold a table: the file itself, or the Arrow files in the folder of a dataset."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(path.name for path in folder.iterdir() if (path / STATE).is_file())
        raise BadTable(f"{folder}: a dataset of several splits; name the folder of one: {', '.join(splits)}")
    if not (folder / STATE).is_file():
        raise BadTable(f"{folder}: a folder without {STATE}; expected a table, or what Dataset.save_to_disk wrote")
    state = json.loads((folder / STATE).read_text())
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise BadTable(f"{folder}: its rows are chosen by an index; save dataset.flatten_indices() instead")
    return [folder / str(entry["filename"]) for entry in state["_data_files"]]


def table_in(folder: Path, name: str) -> Path | None:
    """Return the file of the table with this name, in any of the FORMATS, or None. Raise BadTable if there are two."""
    if not folder.is_dir():
        return None
    paths = sorted(
        path for path in folder.iterdir() if path.name.removesuffix(".gz") in {name + suffix for suffix in FORMATS}
    )
    if len(paths) > 1:
        raise BadTable(f"{folder}: {paths[0].name} and {paths[1].name} both are there; expected one {name} table")
    return paths[0] if paths else None


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Turn any error that a parser raises into a BadTable error that names the file."""
    try:
        yield
    except HitlError:
        raise
    except MemoryError:
        raise BadTable(f"{path}: cannot be read as {kind}: it takes more memory than there is") from None
    except Exception as error:  # parsers raise nearly anything for hostile bytes
        message = " ".join(f"{error}".split())[:300] or type(error).__name__
        raise BadTable(f"{path}: cannot be read as {kind}: {message}") from error


def _parts(path: Path, kind: str, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    match kind:
        case "parquet":
            yield from _read_parquet(path, size, columns)
        case "jsonl":
            yield from parsers.read_json_lines(path, size)
        case "xlsx":
            yield from parsers.read_excel(path)
        case _:
            yield from parsers.read_csv(path)


def _read_parquet(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    from pyarrow import parquet

    with pa.input_stream(path, compression="detect") as handle:
        source = pa.BufferReader(handle.read()) if path.suffix == ".gz" else path
    with parquet.ParquetFile(source, pre_buffer=False) as file:  # buffering would read the entire file ahead
        require_shape(path, file.metadata.num_rows, file.metadata.num_columns)
        there = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in there]
        whole = size is None or not file.metadata.num_rows
        require_memory(path, COPIES * _unpacked(file, source, wanted, None if whole else size))
        parts = file.iter_batches(batch_size=size or 1, columns=wanted, use_threads=False)
        for part in [file.read(wanted)] if whole else map(pa.Table.from_batches, ([batch] for batch in parts)):
            _require_valid(part)
            yield part


WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 8}
"""Bytes of a value in memory, for types of Parquet with other than 8; those of a text are added."""
NESTED = 32
"""More bytes of a value in a list or struct while it is read: its levels, and buffers that grow. Measured."""


def _unpacked(file: Any, source: Any, wanted: Sequence[str] | None, rows: int | None) -> int:
    """Return the bytes that columns of a Parquet file take in memory, which encoding hides from the sizes it states.

    Texts are read with their dictionary, in which each is stored once, and their lengths added up. If the file is read
    in parts of so many `rows`, return the bytes of the largest part.
    """
    from pyarrow import parquet

    metadata, texts = file.metadata, set[str]()
    sizes = np.zeros(metadata.num_row_groups)
    for group in range(metadata.num_row_groups):
        share = 1.0 if rows is None else min(1.0, rows / max(metadata.row_group(group).num_rows, 1))
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if wanted is None or chunk.path_in_schema.split(".")[0] in wanted:
                width = WIDTHS.get(chunk.physical_type, 8) + NESTED * ("." in chunk.path_in_schema)
                size = max(chunk.num_values * width, chunk.total_uncompressed_size)
                sizes[group] += share * size
                flat = chunk.physical_type == "BYTE_ARRAY" and "." not in chunk.path_in_schema
                texts |= {chunk.path_in_schema} if flat and chunk.num_values >= MANY_TEXTS else set()
    names = sorted(texts)
    with parquet.ParquetFile(source, pre_buffer=False, read_dictionary=names) as encoded:
        for group in range(metadata.num_row_groups if texts else 0):
            for column in encoded.read_row_group(group, names).columns:
                parts = [_bytes_of(part) for chunk in column.chunks for part in _parts_of(chunk, rows)]
                sizes[group] += sum(parts) if rows is None else max(parts, default=0)
    return int(sizes.sum() if rows is None else sizes.max(initial=0))


def _parts_of(chunk: Any, rows: int | None) -> Iterator[Any]:
    yield from (chunk.slice(start, rows) for start in range(0, len(chunk), rows or max(len(chunk), 1)))


def _bytes_of(chunk: Any) -> int:
    """Return the bytes of a column; of texts that are encoded by a dictionary, those that they take as names."""
    if not pa.types.is_dictionary(chunk.type) or not is_text(chunk.type.value_type):
        return int(chunk.nbytes)
    lengths = pc.binary_length(chunk.dictionary)
    return pc.sum(pc.cast(lengths.take(chunk.indices), pa.int64())).as_py() or 0


def _read_arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        begins = 8 * (source.read(6) == b"ARROW1")  # a file with an index at its end, such as Feather
        source.seek(begins)
        for message in pa.ipc.MessageReader.open_stream(source):
            require_memory(path, _uncompressed(message))
        source.seek(0)
        if not begins:
            reader: Any = pa.ipc.open_stream(source)
        else:
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        for batch in reader:
            part = pa.Table.from_batches([batch])
            _require_valid(part)
            require_shape(path, part.num_rows, part.num_columns)
            yield part


def _uncompressed(message: Any) -> int:
    """Return the bytes that the compressed buffers of an Arrow message take, which stand before each of them.

    The message is a FlatBuffer (Message.fbs of Arrow); pyarrow does not show its fields.
    """
    data, body = memoryview(message.metadata), memoryview(message.body or b"")

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, data, at)[0])

    def field(table: int, place: int) -> int:
        """Return where a field of a table is, or 0."""
        vtable = table - number("<i", table)
        there = number("<H", vtable + 4 + 2 * place) if 4 + 2 * place < number("<H", vtable) else 0
        return there and table + there

    def follow(at: int) -> int:
        return at + number("<I", at)

    batch = follow(field(follow(0), 2))
    if message.type == "dictionary":
        batch = follow(field(batch, 1))
    elif message.type != "record batch":
        return 0
    if not field(batch, 3):
        return 0
    buffers = follow(field(batch, 2))
    starts = (
        number("<q", buffers + 4 + 16 * n) for n in range(number("<I", buffers)) if number("<q", buffers + 12 + 16 * n)
    )
    return sum(max(0, struct.unpack_from("<q", body, start)[0]) for start in starts)


def _require_valid(part: pa.Table) -> None:
    """Raise an error if text or names are not UTF-8, or offsets are out of range, which could crash the process."""
    part.validate(full=True)
    fields = list(part.schema)
    while fields:
        field = fields.pop()
        assert field.name is not None  # reading a name decodes it
        if pa.types.is_struct(field.type):
            fields += [field.type.field(n) for n in range(field.type.num_fields)]
        elif pa.types.is_list(field.type):
            fields.append(field.type.value_field)


# -- locations of rows -------------------------------------------------------------------------------------


def name_of(table: pa.Table, otherwise: str) -> str:
    """Return the file that the table was read from, or `otherwise` for a table that is not from a file."""
    name = (table.schema.metadata or {}).get(FILE)
    return otherwise if name is None else str(name.decode())


def place_in(table: pa.Table, otherwise: Place = row_number) -> Place:
    """Return a function that names the file and line of a row of this table, or `otherwise` if not from a file.

    Selecting or reordering rows makes the line numbers invalid.
    """
    name = name_of(table, "")
    return place_in_file(Path(name)) if name else otherwise


def place_in_file(file: Path, begins: int = 0) -> Place:
    """Return a function that names the line of a row of this file, or the row (from 0) if rows are not lines.

    Rows are counted from row number `begins` of the file.
    """
    lines: list[int] | None = None

    def place_of(row: int) -> str:
        nonlocal lines
        if lines is None:  # once for all rows
            lines = list(_lines(file))
        row += begins
        return f"{file}, line {lines[row]}" if row < len(lines) else f"{file}, {row_number(row)}"

    return place_of


def _lines(file: Path) -> Iterator[int]:
    match READ.get(suffix_of(file)):
        case "csv" | "tsv":
            yield from parsers.csv_lines(file)
        case "jsonl":
            yield from (number for number, _ in parsers.json_lines(file))
        case "xlsx":
            yield from parsers.excel_lines(file)
