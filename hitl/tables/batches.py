"""A table read a batch at a time, so that memory is bounded by the batch and not by the file (in Parquet: by a row
group; Arrow reads CSV some 32 MB ahead).

CSV, TSV, JSON Lines (.gz of these) and Parquet as `hitl.tables.files` reads them, and the two forms in which Hugging
Face `datasets` keeps data, without need of that library: Arrow IPC (.arrow, .feather; stream or file) and the folder
that `Dataset.save_to_disk` writes, whose state.json lists its Arrow files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.files import numbers_of, parsing, read_parts, read_table, require_columns, with_text
from hitl.tables.limits import require_fit, require_shape
from hitl.tables.places import Place, row_number

ARROW = (".arrow", ".feather")
STATE = "state.json"


def is_arrow(path: Path) -> bool:
    """Whether the path is an Arrow IPC file, or a folder and so (by its state.json) a Hugging Face dataset."""
    return path.is_dir() or path.suffix.lower() in ARROW


def read_any(path: str | Path, text: Sequence[str] = ()) -> pa.Table:
    """A whole table of any of the formats; the columns named in `text` come back as strings.

    Raises BadTable when it is missing, empty, or not of its format.
    """
    path = Path(path)
    if not is_arrow(path):
        return read_table(path, text)
    with parsing(path, "arrow"):
        parts = list(_arrow_parts(path))
        table = with_text(pa.concat_tables(parts) if parts else pa.table({}), text)
    require_fit(table, path, text)
    return table


def column_names(path: str | Path) -> list[str]:
    """The columns of a table, from its beginning; of JSON Lines those of the first lines."""
    first = next(_open(Path(path), 1_000), None)
    return [] if first is None else list(first.column_names)


def batches(path: str | Path, columns: Sequence[str], size: int) -> Iterator[pa.Table]:
    """The rows in order, in tables of `size` rows (the last may be shorter) with exactly these columns.

    CSV columns are text; a column that JSON Lines leaves out is null. Raises BadTable as `read_any` does.
    """
    waiting: list[pa.Table] = []
    rows = 0
    for part in _open(Path(path), size, columns):
        begin = 0
        while begin < part.num_rows:
            number = min(size - rows, part.num_rows - begin)
            waiting.append(part.slice(begin, number))
            begin, rows = begin + number, rows + number
            if rows == size:
                yield pa.concat_tables(waiting, promote_options="permissive")
                waiting, rows = [], 0
    if rows:
        yield pa.concat_tables(waiting, promote_options="permissive")


def files_of(path: str | Path) -> list[Path]:
    """The files whose bytes make the table: itself, or the Arrow files of a dataset folder."""
    path = Path(path)
    return _dataset_files(path) if path.is_dir() else [path]


def vectors(column: pa.ChunkedArray, where: str, place_of: Place = row_number) -> npt.NDArray[np.float64]:
    """(N, D) from a column of numbers (D = 1) or of lists of D numbers; a null row is all NaN.

    Raises BadTable, naming `where` and the place of the row, for lists of different lengths and for what is no number.
    """
    import pyarrow.compute as pc

    kind = column.type
    if not is_vector(kind):
        return numbers_of(column, where)[:, None]
    lengths = np.asarray(pc.list_value_length(column).fill_null(-1).to_numpy(), dtype=np.int64)
    full = lengths >= 0
    widths = np.unique(lengths[full])
    if len(widths) > 1:
        row = int(np.flatnonzero(full & (lengths != lengths[full][0]))[0])
        raise BadTable(
            f"{where}: {place_of(row)} has {lengths[row]} numbers, others {lengths[full][0]}; expected one length"
        )
    width = int(widths[0]) if len(widths) else 0
    values = np.full((len(column), width), np.nan)
    flat = numbers_of(pc.list_flatten(column.filter(pa.array(full))), where)
    values[full] = flat.reshape(int(full.sum()), width)
    return values


def is_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type holds a list in each row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


# -- formats ---------------------------------------------------------------------------------------------------


def _open(path: Path, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Tables of a few rows or many, with the columns asked for; failures as BadTable."""
    parts = _arrow_parts(path) if is_arrow(path) else read_parts(path, size, columns)
    for number, part in enumerate(parts):
        yield part if columns is None else _select(part, columns, path, number == 0)


def _select(part: pa.Table, columns: Sequence[str], path: Path, first: bool) -> pa.Table:
    if first:
        require_columns(part, columns, str(path))
    for name in columns:
        if name not in part.column_names:
            part = part.append_column(name, pa.nulls(part.num_rows))
    return part.select(list(columns))


def _arrow_parts(path: Path) -> Iterator[pa.Table]:
    if not path.exists():
        raise BadTable(f"{path}: no such file")
    with parsing(path, "arrow"):
        yield from chain.from_iterable(_arrow(file) for file in files_of(path))


def _arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        try:
            reader: Any = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:  # a file with an index behind, as Feather is
            source.seek(0)
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        for batch in reader:
            batch.validate(full=True)  # offsets that point elsewhere would end the process
            require_shape(path, batch.num_rows, len(batch.schema.names))  # reading the names shows that they are text
            yield pa.Table.from_batches([batch])


def _dataset_files(folder: Path) -> list[Path]:
    """The Arrow files of a dataset that Hugging Face's `save_to_disk` wrote."""
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(path.name for path in folder.iterdir() if (path / STATE).is_file())
        raise BadTable(f"{folder}: a dataset of several splits; name the folder of one: {', '.join(splits)}")
    if not (folder / STATE).is_file():
        raise BadTable(f"{folder}: a folder without {STATE}; expected a table, or what Dataset.save_to_disk wrote")
    state = json.loads((folder / STATE).read_text())
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise BadTable(f"{folder}: its rows are chosen by an index; save dataset.flatten_indices() instead")
    return [folder / str(entry["filename"]) for entry in state["_data_files"]]
