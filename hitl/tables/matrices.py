"""Read and write numbers of named items: features (N, D), and the probabilities (N, J) of a model.

Features:
    any table of `hitl.tables.read`    the column of the items, and columns of numbers or of lists of numbers
    .npz                               arrays `items` (N,), and one of numbers (N, D) under any other name

Probabilities, read as one table of item and p_<class>:
    any table                          columns item and p_<class>; or item and one column of lists, one number per
                                       class: `probabilities` or `probs`, or `logits`, which pass through a softmax
    .npz                               arrays `probabilities` (or `logits`) (N, J), `items` (N,) and `classes` (J,)
    .npy, .npz without `items`         a bare (N, J) array: the caller names its rows and columns

A column of lists does not name the classes. They are those of the ClassLabel in the schema of a Hugging Face dataset,
or else those that the caller names, in order. Without a column of items, the rows belong to the items that the caller
names, in order, and there must be as many of each. In a row that is null or all NaN the model abstains; a row that is
partly NaN is an error.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadInput, BadTable
from hitl.tables.columns import (
    Place,
    as_names,
    as_typed_names,
    is_vector,
    repeated,
    require_columns,
    require_names,
    vectors,
)
from hitl.tables.limits import FEWER_NUMBERS, require_harmless, require_memory
from hitl.tables.read import parsing, place_in, read_table
from hitl.tables.write import write_table

ITEM = "item"
Array = npt.NDArray[np.float64]

ROW_TOLERANCE, MOST_ROUNDED = 1e-3, 0.05
"""Maximum deviation from 1 of the sum of a row of probabilities, and of one whose numbers are rounded (`sum_to_one`).
Within it the row is renormalized."""

FEATURES = "features"
"""Name of the column of lists in the files that are written."""

ITEMS = "items"
LISTS = ("probabilities", "probs", "logits")
"""Names of a column or array with one number per class."""

DTYPES = "fiubUS"
"""Allowed kinds of numpy arrays: numbers, booleans and text. Objects are pickled, and loading a pickle runs code."""

NAME_BYTES, COPIES_OF_TEXT = 170, 3
"""Bytes of a name of an array while it is read: two texts of Python, two of Arrow, and their places in lists; and
times that its characters are held, at most, in the size that they have in the array."""

LOGITS = "; are these logits? Then name them 'logits'"


# -- features ----------------------------------------------------------------------------------------------


def read_vectors(path: str | Path, item: str = ITEM) -> tuple[list[str], Array]:
    """Return the names of N items and their (N, D) numbers, NaN where a field is empty.

    Raise BadTable for a value that is not a number, naming the column, and for an item that is repeated or has no name.

    Example:
        >>> import tempfile, pathlib
        >>> from hitl.tables.matrices import read_vectors
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "features.csv"
        >>> _ = path.write_text("item,size,weight\\na,1,2\\nb,3,4\\n")
        >>> read_vectors(path)[1].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    path = Path(path)
    if path.suffix != ".npz":
        table = read_table(path, [item])
        # the table, its columns as numbers, and these side by side
        require_memory(path, 3 * table.nbytes, instead=FEWER_NUMBERS)
        names, x_nd = vectors_of(table, str(path), item)
        return require_names(names, item, str(path), place_in(table)), x_nd
    arrays, _ = read_arrays(path, copies=1)
    own = arrays.pop(ITEMS, None)
    numbers = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiu"]
    if own is None or len(numbers) != 1 or len(numbers[0]) != len(own):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise BadTable(f"{path}: expected arrays {ITEMS!r} (N,) and one of numbers (N, D); found {shapes or 'none'}")
    names = as_names(pa.chunked_array([pa.array(own.tolist())])).to_pylist()
    return require_names(names, item, str(path)), numbers[0].astype(np.float64, copy=False)


def vectors_of(table: pa.Table, where: str, item: str = ITEM) -> tuple[list[Any], Array]:
    """Return the names of N items and their (N, D) numbers, from columns of numbers or of lists of numbers.

    Raise BadTable, naming `where` and the column, for a value that is not a number.
    """
    require_columns(table, [item], where)
    columns = [name for name in table.column_names if name != item]
    if not columns or not table.num_rows:
        raise BadTable(
            f"{where}: expected a column {item!r}, others of numbers or lists of numbers, and one row for each item"
        )
    parts = [vectors(table.column(name), f"{where}, column {name!r}") for name in columns]
    return as_typed_names(table.column(item)).to_pylist(), np.hstack(parts)


def write_vectors(path: str | Path, items: Sequence[str], x_nd: Array, item: str = ITEM) -> None:
    """Write a table of items and their numbers: a column of lists in .parquet and .jsonl, otherwise D columns.

    The numbers of a row that contains NaN are written as empty fields.
    """
    missing = np.isnan(x_nd).any(axis=1)
    columns = {item: pa.array(items, pa.string())}
    if Path(path).suffix in (".parquet", ".jsonl"):
        columns[FEATURES] = pa.array(x_nd.tolist(), pa.list_(pa.float64()), mask=missing)
    else:
        columns |= {f"f{d}": pa.array(x_nd[:, d], mask=missing) for d in range(x_nd.shape[1])}
    write_table(path, pa.table(columns))


def packed(numbers: Array) -> bytes:
    """Return a precision code (f if single precision is exact, else d) and the numbers as little-endian bytes."""
    with np.errstate(over="ignore"):
        short = numbers.astype("<f4")
    if np.array_equal(short, numbers):
        return b"f" + bytes(short.tobytes())
    return b"d" + bytes(numbers.astype("<f8").tobytes())


def unpacked(rows: Sequence[bytes]) -> Array:
    """Return the (N, D) numbers of N packed rows; the shape is (0, 0) without rows."""
    numbers = [np.frombuffer(row, "<f4" if row[:1] == b"f" else "<f8", offset=1) for row in rows]
    return np.stack(numbers).astype(np.float64) if rows else np.empty((0, 0))


# -- probabilities -----------------------------------------------------------------------------------------


def read_probabilities(
    path: str | Path,
    item: str = ITEM,
    *,
    items: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> pa.Table:
    """Return a table of item (text) and p_<class>. A row is a distribution, or all null if the model abstains.

    `items` and `classes` name the rows and columns of arrays or lists without names. Columns p_<class> in the file are
    returned unchanged; `hitl.Evidence` checks them. Raise BadTable for a wrong shape, for rows that are partly NaN, not
    finite, negative or do not sum to 1, and for names that are missing, repeated or not as many as rows or columns.
    """
    path = Path(path)
    own_items: Any
    own_classes: Any
    if path.suffix.lower() in (".npz", ".npy"):
        ours = (*LISTS, ITEMS, "classes")
        arrays, there = read_arrays(path, lambda name: name in ("", *ours))
        if path.suffix.lower() == ".npy":
            arrays, there = {"probabilities": arrays[""]}, []
        name, raw = _the_one(path, {key: arrays[key] for key in LISTS if key in arrays}, there)
        if raw.ndim != 2 or raw.dtype.kind not in "fiu":
            raise BadTable(f"{path}: {name} has shape {raw.shape} of {raw.dtype}; expected numbers (items, classes)")
        values, own_items, own_classes = raw.astype(np.float64), arrays.get(ITEMS), arrays.get("classes")
        where = str(path)
    else:
        table = read_table(path, [item])
        if any(name.startswith("p_") for name in table.column_names):
            return table
        lists = {name: table.column(name) for name in LISTS if name in table.column_names}
        lists = {name: column for name, column in lists.items() if is_vector(column.type)}
        name, column = _the_one(path, lists, table.column_names)
        values = vectors(column, f"{path}, column {name!r}")
        own_items = table.column(item).to_pylist() if item in table.column_names else None
        if own_items is not None and None in own_items:
            row = place_in(table)(own_items.index(None))
            raise BadTable(f"{row}: the {item} is empty; expected a name in every row")
        own_classes, where = _class_label(path, table, values.shape[1]), f"{path}, {name}"
    rows = _names(path, "items", own_items, items, len(values))
    columns = _names(path, "classes", own_classes, classes, values.shape[1])

    return as_table(rows, columns, distributions(values, name == "logits", where, rows), item)


def distributions(values: Array, logits: bool, where: str, items: Sequence[object]) -> Array:
    """Convert (N, J) probabilities or logits to rows that sum to 1, or are all NaN.

    Probabilities that sum to nearly 1 (`sum_to_one`) are renormalized. Raise BadTable, naming the row and its item,
    for any other row.
    """
    readable = np.isfinite(values).all(axis=1) | np.isnan(values).all(axis=1)
    if logits and readable.all():
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    require_distributions(values, lambda row: f"{where}: row {row} (item {items[row]!r})", advice=LOGITS)
    result: Array = values / values.sum(axis=1, keepdims=True)
    return result


def require_distributions(values: Array, place_of: Place, error: type[BadInput] = BadTable, advice: str = "") -> None:
    """Raise an error, naming the row, unless each row (N, J) is a distribution or all NaN."""
    predicts = ~np.isnan(values).all(axis=1)
    checks = (
        (~np.isfinite(values).all(axis=1), "is not finite; expected numbers, or a row of NaN for no prediction"),
        ((values < 0).any(axis=1), f"has a negative probability; expected values in [0, 1]{advice}"),
        (~sum_to_one(values), f"sums to {{total:.6g}}; expected 1{advice}"),
    )
    for wrong, message in checks:
        bad = np.flatnonzero(wrong & predicts)
        if bad.size:
            raise error(f"{place_of(int(bad[0]))} {message.format(total=values[bad[0]].sum())}")


def sum_to_one(values: Array) -> npt.NDArray[np.bool_]:
    """Return (N,) True for rows (N, J) whose sum is 1, up to ROW_TOLERANCE or the rounding to two or three decimals."""
    off_n = np.abs(values.sum(axis=1) - 1)
    near_n = off_n <= ROW_TOLERANCE
    rest = np.flatnonzero(~near_n)
    for decimals in (2, 3) if rest.size else ():
        rounded = np.isclose(values[rest], values[rest].round(decimals), rtol=0, atol=1e-6).all(axis=1)
        most = min(values.shape[1] * 0.5 * 10.0**-decimals, MOST_ROUNDED) + 1e-6
        near_n[rest] |= rounded & (off_n[rest] <= most)
    return np.asarray(near_n)


def row_sums_to_one(shares: Sequence[float]) -> bool:
    """Return True if the probabilities of one item sum to 1, by the rule of `sum_to_one`."""
    return abs(sum(shares) - 1) <= ROW_TOLERANCE or bool(sum_to_one(np.array([shares])).all())


def as_table(items: Sequence[object], classes: Sequence[object], values: Array, item: str = ITEM) -> pa.Table:
    """Return a table of item and p_<class>, with null for NaN. Raise BadTable if a class is named twice."""
    names = [str(int(name) if isinstance(name, float) and name.is_integer() else name) for name in classes]
    if repeated(names) is not None:
        raise BadTable(f"the classes {', '.join(map(str, classes))}: one is named twice")
    columns = {item: as_names(pa.chunked_array([pa.array(items)]))} if len(items) else {item: pa.array([], pa.string())}
    for code, name in enumerate(names):
        columns[f"p_{name}"] = pa.array(values[:, code], from_pandas=True)
    return pa.table(columns)


def _names(path: Path, what: str, own: Any, given: Sequence[Any] | None, number: int) -> list[Any]:
    """Return the names of the rows or columns: those in the file (`own`), or else the `given` ones."""
    names = own if own is not None else given
    if names is None:
        flag = "a table with --items" if what == ITEMS else "them with --classes"
        raise BadTable(f"{path}: has no {what}; name {flag}, in the order of the array")
    listed: list[Any] = names.tolist() if isinstance(names, np.ndarray) else list(names)
    if len(listed) != number or any(isinstance(name, list) for name in listed):
        whose = "its own" if own is not None else "those given"
        raise BadTable(f"{path}: {number} {'rows' if what == ITEMS else 'columns'} but {len(listed)} {what} ({whose})")
    twice = repeated(listed)
    if twice is not None:
        raise BadTable(f"{path}: {what} name {twice!r} twice; expected each once")
    return listed


def _the_one(path: Path, lists: Mapping[str, Any], there: Sequence[str]) -> tuple[str, Any]:
    if not lists:
        raise BadTable(
            f"{path}: no column p_<class>, and none of {', '.join(LISTS)}; found {', '.join(there) or 'nothing'}"
        )
    if len(lists) > 1:
        raise BadTable(f"{path}: has {' and '.join(lists)}; expected one of them")
    return next(iter(lists.items()))


def _class_label(path: Path, table: pa.Table, width: int) -> list[str] | None:
    """Return the classes of the ClassLabel in the schema that Hugging Face `datasets` writes, or None without one."""
    schema = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    labels = {
        name: tuple(map(str, feature["names"]))
        for name, feature in schema.get("info", {}).get("features", {}).items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }
    fitting = {name: names for name, names in labels.items() if len(names) == width}
    if labels and not fitting:
        sizes = ", ".join(f"{name!r} of {len(names)}" for name, names in labels.items())
        raise BadTable(f"{path}: {width} numbers a row, but ClassLabel {sizes}; expected one number for each class")
    different = set(fitting.values())
    chosen = fitting.get("label") or fitting.get("labels") if len(different) > 1 else next(iter(different), None)
    if chosen is None and fitting:
        raise BadTable(f"{path}: several ClassLabel columns ({', '.join(fitting)}); keep the one that is meant")
    return None if chosen is None else list(chosen)


# -- files of numpy ----------------------------------------------------------------------------------------


def read_arrays(
    path: Path, wanted: Callable[[str], bool] = lambda name: True, *, copies: int = 4
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return name -> wanted array, and the names of all arrays. The array of an .npy file has the name "".

    Headers are checked first, because numpy allocates memory for the shape in a header before it reads any number.
    `copies` in double precision must fit as well: four of probabilities, for numbers that are checked, normalized and
    put into columns.
    Raise BadTable for a file that cannot be read.
    """
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    with parsing(path, path.suffix.lower().removeprefix(".")):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                size = _require_numbers(path, "the array", file, path.stat().st_size, copies)
                require_memory(path, size, instead=FEWER_NUMBERS)
            return {"": np.load(path, allow_pickle=False)}, [""]
        require_harmless(path, "npz")
        size = 0
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy") and wanted(member.filename.removesuffix(".npy")):
                    with archive.open(member) as file:
                        size += _require_numbers(path, member.filename, file, member.file_size, copies)
        require_memory(path, size, instead=FEWER_NUMBERS)
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files if wanted(name)}, list(loaded.files)


def _require_numbers(path: Path, name: str, file: IO[bytes], size: int, copies: int) -> int:
    """Return the bytes that an array takes as it is, with copies in double precision, or as names in Python.

    Raise BadTable if it holds objects, or its header states a shape that the file is too short for.
    """
    numpy_format: Any = np.lib.format
    read = {1: numpy_format.read_array_header_1_0, 2: numpy_format.read_array_header_2_0}
    version = numpy_format.read_magic(file)[0]
    if version not in read:
        raise BadTable(f"{path}: {name} is of version {version} of the format; expected 1 or 2")
    shape, _, kind = read[version](file)
    if kind.hasobject:
        raise BadTable(f"{path}: holds Python objects; save names as text, np.array(names, dtype=str)")
    if kind.kind not in DTYPES:
        raise BadTable(f"{path}: {name} holds {kind}; expected numbers or text")
    if math.prod(shape) * max(kind.itemsize, 1) > size:
        raise BadTable(f"{path}: {name} should have the shape {shape}, for which the file is too short")
    as_names = COPIES_OF_TEXT * kind.itemsize + NAME_BYTES
    return int(math.prod(shape) * (as_names if kind.kind in "US" or len(shape) == 1 else kind.itemsize + 8 * copies))
