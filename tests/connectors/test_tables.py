"""The tables connector: what it reads, when it reads again, what it writes."""

from __future__ import annotations

import json
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hitl.connectors import table_reading
from hitl.connectors.tables import Tables
from hitl.errors import BadAnnotations, BadTable
from hitl.platform import Operation, Page
from hitl.tables.read import read_table


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def pulled(connector: Tables, cursor: object = None) -> list[Page]:
    return list(connector.pull(cursor))  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        annotations="item,annotator,label,duration\na,ann,yes,2.5\na,bob,no,\nb,ann,,\nb,,yes,\nb,,yes,\n",
        items="item,text\na,first\nb,second\nc,nobody labeled this\n",
        truth="item,label\na,yes\n",
        probabilities_net="item,p_no,p_yes\na,0.2,0.8\nc,0.5,0.5\n",
    )


def test_a_folder_is_read_whole(project: Path) -> None:
    connector = Tables(project)
    (question,) = connector.questions()
    (page,) = pulled(connector)
    assert question.classes == ("no", "yes")
    assert [(row.key, dict(row.data)) for row in page.items] == [
        ("a", {"text": "first"}),
        ("b", {"text": "second"}),
        ("c", {"text": "nobody labeled this"}),
    ]
    said = [(row.item, row.annotator, row.label, row.kind) for row in page.annotations]
    assert said == [
        ("a", "ann", "yes", "answer"),
        ("a", "bob", "no", "answer"),
        ("a", None, "yes", "gold"),
        ("b", "ann", None, "skip"),
        ("b", None, "yes", "answer"),
        ("b", None, "yes", "answer"),
    ]
    assert len({(row.item, row.key) for row in page.annotations}) == 6
    assert page.annotations[0].duration == 2.5
    assert [(row.item, dict(row.probabilities)) for row in page.predictions] == [
        ("a", {"no": 0.2, "yes": 0.8}),
        ("c", {"no": 0.5, "yes": 0.5}),
    ]
    assert [row.key for row in page.annotators] == ["ann", "bob"]
    assert page.live == {"a", "b", "c"}


def test_nothing_is_read_again_until_a_file_changes(project: Path) -> None:
    connector = Tables(project)
    (page,) = pulled(connector)
    assert pulled(connector, page.cursor) == []
    write(project, annotations="item,annotator,label\na,ann,no\n")
    (again,) = pulled(connector, page.cursor)
    assert [(row.item, row.label) for row in again.annotations] == [("a", "no"), ("a", "yes")]


@pytest.mark.parametrize(("time", "label", "problems"), [(None, "B", 1), ("at", "A", 0)])
def test_a_single_file_is_a_project_too_and_its_latest_answers_count(
    tmp_path: Path, time: str | None, label: str, problems: int
) -> None:
    write(tmp_path, labels="task,who,said,at\n1,ann,A,2026-01-02T00:00:00Z\n1,ann,B,2026-01-01T00:00:00Z\n")
    (page,) = pulled(Tables(tmp_path / "labels.csv", item="task", annotator="who", label="said", time=time))
    assert [(row.item, row.annotator, row.label) for row in page.annotations] == [("1", "ann", label)]
    assert len(page.problems) == problems


OPERATIONS = [
    Operation(
        "consensus",
        "",
        {
            "questions": {
                "label": [{"item": "a", "label": "yes", "confidence": 0.9, "probabilities": {"no": 0.1, "yes": 0.9}}]
            }
        },
    ),
    Operation("order", "", {"items": ["c", "b"]}),
    Operation("assign", "ann", {"items": ["c"]}),
    Operation("assign", "../bob", {"items": []}),
    Operation("labels_wanted", "", {"items": {"c": 1, "a": 2}}),
    Operation("add_items", "batch", {"items": [{"key": "d", "data": {"text": "new"}}]}),
    Operation("gold", "label", {"questions": {"label": {"b": "no"}}}),
]


def test_pushing_writes_each_operation_and_twice_changes_nothing(project: Path) -> None:
    connector = Tables(project)
    receipts = list(connector.push(OPERATIONS))
    assert [receipt.operation for receipt in receipts] == OPERATIONS
    assert all(receipt.changed for receipt in receipts if receipt.operation.key != "../bob")
    written = project / "hitl-output"
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in written.rglob("*") if path.is_file()}
    assert [receipt.changed for receipt in connector.push(OPERATIONS)] == [0] * len(OPERATIONS)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in written.rglob("*") if path.is_file()}
    assert after == before
    assert read_table(written / "order.csv").to_pylist() == [
        {"priority": "1", "item": "c"},
        {"priority": "2", "item": "b"},
    ]
    assert read_table(written / "consensus.csv").column_names == ["item", "label", "confidence", "p_no", "p_yes"]
    assert read_table(written / "assignments" / "ann.csv").column("item").to_pylist() == ["c"]
    assert all(written in path.parents for path in before)


def test_added_items_and_gold_are_read_back(project: Path) -> None:
    connector = Tables(project)
    list(connector.push(OPERATIONS))
    (page,) = pulled(connector)
    assert [row.key for row in page.items] == ["a", "b", "c", "d"]
    assert [(row.item, row.label) for row in page.annotations if row.kind == "gold"] == [("a", "yes"), ("b", "no")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "neither annotations"),
        ({"annotations": ""}, "the file is empty"),
        ({"annotations": "item,label\n,yes\n"}, "annotations.csv, line 2: the item is empty"),
        ({"annotations": "thing,label\na,yes\n"}, "no column 'item'"),
        ({"annotations": "item,label\na,yes\n", "items": "text\nhello\n"}, "items: no column 'item'"),
    ],
)
def test_what_cannot_be_read_says_where(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path, **files)
    with pytest.raises(BadTable, match=message):
        pulled(Tables(tmp_path))


@pytest.mark.parametrize("name", ["annotations", "items", "truth", "probabilities_net"])
def test_a_table_that_was_read_and_is_gone_is_no_deletion(project: Path, name: str) -> None:
    (page,) = pulled(Tables(project))
    (project / f"{name}.csv").rename(project / "moved.txt")
    with pytest.raises(BadTable, match=rf"{name}.\* is gone.*nothing was deleted. Put it back"):
        pulled(Tables(project), page.cursor)
    (project / "moved.txt").rename(project / f"{name}.csv")
    assert pulled(Tables(project), page.cursor) == []
    (project / f"{name}.tsv").write_text("item\n")
    with pytest.raises(BadTable, match=r"both are there|another file of the same name"):
        pulled(Tables(project), page.cursor)


def test_other_bytes_of_the_same_size_and_time_are_written(tmp_path: Path) -> None:
    """Two writes may come within one tick of a file system."""
    write(tmp_path, annotations="item,label\na,yes\n")
    path, changed = tmp_path / "hitl-output" / "order.csv", []
    for item in "aabba":
        (receipt,) = Tables(tmp_path).push([Operation("order", "", {"items": [item]})])
        changed.append(receipt.changed)
        os.utime(path, (43_200, 43_200))
    assert changed == [1, 0, 1, 0, 1]
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == ["order.csv"]


def test_a_table_that_goes_while_it_is_read_is_no_deletion(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = table_reading.read_table

    def going(path: Path, *arguments: Any) -> Any:
        found = read(path, *arguments)
        (project / "annotations.csv").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(table_reading, "read_table", going)
    with pytest.raises(BadTable, match="annotations"):
        pulled(Tables(project))


def test_truth_that_nobody_has_ever_said_is_told_or_refused(project: Path) -> None:
    write(project, truth="item,label\na,\nb,yess\nc,yess\n")
    (page,) = pulled(Tables(project))
    (problem,) = page.problems
    assert [row.item for row in page.annotations if row.kind == "gold"] == ["b", "c"]  # an empty label is unknown
    assert "item 'b': no annotator has ever said 'yess'" in problem
    with pytest.raises(BadTable, match=r"truth.csv, line 3: 'yess' is no class; expected one of no, yes"):
        pulled(Tables(project, classes=("no", "yes")))


def test_truth_that_is_no_class_or_contradicts_itself_is_refused(project: Path) -> None:
    write(project, truth="item,label\na,yes\nb,no\n")
    with pytest.raises(BadTable, match=r"truth.csv, line 3: 'no' is no class; expected none of source.abstain"):
        pulled(Tables(project, abstain=("no",)))
    write(project, truth="item,label\na,yes\na,yes\na,no\n")
    with pytest.raises(BadTable, match=r"truth.csv, line 4: item 'a' appears twice; expected one label each"):
        pulled(Tables(project))


def test_a_receipt_counts_what_is_added_and_not_all_that_is_there(project: Path) -> None:
    """The file holds what was added before as well."""
    truths = [{"a": "yes"}, {"a": "yes", "b": "no"}, {"a": "yes"}, {"a": "no", "b": "no"}]
    pushed = [Operation("gold", "label", {"questions": {"label": truth}}) for truth in truths]
    assert [receipt.changed for receipt in Tables(project).push(pushed)] == [1, 1, 0, 1]
    rows = [[{"key": "n1", "data": {"text": "x"}}], [{"key": "n2", "data": {"text": "y", "n": 1}}]]
    items = [Operation("add_items", f"{n}", {"items": each}) for n, each in enumerate([*rows, rows[0]])]
    assert [receipt.changed for receipt in Tables(project).push(items)] == [1, 1, 0]
    inner = [[{"key": f"n{n}", "data": {"in": {f"x{n}": 1}}}] for n in (3, 4, 5)]
    items = [Operation("add_items", f"inner {n}", {"items": each}) for n, each in enumerate(inner)]
    assert [receipt.changed for receipt in Tables(project).push(items)] == [1, 1, 1]
    found = read_table(project / "hitl-output" / "added_items.jsonl").to_pylist()
    assert [(row["item"], row["text"], row["n"]) for row in found[:2]] == [("n1", "x", None), ("n2", "y", 1)]


def test_check_tells_what_is_there_and_what_is_wrong(project: Path, tmp_path: Path) -> None:
    assert all(check.ok for check in Tables(project).check())
    empty = tmp_path / "empty"
    empty.mkdir()
    failed = [check for check in Tables(empty).check() if not check.ok]
    assert failed[0].name == "annotations"
    (empty / "annotations.xlsx").write_bytes(b"")
    with pytest.raises(BadTable, match=r"annotations\.xlsx is, which a project does not read: save it as \.csv"):
        pulled(Tables(empty))


def test_answers_that_are_no_classes(project: Path) -> None:
    write(project, annotations="item,annotator,label\na,ann,yes\na,bob,unsure\nb,ann,no\n")
    for connector in (
        Tables(project, abstain=("unsure",)),
        Tables(project, classes=("no", "yes"), abstain=("unsure",)),
    ):
        (question,) = connector.questions()
        assert (question.classes, question.options) == (("no", "yes"), ("no", "yes", "unsure"))
        (page,) = connector.pull(None)
        assert ([row.label for row in page.annotations].count("unsure"), page.problems) == (1, ())


@pytest.mark.parametrize("name", ["a" * 300, "ä" * 200, "x" * 160])
def test_a_long_name_has_a_file_of_its_own(project: Path, name: str) -> None:
    """File systems take names of 255 bytes."""
    others = [name, f"{name}b", "ann"]
    receipts = list(Tables(project).push(Operation("assign", who, {"items": ["c"]}) for who in others))
    assert len({receipt.detail for receipt in receipts}) == 3
    assert len(list((project / "hitl-output" / "assignments").iterdir())) == 3


def test_what_json_does_not_have_is_kept_as_text(project: Path) -> None:
    """Parquet has times, decimals and bytes; Arrow takes texts of JSON for times, inside of other values too."""
    (project / "items.csv").unlink()
    day, half = datetime(2024, 1, 2, 3), Decimal("0.50")
    rows = {"item": ["a", "b"], "day": [day, None], "price": [half, half], "raw": [b"x", b"y"], "n": [1, 2]}
    table = pa.table(rows).append_column("inner", pa.array([{"day": day.date(), "n": 3}] * 2))
    table = table.append_column("map", pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())))
    pq.write_table(table, project / "items.parquet")
    (page,) = pulled(Tables(project))
    found = {row.key: row.data for row in page.items}
    assert found["a"] == {
        "day": "2024-01-02 03:00:00",
        "price": "0.50",
        "raw": "b'x'",
        "n": 1,
        "inner": {"day": "2024-01-02", "n": 3},
        "map": [["k", 1]],
    }
    assert "day" not in found["b"]
    (project / "items.parquet").unlink()
    said: dict[str, Any] = {"at": "2024-01-01T00:00:00Z", "in": {"at": ["2024-01-01T00:00:00Z"], "n": 1}}
    (project / "items.jsonl").write_text("".join(json.dumps({"item": key} | said) + "\n" for key in "ab"))
    (page,) = pulled(Tables(project))
    assert {row.key: row.data for row in page.items if row.key in ("a", "b")} == {"a": said, "b": said}


LABELS = "item,annotator,label\n"


@pytest.mark.parametrize(
    ("table", "text", "line", "column"),
    [
        ("annotations", f"{LABELS}a,ann,yes\na\0b,ann,no\n", 3, "item"),
        ("annotations", f"{LABELS}a,,yes\nb,an\0n,no\n", 3, "annotator"),
        ("annotations", f"{LABELS}a,ann,yes\nb,ann,n\0o\n", 3, "label"),
        ("truth", "item,label\na\0b,yes\n", 2, "item"),
        ("truth", "item,label\na,y\0es\n", 2, "label"),
        ("probabilities_net", "item,p_no,p_yes\na\0b,0.2,0.8\n", 2, "item"),
    ],
)
def test_a_name_that_no_database_keeps_is_refused(project: Path, table: str, text: str, line: int, column: str) -> None:
    write(project, **{table: text})
    with pytest.raises(BadTable, match=rf"{table}\.csv, line {line}: the {column} holds a NUL character"):
        pulled(Tables(project))


@pytest.mark.parametrize("column", [pa.array([b"\xff", b"a"]), pa.array([[1], [2]])])
def test_names_that_are_no_text_are_refused(project: Path, column: pa.Array) -> None:
    (project / "annotations.csv").unlink()
    table = pa.table({"item": column, "annotator": ["ann", "bob"], "label": ["yes", "no"]})
    pq.write_table(table, project / "annotations.parquet")
    with pytest.raises(BadTable, match=r"expected (plain text or numbers|one name in each row)"):
        pulled(Tables(project))


def test_a_table_without_the_column_of_annotators_is_told(project: Path) -> None:
    """Unless it has no other column that could name them."""
    write(project, annotations="item,worker,label\na,ann,yes\na,bob,no\n")
    (page,) = pulled(Tables(project))
    (problem,) = page.problems
    assert "has no column 'annotator'" in problem
    assert "if worker names who answered, set source.annotator" in problem
    assert [check.detail for check in Tables(project).check() if check.name == "names"] == [problem]
    write(project, annotations="item,worker,team,label\na,ann,t1,yes\na,bob,t1,no\n")
    assert "if one of worker, team names who answered, set" in pulled(Tables(project))[0].problems[0]
    assert pulled(Tables(project, annotator="worker"))[0].problems == ()
    write(project, annotations="item,label,duration\na,yes,2\na,no,3\n")
    assert pulled(Tables(project))[0].problems == ()


def test_boxes_are_not_read_and_that_is_told(project: Path) -> None:
    """A row without a box is a skip then, and of two boxes of an annotator the last one wins."""
    rows = "a,ann,1,2,30,40,yes\na,bob,1,2,31,39,no\nb,bob,,,,,\n"
    write(project, annotations=f"item,annotator,x,y,width,height,label\n{rows}")
    (told,) = pulled(Tables(project))[0].problems
    assert told.startswith("annotations: the columns x, y, width and height are not read")
    assert [check.detail for check in Tables(project).check() if check.name == "names"] == [told]


def test_names_that_differ_in_case_or_spaces_are_told(project: Path) -> None:
    write(project, annotations="item,annotator,label\na,ann,yes\na,ann ,no\nb,bob,Yes\n")
    (page,) = pulled(Tables(project))
    people, labels = page.problems
    told = "count as different. If they are the same, write them alike, as commands do with"
    assert people == f"the annotators 'ann' and 'ann ' {told} --trim and projects with source.trim"
    assert labels == f"the labels 'Yes' and 'yes' {told} --ignore-case and projects with source.ignore_case"
    assert [check.detail for check in Tables(project).check() if check.name == "names"] == [people, labels]
    write(project, annotations="item,annotator,label\n" + "".join(f"a,1234567890123456{n},1_{n}\n" for n in range(9)))
    assert pulled(Tables(project))[0].problems == (), "long numbers are identifiers"


def test_names_that_are_written_otherwise_in_other_tables_are_told(project: Path) -> None:
    write(project, truth="item,label\nA,yes\na,yes\n", probabilities_net="item,p_no,p_yes\nA ,0.2,0.8\nC,0.5,0.5\n")
    (page,) = pulled(Tables(project))
    truth, model = page.problems
    assert truth.startswith(
        "ground truth: the items 'a' and 'A' count as different. If they are the same, write them alike"
    )
    assert model.startswith("model net: the items 'a' and 'A ' count as different (and 1 more such pair). If")
    write(project, truth="item,label\nz,yes\na,yes\n", probabilities_net="item,p_no,p_yes\ny,0.2,0.8\n")
    truth, model = pulled(Tables(project))[0].problems
    assert truth.startswith(
        "ground truth: 1 of its 2 items is among the 3 of the other tables, 1 is not, for instance 'z'"
    )
    assert model.startswith("model net: 0 of its 1 item are among the 3 of the other tables")


def test_the_same_rules_for_all_tables_of_a_project(project: Path) -> None:
    """Ids, spaces, case and missing values are as in `hitl combine`."""
    write(
        project,
        annotations="item,annotator,label,at\n1,ann,Yes ,3/2/2026\n2.0,Ann,no,3/2/2026\n2,bob,NA,3/2/2026\n",
        truth="item,label\n1.0,YES\n",
        items="item,text\n1,NA\n2.0,b\n",
        probabilities_net="item,p_no,p_yes\n1.0,0.2,0.8\n2,NA,NA\n",
    )
    rules = {"trim": True, "ignore_case": True, "na": ("NA",)}
    with pytest.raises(
        BadAnnotations, match=r"annotations\.csv, line 2, column 'at': '3/2/2026' may be.*source.day_first"
    ):
        pulled(Tables(project, time="at", **rules))
    (page,) = pulled(Tables(project, time="at", day_first=True, **rules))
    assert page.problems == ()
    assert {row.key: row.data for row in page.items} == {"1": {"text": "NA"}, "2": {"text": "b"}}
    answers = {(row.item, row.annotator, row.kind, row.label) for row in page.annotations}
    assert answers == {
        ("1", "ann", "answer", "Yes"),
        ("2", "ann", "answer", "no"),
        ("2", "bob", "skip", None),
        ("1", None, "gold", "Yes"),
    }
    assert [(row.item, dict(row.probabilities)) for row in page.predictions] == [("1", {"no": 0.2, "Yes": 0.8})]
    (doubt,) = [told for told in pulled(Tables(project))[0].problems if "missing answers" in told]
    assert doubt == "annotations: the labels NA look like missing answers; if they are, set source.na"


def test_a_list_of_labels_is_refused(project: Path) -> None:
    write(project, annotations='item,annotator,label\na,ann,yes\na,bob,"[""no"", ""yes""]"\n')
    with pytest.raises(BadTable, match=r"annotations\.csv, line 3, column 'label': .* is a list.*source\.label"):
        pulled(Tables(project))
