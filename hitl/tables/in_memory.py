"""Convert what Python code has at hand to tables: ground truth as a dict or Series, predictions as an array.

truth            {"a": "cat"}, a pandas Series indexed by item, or a table
probabilities    (model.predict_proba(X), model.classes_), with the items as a third part or in the order of the
                 labels; an (N, J) array, if the classes are known; a DataFrame with a column per class, indexed by
                 item; or a table of item and p_<class>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.columns import Table, as_typed_names, has_columns, is_pandas, table_of
from hitl.tables.encode import Name

if TYPE_CHECKING:
    import pandas as pd

Truth: TypeAlias = "Table | Mapping[Any, Any] | pd.Series[Any]"
Matrix: TypeAlias = npt.NDArray[Any] | Sequence[Sequence[float]]
Predictions: TypeAlias = "Table | Matrix | tuple[Matrix, Any] | tuple[Matrix, Any, Any]"

PREDICTIONS = (
    "a table with the columns item and p_<class>, (model.predict_proba(X), model.classes_), or an (N, J) array with "
    "classes= to name its columns"
)
SCALARS = (str, int, float, date, np.generic, type(None))


def truth_table(truth: Truth, item: str, label: str) -> pa.Table:
    """Return ground truth as a table of items and labels. Raise BadTable for anything else."""
    given: Any = truth
    if is_pandas(given, "Series"):
        given = {item: given.index, label: given.array}
    elif isinstance(given, Mapping) and all(isinstance(value, SCALARS) for value in given.values()):
        given = {item: list(given), label: list(given.values())}
    table = table_of(given, "truth")
    others = [name for name in table.column_names if name != item]
    if len(others) == 1 and label not in others and item in table.column_names:  # it can only be the label
        table = table.rename_columns([name if name == item else label for name in table.column_names])
    return table


def predictions_tables(
    models: Mapping[str, Predictions],
    labels: pa.Table,
    item: str,
    label: str,
    items: Sequence[Name] | None,
    classes: Sequence[Name] | None,
) -> dict[str, pa.Table]:
    """Return model -> table of item and p_<class>. `item` and `label` name columns of `labels`.

    The rows of an array that names no items are those of `items` or else of `labels`, by first appearance; its columns
    are `classes`. Raise BadTable for anything that is no model's predictions.
    """

    def seen(column: str, known: Sequence[Name] | None) -> list[Name]:
        return list(known) if known is not None else as_typed_names(labels.column(column)).unique().to_pylist()

    def table_with(given: Any, where: str) -> pa.Table:
        if is_pandas(given, "DataFrame") and item not in (*given.columns, *given.index.names):
            given = given.rename(columns={"item": item})  # the name in frames of hitl
        if is_pandas(given, "DataFrame") and item not in (*given.columns, *given.index.names):
            if len(given.select_dtypes("number").columns) < len(given.columns):
                there = ", ".join(map(str, given.columns))
                raise BadTable(f"{where}: no column {item!r}; found {there}. Expected {PREDICTIONS}")
            names = [name[2:] if str(name).startswith("p_") else name for name in given.columns]
            given = (given.to_numpy(), names, given.index)
        if has_columns(given):
            table = table_of(given, where)
            known = set(map(str, seen(label, classes)))
            if known.isdisjoint(table.column_names) or any(name.startswith("p_") for name in table.column_names):
                return table
            return table.rename_columns([name if name == item else f"p_{name}" for name in table.column_names])
        if is_named(given):
            p_nj, columns, rows = (*given, None)[:3]
        else:
            p_nj, columns, rows = given, classes, None
        return _table(p_nj, columns, seen(item, items) if rows is None else rows, where)

    def _table(values: Any, columns: Any, rows: Any, where: str) -> pa.Table:
        try:
            p_nj = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            p_nj = np.empty(0)
        if p_nj.ndim != 2 or columns is None:
            raise BadTable(f"{where}: got {type(values).__name__}; expected {PREDICTIONS}")
        expected = len(rows), len(columns)
        if p_nj.shape != expected:
            raise BadTable(
                f"{where}: has shape {p_nj.shape}; expected {expected}: a row per item, in the order in which the "
                "labels first name them, and a column per class; (array, classes, items) names the items of the rows"
            )
        names = as_typed_names(pa.chunked_array([pa.array(columns)])).to_pylist()
        p_columns = {f"p_{name}": pa.array(p_nj[:, j], from_pandas=True) for j, name in enumerate(names)}
        return pa.table({item: pa.array(rows)} | p_columns)

    return {name: table_with(given, f"probabilities {name!r}") for name, given in models.items()}


def is_named(predictions: Any) -> bool:
    """Return True for (array, classes) and (array, classes, items)."""
    return isinstance(predictions, tuple) and len(predictions) in (2, 3) and np.ndim(predictions[0]) == 2
