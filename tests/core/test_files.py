"""Tables in files: every format, whole or not at all."""

from __future__ import annotations

import csv
import gc
import gzip
import os
import random
import stat
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hitl.annotations import Annotations
from hitl.errors import BadTable
from hitl.tables import write
from hitl.tables.columns import as_text, numbers_of
from hitl.tables.read import column_names, read_parts, read_table
from hitl.tables.write import atomic, write_table
from tests.tables import rows, said

TABLE = pa.table({"item": ["a", "", None], "n": pa.array([1, None, 3], pa.int64()), "p": [0.1 + 0.2, None, 1e-300]})


@pytest.mark.parametrize("ending", ["parquet", "parquet.gz", "jsonl", "jsonl.gz"])
def test_typed_formats_keep_types_nulls_and_every_digit(tmp_path: Path, ending: str) -> None:
    write_table(tmp_path / f"t.{ending}", TABLE)
    assert read_table(tmp_path / f"t.{ending}").to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "tsv.gz"])
def test_text_formats_give_text_nulls_and_every_digit(tmp_path: Path, ending: str) -> None:
    write_table(tmp_path / f"t.{ending}", TABLE)
    again = read_table(tmp_path / f"t.{ending}")
    assert again.column("item").to_pylist() == ["a", "", None]
    assert again.column("n").to_pylist() == ["1", None, "3"]
    assert again.column("p").cast("float64").to_pylist() == [0.1 + 0.2, None, 1e-300]


def test_a_single_column_keeps_its_empty_rows(tmp_path: Path) -> None:
    for column in (["a", None, "b"], [1, None, 2]):
        write_table(tmp_path / "t.csv", pa.table({"item": column}))
        assert read_table(tmp_path / "t.csv").column("item").to_pylist() == [str(column[0]), "", str(column[2])]


def test_a_gz_file_is_compressed_and_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("one.csv.gz", "two.csv.gz"):
        write_table(tmp_path / name, TABLE)
    first, second = ((tmp_path / name).read_bytes() for name in ("one.csv.gz", "two.csv.gz"))
    assert first[:2] == b"\x1f\x8b"
    assert first[4:8] == bytes(4)  # no time of writing
    assert first == second


def test_names_in_json_lines_stay_as_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"item": "2024-01-01", "annotator": 7, "at": "2024-01-01T00:00:00Z"}\n')
    table = read_table(path, text=["item", "annotator"])
    assert table.column_names == ["item", "annotator", "at"]
    assert table.to_pylist() == [{"item": "2024-01-01", "annotator": "7", "at": "2024-01-01T00:00:00Z"}]


@pytest.mark.parametrize(
    ("numbers", "read"),
    [
        ("9223372036854775809 9223372036854775810 null", [2**63 + 1, 2**63 + 2, None]),
        ("-9223372036854775809 18446744073709551616", ["-9223372036854775809", "18446744073709551616"]),
        ("1e30 0.5", [1e30, 0.5]),
        ("1e19 2.0", [1e19, 2.0]),
        ("10000000000000000000.0 2", [1e19, 2.0]),
        ("1e300 9223372036854775808", [1e300, 2.0**63]),
    ],
)
def test_long_integers_in_json_lines_stay_as_written(tmp_path: Path, numbers: str, read: list[object]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"item": {number}, "at": "2024-01-01"}}\n' for number in numbers.split()))
    table = read_table(path)
    assert table.column("item").to_pylist() == read
    assert table.column("at").to_pylist() == ["2024-01-01"] * len(read)


def test_long_integers_are_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_table(path, pa.table({"item": pa.array([2**63, 2**63 + 1], pa.uint64())}))
    assert read_table(path).column("item").type == pa.uint64()
    assert read_table(path, ["item"]).column("item").to_pylist() == ["9223372036854775808", "9223372036854775809"]
    assert numbers_of(read_table(path).column("item"), "t").tolist() == [2.0**63, 2.0**63], "rounded"


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfitem,n\r\na,1\r\n")
    assert read_table(tmp_path / "t.csv").to_pylist() == [{"item": "a", "n": "1"}]


def test_separators_at_the_end_of_all_lines_are_no_columns(tmp_path: Path) -> None:
    for name, comma in (("t.csv", ","), ("t.tsv", "\t")):
        (tmp_path / name).write_text("item,n,,\na,1,,\nb,2,,\n".replace(",", comma))
        assert read_table(tmp_path / name).to_pylist() == [{"item": "a", "n": "1"}, {"item": "b", "n": "2"}]
        assert column_names(tmp_path / name) == ["item", "n"]
    (tmp_path / "t.csv").write_text(",item\n0,a\n")  # of pandas, with its index
    assert read_table(tmp_path / "t.csv").to_pylist() == [{"": "0", "item": "a"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, r"missing\.csv: no such file"),
        ("t.txt", b"x", r"t\.txt: unknown table format '\.txt'; expected one of \.csv, .*\.xlsx \(\.gz allowed\)"),
        ("t.xls", b"x", r"t\.xls: \.xls is not read; save it as \.xlsx or \.csv"),
        ("t.xlsx", b"x", r"t\.xlsx: cannot be read as xlsx: .*; save it again as \.xlsx, or as \.csv"),
        ("t.xlsx", b"PK\5\6" + bytes(18), r"t\.xlsx: cannot be read as xlsx"),  # an archive without a sheet
        ("t.gz", b"x", r"t\.gz: unknown table format ''"),
        ("t.csv", b"", r"t\.csv: the file is empty; expected a header line"),
        ("t.csv", b"a,b\n1\n", r"t\.csv, line 2: 1 field; expected 2"),
        ("t.csv", b"a,b,a\n1,2,3\n", r"t\.csv: column 'a' appears twice; expected one column of each name"),
        ("t.csv", b"a,b,,\n1,2,,\n1,2,,x\n", r"t\.csv: column 4 has no name; expected one in the first line"),
        ("t.csv", "a\né\n".encode("latin-1"), r"t\.csv, line 2: not UTF-8; save the file as UTF-8"),
        ("t.csv.gz", b"not packed", r"t\.csv\.gz: cannot be read as csv"),
        ("t.jsonl", b"", r"t\.jsonl: cannot be read as jsonl"),
        ("t.jsonl", b"{oops\n", r"t\.jsonl, line 1: cannot be read as jsonl"),
        ("t.jsonl", b'{"a": 1}\n{"a":\n', r"t\.jsonl, line 2: .*not JSON: Expecting value at character 7$"),
        ("t.jsonl", b'{"a": 1}\n{"a": [1]}\n', r"t\.jsonl: cannot be read as jsonl"),
        ("t.parquet", b"", r"t\.parquet: cannot be read as parquet"),
        ("t.parquet", b"garbage", r"t\.parquet: cannot be read as parquet"),
        ("t.parquet.gz", b"garbage", r"t\.parquet\.gz: cannot be read as parquet"),
    ],
)
def test_a_file_that_is_no_table_says_so(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(BadTable, match=message):
            read_table(tmp_path / name)
        gc.collect()
    assert not left_open


def test_whole_floats_are_named_like_integers_and_others_keep_their_digits() -> None:
    assert as_text(pa.chunked_array([[3.0, None, 10.0]])).to_pylist() == ["3", None, "10"]
    assert as_text(pa.chunked_array([[3.0, 2.5]])).to_pylist() == ["3", "2.5"]
    assert as_text(pa.chunked_array([[float("inf")]])).to_pylist() == ["inf"]
    assert as_text(pa.chunked_array([pa.array(["a"]).dictionary_encode()])).to_pylist() == ["a"]


def test_nan_in_a_column_of_names_is_no_name(tmp_path: Path) -> None:
    assert as_text(pa.chunked_array([[1.0, float("nan"), None]])).to_pylist() == ["1", None, None]
    assert as_text(pa.chunked_array([pa.array([0.5, float("nan")], pa.float16())])).to_pylist() == ["0.5", None]
    write_table(tmp_path / "t.parquet", pa.table({"item": [7.0, float("nan")]}))
    assert read_table(tmp_path / "t.parquet", ["item"]).column("item").to_pylist() == ["7", None]


# -- whole or not at all -------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("old")

    def fail_half_way() -> None:
        with atomic(path) as handle:
            handle.write(b"half of the new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    with pytest.raises(pa.ArrowException):
        write_table(path, pa.table({"nested": [[1, 2]]}))
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["t.csv"])


def test_the_new_file_appears_only_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("old")
    synced = []
    monkeypatch.setattr(write.os, "fsync", lambda descriptor: synced.append(path.read_text()))
    with atomic(path) as handle:
        handle.write(b"new")
        assert path.read_text() == "old"
    assert (path.read_text(), synced) == ("new", ["old"])
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_written_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_table(tmp_path / "t.csv", TABLE)
    assert (tmp_path / "t.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_that_is_replaced_keeps_its_rights_and_a_link_leads_to_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "t.csv", tmp_path / "link.csv"
    real.parent.mkdir()
    link.symlink_to(Path("real", "t.csv"))
    write_table(link, TABLE)  # it leads to what is not there yet
    for rights in (0o600, 0o664):
        real.write_text("old")
        real.chmod(rights)
        write_table(link, TABLE)
        assert link.is_symlink()
        assert read_table(real).num_rows == 3
        assert stat.S_IMODE(real.stat().st_mode) == rights
    with atomic(link, private=True) as handle:
        handle.write(b"secret")
    assert (real.read_bytes(), stat.S_IMODE(real.stat().st_mode)) == (b"secret", 0o600)
    assert os.listdir(real.parent) == ["t.csv"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "t.csv", tmp_path / "folder.csv"
    os.mkfifo(pipe)
    folder.mkdir()
    (tmp_path / "link.csv").symlink_to(pipe)
    for path, kind in ((pipe, "a device, a pipe"), (tmp_path / "link.csv", "a device, a pipe"), (folder, "a folder")):
        with pytest.raises(BadTable, match=rf"csv is {kind}.*expected the name of a file"):
            write_table(path, TABLE)
    assert pipe.is_fifo()
    assert len(os.listdir(tmp_path)) == 3


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match=r"t\.csv: the folder .*nowhere does not exist"):
        write_table(tmp_path / "nowhere" / "t.csv", TABLE)


# -- quotes that do not close ---------------------------------------------------------------------------------

HEAD = "item,annotator,label\n"


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a,ann,x\nb,"ann,x\nc,ann,y\nd,ann,y\n', 3),  # to the end of the file
        ('a,ann,x\nb,"ann,x\nc,"ann",y\nd,ann,y\n', 3),  # to the next quote
        ('a,ann,x\nb,"ann,x\nc,"ann,y\nd,ann,y\n', 3),  # two of them
        ('"a","ann","x"\n"b","ann"s,"x"\n', 3),  # text behind the quote
        ('a,ann,"x', 2),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_quote_that_does_not_close_is_an_error_with_its_line(
    tmp_path: Path, rows: str, line: int, ending: str
) -> None:
    path = tmp_path / f"t.{ending}"
    text = (HEAD + rows).encode()
    path.write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    for read in (read_table, lambda path: list(read_parts(path, 2))):
        with pytest.raises(BadTable, match=rf"t\.{ending}, line {line}: a quote is opened here that does not end"):
            read(path)


def test_what_python_writes_with_quotes_is_read(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(300):
        rows = [["".join(rng.choices('ab",; \n', k=rng.randrange(6))) for _ in range(2)] for _ in range(4)]
        with (tmp_path / "t.csv").open("w", newline="") as handle:
            csv.writer(handle, lineterminator=rng.choice(["\n", "\r\n"])).writerows([["one", "two"], *rows])
        found = read_table(tmp_path / "t.csv")
        assert [[cell or "" for cell in row.values()] for row in found.to_pylist()] == rows


def test_a_lost_quote_is_found_where_it_was_lost(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(300):
        rows = [[f'"{rng.choice("abc") * rng.randint(1, 4)}"' for _ in range(2)] for _ in range(rng.randint(2, 6))]
        row, column = rng.randrange(len(rows)), rng.randrange(2)
        rows[row][column] = rows[row][column][:-1]
        (tmp_path / "t.tsv").write_text("\n".join("\t".join(cells) for cells in rows) + "\n")
        with pytest.raises(BadTable, match=f"line {row + 1}: a quote"):
            read_table(tmp_path / "t.tsv")


def test_a_quote_inside_a_field_is_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('item,label\n5" nail,x\n"two\nlines",y\n"says ""no""" ,z\n')
    assert read_table(tmp_path / "t.csv").column("item").to_pylist()[:2] == ['5" nail', "two\nlines"]


ENDINGS = [f"{ending}{packed}" for ending in ("csv", "tsv", "jsonl", "ndjson", "parquet") for packed in ("", ".gz")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_table_comes_back_from_a_file_as_it_was(tmp_path: Path, ending: str) -> None:
    frame = rows(
        ("2024-01-01", "007", 'x "quoted", comma'),
        ("NA", None, "tab\there"),
        ("NA", None, "tab\there"),
        ("ünï\ncode", "1e5", "x\\y"),
        at=[0.1 + 0.2, 1e9 + 1 / 3, None, 2.0],
        took=[1.5, None, 2.5, None],
    )
    annotations = Annotations.from_frame(frame, time="at", duration="took")
    path = tmp_path / f"annotations.{ending}"
    write_table(path, annotations.table())
    table = read_table(path, ["item", "annotator", "label"])
    again = Annotations.from_frame(table, time="time", duration="duration")
    assert said(again) == said(annotations)
    for field in ("items", "annotators", "classes", "options", "anonymous"):
        assert getattr(again, field) == getattr(annotations, field)
    for field in ("item", "annotator", "label", "time", "duration"):
        np.testing.assert_array_equal(getattr(again, field), getattr(annotations, field))
