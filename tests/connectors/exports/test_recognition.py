"""How exports are recognized, named, bounded and refused: at the door, the command `hitl combine`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hitl.connectors import catalog
from hitl.connectors.catalog import IMPORTERS
from hitl.connectors.exports import read_export
from hitl.errors import BadTable
from tests.command_line import Run
from tests.connectors.exports.reading import COLUMNS, answers, read, write
from tests.connectors.exports.test_table_exports import zoo

CASES = Path(__file__).parents[2] / "data" / "exports"
READ_AS = {
    "appen.csv": "8 units (_unit_id), 3 contributors (_worker_id), question 'is_it_relevant'",
    "argilla.json": "8 records (id), 3 users (user_id), question 'label'; skipped: 8 suggestions, 1 discarded response",
    "argilla_flat.jsonl": "8 records (id), 3 users (user_id), question 'label'; skipped: 8 suggestions, 1 discarded",
    "crowdkit.csv": "8 tasks (task), 3 workers (worker), question 'label'",
    "groundtruth.manifest": "6 items (source-ref), 1 labeling job (job-name), question 'pets'",
    "gt_consolidation.json": "8 items (datasetObjectId), 3 workers (workerId), question 'crowd_image_classifier'",
    "labelbox.ndjson": "8 data rows (global_key), 3 annotators (created_by), question 'kind'",
    "ls_csv.csv": "4 tasks (id), 4 annotators (annotator), question 'mood'",
    "ls_export.json": "question 'mood'; 1 known answer; skipped: 8 predictions, 1 cancelled annotation",
    "ls_export.jsonl": "question 'mood'; 1 known answer; skipped: 8 predictions, 1 cancelled annotation",
    "ls_min.json": "4 tasks (id), 4 annotators (annotator), question 'mood'",
    "mturk.csv": "8 HITs (HITId), 3 workers (WorkerId), question 'label'; skipped: 2 rejected assignments",
    "prodigy.jsonl": "8 items (_input_hash), 3 annotators (_annotator_id), question 'choice'; skipped: 1 empty answer",
    "toloka.tsv": "8 tasks (ASSIGNMENT:task_id), 3 Tolokers (ASSIGNMENT:worker_id), question 'result'",
    "zooniverse.csv": "8 subjects (subject_ids), 3 volunteers (user_name), question 'T0'",
}


@pytest.mark.parametrize("name", READ_AS)
def test_each_export_is_read_as_it_is(run: Run, name: str) -> None:
    code, out, err = run("combine", str(CASES / name), "--method", "majority")
    assert (code, "Consensus" in out) == (0, True), err
    assert READ_AS[name] in err


def test_one_class_alone_is_told_after_what_was_read(run: Run) -> None:
    code, _, err = run("combine", str(CASES / "ls_old.json"), "--method", "majority")
    assert code != 0
    assert "ls_old.json: read as Label Studio JSON: 3 tasks (id), no annotator named, question 'mood'" in err
    assert "found 1 class (calm)" in err


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["annotators"], "A1W0"), (["report", "-o", "page.html"], "page.html")],
)
def test_other_commands_read_exports_too(run: Run, command: list[str], expected: str) -> None:
    name, *flags = command
    _, out, err = run(name, str(CASES / "mturk.csv"), "--method", "majority", *flags)
    assert "read as MTurk batch CSV" in err
    assert expected in out + err


def test_a_table_stays_a_table_and_flags_choose(run: Run, tmp_path: Path) -> None:
    labels = "item,annotator,label,task,worker\na,x,1,9,9\na,y,2,9,9\nb,x,2,9,9\nb,y,2,9,9\n"
    (tmp_path / "labels.csv").write_text(labels)
    assert "read as" not in run("combine", "labels.csv", "--method", "majority")[2]
    code, _, err = run("combine", "labels.csv", "--format", "crowd-kit", "--method", "majority")
    assert "read as crowd-kit table: 1 task" in err
    (tmp_path / "answers.csv").write_text(labels.replace("item,annotator,", "a,b,"))
    assert "read as crowd-kit" in run("combine", "answers.csv", "--method", "majority")[2]
    code, _, err = run("combine", "answers.csv", "--format", "table")
    assert (code, "no column 'item'" in err) == (65, True)
    code, _, err = run("combine", "labels.csv", "--format", "prodigi")
    assert (code, "--format 'prodigi' is unknown" in err) == (78, True)
    code, _, err = run("combine", "labels.csv", "--question", "x")
    assert (code, "labels.csv is read as a table; --label names its column" in err) == (78, True)
    code, _, err = run("combine", "answers.csv", "--time", "t")
    assert (code, "--time: the times of answers.csv are read from the export" in err) == (78, True)


def test_truth_of_the_user_goes_before_known_answers_of_the_export(run: Run, tmp_path: Path) -> None:
    (tmp_path / "truth.csv").write_text("item,label\n3,angry\n")
    flags = ["--truth", "truth.csv", "--method", "majority", "--json", "--labels"]
    _, out, _ = run("combine", str(CASES / "ls_export.json"), *flags)
    assert {row["item"]: row["label"] for row in json.loads(out)["consensus"]}["3"] == "angry"


def test_spans_of_an_export_are_combined_as_spans(run: Run, tmp_path: Path) -> None:
    marked = {"text": "Ada met Bob", "_input_hash": 1, "_view_id": "ner_manual", "answer": "accept"}
    spans = [{"start": 0, "end": 3, "label": "PER"}]
    write(tmp_path, [marked | {"_session_id": who, "spans": spans} for who in "xyz"], "ner.jsonl")
    code, out, err = run("combine", "ner.jsonl", "--json")
    assert (code, json.loads(out)["spans"]) == (0, 1), err
    code, _, err = run("annotators", "ner.jsonl")
    assert (code, "ner.jsonl: holds spans, which only `hitl combine` reads" in err) == (65, True)


def test_a_file_that_may_be_of_two_tools_asks_for_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def importer(title: str) -> type:
        return type("Both", (), {"title": title, "matches": lambda self, kind, names, first: True})

    fake = SimpleNamespace(load={"one": importer("One"), "two": importer("Two")}.get, __iter__=None)
    both = type("Both", (), {"__iter__": lambda self: iter(("one", "two")), "load": staticmethod(fake.load)})()
    monkeypatch.setattr("hitl.connectors.exports.IMPORTERS", both)
    assert catalog.IMPORTERS is IMPORTERS
    with pytest.raises(
        BadTable, match=r"may be an export of several tools; choose one: --format one \(One\), --format"
    ):
        read_export(write(tmp_path, [{"a": 1}], "export.json"), COLUMNS)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "export.json",
            '[{"a": 1}]',
            r"export.json: no export that hitl knows; .* the fields a\. Name .*--format",
        ),
        ("export.json", "[]", r"the fields \(none\)"),
        ("export.json", '[{"id": 1, "annotations": []', r"line 1: not JSON"),
        ("export.json", '[{"id": 1},', "does not end; is the file complete"),
        ("export.txt", "item annotator label", None),
        ("export.xml", "<a><b/></a>", "no export that hitl knows"),
        (
            "coco.json",
            '{"images": [{"id": 1}], "annotations": [{"bbox": [1, 2, 3, 4]}], "categories": [{"id": 1, "name": "a"}]}',
            "coco.json: a COCO file, of boxes or masks. None of its answers are read. Boxes on images are combined in",
        ),
        ("export.xml", "<a><b></a>", "line 1: not XML: mismatched tag"),
    ],
)
def test_what_is_no_export_is_told(tmp_path: Path, name: str, content: str, expected: str | None) -> None:
    path = write(tmp_path, content, name)
    if expected is None:
        assert read_export(path, COLUMNS) is None
        with pytest.raises(BadTable, match="--format prodigy"):
            read_export(path, COLUMNS, format="prodigy")
    else:
        with pytest.raises(BadTable, match=expected):
            read_export(path, COLUMNS)


def test_bad_lines_are_skipped_and_named_once(tmp_path: Path) -> None:
    good = (CASES / "prodigy.jsonl").read_text().splitlines()
    deep = '{"a": ' + "[" * 300 + "]" * 300 + "}"
    for place in (0, 1, 9):
        lines = [*good[:place], "{broken", "7", deep, "[" * 100_000, *good[place:]]
        labels = read(tmp_path, "\n".join(lines), "export.jsonl")
        assert len(labels.table) == 22
        assert "4 unreadable records" in labels.summary
        assert [problem.split(":")[0] for problem in labels.problems] == [f"line {place + n}" for n in (1, 2, 3, 4)]


def test_pretty_json_one_object_and_a_byte_order_mark(tmp_path: Path) -> None:
    records = json.loads((CASES / "ls_export.json").read_text())
    for content in (json.dumps(records, indent=2), "\ufeff" + json.dumps(records)):
        assert len(read(tmp_path, content, "export.json").table) == 12
    assert len(read(tmp_path, json.dumps(records[0], indent=2), "task.json").table) == 3


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (CASES / "prodigy.jsonl").read_text()
    monkeypatch.setenv("HITL_LIMITS__ROWS", "20")
    with pytest.raises(BadTable, match=r"more than 20 records \(limits.rows\)"):
        read(tmp_path, content, "export.jsonl")
    monkeypatch.setenv("HITL_LIMITS__UNPACKED", "5000")
    with pytest.raises(BadTable, match=r"8,196 bytes; expected at most 5,000 \(limits.unpacked\)"):
        read(tmp_path, content, "export.jsonl")
    with pytest.raises(BadTable, match=r"unpacked it has 8,196 bytes or more; expected at most 5,000"):
        read(tmp_path, {"export.jsonl": content}, "export.zip")


def test_the_line_of_a_bad_row_of_a_table_is_named(tmp_path: Path) -> None:
    labels = read(tmp_path, [zoo(), zoo(who="v", annotations="[broken")], "c.csv")
    assert labels.problems == ["line 3: Expecting value: line 1 column 2 (char 1)"]
    assert answers(labels) == {("10", "w"): "Yes"}


LABELBOX = [
    {"data_row": {"id": "d", "external_id": f"e{n}"}, "projects": {"p": {"labels": [
        {"id": "l", "label_details": {"created_by": "ann"}, "annotations": {
            "classifications": [{"name": "kind", "radio_answer": {"name": label}}]}}]}}}
    for n, label in enumerate(("cat", "dog"))
]  # fmt: skip
TASKS = [{"id": n, "data": {"text": "x"}, "annotations": [
    {"completed_by": 1, "result": [{"from_name": "t", "type": "choices", "value": {"choices": [label]}}]}]}
    for n, label in enumerate(("cat", "dog"))
]  # fmt: skip
MIN = [{"text": "x", "id": n, "topic": label, "annotation_id": n, "lead_time": 2.0}
    for n, label in enumerate(("cat", "dog"))
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.tsv", [{"INPUT:image": n, "OUTPUT:result": label, "ASSIGNMENT:worker_id": "w"}
            for n, label in ((1, "cat"), (2, "dog"))], "2 tasks (INPUT:image)"),
        ("a.json", [*LABELBOX, {"data_row": {"external_id": "e9"}, "projects": {"p": {"labels": []}}}],
            "2 data rows (external_id), 1 annotator (created_by), question 'kind'; skipped: 1 data row without labels"),
        ("a.jsonl", [{"source": name, "lab": 0, "lab-metadata": {"class-name": name, "job-name": "j"}}
            for name in ("cat", "dog")], "2 items (source)"),
        ("a.json", TASKS, "read as Label Studio JSON: 2 tasks (id)"),
        ("a.json", MIN, "read as Label Studio JSON-MIN or CSV: 2 tasks (id), no annotator named, question 'topic'"),
    ],
)  # fmt: skip
def test_what_an_export_has_is_named_as_it_is_there(
    run: Run, tmp_path: Path, name: str, content: Any, told: str
) -> None:
    write(tmp_path, content, name)
    code, _, err = run("combine", name, "--method", "majority")
    assert (code, told in err) == (0, True), err


IMAGE = '<image name="a.jpg"><box label="cat"/></image>'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.xml", f"<annotations><version>1.1</version>{IMAGE}</annotations>"),
        ("a.xml", f"<annotations><meta><task/></meta>{IMAGE}</annotations>"),
        ("a.json", '{"images": [], "annotations": [], "categories": []}'),
    ],
)
def test_boxes_are_said_to_be_read_elsewhere(run: Run, tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path, content, name)
    code, _, err = run("combine", name)
    assert (code, "Boxes on images are combined in projects of Label Studio, and in Python" in err) == (65, True), err
