"""What a spreadsheet would run: written so that it does not, and read as it was."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.tables.read import read_table
from hitl.tables.write import defused, restored, write_table

FORMULAS = ["=1+1", '=HYPERLINK("http://x.example","see")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
HARMLESS = ["-", "+", "-3", "+3.5", "-,5", "-1e-5", "'tis", "a=b", "", "@", "007"]


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_a_table_is_read_as_it_was_written(tmp_path: Path, ending: str) -> None:
    cells = [*FORMULAS, *("'" + text for text in FORMULAS), *(text for text in HARMLESS if text)]
    table = pa.table({"item": cells, "=label": pa.array(cells, pa.large_string())})
    write_table(tmp_path / f"t.{ending}", table)
    read = read_table(tmp_path / f"t.{ending}")
    assert read.column_names == table.column_names
    assert [column.to_pylist() for column in read.columns] == [cells, cells]


def test_no_cell_of_a_file_is_a_formula(tmp_path: Path) -> None:
    """As the module of Python's own library reads it."""
    cells = [*FORMULAS, *HARMLESS]
    write_table(tmp_path / "t.csv", pa.table({"=a": cells, "n": [-float(n) for n in range(len(cells))]}))
    with (tmp_path / "t.csv").open(newline="") as handle:
        header, *rows = csv.reader(handle)
    assert header == ["'=a", "n"]
    assert [row[0] for row in rows] == [*("'" + text for text in FORMULAS), *HARMLESS]
    assert [float(row[1]) for row in rows] == [-float(n) for n in range(len(cells))]


def test_other_formats_keep_text_as_it_is(tmp_path: Path) -> None:
    table = pa.table({"item": [*FORMULAS, "'=1"]})
    for ending in ("jsonl", "parquet"):
        write_table(tmp_path / f"t.{ending}", table)
        assert read_table(tmp_path / f"t.{ending}") == table


@given(st.lists(st.none() | st.text(alphabet="'=+-@\t\r\na1.,e", max_size=6)))
def test_restored_is_the_inverse(cells: list[str | None]) -> None:
    table = pa.table({"a": pa.array(cells, pa.string())})
    assert restored(defused(table)) == table


@pytest.mark.parametrize("formula", FORMULAS)
def test_one_formula_among_many_texts_is_found(formula: str) -> None:
    """Also behind texts without any, in a part of a column, and in one without text."""
    cells = ["plain", None, "", *HARMLESS, formula, "plain"]
    column = pa.chunked_array([pa.array(["=", *cells]).slice(1), pa.array([], pa.string()), pa.array(["b"])])
    assert defused(pa.table({"item": column})).column("item").to_pylist() == [*cells[:-2], f"'{formula}", "plain", "b"]
    plain = pa.table({"item": column.slice(0, 3)})
    assert defused(plain) is plain
