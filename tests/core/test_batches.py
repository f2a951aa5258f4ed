"""Tables in batches: the same rows as read whole, in every format, whatever the size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hitl.errors import BadTable
from hitl.tables import read
from hitl.tables.columns import numbers_of, vectors
from hitl.tables.write import write_table
from tests.datasets import dataset, feather

TABLE = pa.table({"item": [f"i{n}" for n in range(25)], "n": range(25), "x": np.arange(25) / 4})


def saved(folder: Path, ending: str, table: pa.Table = TABLE) -> Path:
    if ending == "folder":
        return dataset(folder / "data", table.slice(0, 9), table.slice(9))
    if ending == "feather":
        return feather(folder / "t.feather", table)
    write_table(folder / f"t.{ending}", table)
    return folder / f"t.{ending}"


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "jsonl", "jsonl.gz", "parquet", "parquet.gz", "feather", "folder"])
@pytest.mark.parametrize("size", [1, 7, 25, 1000])
def test_batches_are_the_rows_in_order(tmp_path: Path, ending: str, size: int) -> None:
    path = saved(tmp_path, ending)
    found = list(read.batches(path, ["x", "item"], size))
    assert [part.num_rows for part in found] == [size] * (25 // size) + ([25 % size] if 25 % size else [])
    whole = pa.concat_tables(found)
    assert whole.column_names == ["x", "item"]
    assert whole.column("item").to_pylist() == TABLE.column("item").to_pylist()
    assert numbers_of(whole.column("x"), "x").tolist() == TABLE.column("x").to_pylist()
    assert read.column_names(path) == ["item", "n", "x"]
    assert read.read_table(path, ["n"]).column("n").to_pylist() == [str(n) for n in range(25)]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_large_file_is_never_in_memory_as_a_whole(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    rng = np.random.default_rng(0)
    large = pa.table({"item": range(12_000), "text": [rng.bytes(500).hex() for _ in range(12_000)]})
    if ending == "parquet":
        parquet.write_table(large, path, row_group_size=500)
    else:
        write_table(path, large)
    del large
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    for part in read.batches(path, ["item", "text"], 100):
        peak = max(peak, pa.total_allocated_bytes() - before)
        rows += part.num_rows
    assert rows == 12_000
    assert peak < path.stat().st_size / 3


def test_lines_may_leave_a_column_out_later_and_mix_whole_and_broken_numbers(tmp_path: Path) -> None:
    lines = [{"item": "2024-01-01", "x": 1}] * 4 + [{"item": "b", "x": 0.5}] * 4 + [{"item": "c"}] * 4
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    whole = pa.concat_tables(read.batches(tmp_path / "t.jsonl", ["item", "x"], 4), promote_options="permissive")
    assert whole.column("item").to_pylist() == ["2024-01-01"] * 4 + ["b"] * 4 + ["c"] * 4
    assert whole.column("x").to_pylist() == [1] * 4 + [0.5] * 4 + [None] * 4


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({"t.csv": b"a,b\n1,2\n"}, "t.csv", "no column 'item'"),
        ({"t.arrow": b"garbage"}, "t.arrow", "cannot be read"),
        ({"d/x.txt": b""}, "d", "a folder without state.json"),
        ({"d/state.json": b"{"}, "d", "cannot be read"),
        ({"d/state.json": b'{"_indices_files": [{"filename": "i"}], "_data_files": []}'}, "d", "flatten_indices"),
        (
            {"d/dataset_dict.json": b"{}", "d/train/state.json": b"{}", "d/test/state.json": b"{}"},
            "d",
            "name the folder of one: test, train",
        ),
    ],
)
def test_what_cannot_be_read_says_so(tmp_path: Path, files: dict[str, bytes], name: str, message: str) -> None:
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    with pytest.raises(BadTable, match=message):
        list(read.batches(tmp_path / name, ["item"], 10))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.int64()), pa.list_(pa.float64(), 2)])
def test_vectors_are_rows_and_a_null_is_nan(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array([[1, 2], None], kind), pa.array([[3, 4]], kind)])
    np.testing.assert_array_equal(vectors(column, "v"), [[1, 2], [np.nan, np.nan], [3, 4]])


def test_vectors_of_different_lengths_name_the_row() -> None:
    with pytest.raises(BadTable, match="v: row 2 has 1 numbers, others 2"):
        vectors(pa.chunked_array([[[1.0, 2.0], None, [3.0]]]), "v")
    with pytest.raises(BadTable, match="v: not numeric"):
        vectors(pa.chunked_array([["a"]]), "v")
