"""Read tables in batches: memory is bounded by the batch, not by the file (in Parquet: by a row group).

The formats of `hitl.tables.files`, and the two in which Hugging Face `datasets` stores data, without that library:
Arrow IPC (.arrow, .feather; stream or file) and the folder that `Dataset.save_to_disk` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.columns import require_columns, with_text
from hitl.tables.files import parsing, read_parts, read_table, require_valid
from hitl.tables.limits import require_fit, require_shape

ARROW = (".arrow", ".feather")
STATE = "state.json"


def is_arrow(path: Path) -> bool:
    """Return True for an Arrow IPC file or a folder, which is assumed to be a Hugging Face dataset."""
    return path.is_dir() or path.suffix.lower() in ARROW


def read_any(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """Read a whole table of any of the formats; the columns named in `text` come back as strings.

    Raise BadTable if it is missing, empty, or malformed.
    """
    path = Path(path)
    if not is_arrow(path):
        return read_table(path, text)
    parts = list(_arrow_parts(path))
    table = with_text(pa.concat_tables(parts) if parts else pa.table({}), text)
    require_fit(table, path, text)
    return table


def column_names(path: str | Path) -> list[str]:
    """Return the columns of a table from its beginning; for JSON Lines those of the first lines."""
    first = next(_parts(Path(path), 1_000), None)
    return [] if first is None else list(first.column_names)


def batches(path: str | Path, columns: Sequence[str], size: int) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of `size` rows (the last may be shorter) with exactly these columns.

    CSV columns are text; a column missing from JSON Lines is null. Raise BadTable as `read_any` does.
    """
    path = Path(path)
    waiting: list[pa.Table] = []
    for number, part in enumerate(_parts(path, size, columns)):
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
    """Return the files whose bytes make the table: itself, or the Arrow files of a dataset folder."""
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


def _parts(path: Path, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    return _arrow_parts(path) if is_arrow(path) else read_parts(path, size, columns)


def _arrow_parts(path: Path) -> Iterator[pa.Table]:
    if not path.exists():
        raise BadTable(f"{path}: no such file")
    with parsing(path, "arrow"):
        yield from chain.from_iterable(map(_read_arrow, files_of(path)))


def _read_arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        try:
            reader: Any = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:  # a file with an index at its end, such as Feather
            source.seek(0)
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        for batch in reader:
            part = pa.Table.from_batches([batch])
            require_valid(part)
            require_shape(path, part.num_rows, part.num_columns)
            yield part
