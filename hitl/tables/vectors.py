"""Features of items in a file: numbers (N, D) by the names of the items.

.csv .tsv .jsonl .parquet .arrow     the column of the items, and columns of numbers or of lists of numbers
.npz                                 arrays `items` (N,), and one of numbers (N, D) under any other name

numpy files are checked before their arrays are loaded: a header may state any shape, for which numpy allocates memory
before it reads the numbers.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.batches import read_any
from hitl.tables.columns import require_columns, require_names, vectors
from hitl.tables.encoding import names_of
from hitl.tables.files import parsing, write_table
from hitl.tables.limits import require_harmless

Array = npt.NDArray[np.float64]

FEATURES = "features"
"""Name of the column of lists that is written."""

ITEMS = "items"


def read_vectors(path: str | Path, item: str = "item") -> tuple[list[str], Array]:
    """Return N names of items and their (N, D) numbers, NaN where a field is empty.

    Raise BadTable, naming the column, for a value that is not a number, and for an item that is repeated or has no
    name.

    Example:
        >>> import tempfile, pathlib
        >>> from hitl.tables.vectors import read_vectors
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "features.csv"
        >>> _ = path.write_text("item,size,weight\\na,1,2\\nb,3,4\\n")
        >>> read_vectors(path)[1].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    path = Path(path)
    names, x_nd = _from_arrays(path) if path.suffix == ".npz" else vectors_of(read_any(path, [item]), str(path), item)
    return require_names(names, item, str(path)), x_nd


def write_vectors(path: str | Path, items: Sequence[str], x_nd: Array, item: str = "item") -> None:
    """Write a table: the items and a list of numbers each in Parquet and JSON Lines, else a column per number.

    A row of NaN is written as an empty one.
    """
    missing = np.isnan(x_nd).any(axis=1)
    columns = {item: pa.array(items, pa.string())}
    if Path(path).suffix in (".parquet", ".jsonl"):
        columns[FEATURES] = pa.array(x_nd.tolist(), pa.list_(pa.float64()), mask=missing)
    else:
        columns |= {f"f{d}": pa.array(x_nd[:, d], mask=missing) for d in range(x_nd.shape[1])}
    write_table(path, pa.table(columns))


def packed(numbers: Array) -> bytes:
    """Return the numbers as little-endian bytes after a precision code: f if single is exact, else d."""
    with np.errstate(over="ignore"):
        short = numbers.astype("<f4")
    if np.array_equal(short, numbers):
        return b"f" + bytes(short.tobytes())
    return b"d" + bytes(numbers.astype("<f8").tobytes())


def unpacked(rows: Sequence[bytes]) -> Array:
    """Return the (N, D) numbers of N packed rows; (0, 0) for none."""
    if not rows:
        return np.empty((0, 0))
    return np.stack([np.frombuffer(row, "<f4" if row[:1] == b"f" else "<f8", offset=1) for row in rows]).astype(
        np.float64
    )


def vectors_of(table: pa.Table, where: str, item: str = "item") -> tuple[list[Any], Array]:
    """Return N names of items and their (N, D) numbers, from columns of numbers or of lists of numbers.

    Raise BadTable, naming `where` and the column, for a value that is not a number.
    """
    require_columns(table, [item], where)
    columns = [name for name in table.column_names if name != item]
    if not columns or not table.num_rows:
        raise BadTable(
            f"{where}: expected a column {item!r}, others of numbers or lists of numbers, and one row for each item"
        )
    parts = [vectors(table.column(name), f"{where}, column {name!r}") for name in columns]
    return names_of(table.column(item)).to_pylist(), np.hstack(parts)


def _from_arrays(path: Path) -> tuple[list[str | None], Array]:
    arrays, _ = read_arrays(path)
    names = arrays.pop(ITEMS, None)
    numbers = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiu"]
    if names is None or len(numbers) != 1 or len(numbers[0]) != len(names):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise BadTable(f"{path}: expected arrays {ITEMS!r} (N,) and one of numbers (N, D); found {shapes or 'none'}")
    return [str(name) for name in names.tolist()], numbers[0].astype(np.float64)


# -- files of numpy ----------------------------------------------------------------------------------------

KINDS = "fiubUS"
"""Allowed dtypes: numbers, booleans and text. Objects would be pickled, and a pickle is code."""


def read_arrays(
    path: Path, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return the wanted arrays by name, and the names of all; the one of .npy is called "". Raise BadTable."""
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    with parsing(path, path.suffix.lower().removeprefix(".")):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                _require_numbers(path, "the array", file, path.stat().st_size)
            return {"": np.load(path, allow_pickle=False)}, [""]
        require_harmless(path, "npz")
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy") and wanted(member.filename.removesuffix(".npy")):
                    with archive.open(member) as file:
                        _require_numbers(path, member.filename, file, member.file_size)
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files if wanted(name)}, list(loaded.files)


def _require_numbers(path: Path, name: str, file: IO[bytes], size: int) -> None:
    """Raise BadTable if a header promises more than the file holds, or objects."""
    numpy_format: Any = np.lib.format
    read = {1: numpy_format.read_array_header_1_0, 2: numpy_format.read_array_header_2_0}
    version = numpy_format.read_magic(file)[0]
    if version not in read:
        raise BadTable(f"{path}: {name} is of version {version} of the format; expected 1 or 2")
    shape, _, kind = read[version](file)
    if kind.hasobject:
        raise BadTable(f"{path}: holds Python objects; save names as text, np.array(names, dtype=str)")
    if kind.kind not in KINDS:
        raise BadTable(f"{path}: {name} holds {kind}; expected numbers or text")
    if math.prod(shape) * max(kind.itemsize, 1) > size:
        raise BadTable(f"{path}: {name} should have the shape {shape}, for which the file is too short")
