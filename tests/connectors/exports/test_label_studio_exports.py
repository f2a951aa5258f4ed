"""Label Studio JSON, JSON-MIN and CSV: what counts as an answer, in the forms that Label Studio writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import BadTable
from tests.connectors.exports.reading import answers, known, read, spans

CALM, ANGRY = "calm", "angry"


def entry(name: str, type_: str, **value: Any) -> dict[str, Any]:
    return {"id": "r", "from_name": name, "to_name": "t", "type": type_, "value": value}


def mood(*choices: str) -> dict[str, Any]:
    return entry("mood", "choices", choices=list(choices))


def annotation(who: Any, *result: Any, **more: Any) -> dict[str, Any]:
    times = {"created_at": "2026-03-02T09:00:00Z", "updated_at": "2026-03-02T09:00:00Z", "lead_time": 3.2}
    return {"id": 7, "completed_by": who, "result": list(result), "was_cancelled": False, **times} | more


def task(key: Any, *annotations: Any, text: str = "Ada met Bob", **more: Any) -> dict[str, Any]:
    return {"id": key, "data": {"t": text, "url": "x"}, "annotations": list(annotations), "predictions": []} | more


PAIR = [annotation(11, mood(CALM)), annotation(12, mood(ANGRY))]
TWO = {("1", "11"): CALM, ("1", "12"): ANGRY}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([task(1, *PAIR)], TWO),
        ([task(1, *PAIR), task(2)], TWO),
        ([task(1, *PAIR, annotation(13, mood(CALM), was_cancelled=True))], TWO),
        ([task(1, *PAIR, annotation(13))], TWO),
        ([task(1, *PAIR, predictions=[{"result": [mood(CALM)]}], drafts=[{"result": [mood(CALM)]}])], TWO),
        ([task(1, *PAIR, annotation(13, entry("mood", "choices", choices="calm")))], TWO),
        ([task(1, *PAIR, annotation(13, mood(CALM), mood(ANGRY)))], TWO),
        ([task(1, *PAIR, {"id": 9, "completed_by": 13, "result": None})], TWO),
        ([task(1, *PAIR, annotation(13, entry("mood", "choices", choices=[CALM], start=0, end=3)))], TWO),
        ([task(1, *PAIR, 9)], TWO),
        ([task(1, *PAIR), {"id": 2, "data": {}, "annotations": "none"}], TWO),
        ([task(1, *PAIR), task(None, *PAIR)], TWO),
        ([task(1, annotation({"id": 3, "email": "a@example.com"}, mood(CALM)))], {("1", "a@example.com"): CALM}),
        ([task(1, annotation(None, mood(CALM)))], {("1", None): CALM}),
        ([task(1, annotation(11, entry("stars", "rating", rating=4)))], {("1", "11"): "4"}),
        ([task(1, annotation(11, entry("side", "pairwise", selected="left")))], {("1", "11"): "left"}),
        ([task(1, annotation(11, entry("kind", "taxonomy", taxonomy=[["a", "b"]])))], {("1", "11"): "a / b"}),
        ([task(1, annotation(11, mood(CALM), entry("note", "textarea", text=["so"])))], {("1", "11"): CALM}),
        ([{"id": 1, "data": {"t": "x"}, "completions": [{"id": 1, "result": [mood(CALM)]}]}], {("1", None): CALM}),
        ([annotation(11, mood(CALM), task={"id": 1, "data": {"t": "x"}})], {("1", "11"): CALM}),
    ],
)
def test_only_submitted_answers_of_whole_tasks_count(tmp_path: Path, records: Any, expected: Any) -> None:
    assert answers(read(tmp_path, records)) == expected
    assert answers(read(tmp_path, records, "export.jsonl")) == expected


def test_it_says_what_was_read_and_what_was_left_out(tmp_path: Path) -> None:
    bad = annotation(13, entry("mood", "choices", choices=[1]), id=99)
    labels = read(
        tmp_path,
        [task(1, *PAIR, bad), task(2, annotation(11, mood(CALM)), annotation(12, mood(CALM), was_cancelled=True))],
    )
    assert labels.summary == (
        "export.json: read as Label Studio JSON: 2 tasks (id), 2 annotators (completed_by), question 'mood'; skipped: "
        "1 unreadable record, 1 cancelled annotation"
    )
    assert labels.problems == ["record 0, annotation 99: \"{'choices': [1]}\" is no answer of type choices"]


def test_ground_truth_is_known_and_no_answer(tmp_path: Path) -> None:
    truth = annotation(1, mood(CALM), ground_truth=True)
    labels = read(tmp_path, [task(1, *PAIR, truth), task(2, *PAIR)])
    assert (known(labels), ("1", "1") in answers(labels)) == ({"1": CALM}, False)
    other = annotation(2, mood(ANGRY), ground_truth=True)
    contradictory = read(tmp_path, [task(1, *PAIR, truth, other)])
    assert known(contradictory) == {}
    assert "1 item with contradictory known answers" in contradictory.summary


def test_the_times_and_the_chosen_item(tmp_path: Path) -> None:
    labels = read(tmp_path, [task(1, *PAIR)], item="url")
    assert labels.table.to_pylist()[0] == {
        "item": "x",
        "annotator": "11",
        "label": CALM,
        "time": 1772442000.0,
        "duration": 3.2,
    }
    with pytest.raises(BadTable, match=r"export.json: no field 'nothing' \(--item\); found id, data"):
        read(tmp_path, [task(1, *PAIR)], item="nothing")


def test_several_questions_and_several_choices_ask_for_a_question(tmp_path: Path) -> None:
    records = [
        task(1, annotation(11, mood(CALM), entry("topic", "choices", choices=["a", "b"])), annotation(12, mood(CALM)))
    ]
    with pytest.raises(
        BadTable, match=r"2 questions: 'mood' \(2 answers\), 'topic' \(2 answers\)\. Choose .*--question"
    ):
        read(tmp_path, records)
    assert answers(read(tmp_path, records, question="mood")) == {("1", "11"): CALM, ("1", "12"): CALM}
    with pytest.raises(BadTable, match=r"several labels. Choose one label, .*--question: 'topic=a', 'topic=b'"):
        read(tmp_path, records, question="topic")
    assert answers(read(tmp_path, records, question="topic=b")) == {("1", "11"): "yes", ("1", "12"): "no"}
    with pytest.raises(BadTable, match=r"no answer to 'other' \(--question\)"):
        read(tmp_path, records, question="other")


def label(start: Any, end: Any, *labels: str, **more: Any) -> dict[str, Any]:
    return entry("ner", "labels", start=start, end=end, labels=list(labels), **more)


def test_spans_of_texts(tmp_path: Path) -> None:
    records = [
        task(1, annotation(11, label(0, 3, "PER", text="Ada"), label(8, 11, "PER", text="Bob")), annotation(12)),
        task(2, annotation(11, label(0, 30, "PER", text="Zoe")), annotation(12, label("0", 3, "PER")), annotation(13)),
    ]
    labels = read(tmp_path, records)
    assert labels.of_spans
    assert spans(labels) == [
        ("1", "11", 0, 3, "PER"),
        ("1", "11", 8, 11, "PER"),
        ("1", "12", None, None, None),
        ("2", "13", None, None, None),
    ]
    assert set(labels.table.column("text").to_pylist()) == {"Ada met Bob"}
    assert len(labels.problems) == 2


def test_offsets_that_were_counted_in_another_way_are_repaired_and_counted(tmp_path: Path) -> None:
    marked = annotation(11, label(3, 6, "PER", text="Ada"))  # two UTF-16 units for the party popper
    labels = read(tmp_path, [task(1, marked, text="\U0001f389 Ada met Bob")])
    assert spans(labels) == [("1", "11", 2, 5, "PER")]
    assert labels.summary.endswith("repaired: 1 answer (offsets counted in UTF-16 units)")


def test_stretches_of_recordings(tmp_path: Path) -> None:
    sound = [task(1, annotation(11, label(0.5, 2.25, "speech", channel=0)), annotation(12))]
    assert spans(read(tmp_path, sound)) == [("1", "11", 0.5, 2.25, "speech"), ("1", "12", None, None, None)]
    video = entry("cut", "timelinelabels", ranges=[{"start": 1, "end": 10}], timelinelabels=["walk"])
    assert spans(read(tmp_path, [task(1, annotation(11, video))])) == [("1", "11", 0, 10, "walk")]


def test_boxes_are_counted_and_the_error_says_so(tmp_path: Path) -> None:
    box = entry("box", "rectanglelabels", x=1, y=1, width=5, height=5, rectanglelabels=["cat"])
    with pytest.raises(BadTable, match=r"holds no answer; skipped: 2 results of type rectanglelabels"):
        read(tmp_path, [task(1, annotation(11, box, box))])


def least(key: Any, who: Any, **more: Any) -> dict[str, Any]:
    """A record of JSON-MIN, in the order in which Label Studio writes its fields."""
    times = {"created_at": "2026-03-02T09:00:00Z", "updated_at": "2026-03-02T09:00:00Z", "lead_time": 3.2}
    return {"t": "Ada met Bob", "id": key, **more, "annotator": who, "annotation_id": 1, **times}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (CALM, CALM),
        ({"choices": [CALM]}, CALM),
        ([{"choices": [CALM]}], CALM),
        ([{"rating": 4}], "4"),
        ([{"taxonomy": [["a", "b"]]}], "a / b"),
        ([{"selected": "left"}], "left"),
        (4, "4"),
    ],
)
@pytest.mark.parametrize("name", ["export.json", "export.csv"])
def test_answers_of_json_min_and_csv(tmp_path: Path, name: str, cell: Any, expected: str) -> None:
    written = json.dumps(cell) if name.endswith("csv") and not isinstance(cell, str) else cell
    labels = read(tmp_path, [least(1, who, mood=written) for who in (11, 12)], name, question="mood")
    assert answers(labels) == {("1", "11"): expected, ("1", "12"): expected}


def test_the_column_of_the_answers_is_the_one_that_differs_or_that_is_named(tmp_path: Path) -> None:
    agreed = [least(1, 11, mood=CALM), least(1, 12, mood=CALM)]
    assert answers(read(tmp_path, agreed)) == {("1", "11"): CALM, ("1", "12"): CALM}  # JSON-MIN: after the id
    with pytest.raises(BadTable, match=r"which column holds the answers\?.* --question: t, mood"):
        read(tmp_path, agreed, "export.csv")
    assert len(answers(read(tmp_path, agreed, "export.csv", question="mood"))) == 2
    with pytest.raises(BadTable, match=r"no column 'tone' \(--question\); found t, mood"):
        read(tmp_path, agreed, "export.csv", question="tone")


def test_several_controls_and_choices_of_json_min(tmp_path: Path) -> None:
    rows = [least(1, 11, mood=CALM, topic={"choices": ["a", "b"]}), least(1, 12, mood=ANGRY, topic="a")]
    with pytest.raises(BadTable, match="2 questions"):
        read(tmp_path, rows)
    assert answers(read(tmp_path, rows, question="topic=b")) == {("1", "11"): "yes", ("1", "12"): "no"}


def test_spans_and_missing_values_of_json_min(tmp_path: Path) -> None:
    marked = [{"start": 0, "end": 3, "text": "Ada", "labels": ["PER"]}]
    assert spans(read(tmp_path, [least(1, 11, ner=marked)])) == [("1", "11", 0, 3, "PER")]
    rows = [least(1, 11, mood=CALM), least(1, 12, mood=ANGRY), least(1, None, mood=CALM), least(None, 13, mood=CALM)]
    assert answers(read(tmp_path, rows)) == {("1", "11"): CALM, ("1", "12"): ANGRY, ("1", None): CALM}
