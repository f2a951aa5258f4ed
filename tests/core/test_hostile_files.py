"""Hostile files are errors that name them, and nothing worse: a sample of `tests.bench.trust.fuzz`, and each limit."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hitl import Annotations
from hitl.errors import BadAnnotations, BadSettings, BadTable
from hitl.tables.limits import Limits, within
from hitl.tables.matrices import read_probabilities
from hitl.tables.read import batches, column_names, read_parts, read_table
from hitl.tables.write import write_table
from tests.bench.trust import fuzz, hostile


@pytest.mark.journey
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_no_file_ends_the_process(name: str) -> None:
    result = fuzz.fuzz(name, 600.0, 1, 12)
    assert result.wrong == []
    assert result.cases == 12


def test_the_answers_of_a_server_that_is_well_are_believed() -> None:
    """Else the others would be refused for nothing."""
    assert fuzz.fuzz("label studio", 600.0, 1, 1).ended == {"read": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1: .* nested too deeply"),
        ('{"a": 1}\n' + '{"a":' * 300 + "1" + "}" * 300, "line 2: values are nested 300 levels deep"),
        ("".join(f'{{"k{n}": 1}}\n' for n in range(5000)), "different names, most of them in few rows"),
        ("null\n", "line 1: got 'null'; expected an object"),
        ('{"a": 1}\n' + "null\n" * 9, "line 2: got 'null'; expected an object"),
        ("\ufeffnull,1\n{}\n", "line 1: .* not JSON"),
        ('{"a": "\\ud83d"}\n', "cannot be read as jsonl"),
    ],
)
@pytest.mark.parametrize("size", [None, 2])
def test_lines_that_are_no_rows_of_a_table(tmp_path: Path, text: str, message: str, size: int | None) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text(text)
    with pytest.raises(BadTable, match=rf"deep\.jsonl.*{message}"):
        list(read_parts(path, size))


def test_brackets_in_text_are_not_deep(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    rows = [{"item": str(n), "text": '\\"' + "[{" * 300 + '"', "end": "\\"} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_table(path).to_pylist() == rows


def test_each_limit_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("item,annotator,label\n" + "".join(f"{n},ann,{n}\n" for n in range(50)))
    for these, message in (
        (Limits(rows=49), r"labels\.csv: 50 rows; expected at most 49 \(limits\.rows\)"),
        (Limits(columns=2), r"labels\.csv: 3 columns; expected at most 2 \(limits\.columns\)"),
        (Limits(name_length=1), r"labels\.csv, row 10: the item has 2 characters; expected at most 1"),
    ):
        with within(these), pytest.raises(BadTable, match=message):
            read_table(path, ["item", "annotator", "label"])
    with within(Limits(classes=49)), pytest.raises(BadAnnotations, match="50 different labels; expected at most 49"):
        Annotations.from_frame(read_table(path, ["item", "annotator", "label"]))
    monkeypatch.setenv("HITL_LIMITS__ROWS", "7")
    with pytest.raises(BadTable, match="50 rows; expected at most 7"):
        read_table(path)
    monkeypatch.setenv("HITL_LIMITS__ROWS", "many")
    with pytest.raises(BadSettings, match="HITL_LIMITS__ROWS is 'many'"):
        read_table(path)
    monkeypatch.delenv("HITL_LIMITS__ROWS")
    monkeypatch.setenv("HITL_LIMITS__ROWZ", "7")
    wanted = r"HITL_LIMITS__ROWZ: no such key; expected one of HITL_LIMITS__NESTING, HITL_LIMITS__UNPACKED, "
    with pytest.raises(BadSettings, match=wanted):
        read_table(path)


def test_what_an_archive_holds_is_counted_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez_compressed(path, probabilities=np.zeros((40_000_000, 1)))
    with pytest.raises(BadTable, match=r"net\.npz: unpacked it has 320,000,\d+ bytes"):
        read_probabilities(path)
    packed = tmp_path / "labels.csv.gz"
    packed.write_bytes(hostile.SEEDS["csv.gz"]()[-1])
    with pytest.raises(BadTable, match=r"labels\.csv\.gz: unpacked it has .* bytes or more"):
        read_table(packed)


def test_a_shape_that_the_file_cannot_have(tmp_path: Path) -> None:
    path = tmp_path / "net.npy"
    path.write_bytes(hostile.SEEDS["npy"]()[-1])
    with pytest.raises(BadTable, match=r"net\.npy: the array should have the shape .* too short"):
        read_probabilities(path)


def test_a_nested_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for value in (b'{"str\xc0nge": 1}', b'[[{"str\xc0nge": 1}]]'):
        path.write_bytes(b'{"item": "a", "x": ' + value + b"}\n")
        with pytest.raises(BadTable, match=r"labels\.jsonl: cannot be read as jsonl: 'utf-8' codec"):
            read_table(path)


def test_a_column_whose_name_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "labels.arrow"
    table = pa.table({"item": ["a"], "strange": ["b"]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"strange", b"str\xffnge"))
    for read in (read_table, column_names):
        with pytest.raises(BadTable, match=r"labels\.arrow: cannot be read as arrow"):
            read(path)


def test_batches_without_columns_end(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    write_table(path, pa.table({"item": ["a", "b", "c"]}))
    assert sum(part.num_rows for part in batches(path, ["item"], 2)) == 3
    assert len(list(islice(batches(path, [], 2), 5))) <= 2
