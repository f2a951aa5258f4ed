"""Tables become shards: what they say together is what the same tables say in memory."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.annotations import Annotations
from hitl.errors import BadAnnotations, BadEvidence, BadTable, Busy, ConflictingLabels, HitlError
from hitl.evidence import Evidence
from hitl.shards.encoding import Columns, encode
from hitl.shards.reading import StoredShards
from hitl.tables.read import read_table
from hitl.tables.write import write_table
from tests.command_line import Run

NAMES = st.sampled_from(["a", "b", "é", "x y", "10", "9", "item 7", "=1", "NA"])
PEOPLE = st.sampled_from(["ann", "bob", "7", "07", None])
ROWS = st.lists(
    st.tuples(NAMES, PEOPLE, st.sampled_from(["1", "2", "10"]), st.sampled_from([1.0, 2.0, None])),
    min_size=1,
    max_size=40,
)


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    types = [pa.string(), pa.string(), pa.string(), pa.float64()]
    columns = zip(*rows, strict=True)
    names = ("item", "annotator", "label", "time")
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=False)})


def together(shards: StoredShards) -> list[tuple[Any, ...]]:
    """All labels of all shards by name, in the order of the items' names."""
    found = []
    for shard in shards:
        annotations = shard.annotations
        columns = annotations.table().columns
        found += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return sorted(found, key=str)


def in_memory(annotations: Annotations) -> list[tuple[Any, ...]]:
    columns = annotations.table().columns
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=str)


@given(ROWS, st.booleans(), st.sampled_from([".csv", ".parquet", ".jsonl", ".csv.gz"]), st.sampled_from([3, 1000]))
def test_shards_say_what_the_table_says_in_memory(
    rows: list[tuple[Any, ...]], timed: bool, ending: str, run_bytes: int
) -> None:
    rows = [*rows, ("a", "ann", "1", 3.0), ("b", "ann", "2", 3.0)]  # two classes at least; no column is all null
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        path = Path(folder, f"labels{ending}")
        write_table(path, table(rows))
        time = "time" if timed else None
        expected = Annotations.from_frame(read_table(path, ["item", "annotator", "label"]), time=time)
        said = [str(warning.message) for warning in seen if warning.category is ConflictingLabels]
        seen.clear()
        encode([str(path)], f"{folder}/shards", Columns(time=time), shard_labels=5, run_bytes=run_bytes)
        said_of_shards = [str(warning.message) for warning in seen if warning.category is ConflictingLabels]
        shards = StoredShards.open(f"{folder}/shards")
        assert [message.split("(first")[0] for message in said] == [
            message.split("(first")[0] for message in said_of_shards
        ]
        assert (shards.classes, shards.options) == (expected.classes, expected.options)
        assert shards.annotators == expected.annotators
        assert shards.manifest.anonymous == expected.anonymous
        assert together(shards) == in_memory(expected)
        assert sum(shard.annotations.n_items for shard in shards) == expected.n_items == shards.n_items
        for shard in shards:
            require_the_same(shard.annotations, checked(shard.annotations))


def checked(annotations: Annotations) -> Annotations:
    """The same, built as any other table."""
    return Annotations(
        annotations.item,
        annotations.annotator,
        annotations.label,
        annotations.items,
        annotations.annotators,
        annotations.classes,
        annotations.options,
        annotations.anonymous,
        annotations.time,
    )


def require_the_same(one: Annotations, two: Annotations) -> None:
    for name in ("item", "annotator", "label", "item_start", "cell", "labels_per_item", "labels_per_annotator"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(two, name).dtype
    assert (one.n_items, len(one), str(one)) == (two.n_items, len(two), str(two))


def test_what_a_shard_holds_does_not_depend_on_memory_or_on_the_order_of_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, k = np.divmod(rng.permutation(5000), 10)
    rows = {"item": n.astype(str), "annotator": k.astype(str), "label": rng.integers(3, size=5000).astype(str)}
    write_table(tmp_path / "a.csv", pa.table({name: values[:3000] for name, values in rows.items()}))
    write_table(tmp_path / "b.parquet", pa.table({name: values[3000:] for name, values in rows.items()}))
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")]
    first = encode(files, str(tmp_path / "one"), shard_labels=1000)
    second = encode(files[::-1], str(tmp_path / "two"), shard_labels=1000, run_bytes=5000)
    assert len(first.shards) == 5
    assert [shard.checksum for shard in first.shards] == [shard.checksum for shard in second.shards]
    assert all(abs(shard.labels - 1000) < 100 for shard in first.shards)


def test_labels_added_later_keep_the_codes(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", table([("a", "zoe", "1"), ("b", None, "2")]))
    write_table(tmp_path / "b.csv", table([("c", "ann", "2"), ("d", None, "2"), ("d", "zoe", "1")]))
    encode([str(tmp_path / "a.csv")], str(tmp_path / "one"))
    encode([str(tmp_path / "b.csv")], str(tmp_path / "two"), like=str(tmp_path / "one"))
    both = StoredShards.open(str(tmp_path / "one"), str(tmp_path / "two"))
    assert both.annotators == ("zoe", "(anonymous)", "ann")
    assert set(together(both)) == {
        ("a", "zoe", "1"),
        ("b", None, "2"),
        ("c", "ann", "2"),
        ("d", None, "2"),
        ("d", "zoe", "1"),
    }
    other = tmp_path / "other"
    encode([str(tmp_path / "b.csv")], str(other))
    with pytest.raises(BadTable, match="other classes, options, models or codes of annotators"):
        StoredShards.open(str(tmp_path / "one"), str(other))


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_probabilities_and_truth_are_those_of_the_tables_in_memory(tmp_path: Path) -> None:
    labels = table([(f"i{n}", f"k{k}", str((n + k) % 2)) for n, k in itertools.product(range(30), range(3))])
    model = pa.table({"item": [f"i{n}" for n in range(40)], "p_0": np.linspace(0, 1, 40), "p_1": np.linspace(1, 0, 40)})
    other = pa.table({"item": ["i3", "new"], "p_2": [0.25, 0.5], "p_0": [0.75, 0.5]})
    truth = pa.table({"item": ["i1", "i2", "i50"], "label": ["0", None, "1"]})
    named = {"labels": labels, "resnet": model, "other": other, "truth": truth}
    for name, rows in named.items():
        write_table(tmp_path / f"{name}.csv", rows)
    files = {name: str(tmp_path / f"{name}.csv") for name in named}
    expected = Evidence.from_tables(labels, {"resnet": model, "other": other}, truth)
    encode(
        [files["labels"]],
        str(tmp_path / "shards"),
        probabilities={"resnet": [files["resnet"]], "other": [files["other"]]},
        truth=[files["truth"]],
        shard_labels=30,
    )
    shards = StoredShards.open(str(tmp_path / "shards"))
    assert len(shards) > 2
    assert shards.classes == expected.annotations.classes == ("0", "1", "2")
    row = {name: n for n, name in enumerate(expected.annotations.items)}
    met = []
    for shard in shards:
        rows = [row[name] for name in shard.annotations.items]
        met += rows
        assert expected.truth is not None
        np.testing.assert_array_equal(shard.truth, expected.truth[rows])
        assert list(shard.probabilities) == ["resnet", "other"]
        for name, p_nj in shard.probabilities.items():
            np.testing.assert_allclose(p_nj, expected.probabilities[name][rows], atol=1e-12)
    assert sorted(met) == list(range(expected.annotations.n_items))


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "an empty item": ("item,annotator,label\na,x,1\n,x,2\n", {}, r"labels.csv, line 3: the item is empty"),
    "an empty label": (
        "item,annotator,label\na,x,1\nb,x,\n",
        {"strict": True},
        r"labels.csv, line 3: the label is empty",
    ),
    "a label that is no option": (
        "item,annotator,label\na,x,1\nb,x,3\n",
        {"classes": ["1", "2"]},
        r"labels.csv, line 3: label '3' is not one of the 2 expected \(1, 2\)",
    ),
    "a column that is not there": ("item,who,label\na,x,1\n", {}, "no column 'annotator'; found item, who, label"),
    "no rows": ("item,annotator,label\n", {}, "the table is empty"),
    "one class": ("item,annotator,label\na,x,1\n", {}, "found 1 class"),
    "two answers": ("item,annotator,label\na,x,1\na,x,2\n", {"strict": True}, "1 label contradicts another answer"),
    "a time that is none": (
        "item,annotator,label,time\na,x,1,soon\n",
        {"columns": Columns(time="time")},
        "labels.csv, line 2, column 'time': 'soon' is no time",
    ),
    "a quote that stays open": ('item,annotator,label\na,x,"1\n', {}, "line 2: a quote is opened"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_errors_and_leave_nothing_behind(case: str, tmp_path: Path) -> None:
    text, settings, message = BAD[case]
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(HitlError, match=message):
        encode([str(path)], str(tmp_path / "shards"), **settings)
    assert [left.name for left in tmp_path.iterdir()] == ["labels.csv"]


def test_a_truth_given_twice_is_an_error(tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    write_table(tmp_path / "truth.csv", pa.table({"item": ["a", "a"], "label": ["1", "2"]}))
    with pytest.raises(BadEvidence, match="truth: item 'a' appears twice"):
        encode([str(tmp_path / "labels.csv")], str(tmp_path / "s"), truth=[str(tmp_path / "truth.csv")])


def test_a_bad_row_of_truth_is_named_by_its_line(tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    (tmp_path / "truth.csv").write_text("item,label\na,\n,1\n")
    with pytest.raises(BadAnnotations, match=r"truth.csv, line 3: the item is empty"):
        encode([str(tmp_path / "labels.csv")], str(tmp_path / "s"), truth=[str(tmp_path / "truth.csv")])


def test_tables_of_a_model_have_the_same_classes(tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    write_table(tmp_path / "one.csv", pa.table({"item": ["a"], "p_1": [0.5], "p_2": [0.5]}))
    write_table(tmp_path / "two.csv", pa.table({"item": ["b"], "p_1": [1.0]}))
    models = {"m": [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]}
    with pytest.raises(BadTable, match=r"two.csv: found the columns item, p_1; expected those of the tables before"):
        encode([str(tmp_path / "labels.csv")], str(tmp_path / "s"), probabilities=models)


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "mine.txt").write_text("")
    with pytest.raises(BadTable, match="exists already; name a new folder"):
        encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"))
    assert [left.name for left in (tmp_path / "shards").iterdir()] == ["mine.txt"]


def test_a_full_disk_names_the_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    monkeypatch.setattr(np, "save", Mock(side_effect=OSError("65537 requested and 1008 written")))
    said = f"hitl: {tmp_path / 'shards'}: 65537 requested and 1008 written\n"
    assert run("shard", "labels.csv", "--output", "shards") == (74, "", said)


def test_what_a_killed_run_left_is_gone_and_a_live_one_is_left_alone(tmp_path: Path) -> None:
    import fcntl

    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    left = tmp_path / ".shards.partial" / "shards"
    left.mkdir(parents=True)
    (left / "shard-00000.arrow").write_text("half")
    with open(left.parent / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another process writes it"):
            encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"))
        assert (left / "shard-00000.arrow").exists()
    encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "shards"]
    assert len(StoredShards.open(str(tmp_path / "shards"))) == 1


def test_addresses_are_read_and_written(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    for number in range(3):
        system.pipe_file(f"/labels/{number}.csv", f"item,annotator,label\na{number},x,1\nb{number},y,2\n".encode())
    system.pipe_file("/bad.csv", b"item,annotator,label\na,x,1\n,x,2\n")
    encode(["memory://labels/*.csv"], "memory://shards/one", shard_labels=2)
    shards = StoredShards.open("memory://shards/one")
    assert len(shards) == 3
    assert len(together(shards)) == 6
    with pytest.raises(BadAnnotations, match=r"memory://bad.csv, line 3: the item is empty"):
        encode(["memory://bad.csv"], "memory://shards/two")
    with pytest.raises(BadTable, match="no such file"):
        encode(["memory://nothing/*.csv"], "memory://shards/two")
    assert not system.exists("/shards/two")


def test_a_shard_that_was_changed_is_an_error(tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("b", "x", "2")]))
    encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"))
    path = tmp_path / "shards" / "shard-00000.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadTable, match="the file is not what was written"):
        StoredShards.open(str(tmp_path / "shards"))[0]
    path.write_bytes(content[:100])
    with pytest.raises(BadTable, match="the file is not what was written"):
        StoredShards.open(str(tmp_path / "shards"))[0]


def test_other_readers_of_arrow_open_a_shard(tmp_path: Path) -> None:
    import polars

    write_table(tmp_path / "labels.csv", table([("a", "x", "1"), ("a", "y", "2"), ("b", "x", "2")]))
    encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"))
    frame = polars.read_ipc(tmp_path / "shards" / "shard-00000.arrow")
    assert frame.rows() == [("a", [0, 3]), ("b", [1])]
