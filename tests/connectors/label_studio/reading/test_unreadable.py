"""Broken annotations of every control: none stops the pull, none is read as an empty answer, and the others stay."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hitl.connectors.label_studio import LabelStudio
from hitl.kinds.kind import StoredAnswers, kind_of
from hitl.kinds.run_length import encode
from hitl.parts import spans_in
from hitl.platform import AnnotationRow, Page, Question

IMAGE = '<Image name="im" value="$im"/>'
TEXT = '<Text name="text" value="$text"/>'
CHOICES = '<Choice value="A"/><Choice value="B"/>'
LABELS = '<Label value="A"/><Label value="B"/>'
DATA = {"text": "🎉 Ada met Bo", "im": "http://x.example/0.png", "ts": {}, "clip": "c.mp4", "sound": "s.wav"}
SIZE = {"original_width": 4, "original_height": 3, "image_rotation": 0}


def entry(kind: str, target: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"from_name": "q", "to_name": target, "type": kind, **more, "value": value}


def mask(*pixels: int) -> list[int]:
    return encode(np.isin(np.arange(12), pixels).reshape(3, 4))


CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "choices": (
        f'{TEXT}<Choices name="q" toName="text">{CHOICES}</Choices>',
        [entry("choices", "text", {"choices": ["A"]})],
    ),
    "multiple": (
        f'{TEXT}<Choices name="q" toName="text" choice="multiple">{CHOICES}</Choices>',
        [entry("choices", "text", {"choices": ["A", "B"]})],
    ),
    "rating": (f'{TEXT}<Rating name="q" toName="text"/>', [entry("rating", "text", {"rating": 3})]),
    "taxonomy": (
        f'{TEXT}<Taxonomy name="q" toName="text"><Choice value="C">{CHOICES}</Choice></Taxonomy>',
        [entry("taxonomy", "text", {"taxonomy": [["C", "A"]]})],
    ),
    "pairwise": (
        f'{TEXT}<Pairwise name="q" toName="text"/>',
        [entry("pairwise", "text", {"selected": "left"})],
    ),
    "spans": (
        f'{TEXT}<Labels name="q" toName="text">{LABELS}</Labels>',
        [
            entry("labels", "text", {"start": 2, "end": 5, "text": "Ada", "labels": ["A"]}),
            entry("labels", "text", {"start": 10, "end": 12, "labels": ["B"]}),
        ],
    ),
    "series": (
        f'<TimeSeries name="ts" value="$ts"><Channel column="x"/></TimeSeries>'
        f'<TimeSeriesLabels name="q" toName="ts">{LABELS}</TimeSeriesLabels>',
        [entry("timeserieslabels", "ts", {"start": 1, "end": 5.5, "instant": False, "timeserieslabels": ["A"]})],
    ),
    "sound": (
        f'<Audio name="a" value="$sound"/><Labels name="q" toName="a">{LABELS}</Labels>',
        [entry("labels", "a", {"start": 0.5, "end": 2, "channel": 0, "labels": ["A"]}, original_length=3.0)],
    ),
    "video": (
        f'<Video name="v" value="$clip"/><TimelineLabels name="q" toName="v">{LABELS}</TimelineLabels>',
        [entry("timelinelabels", "v", {"ranges": [{"start": 1, "end": 9}], "timelinelabels": ["A"]})],
    ),
    "boxes": (
        f'{IMAGE}<RectangleLabels name="q" toName="im">{LABELS}</RectangleLabels>',
        [
            entry("rectanglelabels", "im", {**dict.fromkeys(("x", "y", "width", "height"), 9.5), "rotation": 0,
                  "rectanglelabels": ["A"]}, **SIZE),
            entry("rectanglelabels", "im", {"x": 50, "y": 40, "width": 20, "height": 60, "rectanglelabels": ["B"]},
                  **SIZE),
        ],
    ),
    "masks": (
        f'{IMAGE}<BrushLabels name="q" toName="im">{LABELS}</BrushLabels>',
        [entry("brushlabels", "im", {"format": "rle", "rle": mask(1, 2, 5, 6), "brushlabels": ["A"]}, **SIZE)],
    ),
}  # fmt: skip


def annotation(key: int, result: object, **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-01T10:00:00.000000Z")
    flags = {"was_cancelled": False, "ground_truth": False, "lead_time": 2.5, "updated_by": None}
    return {"id": key, "completed_by": key % 10, **flags, **times, "result": result, **more}


def pulled(xml: str, annotations: list[dict[str, Any]], **more: Any) -> list[Page]:
    """Pull a project of two tasks: one with these annotations, and one with a single good one."""
    good = annotations[0]
    fields = {"data": DATA, "meta": None, "is_labeled": False, "overlap": 3, "updated_at": good["updated_at"]}
    fields |= {"created_at": good["created_at"], "predictions": []}
    tasks = [{**fields, "id": 1, "annotations": annotations, **more}]
    tasks.append({**fields, "id": 2, "annotations": [{**good, "id": 90}]})

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/tasks":
            body: Any = {"tasks": tasks, "total": len(tasks), "total_annotations": 0}
        elif path.endswith("/model-versions/"):
            body = {"static": []}
        elif path == "/api/users/":
            body = [{"id": number, "email": f"{number}@example.com"} for number in range(10)]
        else:
            body = {"id": 1, "label_config": f"<View>{xml}</View>"}
        return httpx.Response(200, content=json.dumps(body).encode())

    connector = LabelStudio("http://ls.example", "t" * 40, 1, transport=httpx.MockTransport(answer))
    return list(connector.pull(None))


def rows_of(pages: list[Page]) -> dict[str, list[AnnotationRow]]:
    rows: dict[str, list[AnnotationRow]] = {}
    for row in (row for page in pages for row in page.annotations):
        rows.setdefault(row.key, []).append(row)
    return rows


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a long list the first and the last two."""
    yield path
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = [(n, one) for n, one in enumerate(value) if n < 3 or n >= len(value) - 2]
    else:
        return
    for name, one in inner:
        yield from places(one, (*path, name))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["q", "text", "A", "labels", "choices", 0, 1, -1, 10**400, "\0", "\ud800", "[]", 360, 100.4])
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "start", "q"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def broken(draw: st.DrawFn, result: list[dict[str, Any]]) -> object:
    """The result with one thing changed, removed, or added; never one that just says nothing."""
    changed: Any = copy.deepcopy(result)
    path = draw(st.sampled_from(list(places(changed))))
    if not path:
        return draw(JSON.filter(lambda value: value != []) | JSON.map(lambda value: [*changed, value]))
    holder = changed
    for name in path[:-1]:
        holder = holder[name]
    if isinstance(holder, dict) and draw(st.booleans()):
        del holder[path[-1]]
    else:
        holder[path[-1]] = draw(JSON)
    return changed


def is_empty(row: AnnotationRow, kind: str) -> bool:
    """Whether the answer says that there is nothing."""
    if kind == "choices":
        return row.label == "no"
    return row.label is not None and not kind_of(question(kind)).read(row.label)


def question(kind: str) -> Question:
    return Question("q", ("A", "B"), ("A", "B"), kind, "text")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("spans", "masks") else pytest.mark.journey) for name in CASES]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_broken_annotation_is_a_skip_or_an_answer_and_never_an_empty_one(name: str, data: st.DataObject) -> None:
    xml, result = CASES[name]
    wrong = data.draw(broken(result))
    good = [annotation(key, result) for key in (11, 12, 14)]
    pages = pulled(xml, [*good, annotation(13, wrong)])
    rows = rows_of(pages)
    alone = rows_of(pulled(xml, good))
    assert {key: rows[key] for key in alone} == alone, "the others are as without it"
    if all(row.kind == "skip" for row in rows["13"]):
        emptied = name in ("choices", "taxonomy") and wrong != result  # choices: [] is left open
        assert all(row.note for row in rows["13"]) or emptied
        return
    kind = {"spans": "spans", "boxes": "boxes", "masks": "masks"}.get(name)
    kind = kind or ("time_spans" if name in ("series", "sound", "video") else "choices")
    ticked_none = name == "multiple" and isinstance(wrong, list) and wrong[0]["value"]["choices"] == []
    assert ticked_none or not all(is_empty(row, kind) for row in rows["13"])
    answers = [row for key in ("11", "12", "13") for row in rows[key] if row.label is not None]
    if kind != "choices":
        build_evidence(kind, answers)


@given(turns=st.tuples(*[st.integers(-3, 3)] * 2), off=st.sampled_from([0, 0, 90, -1, 359.5]))
def test_whole_turns_of_a_box_are_no_turn_and_all_others_are_a_skip(turns: tuple[int, int], off: float) -> None:
    xml, (upright, *_) = CASES["boxes"]
    turned = {**upright, "value": {**upright["value"], "rotation": 360 * turns[0] + off}}
    turned["image_rotation"] = 360 * turns[1]
    rows = rows_of(pulled(xml, [annotation(11, [upright]), annotation(12, [turned])]))
    (plain,), (read,) = rows["11"], rows["12"]
    assert read.label == (None if off else plain.label)
    assert (read.kind == "skip") == bool(off)


SIDES = st.one_of(
    st.integers(-3, 8),
    st.floats(-0.1, 3.2),
    st.floats(),
    st.sampled_from([2**53, -(2**60), 10**30, -0.02, 3.02, -0.04, 3.04]),
)


def is_stretch(name: str, start: float, end: float) -> bool:
    """Whether someone may have meant this stretch of a sound of 3 s, of frames counted from 1, or of a series."""
    if not max(abs(start), abs(end)) < 2**53:
        return False
    if name == "sound":
        return start >= -0.03 and end <= 3.03 and max(start, 0) < min(end, 3)
    return start < end if name == "series" else start == int(start) >= 1 and end == int(end) > start - 1


@pytest.mark.parametrize("name", ["series", "sound", "video"])
@settings(max_examples=40, deadline=None)
@example(-0.02, 2)
@example(1, 3.02)
@example(4, 3)
@example(2, 2)
@given(SIDES, SIDES)
def test_a_stretch_that_is_reversed_or_beyond_its_recording_makes_its_annotation_a_skip(
    name: str, start: float, end: float
) -> None:
    xml, result = CASES[name]
    wrong = copy.deepcopy(result)
    value = wrong[0]["value"]
    (value["ranges"][0] if name == "video" else value).update(start=start, end=end)
    rows = rows_of(pulled(xml, [annotation(11, result), annotation(13, [*copy.deepcopy(result), *wrong])]))
    assert [row.kind for row in rows["11"]] == ["answer"]
    (row,) = rows["13"]
    assert (row.kind, row.note is None) != ("skip", True)
    assert (row.kind == "answer") is is_stretch(name, start, end)
    if row.label is not None:
        shift = 1 if name == "video" else 0
        read = {(first + shift, last) for first, last, _ in spans_in(row.label)}
        cut = (max(start, 0), min(end, 3)) if name == "sound" else (start, end)
        good = result[0]["value"]["ranges"][0] if name == "video" else result[0]["value"]
        assert read == {(good["start"], good["end"]), cut}
        assert (cut == (start, end)) is (row.note is None)


def build_evidence(kind: str, rows: list[AnnotationRow]) -> None:
    columns = {"item": ["1"] * len(rows), "annotator": [row.annotator for row in rows]}
    table = pa.table(
        columns | {"label": [row.label for row in rows]} | dict.fromkeys(("time", "duration"), pa.nulls(len(rows)))
    )
    items = pa.table({"item": ["1"], "data": [json.dumps(DATA)]})
    none = table.schema.empty_table
    stored = StoredAnswers(question(kind), {}, lambda: items, lambda: table, none)
    kind_of(stored.question).evidence(stored)
