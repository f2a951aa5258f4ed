"""Features of items in a file: numbers (N, D) by the names of the items.

.csv .tsv .jsonl .parquet .arrow     the column of the items, and columns of numbers or of lists of numbers
.npz                                 arrays `items` (N,), and one of numbers (N, D) under any other name
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.arrays import read_arrays
from hitl.tables.batches import read_any
from hitl.tables.columns import require_columns, require_names, vectors
from hitl.tables.encoding import names_of
from hitl.tables.files import write_table

Array = npt.NDArray[np.float64]

FEATURES = "features"
"""The column of lists that is written."""

ITEMS = "items"


def read_vectors(path: str | Path, item: str = "item") -> tuple[list[str], Array]:
    """N names of items and their (N, D) numbers, NaN where a field is empty.

    Raises BadTable, naming the column, for what is not a number, and for an item that is there twice or has no name.

    Example:
        >>> import tempfile, pathlib
        >>> from hitl.tables.vectors import read_vectors
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "features.csv"
        >>> _ = path.write_text("item,size,weight\\na,1,2\\nb,3,4\\n")
        >>> read_vectors(path)[1].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    path = Path(path)
    names, x_nd = _from_arrays(path) if path.suffix == ".npz" else _from_table(path, item)
    return require_names(names, item, str(path)), x_nd


def write_vectors(path: str | Path, items: Sequence[str], x_nd: Array, item: str = "item") -> None:
    """Write a table: the items and a list of numbers each in Parquet and JSON Lines, else a column for each number.

    A row of NaN is an empty one.
    """
    without = np.isnan(x_nd).sum(axis=1) > 0
    columns = {item: pa.array(items, pa.string())}
    if Path(path).suffix in (".parquet", ".jsonl"):
        columns[FEATURES] = pa.array(x_nd.tolist(), pa.list_(pa.float64()), mask=without)
    else:
        for d in range(x_nd.shape[1]):
            columns[f"f{d}"] = pa.array(x_nd[:, d], mask=without)
    write_table(path, pa.table(columns))


def packed(numbers: Array) -> bytes:
    """The numbers as bytes: little-endian, after a letter that says of which kind they are."""
    with np.errstate(over="ignore"):
        short = numbers.astype("<f4")
    if np.array_equal(short, numbers):
        return b"f" + bytes(short.tobytes())
    return b"d" + bytes(numbers.astype("<f8").tobytes())


def unpacked(rows: Sequence[bytes]) -> Array:
    """(N, D) the numbers of N rows; (0, 0) of none."""
    if not rows:
        return np.empty((0, 0))
    kinds = np.array([row[:1] for row in rows])
    parts = {kind: [row[1:] for row in rows if row[:1] == kind] for kind in (b"f", b"d")}
    found = {
        k: np.frombuffer(b"".join(some), f"<{k.decode()}").reshape(len(some), -1) for k, some in parts.items() if some
    }
    x_nd = np.empty((len(rows), next(iter(found.values())).shape[1]))
    for kind, values in found.items():
        x_nd[kinds == kind] = values
    return x_nd


def vectors_of(table: pa.Table, where: str, item: str = "item") -> tuple[list[Any], Array]:
    """N names of items and their (N, D) numbers, of a table whose other columns hold numbers or lists of numbers.

    Raises BadTable, naming `where` and the column, for what is not a number.
    """
    require_columns(table, [item], where)
    columns = [name for name in table.column_names if name != item]
    if not columns or not table.num_rows:
        raise BadTable(
            f"{where}: expected a column {item!r}, others of numbers or lists of numbers, and one row for each item"
        )
    parts = [vectors(table.column(name), f"{where}, column {name!r}") for name in columns]
    return names_of(table.column(item)).to_pylist(), np.hstack(parts)


def _from_table(path: Path, item: str) -> tuple[list[str | None], Array]:
    return vectors_of(read_any(path, [item]), str(path), item)


def _from_arrays(path: Path) -> tuple[list[str | None], Array]:
    arrays, _ = read_arrays(path)
    names = arrays.pop(ITEMS, None)
    found = {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "fiu"}
    if names is None or len(found) != 1 or next(iter(found.values())).shape[0] != len(names):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise BadTable(f"{path}: expected arrays {ITEMS!r} (N,) and one of numbers (N, D); found {shapes or 'none'}")
    return [str(name) for name in names.tolist()], next(iter(found.values())).astype(np.float64)
