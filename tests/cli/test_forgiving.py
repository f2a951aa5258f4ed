"""Files as people have them: spaces, case, missing values, wide tables, times, ids that passed through floats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Run

HEAD = "item,annotator,label\n"


def combined(run: Run, *arguments: str) -> tuple[dict[str, str], str]:
    code, out, err = run("combine", *arguments, "--method", "majority", "--json", "--labels")
    assert code == 0, err
    return {row["item"]: row["label"] for row in json.loads(out)["consensus"]}, err


def write(**files: str) -> None:
    for name, text in files.items():
        Path(f"{name}.csv").write_text(text, encoding="utf-8")


def test_ids_that_passed_through_floats(run: Run) -> None:
    write(a=HEAD + "1,ann,cat\n2,bob,dog\n3,ann,dog\n", p="item,p_cat,p_dog\n1.0,0.1,0.9\n2.0,0.2,0.8\n3,.5,.5\n")
    labels, err = combined(run, "a.csv", "-p", "m=p.csv", "--truth", "a.csv")
    assert labels == {"1": "cat", "2": "dog", "3": "dog"}
    assert "items" not in err
    write(p="item,p_cat,p_dog\n1,0.1,0.9\nx4,0.2,0.8\nx5,.5,.5\n")
    _, err = combined(run, "a.csv", "-p", "m=p.csv")
    assert "p.csv: 1 of its 3 items is among the 3 annotated ones, 2 are not, for instance 'x4', 'x5'" in err


def test_labels_that_passed_through_floats_and_labels_with_spaces(run: Run) -> None:
    write(
        f=HEAD + "1,ann,1.0\n1,bob,1\n2,ann,0.0\n2,bob,0\n", b=HEAD + "a,ann,cat \na,bob,cat\nb,ann,dog\nb,bob, dog\n"
    )
    assert combined(run, "f.csv") == ({"1": "1", "2": "0"}, "")
    assert combined(run, "f.csv", "--classes", "0.0,1.0") == ({"1": "1", "2": "0"}, "")
    _, err = combined(run, "b.csv")
    assert "the labels 'cat' and 'cat ' count as different (and 1 more such pair). If they are the same" in err
    assert "--trim" in err
    assert combined(run, "b.csv", "--trim") == ({"a": "cat", "b": "dog"}, "")
    write(p="item,p_cat ,p_ dog\n a,0.9,0.1\nb ,0.2,0.8\n")
    assert "annotated ones" not in combined(run, "b.csv", "--trim", "-p", "m=p.csv")[1]


def test_case_of_classes_and_annotators(run: Run) -> None:
    write(a=HEAD + "a,w0 ,cat\nb,W0,dog\nb,w1,Dog\n", p="item,p_Cat,p_dog\na,0.9,0.1\nb,0.2,0.8\n")
    _, err = combined(run, "a.csv", "-p", "m=p.csv")
    assert "the annotators 'W0' and 'w0 '" in err
    assert "--trim --ignore-case" in err
    assert combined(run, "a.csv", "-p", "m=p.csv", "--trim", "--ignore-case")[0] == {"a": "cat", "b": "dog"}
    assert combined(run, "a.csv", "--ignore-case", "--classes", "CAT,DOG")[0] == {"a": "CAT", "b": "DOG"}
    write(p="item,p_cat,p_CAT\na,0.9,0.1\n")
    code, _, err = run("combine", "a.csv", "-p", "m=p.csv", "--ignore-case", "--trim")
    assert code == 65
    assert "p.csv: the columns 'p_cat' and 'p_CAT' are for one class" in err


def test_missing_answers(run: Run) -> None:
    write(a=HEAD + "a,ann,cat\na,bob,\nb,ann,NaN\nb,bob,dog\nc,bob,nan\n")
    labels, err = combined(run, "a.csv")
    assert "1 row has no label and is left out (first at a.csv, line 3)" in err
    assert "a.csv: the labels NaN, nan look like missing answers; if they are, use --na NaN,nan" in err
    labels, err = combined(run, "a.csv", "--na", "NaN,nan")
    assert set(labels) == {"a", "b", "c"}
    assert labels["b"] == "dog"
    assert "3 rows have no label" in err
    code, _, err = run("combine", "a.csv", "--strict")
    assert code == 65
    assert "a.csv, line 3: the label is empty" in err
    code, out, err = run("shard", "a.csv", "-o", "shards", "--na", "NaN,nan", "--json")
    assert code == 0
    assert json.loads(out)["items"] == 3
    assert json.loads(out)["labels"] == 2
    assert "3 rows have no label" in err
    assert run("shard", "a.csv", "-o", "strict", "--strict")[0] == 65


def test_a_class_that_only_a_model_names(run: Run) -> None:
    write(a=HEAD + "a,ann,cat\nb,ann,dog\n", p="item,p_cat,p_dog,p_bird\na,0.1,0.8,0.1\nb,0.2,0.8,0\n")
    assert "p.csv: no annotator has used bird" in combined(run, "a.csv", "-p", "m=p.csv")[1]


@pytest.mark.parametrize("head", ["item", "", "id", "Unnamed: 0,item"])
def test_a_column_per_annotator(run: Run, head: str) -> None:
    options = ["--item", "id"] if head == "id" else []
    index = [f"{row}," if "," in head else "" for row in range(3)]
    write(wide=f"{head},w0,w1\n{index[0]}t0,yes,yes \n{index[1]}t1,,no\n{index[2]}t2,,\n")
    labels, err = combined(run, "wide.csv", "--trim", *options)
    assert set(labels) == {"t0", "t1", "t2"}
    assert (labels["t0"], labels["t1"]) == ("yes", "no")
    assert "wide.csv: one row per item, one column per annotator: w0, w1" in err


def test_a_wide_table_with_a_model_and_something_that_is_neither(run: Run) -> None:
    write(wide="item,w0,w1\n1.0,yes,no\n2,no,yes\n", p="item,p_yes,p_no\n1,0.9,0.1\n2,0.2,0.8\n3,0.2,0.8\n")
    assert set(combined(run, "wide.csv", "-p", "m=p.csv")[0]) == {"1", "2", "3"}
    write(other="item,worker,answer\na,ann,yes\nb,bob,no\n", unnamed="id,w0,w1\na,yes,no\n")
    code, _, err = run("combine", "other.csv")
    assert code == 65
    assert "other.csv: column 'worker' has no label in common" in err
    assert "--annotator" in err
    code, _, err = run("combine", "unnamed.csv")
    assert code == 65
    assert "no column 'item'" in err
    assert "one column per annotator needs only --item" in err


def test_times_of_other_tools(run: Run) -> None:
    write(t="item,annotator,label,at\na,ann,cat,3/2/2026 9:00\na,ann,dog,4/1/2026 9:00\nb,ann,dog,5/5/2026\n")
    code, _, err = run("combine", "t.csv", "--time", "at")
    assert code == 65
    assert "t.csv, line 2, column 'at': '3/2/2026 9:00' may be in two" in err
    assert "--day-first" in err
    assert combined(run, "t.csv", "--time", "at", "--month-first")[0]["a"] == "dog"
    assert combined(run, "t.csv", "--time", "at", "--day-first")[0]["a"] == "cat"


def test_lists_are_refused_with_place_and_flag(run: Run) -> None:
    write(a=HEAD + 'a,ann,cat\na,bob,"[""dog"", ""cat""]"\n')
    code, _, err = run("combine", "a.csv")
    assert code == 65
    assert 'a.csv, line 3, column \'label\': ["dog", "cat"] is a list' in err
    assert "--label" in err


def test_text_and_numbers_in_one_column_of_json_lines(run: Run) -> None:
    rows = [("a", "x", "1"), ("a", "y", 1), ("b", "y", None), ("b", "x", 2), (3, "x", 2.0)]
    lines = [json.dumps(dict(zip(("item", "annotator", "label"), row, strict=True))) for row in rows]
    Path("a.jsonl").write_text("\n".join(lines))
    assert combined(run, "a.jsonl")[0] == {"a": "1", "b": "2", "3": "2"}
