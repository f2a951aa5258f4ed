"""Read tables from files, at once or in parts, and find the file and line of a row for messages.

    .csv .tsv .jsonl .parquet (.gz allowed)    .xlsx: the first sheet
    .arrow .feather, and the folder that `Dataset.save_to_disk` of Hugging Face writes

Item, annotator and label are text as written: "007" and "NA" stay as they are. Only whole numbers written as floats
lose their decimals, because 1 and 1.0 are one name. If a file is read in parts, memory is bounded by a part (in
Parquet, by a row group), not by the file. The exception is .parquet.gz, which is read into memory completely.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa

from hitl.errors import BadTable, HitlError
from hitl.tables import columnar, parsers
from hitl.tables.columnar import COPIES, bytes_of
from hitl.tables.columns import FILE, Place, repeated, require_columns, require_names, row_number, with_names
from hitl.tables.limits import memory_limit, require_fit, require_harmless, require_memory, require_shape
from hitl.tables.write import FORMATS, restored, suffix_of

READ = {**FORMATS, ".xlsx": "xlsx"}
SPREADSHEETS = (".xls", ".xlsb", ".xlsm", ".ods", ".numbers")
ARROW = (".arrow", ".feather")
STATE = "state.json"


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
        if (twice := repeated(part.column_names)) is not None:
            raise BadTable(f"{path}: column {twice!r} appears twice; expected one column of each name")
        size += sum(bytes_of(part.column(place), name in text) for place, name in enumerate(part.column_names))
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
            yield from chain.from_iterable(map(columnar.read_arrow, files_of(path)))
            return
        require_harmless(path, kind)
        for part in _parts(path, kind, size, columns):
            require_shape(path, part.num_rows, len(part.column_names))
            yield restored(part) if kind in ("csv", "tsv") else part


def column_names(path: str | Path) -> list[str]:
    """Return the names of the columns from the beginning of a file. Later lines of JSON Lines may have more."""
    path = Path(path)
    kind = format_of(path) if path.is_file() and not is_arrow(path) else ""
    if kind in ("csv", "tsv", "parquet"):
        with parsing(path, kind):
            require_harmless(path, kind)
            if kind == "parquet":
                return columnar.parquet_names(path)
            _, header = next(parsers.csv_rows(path), (1, []))
            names = [header[place] for place in parsers.read_columns(header)]
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
            yield from columnar.read_parquet(path, size, columns)
        case "jsonl":
            yield from parsers.read_json_lines(path, size)
        case "xlsx":
            yield from parsers.read_excel(path)
        case _:
            yield from parsers.read_csv(path)


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
            yield from (line for line, _ in islice(parsers.csv_rows(file), 1, None))
        case "jsonl":
            yield from (line for line, _ in parsers.json_lines(file))
        case "xlsx":
            yield from (line for line, _ in islice(parsers.excel_rows(file), 1, None))


def read_labels(path: Path) -> dict[str, str]:
    """Return item -> label of the rows that have a label. Raises BadTable if an item is missing or appears twice."""
    table = read_table(path, ["item", "label"])
    require_columns(table, ["item", "label"], str(path))
    names = table.column("item").to_pylist()
    items = require_names(names, "item", str(path), place_in(table)) if names else []
    labels = zip(items, table.column("label").to_pylist(), strict=True)
    return {item: label for item, label in labels if label is not None}
