"""Every kind of table that people have in memory is read as the same table, or named in the error."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hitl.annotations import Annotations
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.tables.columns import table_of
from hitl.tables.layouts import melted

COLUMNS = {"item": ["a", "b", "c"], "annotator": ["x", "y", "x"], "label": ["p", "q", "p"], "score": [1.0, None, 3.0]}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
FRAME = pd.DataFrame(COLUMNS)
WITH_NAN = COLUMNS | {"score": [1.0, float("nan"), 3.0]}
TABLES = {
    "dict": COLUMNS,
    "list of dicts": ROWS,
    "list of dicts, NaN": pl.DataFrame(WITH_NAN).to_dicts(),
    "tuple of dicts": tuple(ROWS),
    "pandas": FRAME,
    "pandas, named index": FRAME.set_index("item"),
    "pandas, categories": FRAME.astype({"item": "category", "label": "category"}),
    "polars": pl.DataFrame(COLUMNS),
    "polars, categories": pl.DataFrame(COLUMNS).with_columns(pl.col("label").cast(pl.Categorical)),
    "polars, NaN": pl.DataFrame(WITH_NAN),
    "arrow": pa.table(COLUMNS),
    "arrow, NaN": pa.table(WITH_NAN),
    "arrow, large text": pa.table(COLUMNS).set_column(2, "label", pa.array(COLUMNS["label"], pa.large_string())),
    "arrow batch": pa.table(COLUMNS).to_batches()[0],
    "hugging face": datasets.Dataset.from_dict(COLUMNS),
    "hugging face, selected": datasets.Dataset.from_list(ROWS[::-1]).select([2, 1, 0]),
}


@pytest.mark.parametrize("given", TABLES.values(), ids=list(TABLES))
def test_every_kind_of_table_is_the_same_table(given: Any) -> None:
    table = table_of(given)
    assert table.to_pylist() == ROWS
    assert {str(kind) for kind in table.schema.types} == {"string", "double"}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_nan_is_no_label(frame: Any) -> None:
    given = frame({"item": ["a", "b", "c"], "x": [0.0, 1.0, float("nan")], "y": [0.0, float("nan"), 1.0]})
    assert melted(table_of(given)).column("label").to_pylist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("labels.csv", "got the name of a file, 'labels.csv': read it first, for instance with pandas.read_csv"),
        (
            datasets.DatasetDict(train=datasets.Dataset.from_dict(COLUMNS)),
            r"got several datasets \(train\): give one of them",
        ),
        (pl.LazyFrame(COLUMNS), r"got LazyFrame: call its .collect\(\) first"),
        (np.zeros((2, 2)), "got ndarray"),
        (pd.Series([1]), "got Series"),
        (pl.Series([1]), "got Series"),
        ([1, 2], "got list"),
        (None, "got NoneType"),
        (7, "got int"),
    ],
)
def test_what_is_no_table_is_told_which_types_are(given: Any, words: str) -> None:
    with pytest.raises(
        BadTable, match=rf"annotations: {words}; expected a DataFrame \(pandas, polars\), an Arrow table"
    ):
        Annotations.from_frame(given)


def test_mixed_types_in_a_column_are_an_error() -> None:
    with pytest.raises(BadTable, match="truth: not a table whose columns have one type each"):
        Evidence.from_tables(COLUMNS, truth={"item": ["a", 1], "label": ["p", "p"]})
