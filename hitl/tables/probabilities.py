"""Read model probabilities from any of the usual files as one table: item, p_<class>.

    .csv .tsv .jsonl .parquet          columns item, p_<class>
    .jsonl .parquet .arrow .feather,   a column item and a column of lists, one number per class: `probabilities` or
    a folder of Dataset.save_to_disk   `probs`, or `logits`, which are passed through a softmax
    .npz                               arrays `probabilities` (or `logits`) (N, J), `items` (N,) and `classes` (J,)
    .npy, .npz without `items`         a bare (N, J) array: the caller names its rows and columns

A list has no names. Its classes are those of the ClassLabel that a Hugging Face dataset stores in its schema, else
those that the caller names, in order. Without a column of items the rows are those of the caller's items, in order, and
their number must agree. If a row is null or all NaN the model abstains; a partly NaN row is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable
from hitl.tables.batches import read_any
from hitl.tables.columns import as_text, is_vector, repeated, require_columns, vectors
from hitl.tables.places import place_in, row_number
from hitl.tables.vectors import read_arrays

if TYPE_CHECKING:
    from hitl.platform import Question

ITEM = "item"
Array = npt.NDArray[np.float64]

ROW_TOLERANCE = 1e-3
"""Maximum deviation from 1 of the sum of a row of probabilities; within it the row is renormalized."""

LISTS = ("probabilities", "probs", "logits")
"""Names of a column or array with one number per class."""

ARRAYS = (".npz", ".npy")


def read_probabilities(
    path: str | Path,
    item: str = "item",
    *,
    items: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> pa.Table:
    """Return a table of item (text) and p_<class> (N rows, each a distribution, or all null: the model abstains).

    `items` and `classes` name the rows and columns of an array or list without names. Columns p_<class>
    are returned unchanged; `hitl.Evidence` checks them. Raise BadTable for a wrong shape, rows that are partly NaN,
    not finite, negative or do not sum to 1, and for names that are missing or of the wrong number.
    """
    path = Path(path)
    if path.suffix.lower() in ARRAYS:
        where = str(path)
        name, raw, own_items, own_classes = _from_arrays(path)
    else:
        table = read_any(path, [item])
        if any(name.startswith("p_") for name in table.column_names):
            return table
        name, raw, own_items, own_classes = _from_lists(path, table, item)
        where = f"{path}, {name}"
    rows = _names(path, "items", own_items, items, len(raw))
    columns = _names(path, "classes", own_classes, classes, raw.shape[1])
    return as_table(rows, columns, distributions(raw, name == "logits", where, rows), item)


def by_question(path: str | Path, key_of: Mapping[str, str], questions: Sequence[Question]) -> dict[str, pa.Table]:
    """Return question -> a table of item and p_<class>, from a file that names its items by the user's own ids.

    `key_of` maps an own id to the project's key; rows of other items are left out. The columns p_<class> determine the
    question: the one with these classes. For yes/no questions "<control>=<class>" the column p_<class> is the
    chance of yes. Raise BadTable if no item is in the project, or no question or several match.
    """
    alone = questions[0].classes if len(questions) == 1 else None
    table = read_probabilities(path, classes=alone)
    require_columns(table, [ITEM], str(path))
    names = as_text(table.column(ITEM)).to_pylist()
    rows = [row for row, name in enumerate(names) if name in key_of]
    if not rows:
        raise BadTable(
            f"{path}: none of its {len(names)} items is one of the project's {len(key_of)} ({names[:1]} beside "
            f"{list(key_of)[:1]}); expected the ids that `hitl export` writes"
        )
    kept = table.take(rows)
    keys = pa.array([key_of[names[row]] for row in rows])
    columns = {name.removeprefix("p_"): kept.column(name) for name in kept.column_names if name.startswith("p_")}
    return {
        question: pa.table({ITEM: keys, **{f"p_{name}": column for name, column in own.items()}})
        for question, own in _of_questions(str(path), columns, questions).items()
    }


def _of_questions(
    path: str, columns: Mapping[str, pa.ChunkedArray], questions: Sequence[Question]
) -> dict[str, dict[str, pa.ChunkedArray]]:
    """Return question -> class -> its column."""
    fitting = [question for question in questions if columns.keys() <= set(map(str, question.classes))]
    if len(fitting) == 1:
        return {fitting[0].name: dict(columns)}
    ticked = {f"{name}": question.name for question in questions for name in [question.name.partition("=")[2]] if name}
    if columns.keys() <= ticked.keys() and not fitting:
        return {
            ticked[name]: {"yes": yes, "no": pc.subtract(1.0, pc.cast(yes, pa.float64()))}
            for name, yes in columns.items()
        }
    asked = "; ".join(f"{question.name}: {', '.join(map(str, question.classes))}" for question in questions)
    raise BadTable(f"{path}: its columns p_{', p_'.join(columns)} fit no single question; there are {asked}")


def softmax(logits: Array) -> Array:
    """Return (N, J) the distribution of each row of logits; a row of NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def distributions(values: Array, logits: bool, where: str, rows: Sequence[object] | None = None) -> Array:
    """Return (N, J) rows that are distributions or all NaN, from probabilities or logits.

    Raise BadTable, naming the row (and its item), for any other row; within a tolerance rows are renormalized.
    """

    def complain(wrong: Any, what: str) -> None:
        bad = np.flatnonzero(wrong)
        if bad.size:
            row = int(bad[0])
            named = "" if rows is None else f" (item {rows[row]!r})"
            raise BadTable(f"{where}: row {row}{named} {what.format(total=values[row].sum())}")

    abstains = np.asarray(np.isnan(values).all(axis=1))
    complain(~abstains & np.isnan(values).any(axis=1), "is NaN in part; expected numbers, or NaN in the whole row")
    complain(~abstains & ~np.isfinite(values).all(axis=1), "is not finite; expected numbers")
    if logits:
        return softmax(values)
    complain((values < 0).any(axis=1), "has a negative probability; are these logits? Then name them 'logits'")
    complain(
        ~abstains & (np.abs(values.sum(axis=1) - 1) > ROW_TOLERANCE),
        "sums to {total:.6g}, not to 1; are these logits? Then name them 'logits'",
    )
    result: Array = values / values.sum(axis=1, keepdims=True)
    return result


def as_table(items: Sequence[object], classes: Sequence[object], values: Array, item: str = "item") -> pa.Table:
    """Return a table of item and p_<class>; a row of NaN is null. Raise BadTable when a class is named twice."""
    names = [str(int(name) if isinstance(name, float) and name.is_integer() else name) for name in classes]
    if repeated(names) is not None:
        raise BadTable(f"the classes {', '.join(map(str, classes))}: one is named twice")
    columns = {item: as_text(pa.chunked_array([pa.array(items)]))} if len(items) else {item: pa.array([], pa.string())}
    for code, name in enumerate(names):
        columns[f"p_{name}"] = pa.array(values[:, code], from_pandas=True)
    return pa.table(columns)


# -- arrays ----------------------------------------------------------------------------------------------------


def _from_arrays(path: Path) -> tuple[str, Array, Any, Any]:
    """Return the name of the array, its (N, J) numbers, and the items and classes of the file, None if missing."""
    ours = (*LISTS, "items", "classes")
    found, there = read_arrays(path, lambda name: name in ("", *ours))
    if path.suffix.lower() == ".npy":
        found, there = {"probabilities": found[""]}, []
    name, raw = _the_one(path, {key: found[key] for key in LISTS if key in found}, there)
    if raw.ndim != 2 or raw.dtype.kind not in "fiu":
        raise BadTable(f"{path}: {name} has shape {raw.shape} of {raw.dtype}; expected numbers (items, classes)")
    return name, raw.astype(np.float64), found.get("items"), found.get("classes")


def _names(
    path: Path, what: str, own: npt.NDArray[Any] | Sequence[Any] | None, given: Sequence[Any] | None, number: int
) -> list[Any]:
    """Return the names of the rows or columns: the file's own, else the given ones."""
    names = own if own is not None else given
    if names is None:
        flag = "a table with --items" if what == "items" else "them with --classes"
        raise BadTable(f"{path}: has no {what}; name {flag}, in the order of the array")
    listed: list[Any] = names.tolist() if isinstance(names, np.ndarray) else list(names)
    if len(listed) != number or any(isinstance(name, list) for name in listed):
        whose = "its own" if own is not None else "those given"
        raise BadTable(
            f"{path}: {number} {'rows' if what == 'items' else 'columns'} but {len(listed)} {what} ({whose})"
        )
    twice = repeated(listed)
    if twice is not None:
        raise BadTable(f"{path}: {what} name {twice!r} twice; expected each once")
    return listed


def _the_one(path: Path, found: Mapping[str, Any], there: Sequence[str]) -> tuple[str, Any]:
    if not found:
        raise BadTable(
            f"{path}: no column p_<class>, and none of {', '.join(LISTS)}; found {', '.join(there) or 'nothing'}"
        )
    if len(found) > 1:
        raise BadTable(f"{path}: has {' and '.join(found)}; expected one of them")
    return next(iter(found.items()))


# -- lists in tables -------------------------------------------------------------------------------------------


def _from_lists(path: Path, table: pa.Table, item: str) -> tuple[str, Array, list[str] | None, list[str] | None]:
    """Read a column of lists, in the form of `_from_arrays`."""
    found = {name: table.column(name) for name in LISTS if name in table.column_names}
    found = {name: column for name, column in found.items() if is_vector(column.type)}
    name, column = _the_one(path, found, table.column_names)
    raw = vectors(column, f"{path}, column {name!r}")
    items = table.column(item).to_pylist() if item in table.column_names else None
    if items is not None and None in items:
        where = place_in(table, lambda row: f"{path}, {row_number(row)}")(items.index(None))
        raise BadTable(f"{where}: the {item} is empty; expected a name in every row")
    return name, raw, items, _class_label(path, table, raw.shape[1])


def _class_label(path: Path, table: pa.Table, width: int) -> list[str] | None:
    """Return the classes of the ClassLabel, from the schema that Hugging Face `datasets` writes; None without one."""
    stated = (table.schema.metadata or {}).get(b"huggingface")
    if stated is None:
        return None
    features = json.loads(stated).get("info", {}).get("features", {})
    labels = {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }
    fitting = {name: names for name, names in labels.items() if len(names) == width}
    if labels and not fitting:
        sizes = ", ".join(f"{name!r} of {len(names)}" for name, names in labels.items())
        raise BadTable(f"{path}: {width} numbers a row, but ClassLabel {sizes}; expected one number for each class")
    if len({tuple(names) for names in fitting.values()}) > 1:
        chosen = fitting.get("label") or fitting.get("labels")
        if chosen is None:
            raise BadTable(f"{path}: several ClassLabel columns ({', '.join(fitting)}); keep the one that is meant")
        return [str(name) for name in chosen]
    return [str(name) for name in next(iter(fitting.values()))] if fitting else None
