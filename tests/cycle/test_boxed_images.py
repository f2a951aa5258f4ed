"""Whole cycles over images on which annotators draw boxes, on a platform of this file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from hitl import cycle
from hitl.errors import BadTable, MissingToken
from hitl.export import label_tables
from hitl.manual_operations import known_truth
from hitl.operations import Judgement, _is_close
from hitl.parts import BoxTuple, boxes_as_label, boxes_in
from hitl.platform import Question
from hitl.project import stored_evidence
from hitl.report.contents import QuestionPage
from hitl.report.page import render
from hitl.report.parts.pictures import SIDE, boxed_images
from hitl.report.stored import stored_report
from hitl.settings import Settings
from hitl.store import Store
from hitl.tables.read import read_table
from tests.command_line import Run, caller
from tests.cycle import marked
from tests.cycle.marked import Platform

QUESTION = Question("box", ("cat", "<dog>"), ("cat", "<dog>"), kind="boxes", field="image")
CAT, DOG = (10.0, 10.0, 30.0, 40.0, "cat"), (60.0, 20.0, 20.0, 40.0, "<dog>")
IMAGES: dict[str, list[BoxTuple]] = {"a": [CAT, DOG], "b": [CAT], "c": [], "d": [DOG], "e": [CAT]}
CREW = ("ann", "bob", "cyd")


def moved(box: BoxTuple, by: float) -> BoxTuple:
    return box[0] + by, box[1], box[2], box[3] - by, box[4]


def drawn(item: str, who: str) -> list[BoxTuple]:
    """Ann draws what is there, Bob a little off, Cyd to the other side and never a dog but one that is not there."""
    if who == "cyd":
        return [moved(box, -1) for box in IMAGES[item] if box[4] == "cat"] + ([DOG] if item == "b" else [])
    return [moved(box, 1.5 if who == "bob" else 0) for box in IMAGES[item]]


def platform_of(answered: str = "abcd") -> Platform:
    """All images, of which these have an answer of each annotator."""
    answers = {item: {who: boxes_as_label(300, 400, drawn(item, who)) for who in CREW} for item in answered}
    return Platform(QUESTION, {item: f"http://x/{item}.png" for item in IMAGES}, answers)


def settings(**changes: Any) -> Settings:
    return marked.settings(CREW, **changes)


def test_a_cycle_finds_boxes_asks_about_images_and_says_so(store: Store) -> None:
    platform = platform_of()
    report = cycle.run(settings(), store, platform)
    assert report.pulled.problems == ()
    result = report.judgement.results["box"]
    assert [(box.item, box.label) for box in result.parts] == [
        ("a", "cat"),
        ("a", "<dog>"),
        ("b", "cat"),
        ("d", "<dog>"),
    ]
    (pushed,) = (operation for operation in platform.pushed if operation.kind == "consensus")
    rows = {row["item"]: row for row in pushed.payload["questions"]["box"]}
    assert set(rows) == set("abcd"), "the last one has no answer"
    assert rows["c"]["parts"] == []
    shown = rows["b"]["parts"][0]
    assert (shown["image_width"], shown["image_height"]) == (400, 300)
    assert (shown["label"], shown["x"], shown["y"]) == ("cat", pytest.approx(10, abs=1.5), 10)
    assert "e" in {str(ask.item) for ask in report.judgement.plan.asks}
    latest = store.latest("p")
    assert latest is not None
    assert latest[0]["box"].parts == result.parts
    assert cycle.run(settings(), store, platform).changed == 0


def test_a_consensus_is_pushed_anew_where_a_box_moved_or_is_surer() -> None:
    box = {"label": "cat", "confidence": 0.9, "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0}
    row = {"item": "a", "confidence": 0.8}

    def same(**changes: Any) -> bool:
        return _is_close({"box": [{**row, "parts": [box]}]}, {"box": [{**row, "parts": [{**box, **changes}]}]})

    assert same()
    assert same(confidence=0.9000001)
    for change in ({"confidence": 0.8}, {"label": "dog"}, {"x": 1.5}, {"height": 4.5}):
        assert not same(**change)
    assert not _is_close({"box": [{**row, "parts": [box]}]}, {"box": [{**row, "parts": []}]})


def test_the_method_of_the_project_judges_boxes(store: Store) -> None:
    result = cycle.run(settings(combine={"method": "majority"}), store, platform_of()).judgement.results["box"]
    assert result.fit.method == "majority"
    dogs = {box.item: box.probability for box in result.parts if box.label == "<dog>"}
    assert dogs.keys() == {"a", "d"}, "two of three"


@pytest.mark.parametrize("answered", ["", "c"])
def test_it_begins_without_a_box(store: Store, answered: str) -> None:
    report = cycle.run(settings(), store, platform_of(answered))
    assert report.judgement.results["box"].parts == ()
    assert len({str(ask.item) for ask in report.judgement.plan.asks} - set(answered)) == 4, (
        "as many as each may be asked"
    )


def test_labels_are_exported_by_the_users_own_ids(store: Store) -> None:
    judgement = cycle.run(settings(), store, platform_of()).judgement
    table = label_tables(judgement, store.items("p"), {item: f"photo {item}" for item in IMAGES})["box"]
    rows = table.to_pylist()
    assert [(row["item"], row["label"]) for row in rows] == [
        ("photo a", "cat"),
        ("photo a", "<dog>"),
        ("photo b", "cat"),
        ("photo c", None),
        ("photo d", "<dog>"),
    ]
    assert (rows[1]["marked"], rows[1]["answers"], rows[1]["image_width"], rows[1]["image_height"]) == (2, 3, 400, 300)
    assert rows[3]["x"] is rows[3]["confidence"] is None
    named = judgement.named({"a": "photo a"}).results["box"].parts
    assert [box.item for box in named][:3] == ["photo a", "photo a", "b"]


def exported_after_a_pull(store: Store, platform: Platform) -> list[dict[str, Any]]:
    """The rows of an export without another cycle."""
    with store.lease("p") as lease:
        cycle.pull(lease, store, platform)
    latest = store.latest("p")
    assert latest is not None
    judgement = Judgement(stored_evidence(settings(), store, platform.questions()), *latest)
    return label_tables(judgement, store.items("p"), {item: item for item in IMAGES})["box"].to_pylist()


def test_an_image_that_came_after_the_cycle_is_left_out_of_an_export(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle.run(settings(), store, platform_of())
    monkeypatch.setitem(IMAGES, "0", [CAT])
    rows = exported_after_a_pull(store, platform_of("0abcd"))
    assert [(row["item"], row["label"]) for row in rows][2:] == [("b", "cat"), ("c", None), ("d", "<dog>")]


def test_what_went_or_was_drawn_after_the_cycle_is_left_out_of_an_export(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle.run(settings(), store, platform_of())
    monkeypatch.delitem(IMAGES, "d")
    rows = exported_after_a_pull(store, platform_of("abce"))
    assert [(row["item"], row["label"]) for row in rows] == [("a", "cat"), ("a", "<dog>"), ("b", "cat"), ("c", None)]


def test_images_that_are_all_alike_are_exported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a plain majority each is as all of them are, as one without an answer would be."""
    for item in IMAGES:
        monkeypatch.setitem(IMAGES, item, [CAT])
    monkeypatch.setattr("tests.cycle.test_boxed_images.drawn", lambda item, who: IMAGES[item])
    chosen = settings(combine={"method": "majority"})
    report = cycle.run(chosen, store, platform_of())
    names = {item: item for item in IMAGES}
    rows = label_tables(report.judgement, store.items("p"), names)["box"].to_pylist()
    assert [(row["item"], row["label"]) for row in rows] == [(item, "cat") for item in "abcd"]


def table(text: str) -> pa.Table:
    header, *rows = (line.split(",") for line in text.split())
    return pa.table({name: [row[place] or None for row in rows] for place, name in enumerate(header)})


def test_known_boxes_are_told_to_the_platform_and_come_back(store: Store) -> None:
    platform = platform_of()
    rows = table("item,x,y,width,height,label\ne,10,10,30,40,cat\ne,60,20.5,20,40,<dog>\nb,,,,,\n")
    operation = known_truth(rows, (QUESTION,), None, "truth.csv")
    assert boxes_in(operation.payload["questions"]["box"]["e"])[2] == [CAT, (60, 20.5, 20, 40, "<dog>")]
    assert boxes_in(operation.payload["questions"]["box"]["b"])[2] == []
    list(platform.push([operation]))
    judgement = cycle.run(settings(), store, platform).judgement
    known = judgement.evidence["box"]
    assert [known.annotations.items[n] for n in known.known.nonzero()[0]] == ["b", "e"]
    found = {(box.item, box.label): box for box in judgement.results["box"].parts}
    assert {item for item, _ in found} == {"a", "d", "e"}, "nothing is on b"
    assert (found["e", "<dog>"].place["y"], found["e", "<dog>"].probability) == (20.5, 1)
    assert not {"b", "e"} & {str(ask.item) for ask in judgement.plan.asks}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("e,10,10,30,40,cow", "truth.csv, row 0: label 'cow' is not one of cat, <dog>"),
        ("e,80,10,30,40,cat", "x, y, width, height are 80, 10, 30, 40; expected a box with an area from 0 to 100"),
        ("e,80,10,0,40,cat", "expected a box with an area"),
        ("e,,10,30,40,cat", "x, y, width, height are None, 10, 30, 40"),
        ("e,nan,10,30,40,cat", "expected a box with an area"),
        ("e,-1,10,30,40,cat", "expected a box with an area"),
    ],
)
def test_what_is_no_known_box_is_named(row: str, message: str) -> None:
    with pytest.raises(BadTable) as caught:
        known_truth(table(f"item,x,y,width,height,label\n{row}\n"), (QUESTION,), None, "truth.csv")
    assert message in str(caught.value)
    with pytest.raises(BadTable, match=r"no column 'x'.*'box' asks about boxes, in percent of the image"):
        known_truth(table("item,label\ne,cat\n"), (QUESTION,), None, "truth.csv")


def test_the_report_shows_the_boxes_of_everyone(store: Store) -> None:
    judgement = cycle.run(settings(), store, platform_of()).judgement
    page = render(stored_report(settings(), store, (QUESTION,)))
    assert "Images, the least sure first" in page
    assert "&lt;dog&gt;" in page
    assert "<dog>" not in page
    pictures = [ElementTree.fromstring(one) for one in re.findall(r"<svg role=\"img\".*?</svg>", page, re.DOTALL)]
    assert len(pictures) == 4 * (1 + 3)
    assert {(one.get("width"), one.get("height")) for one in pictures} == {(f"{SIDE:.1f}", f"{SIDE * 0.75:.1f}")}
    question = QuestionPage("box", judgement.evidence["box"], judgement.results["box"])
    shown = {image.item: image for image in boxed_images(question).drawn}
    assert [image.confidence for image in shown.values()] == sorted(image.confidence for image in shown.values())
    drawn_by = dict(shown["a"].annotators)
    assert [len(drawn_by[who]) for who in CREW] == [2, 2, 1]
    cat = drawn_by["ann"][0]
    assert [cat.place[side] for side in ("x", "y", "width", "height")] == list(CAT[:4])
    assert 'x="10.0%" y="10.0%" width="30.0%" height="40.0%" fill="#0072b2"' in page
    dog = next(shape for shape in shown["a"].found if "<dog>" in shape.title)
    assert re.fullmatch(r"<dog> \(\d+ %, drawn by 2 of 3\)", dog.title)
    assert (shown["c"].about, shown["c"].found) == ("that there is nothing", ())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    platform = platform_of()
    monkeypatch.setattr("hitl.connectors.catalog.connector_of", lambda *_: platform)
    marked.write_config(tmp_path, ".", CREW)
    return caller(tmp_path, monkeypatch, capfd)


def test_commands_speak_of_boxes(run: Run, tmp_path: Path) -> None:
    assert run("run")[0] == 0
    code, out, _ = run("combine")
    assert code == 0
    assert "Found: box" in out
    assert run("combine", "--output", "found.csv")[0] == 0
    assert run("export", "labels.csv", "--annotations", "answers.csv")[0] == 0
    for name in ("found.csv", "labels.csv"):
        rows = read_table(tmp_path / name).to_pylist()
        assert [row["label"] for row in rows] == ["cat", "<dog>", "cat", None, "<dog>"], name
    answers = read_table(tmp_path / "answers.csv").to_pylist()
    said = [(row["annotator"], row["label"]) for row in answers if row["item"] == "b"]
    assert said == [("ann", "cat"), ("bob", "cat"), ("cyd", "cat"), ("cyd", "<dog>")]
    assert [row["x"] for row in answers if row["item"] == "c"] == [None] * 3, "three looked and drew nothing"
    (tmp_path / "truth.csv").write_text("item,x,y,width,height,label\ne,10,10,30,40,cat\n")
    code, _, err = run("gold", "truth.csv")
    assert (code, err) == (0, "")
    assert run("run")[0] == 0
    for command in ("status", "doctor", "annotators", "plan", "report"):
        assert run(command)[0] == 0, command


def test_a_plan_from_the_store_needs_no_token(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("run")[0] == 0
    expected = run("plan", "--dry-run", "--json")

    def locked(*_: object) -> None:
        raise MissingToken("no token")

    monkeypatch.setattr("hitl.connectors.catalog.connector_of", locked)
    code, out, err = run("plan", "--dry-run", "--json")
    assert (code, out) == (0, expected[1])
    assert err == ""
