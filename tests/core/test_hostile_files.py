"""Hostile files are errors that name them, and nothing worse: a sample of `tests.bench.trust.fuzz`, and each limit."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import fields
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from hitl import Annotations, Evidence
from hitl.connectors.exports.records import records
from hitl.errors import BadAnnotations, BadSettings, BadTable
from hitl.models import DefaultCombiner
from hitl.tables.limits import Limits, within
from hitl.tables.matrices import read_probabilities, read_vectors, write_vectors
from hitl.tables.read import batches, column_names, read_parts, read_table
from hitl.tables.write import write_table
from tests.bench.trust import fuzz, hostile


@pytest.mark.journey
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_no_file_ends_the_process(name: str) -> None:
    result = fuzz.fuzz(name, 600.0, 1, 12)
    assert result.wrong == []
    assert result.cases == 12


def test_no_byte_of_the_metadata_of_parquet_ends_the_process(tmp_path: Path) -> None:
    """pyarrow ends it when it is asked about a column whose counts of nulls are not those of its type."""
    script = """
import sys
from pathlib import Path
from hitl.errors import BadTable
from hitl.tables.read import column_names, read_table
path = Path(sys.argv[1])
whole, refused = path.read_bytes(), 0
for place in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole) - 8):
    path.write_bytes(whole[:place] + bytes([0]) + whole[place + 1 :])
    for read in (read_table, column_names, lambda path: read_table(path, ["item"])):
        try:
            read(path)
        except BadTable:
            refused += 1
assert refused
"""
    table = pa.table({"item": ["a", None], "label": ["x", "y"], "seconds": [1.5, None]})
    parquet.write_table(table, tmp_path / "labels.parquet")
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "labels.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_answers_of_a_server_that_is_well_are_believed() -> None:
    """Else the others would be refused for nothing."""
    assert fuzz.fuzz("label studio", 600.0, 1, 1).ended == {"read": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1: .* nested too deeply"),
        ('{"a": 1}\n' + '{"a":' * 300 + "1" + "}" * 300, "line 2: .* nested too deeply"),
        ("".join(f'{{"k{n}": 1}}\n' for n in range(5000)), "different names, most of them in few rows"),
        ("null\n", "line 1: .*got 'null'; expected an object"),
        ('{"a": 1}\n' + "null\n" * 9, "line 2: .*got 'null'; expected an object"),
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


def test_values_may_be_as_deep_as_the_limit_in_any_number(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text('{"item": [["a"], ["b"]], "other": [1]}\n')
    with within(Limits(nesting=3)):
        assert read_table(path).num_rows == 1
    with within(Limits(nesting=2)), pytest.raises(BadTable, match="nested too deeply"):
        read_table(path)


ROWS = "item,annotator,label\n" + "".join(f"i{n},ann,{n:02}\n" for n in range(50))
AT: dict[str, tuple[str, bytes, int, str]] = {
    "nesting": ("labels.jsonl", b'{"item": [[["a"]]]}', 4, r"nested too deeply; expected at most 3"),
    "unpacked": ("labels.npz", b"", 1_000, r"unpacked it has 1,000 bytes or more; expected at most 999"),
    "rows": ("labels.csv", ROWS.encode(), 50, "50 rows; expected at most 49"),
    "columns": ("labels.csv", ROWS.encode(), 3, "3 columns; expected at most 2"),
    "classes": ("labels.csv", ROWS.encode(), 50, "50 different labels; expected at most 49"),
    "name_length": ("labels.csv", ROWS.encode(), 3, "row 10: the item has 3 characters; expected at most 2"),
}
"""Limit -> file that is at it, its content, the value, and the message if that is one less."""


def labels_in(path: Path) -> None:
    if path.suffix == ".npz":
        read_probabilities(path)
    elif path.suffix == ".jsonl":
        read_table(path)
    else:
        Annotations.from_frame(read_table(path, ["item", "annotator", "label"]))


@pytest.mark.parametrize("name", AT)
def test_at_a_limit(tmp_path: Path, name: str) -> None:
    """All limits but that on memory, which is in the next test."""
    assert {*AT, "memory"} == {field.name for field in fields(Limits)}
    file, content, value, message = AT[name]
    path = tmp_path / file
    path.write_bytes(content)
    if path.suffix == ".npz":
        np.savez(path, probabilities=np.full((2, 2), 0.5), items=["a", "b"], classes=["x", "y"])
        with zipfile.ZipFile(path) as archive:
            value = sum(member.file_size for member in archive.infolist())
        message = f"unpacked it has {value:,} bytes or more; expected at most {value - 1:,}"
    with within(Limits(**{name: value})):
        labels_in(path)
    with (
        within(Limits(**{name: value - 1})),
        pytest.raises((BadTable, BadAnnotations), match=rf"(?s){message}.*limits\.{name}"),
    ):
        labels_in(path)


TEXTS = pa.table({"item": ["x" * 100] * 50_000, "label": ["a", "b"] * 25_000})
CODED = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.int32)), ["x" * 100])
LARGE: dict[str, Callable[[Path], object]] = {
    "labels.csv": lambda path: write_table(path, TEXTS),
    "labels.csv.gz": lambda path: write_table(path, TEXTS),
    "labels.tsv": lambda path: write_table(path, TEXTS),
    "labels.jsonl": lambda path: write_table(path, TEXTS),
    "labels.parquet": lambda path: write_table(path, TEXTS),
    "labels.arrow": lambda path: feather.write_feather(TEXTS, str(path), compression="uncompressed"),
    "packed.arrow": lambda path: feather.write_feather(TEXTS, str(path), compression="zstd"),
    "coded.arrow": lambda path: feather.write_feather(pa.table({"item": CODED}), str(path), compression="zstd"),
    "labels.xlsx": lambda path: write_sheet(path, TEXTS.slice(0, 2_000)),
    "features.npz": lambda path: np.savez_compressed(path, items=np.arange(50_000), x=np.zeros((50_000, 20))),
    "net.npy": lambda path: np.save(path, np.full((50_000, 2), 0.5)),
    "export.json": lambda path: path.write_text(json.dumps(TEXTS.to_pylist())),
}
"""File that takes megabytes of memory -> function that writes it."""


def write_sheet(path: Path, table: pa.Table) -> None:
    book = pytest.importorskip("openpyxl").Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in (table.column_names, *(tuple(row.values()) for row in table.to_pylist())):
        sheet.append(row)
    book.save(path)


@pytest.mark.parametrize("name", LARGE)
def test_a_file_that_takes_more_memory_than_there_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    LARGE[name](path)
    readers: dict[str, Callable[[Path], object]] = {
        "features.npz": read_vectors,
        "net.npy": lambda path: read_probabilities(path, items=range(50_000), classes=["x", "y"]),
        "export.json": lambda path: list(records(path, "json", print)),
    }
    read = readers.get(name, lambda path: read_table(path, ["item", "label"]))
    message = rf"{name}: its content takes [\d.]+ (kB|MB) of memory or more; expected at most 200 kB \(limits\.memory"
    with within(Limits(memory=200_000)), pytest.raises(BadTable, match=message):
        read(path)
    with within(Limits(memory=80_000_000)):  # within a factor of a few of what it takes
        assert read(path) is not None


PEAK = """
import re, sys
from pathlib import Path
from tests.core.test_hostile_files import read_numbers
def most(): return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
small, large = map(Path, sys.argv[1:])
read_numbers(small)
before = most()
read_numbers(large)
print(most() - before)
"""


def read_numbers(path: Path) -> object:
    return read_probabilities(path) if path.name.endswith("net.npz") else read_vectors(path)


@pytest.mark.journey
@pytest.mark.parametrize("name", ["features.csv", "features.jsonl", "lists.parquet", "features.npz", "net.npz"])
def test_the_count_of_a_file_includes_the_peak(tmp_path: Path, name: str) -> None:
    """Else the process ends before the message comes."""
    for size, path in ((100, tmp_path / f"small-{name}"), (100_000, tmp_path / name)):
        x_nd = np.random.default_rng(0).normal(size=(size, 20))
        items = [f"item {n}" for n in range(size)]
        if name == "net.npz":
            np.savez(path, probabilities=np.full((size, 20), 0.05), items=items, classes=np.arange(20))
        elif name == "features.npz":
            np.savez(path, x=x_nd.astype(np.float32), items=items)
        elif name == "lists.parquet":
            write_vectors(path, items, x_nd)
        else:
            write_table(path, pa.table({"item": items, **{f"f{d}": x_nd[:, d] for d in range(20)}}))
    files = [str(tmp_path / f"small-{name}"), str(tmp_path / name)]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *files], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    most = int(0.9 * int(done.stdout))  # the allocator varies by some percent
    with within(Limits(memory=most)), pytest.raises(BadTable, match=r"of memory or more"):
        read_numbers(tmp_path / name)
    with within(Limits(memory=6 * int(done.stdout))):
        assert read_numbers(tmp_path / name) is not None


@pytest.mark.journey
def test_as_many_classes_as_the_limit() -> None:
    """At its value, which had never been run: 20,000 classes and the default method."""
    label = np.arange(Limits().classes)
    rows = pa.table({"item": label % 200, "annotator": label // 200, "label": label})
    consensus = DefaultCombiner().fit(Evidence(Annotations.from_frame(rows)))
    assert consensus.probabilities.shape == (200, len(label))


def test_limits_are_settings_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(ROWS)
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
