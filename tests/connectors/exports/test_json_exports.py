"""Prodigy, Argilla, doccano, Labelbox and SageMaker Ground Truth: what counts as an answer, in the forms they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import BadTable
from tests.connectors.exports.reading import answers, known, read, spans

# -- Prodigy -----------------------------------------------------------------------------------------------


def choice(item: int, who: str | None, *accept: str, **more: Any) -> dict[str, Any]:
    task = {"text": "Ada met Bob", "_input_hash": item, "_task_hash": 9, "_view_id": "choice", "answer": "accept"}
    task |= {"options": [{"id": "a"}, {"id": "b"}], "accept": list(accept), "config": {"choice_style": "single"}}
    return task | {"_timestamp": 1772355000, "_annotator_id": who, "_session_id": who} | more


def plain(item: int, who: str, **more: Any) -> dict[str, Any]:
    task = choice(item, who, **more)
    return {name: value for name, value in task.items() if name not in ("options", "accept", "config")}


A = {("1", "d-ann"): "a"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([choice(1, "d-ann", "a")], A),
        ([choice(1, "d-ann", "a"), choice(1, "d-bob", "a", answer="ignore")], A),
        ([choice(1, "d-ann", "a"), choice(1, "d-bob", "a", answer="reject")], A),
        ([choice(1, "d-ann", "a"), choice(1, "d-bob")], A),
        ([choice(1, "d-ann", "a"), choice(1, "d-bob", "a", answer="maybe")], A),
        ([choice(1, "d-ann", "a"), choice(1, "d-bob", "a", accept=[{"id": "a"}])], A),
        ([choice(1, "d-ann", "a", _annotator_id=None)], A),
        ([choice(1, None, "a")], {("1", None): "a"}),
        ([choice(1, "d-ann", accept=[3])], {("1", "d-ann"): "3"}),
        ([plain(1, "d-ann", label="SPAM", _view_id="classification")], {("1", "d-ann"): "accept"}),
        ([plain(1, "d-ann", label="SPAM", _view_id="classification", answer="reject")], {("1", "d-ann"): "reject"}),
    ],
)
def test_prodigy(tmp_path: Path, records: Any, expected: Any) -> None:
    assert answers(read(tmp_path, records, "export.jsonl")) == expected


def test_prodigy_multiple_choice_binary_labels_spans_and_reviews(tmp_path: Path) -> None:
    several = [choice(1, who, *own, config={"choice_style": "multiple"}) for who, own in (("x", "ab"), ("y", ""))]
    with pytest.raises(BadTable, match="--question: 'choice=a', 'choice=b'"):
        read(tmp_path, several, "export.jsonl")
    chosen = read(tmp_path, several, "export.jsonl", question="choice=a")
    assert answers(chosen) == {("1", "x"): "yes", ("1", "y"): "no"}

    binary = [plain(1, "x", label=label, _view_id="classification") for label in ("SPAM", "HAM")]
    with pytest.raises(BadTable, match=r"2 questions: 'SPAM' \(1 answer\), 'HAM' \(1 answer\)"):
        read(tmp_path, binary, "export.jsonl")

    marked = [
        plain(1, "x", _view_id="ner_manual", spans=[{"start": 0, "end": 3, "label": "PER", "token_start": 0}]),
        plain(1, "y", _view_id="ner_manual", spans=[]),
        plain(1, "z", _view_id="ner_manual", spans=[{"start": 0, "end": 33, "label": "PER"}]),
    ]
    labels = read(tmp_path, marked, "export.jsonl")
    assert spans(labels) == [("1", "x", 0, 3, "PER"), ("1", "y", None, None, None)]
    assert labels.problems == ["item '1', annotator 'z': 0 to 33 is no part of its text of 11 characters"]

    versions = [{"accept": ["a"], "answer": "accept", "sessions": ["x", "y"]}, {"accept": ["b"], "sessions": ["z"]}]
    reviewed = read(tmp_path, [choice(1, "lead", "a", _view_id="review", versions=versions)], "export.jsonl")
    assert (answers(reviewed), known(reviewed)) == ({("1", "x"): "a", ("1", "y"): "a", ("1", "z"): "b"}, {"1": "a"})


# -- Argilla -----------------------------------------------------------------------------------------------


def response(value: Any, user: str | None = "u1", status: str | None = "submitted") -> dict[str, Any]:
    return {"value": value, "user_id": user, "status": status}


def record(*responses: Any, question: str = "label", **more: Any) -> dict[str, Any]:
    fields = {"text": "Ada met Bob"}
    suggestions = {question: {"value": "no", "score": 0.8, "agent": "bert"}}
    own = {"id": "r1", "fields": fields, "suggestions": suggestions, "responses": {question: list(responses)}}
    return own | {"status": "completed", "metadata": {}, "vectors": {}} | more


def flat(values: Any, users: Any, statuses: Any) -> dict[str, Any]:
    names = {"label.responses": values, "label.responses.users": users, "label.responses.status": statuses}
    return {"id": "r1", "status": "completed", "text": "Ada met Bob", "label.suggestion": "no", **names}


YES = {("r1", "u1"): "yes"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([record(response("yes"))], YES),
        ([record(response("yes"), response("no", "u2", "discarded"))], YES),
        ([record(response("yes"), response("no", "u2", "draft"))], YES),
        ([record(response("yes"), response(None, "u2"))], YES),
        ([record(response("yes"), response({"a": 1}, "u2"))], YES),
        ([record(response("yes"), response([{"value": "a", "rank": 1}], "u2"))], YES),
        ([record(response("yes", status=None))], YES),
        ([record(response("yes")), record(id="r2", responses={})], YES),
        ([record(response("yes")), record(id="r2", responses="none")], YES),
        ([record(response("yes")), record(id=None, responses={"label": [response("yes")]}, fields=None)], YES),
        ([record(response(4))], {("r1", "u1"): "4"}),
        ([record(response(["yes"]))], "label=yes"),
        ([record(responses=[{"user_id": "u1", "status": "submitted", "values": {"label": {"value": "yes"}}}])], YES),
        ([flat(["yes"], ["u1"], ["submitted"])], YES),
        ([flat(["yes", "no"], ["u1", "u2"], ["submitted", "discarded"])], YES),
        ([flat(["yes"], ["u1"], ["submitted"]), flat(["yes", "no"], ["u2"], ["submitted"])], YES),
        ([flat(["yes"], ["u1"], ["submitted"]), flat(None, None, None)], YES),
    ],
)
def test_argilla(tmp_path: Path, records: Any, expected: Any) -> None:
    for name in ("export.json", "export.jsonl"):
        if isinstance(expected, str):
            with pytest.raises(BadTable, match=f"--question: '{expected}'"):
                read(tmp_path, records, name)
        else:
            assert answers(read(tmp_path, records, name)) == expected


def test_argilla_spans_and_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from hitl.connectors.exports import read_export

    marked = [{"start": 0, "end": 3, "label": "PER"}]
    labels = read(tmp_path, [record(response(marked), response([], "u2"))])
    assert spans(labels) == [("r1", "u1", 0, 3, "PER"), ("r1", "u2", None, None, None)]
    parquet.write_table(pa.Table.from_pylist([flat(["yes"], ["u1"], ["submitted"])]), tmp_path / "records.parquet")
    labels = read_export(tmp_path / "records.parquet", ("item", "annotator", "label"))
    assert labels is not None
    assert answers(labels) == YES


# -- doccano -----------------------------------------------------------------------------------------------


def text(key: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "text": "Ada met Bob", **more, "Comments": []}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([text(1, label=["a"])], {("1", "ann"): "a"}),
        ([text(1, label=["a"]), text(2, label=[])], {("1", "ann"): "a"}),
        ([text(1, labels=["a"])], {("1", "ann"): "a"}),
        ([text(1, label=["a"]), text(2, label="a"), text(3, label=True)], {("1", "ann"): "a"}),
        ([text(1, label=["a"]), text(2, label=[["x"]])], {("1", "ann"): "a"}),
        ([{"id": 1, "data": "x", "label": ["a"]}], {("1", "ann"): "a"}),
        ([{"id": 1, "filename": "x.png", "label": ["a"], "Comments": []}], {("1", "ann"): "a"}),
        (
            [{"id": 1, "text": "x", "meta": {}, "annotations": [{"label": 3, "user": 1}], "annotation_approver": None}],
            {("1", "1"): "3"},
        ),
        (
            [{"id": 1, "text": "x", "annotations": [{"label": 3, "user": 1}, {"label": 4, "user": 2}]}],
            {("1", "1"): "3", ("1", "2"): "4"},
        ),
        ([text(1, label=["a", "b"])], "label=a"),
    ],
)
def test_doccano(tmp_path: Path, records: Any, expected: Any) -> None:
    for name in ("ann.json", "ann.jsonl"):
        if isinstance(expected, str):
            with pytest.raises(BadTable, match=f"--question: '{expected}'"):
                read(tmp_path, records, name)
        else:
            assert answers(read(tmp_path, records, name)) == expected


@pytest.mark.parametrize(
    "marks",
    [
        {"label": [[0, 3, "PER"]]},
        {"labels": [[0, 3, "PER"]]},
        {"entities": [{"id": 7, "label": "PER", "start_offset": 0, "end_offset": 3}], "relations": []},
        {"annotations": [{"label": "PER", "start_offset": 0, "end_offset": 3}]},
    ],
)
def test_doccano_spans_of_all_annotators_in_a_zip(tmp_path: Path, marks: Any) -> None:
    files = {f"{who}.jsonl": json.dumps(text(1, **marks)) for who in ("ann", "bob")} | {"bob.txt": ""}
    files["bob.jsonl"] += "\n" + json.dumps(text(2, **{key: [] for key in marks}))  # nobody may have seen this text
    labels = read(tmp_path, files, "export.zip")
    assert spans(labels) == [("1", "ann", 0, 3, "PER"), ("1", "bob", 0, 3, "PER")]
    assert "2 annotators (name of the file)" in labels.summary
    assert "1 text without labels" in labels.summary


# -- Labelbox ----------------------------------------------------------------------------------------------


def radio(name: str, value: Any, *inner: Any) -> dict[str, Any]:
    return {"name": name, "value": name, "radio_answer": {"name": value, "value": "v", "classifications": list(inner)}}


def checks(name: str, *values: str) -> dict[str, Any]:
    return {"name": name, "checklist_answers": [{"name": value, "classifications": []} for value in values]}


def box(who: str | None, *classifications: Any, **details: Any) -> dict[str, Any]:
    more = {"is_benchmark_reference": False, "created_at": "2026-03-01T10:00:00Z", "created_by": who} | details
    return {
        "id": f"L{who}",
        "label_kind": "Default",
        "label_details": more,
        "performance_details": {"seconds_to_create": 5},
        "annotations": {"objects": [], "classifications": list(classifications), "relationships": []},
    }


def row(key: str, *labels: Any, **more: Any) -> dict[str, Any]:
    own = {"id": f"id-{key}", "external_id": "x.jpg", "global_key": key}
    return {"data_row": own | more, "projects": {"p": {"name": "pets", "labels": list(labels)}}}


CAT = {("g", "w"): "cat"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([row("g", box("w", radio("kind", "cat")))], CAT),
        ([row("g", box("w", radio("kind", "cat")), box("v"))], CAT),
        ([row("g", box("w", radio("kind", "cat")), box("v", radio("kind", {"a": 1})))], CAT),
        ([row("g", box("w", radio("kind", "cat")), {"id": "L"})], CAT),
        ([row("g", box("w", radio("kind", "cat")), box("v", radio("kind", "cat"), is_skipped=True))], CAT),
        ([row("g", box("w", radio("kind", "cat"), {"name": "why", "text_answer": {"content": "so"}}))], CAT),
        ([row("g", box("w", radio("kind", "cat"))) | {"experiments": {"e": {"runs": {}}}}], CAT),
        ([row("g", box("w", radio("kind", "cat"))), {"data_row": {"id": "z"}, "projects": {}}], CAT),
        ([row("g", box("w", radio("kind", "cat"))), {"data_row": None}], CAT),
        ([row("", box("w", radio("kind", "cat")))], {("x.jpg", "w"): "cat"}),
        ([row("g", box(None, radio("kind", "cat")))], {("g", None): "cat"}),
        ([row("g", box("w", radio("kind", "cat", radio("breed", "tabby"))))], "2 questions: 'kind'"),
        ([row("g", box("w", checks("traits", "big", "wild")), box("v", checks("traits")))], "'traits=big'"),
    ],
)
def test_labelbox(tmp_path: Path, records: Any, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(BadTable, match=f"{expected}"):
            read(tmp_path, records, "export.ndjson")
    else:
        assert answers(read(tmp_path, records, "export.ndjson")) == expected


def test_labelbox_benchmarks_are_known_and_unticked_boxes_are_no(tmp_path: Path) -> None:
    bench = box("lead", radio("kind", "cat"), is_benchmark_reference=True)
    labels = read(tmp_path, [row("g", box("w", radio("kind", "dog")), bench)], "export.ndjson")
    assert (answers(labels), known(labels)) == ({("g", "w"): "dog"}, {"g": "cat"})
    assert labels.table.column("duration").to_pylist() == [5.0]
    ticked = [row("g", box("w", checks("traits", "big", "wild")), box("v", checks("traits")))]
    chosen = read(tmp_path, ticked, "export.ndjson", question="traits=big")
    assert answers(chosen) == {("g", "w"): "yes", ("g", "v"): "no"}


# -- SageMaker Ground Truth --------------------------------------------------------------------------------


def line(name: str, label: Any, **metadata: Any) -> dict[str, Any]:
    about = {"confidence": 0.9, "job-name": "job", "human-annotated": "yes", "creation-date": "2026-03-01T10:00:00.0"}
    about |= {"class-name": label, "type": "groundtruth/image-classification"} | metadata
    return {"source-ref": f"s3://b/{name}", "pets": 0, "pets-metadata": about}


DOG = {("s3://b/1", "job"): "dog"}
MULTI = {"class-map": {"0": "dog", "2": "cat"}, "type": "groundtruth/image-classification-multilabel"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([line("1", "dog")], DOG),
        ([line("1", "dog"), line("2", "dog", **{"human-annotated": "no"})], DOG),
        ([line("1", "dog"), {"source-ref": "s3://b/2"}], DOG),
        ([line("1", "dog"), line("2", None)], DOG),
        ([line("1", "dog"), {"source-ref": "s3://b/2", "pets-metadata": "x"}], DOG),
        ([line("1", "dog"), {"pets": 0, "pets-metadata": {"class-name": "dog"}}], DOG),
        ([line("1", "dog") | {"box": {"annotations": []}, "box-metadata": {"class-map": {}, "type": "x"}}], DOG),
        ([{"source": "a text", "pets": 0, "pets-metadata": {"class-name": "dog"}}], {("a text", "pets"): "dog"}),
        ([line("1", "dog") | {"sport": 1, "sport-metadata": {"class-name": "golf"}}], "2 questions: 'pets' .*'sport'"),
        (
            [{"source-ref": "x", "pets": [0, 2], "pets-metadata": MULTI}],
            "several labels.*'pets=cat', 'pets=dog'",
        ),
    ],
)
def test_manifests_of_ground_truth(tmp_path: Path, records: Any, expected: Any) -> None:
    lines = "\n".join(map(json.dumps, records))
    if isinstance(expected, str):
        with pytest.raises(BadTable, match=expected):
            read(tmp_path, lines, "output.manifest")
    else:
        assert answers(read(tmp_path, lines, "output.manifest")) == expected


def worker(who: str, content: Any) -> dict[str, Any]:
    return {
        "workerId": who,
        "annotationData": {"content": content if isinstance(content, str) else json.dumps(content)},
    }


def request(*annotations: Any, key: Any = "0") -> list[dict[str, Any]]:
    return [{"datasetObjectId": key, "dataObject": {"s3Uri": "s3://b/0"}, "annotations": list(annotations)}]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (request(worker("w", {"c": {"label": "cat"}})), {("0", "w"): "cat"}),
        (request(worker("w", {"c": "cat"})), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}}), worker("v", "{broken")), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}}), worker("v", {"c": {"boundingBoxes": []}})), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}}), worker("v", {"c": {"label": None}})), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}}), worker("v", "[1]")), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}}), {"workerId": "v"}), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"label": "cat"}})) + request(key=None), {("0", "w"): "cat"}),
        (request(worker("w", {"c": {"labels": ["cat", "dog"]}})), "'c=cat', 'c=dog'"),
        (request(worker("w", {"c": {"label": "cat"}, "d": {"label": "x"}})), "2 questions: 'c'"),
    ],
)
def test_consolidation_requests_of_ground_truth(tmp_path: Path, records: Any, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(BadTable, match=expected):
            read(tmp_path, records)
    else:
        assert answers(read(tmp_path, records)) == expected
    assert ("s3://b/0", "w") in answers(read(tmp_path, request(worker("w", {"c": "cat"})), item="s3Uri"))
