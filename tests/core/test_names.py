"""One spelling for all doors: ids as integers, floats and text; spaces, case and missing values."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import hitl
from hitl.annotations import Annotations
from hitl.errors import BadAnnotations, BadTable, EmptyLabels, SimilarNames, UnmatchedNames
from hitl.evidence import Evidence
from hitl.tables.columns import plain_name
from hitl.tables.names import NameReader, TextRules, first_list, likeness, similar
from hitl.tables.read import read_table
from tests.tables import rows

ALPHABET = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])
NAMES = st.text(ALPHABET, min_size=1, max_size=12).map(plain_name).filter(str.strip)
NUMBERS = st.lists(st.integers(-(2**49), 2**49), min_size=2, max_size=6, unique=True)

WRITTEN = {
    "integers": lambda numbers: numbers,
    "floats": lambda numbers: [float(number) for number in numbers],
    "text": lambda numbers: [str(number) for number in numbers],
    "text of floats": lambda numbers: [f"{number}.0" for number in numbers],
}
"""How a table may hold whole numbers that name items."""


def labels_of(items: list[Any]) -> dict[str, list[Any]]:
    return {
        "item": items,
        "annotator": ["ann"] * len(items),
        "label": ["x", "y"] * (len(items) // 2) + ["x"] * (len(items) % 2),
    }


@given(NUMBERS, st.sampled_from(sorted(WRITTEN)), st.sampled_from(sorted(WRITTEN)), st.randoms())
def test_a_whole_number_is_one_item_however_two_tables_write_it(
    numbers: list[int], mine: str, theirs: str, random: Any
) -> None:
    labels = labels_of(WRITTEN[mine](numbers))
    model = {"item": WRITTEN[theirs](numbers), "p_x": [0.25] * len(numbers), "p_y": [0.75] * len(numbers)}
    truth = {"item": WRITTEN[theirs](numbers[:1]), "label": ["y"]}
    edges = {"item": WRITTEN[theirs](numbers[:1]), "neighbour": WRITTEN[theirs](numbers[1:2])}
    evidence = Evidence.from_tables(labels, {"net": model}, truth, model | {"p_x": numbers}, graph=edges)
    assert list(map(str, evidence.annotations.items)) == list(map(str, numbers))
    assert evidence.truth is not None
    assert evidence.truth.tolist() == [1] + [-1] * (len(numbers) - 1)
    assert evidence.predicted.all()
    assert evidence.featured.all()
    assert evidence.graph.nnz == 2


@given(NUMBERS)
def test_files_name_whole_numbers_alike(tmp_path_factory: pytest.TempPathFactory, numbers: list[int]) -> None:
    folder = tmp_path_factory.mktemp("ids")
    read = set()
    for number, write in enumerate(WRITTEN.values()):
        frame = pd.DataFrame({"item": write(numbers)})
        frame.to_csv(folder / f"{number}.csv", index=False)
        frame.to_json(folder / f"{number}.jsonl", orient="records", lines=True, double_precision=15)
        parquet.write_table(pa.Table.from_pandas(frame), folder / f"{number}.parquet")
        for kind in ("csv", "jsonl", "parquet"):
            read.add(tuple(read_table(folder / f"{number}.{kind}", ["item"]).column("item").to_pylist()))
    assert read == {tuple(map(str, numbers))}


@given(st.lists(NAMES, min_size=2, max_size=8, unique=True))
def test_other_names_stay_as_written(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimilarNames)
        assert Annotations.from_frame(labels_of(names)).items == tuple(names)
    if not any(map(first_list, [[name] for name in names])):
        table = NameReader().clean(pa.table({"item": names}), {"item": "item"})
        assert table.column("item").to_pylist() == names


@pytest.mark.parametrize(
    "name", ["007", "1e3", "1.5", " 1", "1 ", "+1", "1.", ".0", "1_0.0", "v1.0", "1.0.0", "-0.0", "١.0"]
)
def test_doubtful_numbers_stay_as_written(name: str) -> None:
    assert plain_name(name) == name
    assert Annotations.from_frame(labels_of([name, "1"])).items == (name, "1")


def test_a_float_beside_fractions_names_the_same_item_as_in_text() -> None:
    floats, text = (Annotations.from_frame(labels_of(items)) for items in ([1.0, 2.5, np.nan][:2], ["1.0", "2.5"]))
    assert floats.items == text.items == ("1", "2.5")


def test_floats_that_cannot_hold_the_id_are_refused() -> None:
    large = 2**53
    assert Annotations.from_frame(labels_of([large, large + 1])).items == (large, large + 1)
    assert Annotations.from_frame(labels_of([str(large), str(large + 1)])).items == (str(large), str(large + 1))
    with pytest.raises(
        BadTable, match=r"column 'item': holds floats as large as 9007199254740992.*as text or as integ"
    ):
        Annotations.from_frame(labels_of([float(large), float(large + 1)]))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (np.array([2**63, 2**64 - 1], np.uint64), ("9223372036854775808", "18446744073709551615")),  # hashes
        (np.array([7, 8], np.uint64), (7, 8)),
        (np.array([7, 8], np.float16), (7, 8)),
        ([UUID(int=7), UUID(int=2**128 - 1)], (str(UUID(int=7)), str(UUID(int=2**128 - 1)))),
    ],
    ids=["large", "unsigned", "half", "uuid"],
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table])
def test_names_of_rare_types(frame: Any, given: Any, names: tuple[Any, ...]) -> None:
    truth = frame({"item": given, "label": ["x", "x"]})
    assert hitl.combine(frame(labels_of(given)), classes=["x", "y"], truth=truth).items == names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            pd.period_range("2026-01", periods=2, freq="M"),
            "column 'item': a column holds .*period.*; expected plain text",
        ),
        ([2**70, 2**70 + 1], "labels: not a table .*: .*int too (large|big)"),
        (["a\ud83d", "b"], r"labels: not a table .*: .*'\\ud83d'.*surrogates not allowed"),
    ],
    ids=["months", "too large", "half a character"],
)
def test_what_is_no_name_is_refused_in_words_that_can_be_printed(given: Any, message: str) -> None:
    table = labels_of(given)
    with pytest.raises(BadTable, match=message) as error:
        hitl.combine(table if isinstance(given, list) else pd.DataFrame(table))
    str(error.value).encode()


def test_integers_and_text_that_is_no_number_become_text() -> None:
    with pytest.warns(UnmatchedNames):
        evidence = Evidence.from_tables(labels_of([1, 2]), truth={"item": ["1", "x"], "label": ["x", "y"]})
    assert evidence.annotations.items == ("1", "2", "x")


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_a_partial_match_tells_both_counts_and_three_items(both: int, only_labels: int, only_model: int) -> None:
    mine = [f"i{n}" for n in range(both + only_labels)]
    theirs = [f"i{n}" for n in range(both)] + [f"other{n}" for n in range(only_model)]
    model = {"item": theirs, "p_x": [0.5] * len(theirs), "p_y": [0.5] * len(theirs)}
    with pytest.warns(UnmatchedNames) as told:
        Evidence.from_tables(labels_of(mine) if len(mine) > 1 else labels_of([*mine, "z"]), {"net": model})
    text = str(told[0].message)
    assert f" {both} of its {len(theirs)} item" in text
    assert f"{only_model} {'is' if only_model == 1 else 'are'} not" in text
    assert [name for name in theirs if repr(name) in text] == [f"other{n}" for n in range(min(only_model, 3))]


def test_a_pool_of_more_items_is_no_mistake() -> None:
    model = {"item": ["a", "b", "c", "d"], "p_x": [0.5] * 4, "p_y": [0.5] * 4}
    assert Evidence.from_tables(labels_of(["a", "b"]), {"net": model}).annotations.n_items == 4  # and no warning


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("cat ", "with --trim and projects with source.trim"),
        ("Cat", "with --ignore-case and projects with source.ignore_case"),
        (" CAT", "with --trim --ignore-case and projects with source.trim and source.ignore_case"),
        ("c  at", None),
    ],
)
def test_similar_names_come_with_the_flags_that_join_them(other: str, advice: str | None) -> None:
    one = "cat" if advice else "c at"  # no flag joins spaces within names
    table = {"item": ["a", "b", "a"], "annotator": ["x", "x", "y"], "label": [one, other, "dog"]}
    with pytest.warns(SimilarNames) as warned:
        Annotations.from_frame(table)
    expected = f"write them alike, as commands do {advice}" if advice else "write them alike"
    assert str(warned[0].message).endswith(expected)


@given(
    st.lists(NAMES, min_size=1, max_size=6),
    st.sampled_from([(False, False), (True, False), (False, True), (True, True)]),
    st.sampled_from(["", " ", "\t", "\u00a0"]),
)
def test_trim_and_ignore_case_join_what_they_say(names: list[str], rules: tuple[bool, bool], space: str) -> None:
    trim, case = rules
    reader = NameReader(TextRules(trim, case))
    for name in names:
        first = reader.name("item", name)
        assert (reader.name("item", f"{space}{name}{space}") == first) == (trim or not space)
        upper = name.upper()
        if upper.casefold() == name.casefold():
            assert (reader.name("item", upper) == first) == (case or upper == name)
        assert reader.name("item", str(first)) == first  # the result is read as itself
    assert reader.name("label", "Cat") == "Cat"  # kinds of names do not mix


def test_texts_for_an_empty_field() -> None:
    reader = NameReader(TextRules(trim=True, ignore_case=True, na=("NA", "None")))
    table = reader.clean(pa.table({"label": ["na", " None ", "cat", None, "Cat ", ""]}), {"label": "label"})
    assert table.column("label").to_pylist() == [None, None, "cat", None, "cat", None]


@given(st.lists(st.sampled_from(["cat", "dog", "", None]), min_size=3, max_size=12))
def test_an_empty_label_is_a_missing_answer(labels: list[str | None]) -> None:
    labels = ["cat", "dog", None, *labels]
    table = rows(*((f"i{n}", "ann", label) for n, label in enumerate(labels)))
    missing = sum(not label for label in labels)
    with pytest.warns(EmptyLabels, match=rf"^{missing} rows? ha(s|ve) no label .*first at row 2\)$"):
        made = Annotations.from_frame(table)
    assert len(made) == len(labels) - missing
    assert made.n_items == len(labels)
    with pytest.raises(BadAnnotations, match="row 2: the label is empty"):
        Annotations.from_frame(table, strict=True)


def test_what_read_csv_takes_for_missing_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\na,ann,None\na,bob,Bus\nb,ann,Car\nb,bob,None\n")
    with pytest.warns(EmptyLabels, match=r"2 rows have no label.*keep_default_na=False"):
        Annotations.from_frame(pd.read_csv(tmp_path / "a.csv"))
    frame = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert Annotations.from_frame(frame).classes == ("Bus", "Car", "None")


def test_a_class_that_only_another_table_names_is_told() -> None:
    labels, model = labels_of(["a", "b"]), {"item": ["a", "b"], "p_x": [1, 0], "p_y": [0, 1], "p_zebra": [0, 0]}
    with pytest.warns(UnmatchedNames, match="probabilities 'net': no annotator has used zebra"):
        Evidence.from_tables(labels, {"net": model})
    with pytest.warns(UnmatchedNames, match="truth: no annotator has used zebra"):
        Evidence.from_tables(labels, truth={"item": ["a"], "label": ["zebra"]})
    Evidence.from_tables(labels, {"net": model}, classes=["x", "y", "zebra"])  # whoever lists the classes knows


@given(st.lists(st.sampled_from(["cat", "dog", "cow"]), min_size=2, max_size=3, unique=True), st.sampled_from(",;|"))
def test_parts_in_another_order_are_alike(parts: list[str], comma: str) -> None:
    one, other = comma.join(parts), f"{comma} ".join(reversed(parts))
    assert likeness(one) == likeness(other)
    assert [*similar([one, other])] == [(one, other)]


@pytest.mark.parametrize(
    "label", ['["cat"]', '["cat", "dog"]', "['cat', 'dog']", '{"choices": ["cat"]}', "[]", "(1, 2)"]
)
def test_a_list_in_a_cell_is_refused(label: str) -> None:
    with pytest.raises(BadTable, match=r"row 1, column 'label': .* is a list; expected one name in each row.*--label"):
        Annotations.from_frame(rows(("a", "ann", "cat"), ("b", "ann", label)))


@pytest.mark.parametrize("label", ["[unsure]", "(?)", "{x}", "[", "cat [young]"])
def test_brackets_alone_make_no_list(label: str) -> None:
    assert label in Annotations.from_frame(rows(("a", "ann", "cat"), ("b", "ann", label))).classes


def test_a_column_of_lists_is_refused(tmp_path: Path) -> None:
    table = pa.table({"item": ["a", "b"], "annotator": ["ann", "bob"], "label": [["cat"], ["dog", "cat"]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BadTable, match=r"a\.parquet, column 'label': holds lists, such as \['cat'\] in row 0"):
        read_table(tmp_path / "a.parquet", ["item", "annotator", "label"])
