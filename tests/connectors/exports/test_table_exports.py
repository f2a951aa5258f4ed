"""MTurk, Zooniverse, Appen, Toloka, crowd-kit and CVAT: what counts as an answer, in the forms that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import BadTable
from tests.connectors.exports.reading import answers, known, read

Rows = list[dict[str, Any]]


def expect(folder: Path, content: Any, name: str, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(BadTable, match=expected):
            read(folder, content, name)
    else:
        assert answers(read(folder, content, name)) == expected


# -- Mechanical Turk ---------------------------------------------------------------------------------------


def turk(who: str | None = "w", status: str = "Approved", hit: str = "h", **answer: Any) -> dict[str, Any]:
    row = {"HITId": hit, "WorkerId": who, "AssignmentStatus": status, "SubmitTime": "Mon Mar 02 09:00:00 PST 2026"}
    row |= {"WorkTimeInSeconds": "33", "Input.image": "x.jpg"}
    return row | {f"Answer.{name}": value for name, value in (answer or {"label": "a"}).items()}


def tasks(**answer: Any) -> str:
    return json.dumps([answer])


A = {("h", "w"): "a"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([turk()], A),
        ([turk(), turk("v", "Rejected")], A),
        ([turk(), turk("v") | {"Reject": "x"}], A),
        ([turk(), turk("v", status="Submitted")], A | {("h", "v"): "a"}),
        ([turk(), turk("", status="")], A),
        ([turk(), turk("v", label="")], A),
        ([turk(None)], {("h", None): "a"}),
        ([turk(), turk("v", hit="")], A),
        ([turk(**{"kind.label": "a"})], A),
        ([turk(**{"kind.a": "true", "kind.b": "false"})], A),
        ([turk(**{"agree.on": "true"})], {("h", "w"): "true"}),
        ([turk(taskAnswers=tasks(kind={"label": "a"}))], A),
        ([turk(taskAnswers=tasks(kind={"a": True, "b": False}))], A),
        ([turk(taskAnswers=tasks(kind="a")), turk("v", taskAnswers="{broken")], A),
        ([turk(label="a|b")], "several labels.*'label=a', 'label=b'"),
        ([turk(**{"kind.labels": '["a", "b"]'})], "'kind=a', 'kind=b'"),
        ([turk(label="a", other="b")], r"2 questions: 'label' \(1 answer\), 'other' \(1 answer\)"),
        ([turk(status="Rejected")], "holds no answer; skipped: 1 rejected assignment"),
    ],
)
def test_mechanical_turk(tmp_path: Path, rows: Rows, expected: Any) -> None:
    expect(tmp_path, rows, "Batch_1.csv", expected)


def test_times_items_and_unticked_boxes_of_mechanical_turk(tmp_path: Path) -> None:
    (row,) = read(tmp_path, [turk()], "Batch_1.csv", item="Input.image").table.to_pylist()
    assert row == {"item": "x.jpg", "annotator": "w", "label": "a", "time": 1772470800.0, "duration": 33.0}
    boxes = [turk(**{"k.a": "true", "k.b": "true"}), turk("v", **{"k.a": "false", "k.b": "false"})]
    ticked = read(tmp_path, boxes, "Batch_1.csv", question="k=a")
    assert answers(ticked) == {("h", "w"): "yes", ("h", "v"): "no"}


# -- Zooniverse --------------------------------------------------------------------------------------------


def zoo(value: Any = "Yes", who: str = "w", task: str = "T0", **more: Any) -> dict[str, Any]:
    annotations = json.dumps([{"task": task, "task_label": "Is it?", "value": value}])
    row = {"classification_id": 1, "user_name": who, "workflow_id": 55, "created_at": "2026-03-01 10:00:00 UTC"}
    times = {"started_at": "2026-03-01T10:00:00.000Z", "finished_at": "2026-03-01T10:00:07.000Z"}
    row |= {"gold_standard": "", "metadata": json.dumps(times), "annotations": annotations, "subject_ids": "10"}
    return row | {"subject_data": json.dumps({"10": {"Filename": "t0.png"}})} | more


YES = {("10", "w"): "Yes"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([zoo()], YES),
        ([zoo(), zoo(None, "v")], YES),
        ([zoo(), zoo(who="v", annotations="[broken")], YES),
        ([zoo(), zoo(who="v", annotations="[1]")], YES),
        ([zoo(), zoo([{"x": 1, "y": 2}], "v")], YES),
        ([zoo(), zoo(who="v", subject_ids="", subject_data="")], YES),
        ([zoo(metadata="")], YES),
        ([zoo(who="")], {("10", None): "Yes"}),
        ([zoo([{"task": "T1", "value": "Yes"}], task="T9")], YES),
        ([zoo(["a", "b"])], "'T0=a', 'T0=b'"),
        ([zoo([{"choice": "LION", "answers": {}}])], "'T0=LION'"),
        ([zoo(), zoo(task="T1")], "2 questions: 'T0'.*'T1'"),
        ([zoo(), zoo(workflow_id=56)], "2 questions: '55.T0'.*'56.T0'"),
    ],
)
def test_zooniverse(tmp_path: Path, rows: Rows, expected: Any) -> None:
    expect(tmp_path, rows, "classifications.csv", expected)


def test_gold_standards_times_and_items_of_zooniverse(tmp_path: Path) -> None:
    labels = read(tmp_path, [zoo(), zoo("No", "lead", gold_standard="true")], "c.csv", item="Filename")
    assert (answers(labels), known(labels)) == ({("t0.png", "w"): "Yes"}, {"t0.png": "No"})
    assert labels.table.to_pylist()[0] | {"item": "", "label": ""} == {
        "item": "",
        "annotator": "w",
        "label": "",
        "time": 1772359200.0,
        "duration": 7.0,
    }


# -- Appen -------------------------------------------------------------------------------------------------


def appen(label: str = "yes", who: str = "1", gold: str = "", unit: str = "700", **more: Any) -> dict[str, Any]:
    row = {"_unit_id": unit, "_created_at": "3/1/2026 10:00:00", "_tainted": "false", "_worker_id": who}
    return row | {"ok": label, "orig__golden": "", "ok_gold": gold, "text": "a text"} | more


OK = {("700", "1"): "yes"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([appen()], OK),
        ([appen(), appen("no", "2", _tainted="true")], OK),
        ([appen(), appen("no", "2", _tainted="TRUE")], OK),
        ([appen(), appen("", "2")], OK),
        ([appen(), appen("no", "2", unit="")], OK),
        ([appen(_tainted="")], OK),
        ([appen(who="")], {("700", None): "yes"}),
        ([appen(), appen("yes\nno", "2")], "several labels.*'ok=no', 'ok=yes'"),
        ([appen() | {"why": "x", "why_gold": ""}], "2 questions: 'ok'.*'why'"),
        ([appen(_tainted="true")], "holds no answer; skipped: 1 tainted judgment"),
    ],
)
def test_appen(tmp_path: Path, rows: Rows, expected: Any) -> None:
    expect(tmp_path, rows, "f123.csv", expected)


def test_test_questions_of_appen_are_known_unless_several_answers_are_accepted(tmp_path: Path) -> None:
    rows = [appen(gold="no"), appen("no", "2", gold="no"), appen(unit="701", gold="yes\nno")]
    labels = read(tmp_path, rows, "f123.csv")
    assert (known(labels), len(answers(labels))) == ({"700": "no"}, 3)
    assert "1 known answer with several labels" in labels.summary
    assert labels.table.column("time").to_pylist() == [1772359200.0] * 3


def test_without_gold_the_column_of_appen_is_the_one_that_differs_or_that_is_named(tmp_path: Path) -> None:
    def without(*rows: dict[str, Any]) -> Rows:
        return [{name: cell for name, cell in row.items() if not name.endswith("_gold")} for row in rows]

    assert len(answers(read(tmp_path, without(appen(), appen("no", "2")), "f.csv"))) == 2
    with pytest.raises(BadTable, match=r"which column holds the answers.*--question: ok, text"):
        read(tmp_path, without(appen(), appen("yes", "2")), "f.csv")
    assert len(answers(read(tmp_path, without(appen(), appen("yes", "2")), "f.csv", question="ok"))) == 2


# -- Toloka ------------------------------------------------------------------------------------------------


def toloka(who: str = "w", task: str = "t", status: str = "APPROVED", **more: Any) -> dict[str, Any]:
    row = {"INPUT:image": "x.jpg", "OUTPUT:result": "a", "GOLDEN:result": "", "HINT:text": ""}
    row |= {"ASSIGNMENT:task_id": task, "ASSIGNMENT:worker_id": who, "ASSIGNMENT:status": status}
    return row | {"ASSIGNMENT:submitted": "2026-03-01 10:01:00"} | more


TOLD = {("t", "w"): "a"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([toloka()], TOLD),
        ([toloka(), toloka("v", status="REJECTED")], TOLD),
        ([toloka(), toloka("v", status="SKIPPED")], TOLD),
        ([toloka(), toloka("v", status="EXPIRED")], TOLD),
        ([toloka(), toloka("v", status="SUBMITTED")], TOLD | {("t", "v"): "a"}),
        ([toloka(), toloka("v", **{"OUTPUT:result": ""})], TOLD),
        ([toloka(), toloka("v", **{"OUTPUT:result": "[broken"})], TOLD),
        ([toloka(task="")], {("x.jpg", "w"): "a"}),
        ([toloka(""), toloka(task="u")], {("t", None): "a", ("u", "w"): "a"}),
        ([toloka(**{"OUTPUT:result": '["a", "b"]'})], "'result=a', 'result=b'"),
        ([toloka(**{"OUTPUT:why": "b"})], "2 questions: 'result'.*'why'"),
    ],
)
def test_toloka(tmp_path: Path, rows: Rows, expected: Any) -> None:
    expect(tmp_path, rows, "assignments.tsv", expected)


def test_control_tasks_of_toloka_are_known(tmp_path: Path) -> None:
    labels = read(tmp_path, [toloka(**{"GOLDEN:result": "b"}), toloka("v", task="u")], "assignments.tsv")
    assert (known(labels), len(answers(labels))) == ({"t": "b"}, 2)


# -- crowd-kit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"task": "t", "worker": "w", "label": "a"}], TOLD),
        ([{"task": "t", "performer": "w", "label": "a"}], TOLD),
        ([{"task": "t", "worker": "w", "label": "a"}, {"task": "t", "worker": "v", "label": ""}], TOLD),
        ([{"task": "t", "worker": "w", "label": "a"}, {"task": "", "worker": "v", "label": "a"}], TOLD),
        ([{"task": "t", "worker": "", "label": "a"}], {("t", None): "a"}),
        ([{"task": 1, "worker": 2, "label": 3}], {("1", "2"): "3"}),
        ([{"": 0, "task": "t", "worker": "w", "label": "a"}], TOLD),
    ],
)
def test_crowd_kit(tmp_path: Path, rows: Rows, expected: Any) -> None:
    expect(tmp_path, rows, "answers.csv", expected)


# -- CVAT --------------------------------------------------------------------------------------------------


def cvat(*images: str, assignee: str = "<assignee><username>ann</username></assignee>") -> str:
    meta = f"<meta><job><id>1</id><owner><username>root</username></owner>{assignee}</job></meta>"
    inside = f"<version>1.1</version>{meta}{''.join(images)}"
    return f'<?xml version="1.0" encoding="utf-8"?><annotations>{inside}</annotations>'


def image(*tags: str, name: str = "1.jpg", more: str = "") -> str:
    inside = "".join(f'<tag label="{tag}" source="manual"><attribute name="x">y</attribute></tag>' for tag in tags)
    return f'<image id="0" name="{name}" width="9" height="9">{inside}{more}</image>'


CAT = {("1.jpg", "ann"): "cat"}
BOX = '<box label="dog" source="manual" xtl="0" ytl="0" xbr="1" ybr="1"/>'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (cvat(image("cat")), CAT),
        (cvat(image("cat"), image(name="2.jpg")), CAT),
        (cvat(image("cat", more=BOX)), CAT),
        (cvat(image("cat", more='<tag label="dog" source="auto"/>')), CAT),
        (cvat(image("cat"), image(name="2.jpg", more='<tag label="dog" source="consensus"/>')), CAT),
        (cvat(image("cat"), image(name="2.jpg", more="<tag/>")), CAT),
        (cvat(image("cat"), '<image id="1"><tag label="dog"/></image>'), CAT),
        (cvat(image("cat"), '<track id="0" label="dog"/>'), CAT),
        (cvat(image("cat"), assignee="<assignee>ann</assignee>"), CAT),
        (cvat(image("cat"), assignee="<assignee></assignee>"), {("1.jpg", "job_1"): "cat"}),
        (cvat(image("cat"), assignee=""), {("1.jpg", "job_1"): "cat"}),
        (cvat(image("cat", "dog")), "'tag=cat', 'tag=dog'"),
        (cvat(image(more=BOX)), "CVAT XML with shapes and no tags. Only tags, .* are read. Boxes"),
        (cvat(image("cat"))[:-20], r"job_1.xml.*not XML"),
        ('<!DOCTYPE a [<!ENTITY x "y">]>' + cvat(image("&x;")).split("?>")[1], "DOCTYPE"),
        (cvat("<a>" * 200), "nested more than 100 levels"),
    ],
)
def test_cvat(tmp_path: Path, content: str, expected: Any) -> None:
    expect(tmp_path, content, "job_1.xml", expected)


def test_cvat_zip_with_a_file_for_each_annotator(tmp_path: Path) -> None:
    files = {"job_1.xml": cvat(image("cat")), "job_2.xml": cvat(image("dog"), assignee=""), "images/1.jpg": "\xff"}
    assert answers(read(tmp_path, files, "task.zip")) == CAT | {("1.jpg", "job_2"): "dog"}
