"""Marked parts of items in a real Label Studio: spans, time segments, masks and boxes of several annotators.

They are pulled, combined, planned, pushed back and shown.
"""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.kinds.run_length import decode, encode
from hitl.parts import BoxTuple, Part, boxes_as_label, spans_as_label
from hitl.platform import Operation
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.browser import needs_browser, open_consensus, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import untouched

pytestmark = [pytest.mark.server, pytest.mark.journey]

Regions = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A labeling configuration and its control; `fill` makes tasks that several annotators have answered, except the
    last; `check` fails unless a consensus is right for the n-th task; `shown` is what the page lists of which task."""

    xml: str
    control: str
    fill: Callable[[Project], list[int]]
    check: Callable[[int, Regions], None]
    shown: tuple[int, set[str]]


def imported(project: Project, rows: Sequence[tuple[dict[str, Any], Sequence[Regions]]]) -> list[int]:
    ids = [int(person.id) for person in project.people]
    tasks = []
    for data, answers in rows:
        by = zip(ids, answers, strict=False)
        annotations = [{"completed_by": who, "ground_truth": False, "result": own} for who, own in by]
        tasks.append({"data": data, "annotations": annotations})
    answer = project.admin.post(f"{project.path}/import", tasks, return_task_ids="true")
    return [int(number) for number in answer["task_ids"]]


def uploaded(project: Project, name: str, content: bytes, kind: str) -> str:
    headers = {"Authorization": f"Token {project.server.token}"}
    url = f"{project.server.url}{project.path}/import?commit_to_project=false"
    sent = httpx.post(url, headers=headers, files={"file": (name, content, kind)}, timeout=60)
    (upload,) = sent.json()["file_upload_ids"]
    return f"/data/{project.admin.get(f'/api/import/file-upload/{upload}')['file']}"


def settings(project: Project, people: int = 4) -> Settings:
    crew = CrewSettings(annotators=tuple(person.email for person in project.people[:people]), capacity=3)
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, crew=crew, budget=BudgetSettings(open_questions=4))


# -- spans of texts ------------------------------------------------------------------------------------------

SPANS = """<View><Labels name="ner" toName="text"><Label value="PER"/><Label value="ORG"/><Label value="LOC"/></Labels>
<Text name="text" value="$text"/></View>"""
TEXTS = {
    "Ada Lovelace met Bob in Rome.": [("Ada Lovelace", "PER"), ("Bob", "PER"), ("Rome", "LOC")],
    "🙂 Acme Paris hired Ada 🙂 in Oslo": [("Acme Paris", "ORG"), ("Paris", "LOC"), ("Ada", "PER"), ("Oslo", "LOC")],
    "Nothing to see here.": [],
    "Bob left Rome for Oslo.": [("Bob", "PER"), ("Rome", "LOC"), ("Oslo", "LOC")],
    "Cy and Dee of Initech.": [("Cy", "PER"), ("Dee", "PER"), ("Initech", "ORG")],
    "Eve saw Rome.": [("Eve", "PER"), ("Rome", "LOC")],
}


def words(text: str, spans: Sequence[tuple[str, str]]) -> Regions:
    """The result of Labels, as the web page writes it."""
    regions = []
    for part, kind in spans:
        start = text.index(part)
        value = {"start": start, "end": start + len(part), "text": part, "labels": [kind]}
        regions.append({"from_name": "ner", "to_name": "text", "type": "labels", "value": value})
    return regions


def fill_texts(project: Project) -> list[int]:
    """The second overlooks one name, the third cuts one short, the fourth takes places for people."""
    rows = []
    for number, (whole, right) in enumerate(TEXTS.items()):
        short = [(part.split()[-1], kind) for part, kind in right]
        people = [(part, "PER" if kind == "LOC" else kind) for part, kind in right]
        answers = [words(whole, own) for own in (right, right[:-1], short, people)]
        rows.append(({"text": whole}, answers if number < 5 else []))
    return imported(project, rows)


def check_texts(number: int, regions: Regions) -> None:
    whole = list(TEXTS)[number]
    found = {(whole[r["value"]["start"] : r["value"]["end"]], *r["value"]["labels"]) for r in regions}
    assert found == set(TEXTS[whole])


# -- time segments -------------------------------------------------------------------------------------------

SERIES = """<View><TimeSeriesLabels name="what" toName="ts"><Label value="walk"/><Label value="run"/>
</TimeSeriesLabels><TimeSeries name="ts" valueType="json" value="$ts" timeColumn="time"{format}>
<Channel column="speed"/></TimeSeries></View>"""
SOUND = """<View><Labels name="what" toName="a"><Label value="walk"/><Label value="run"/></Labels>
<Audio name="a" value="$sound"/></View>"""
RIGHT: Sequence[Sequence[tuple[int, int, str]]] = [
    [(5, 30, "walk"), (30, 55, "run"), (70, 95, "walk")],
    [(10, 40, "run")],
    [],
    [(0, 20, "walk"), (60, 90, "run")],
    [(20, 80, "walk")],
    [(40, 60, "run")],
]
"""The right segments of six recordings of 100 units."""


def day(minute: int) -> str:
    """Days, months, years, so that the order of the texts is not that of the times."""
    return f"{31 if minute < 50 else 1:02}/{1 if minute < 50 else 2:02}/2026 {20 + minute // 60:02}:{minute % 60:02}"


def curve(write: Callable[[int], Any]) -> dict[str, Any]:
    return {"ts": {"time": [write(n) for n in range(100)], "speed": [math.sin(n / 9) for n in range(100)]}}


def tone(project: Project) -> dict[str, Any]:
    """A second of sound that was uploaded."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, 8000, 8000, "NONE", ""))
        file.writeframes(b"".join(struct.pack("<h", round(9000 * math.sin(n / 5))) for n in range(8000)))
    return {"sound": uploaded(project, "tone.wav", content.getvalue(), "audio/wav")}


def segments(
    xml: str, of: str, key: str, write: Callable[[int], Any], data: Callable[[Project], Mapping[str, Any]]
) -> Case:
    def region(start: int, end: int, kind: str) -> dict[str, Any]:
        value = {"start": write(start), "end": write(end), key: [kind]}
        value |= {"channel": 0} if of == "a" else {"instant": False}
        return {"from_name": "what", "to_name": of, "type": key, "value": value}

    def fill(project: Project) -> list[int]:
        # The second overlooks the last, the third is late, the fourth takes running for walking.
        shown, rows = dict(data(project)), []
        for number, right in enumerate(RIGHT):
            late = [(start + 2, end + 1, kind) for start, end, kind in right]
            walks = [(start, end, "walk") for start, end, _ in right]
            answers = [[region(*part) for part in own] for own in (right, right[:-1], late, walks)]
            rows.append((shown, answers if number < 5 else []))
        return imported(project, rows)

    def check(number: int, regions: Regions) -> None:
        found = {(one["value"]["start"], one["value"]["end"], *one["value"][key]) for one in regions}
        assert found == {(write(start), write(end), kind) for start, end, kind in RIGHT[number]}

    return Case(xml, "what", fill, check, (0, {"walk", "run"}))


# -- masks and boxes on images -------------------------------------------------------------------------------

IMAGE = '<View><Image name="image" value="$image"/><{tag} name="{name}" toName="image">{labels}</{tag}></View>'
LABELS = '<Label value="cat" background="#d55e00"/><Label value="dog"/>'
HEIGHT, WIDTH = 90, 120
Mask = npt.NDArray[np.bool_]


def on_image(name: str, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    size = {"original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
    return {"from_name": name, "to_name": "image", "type": key, **size, "value": value}


def images(project: Project, masks: Sequence[Sequence[Mask]]) -> list[dict[str, Any]]:
    """Data of tasks with pictures of these masks."""
    image, data = pytest.importorskip("PIL.Image"), []
    for number, parts in enumerate(masks):
        out, picture = io.BytesIO(), np.full((HEIGHT, WIDTH, 3), 235, np.uint8)
        for shade, mask in zip((90, 150), parts, strict=False):
            picture[mask] = shade
        image.fromarray(picture).save(out, "PNG")
        data.append({"image": uploaded(project, f"{number}.png", out.getvalue(), "image/png")})
    return data


def disc(y: float, x: float, radius: float) -> Mask:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    inside: Mask = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    return inside


MASKS: list[dict[str, Mask]] = [
    {"cat": disc(40, 40, 20), "dog": disc(50, 92, 15)},
    {"cat": disc(45, 60, 25)},
    {},
    {"dog": disc(30, 30, 18)},
    {"cat": disc(50, 80, 20)},
]


def brushed(masks: Mapping[str, Mask]) -> Regions:
    """The result of BrushLabels, as the web page writes it."""
    values = [{"format": "rle", "rle": encode(mask), "brushlabels": [kind]} for kind, mask in masks.items()]
    return [on_image("tag", "brushlabels", value) for value in values]


def fill_masks(project: Project) -> list[int]:
    """The second draws too large, the third a pixel too low and without the dog of the first image."""
    rows = []
    for number, (data, right) in enumerate(
        zip(images(project, [[*masks.values()] for masks in MASKS]), MASKS, strict=True)
    ):
        grown = {k: np.roll(mask, 2, 0) | np.roll(mask, -2, 0) | np.roll(mask, 2, 1) for k, mask in right.items()}
        low = {k: np.roll(mask, 1, 0) for k, mask in right.items() if number or k == "cat"}
        rows.append((data, [brushed(own) for own in (right, grown, low)] if number < 4 else []))
    return imported(project, rows)


def check_masks(number: int, regions: Regions) -> None:
    found = {r["value"]["brushlabels"][0]: decode(r["value"]["rle"], HEIGHT, WIDTH) for r in regions}
    assert found.keys() == MASKS[number].keys()
    for kind, mask in MASKS[number].items():  # whose boundary is right, few objects do not tell
        assert (found[kind] & mask).sum() / (found[kind] | mask).sum() > 0.8, (number, kind)


CAT, DOG = (10.0, 20.0, 30.0, 40.0, "cat"), (60.0, 30.0, 25.0, 50.0, "dog")
BOXES: list[list[BoxTuple]] = [[CAT, DOG], [(30, 30, 40, 40, "cat")], [], [(15, 50, 30, 30, "dog")], [DOG]]


def boxed(boxes: Sequence[BoxTuple], rotation: float = 0) -> Regions:
    """The result of RectangleLabels, as the web page writes it."""
    names = ("x", "y", "width", "height")
    values = [dict(zip(names, box, strict=False)) | {"rectanglelabels": [box[4]]} for box in boxes]
    return [on_image("box", "rectanglelabels", value | {"rotation": rotation}) for value in values]


def fill_boxes(project: Project) -> list[int]:
    """The second is a little off, with an object of their own on the third image; the third is off to the other side,
    and without the dog of the first image."""

    def moved(box: BoxTuple, by: float) -> BoxTuple:
        x, y, width, height, kind = box
        return x + by, y - by, width - by, height + by, kind

    rows = []
    for number, (data, right) in enumerate(zip(images(project, [[]] * 5), BOXES, strict=True)):
        second = [moved(box, 1.5) for box in right] + ([(5.0, 5.0, 10.0, 10.0, "cat")] if number == 2 else [])
        third = [moved(box, -1) for box in right if number or box[4] == "cat"]
        rows.append((data, [boxed(own) for own in (right, second, third)] if number < 4 else []))
    return imported(project, rows)


def check_boxes(number: int, regions: Regions) -> None:
    values = [region["value"] for region in regions]
    found = sorted((v["x"], v["y"], v["width"], v["height"], v["rectanglelabels"][0]) for v in values)
    assert [kind for *_, kind in found] == [kind for *_, kind in sorted(BOXES[number])]
    for box, right in zip(found, sorted(BOXES[number]), strict=True):
        assert box[:4] == pytest.approx(right[:4], abs=1.5), (number, box)
    assert all(region["original_width"] == WIDTH for region in regions)


BRUSH = IMAGE.format(tag="BrushLabels", name="tag", labels=LABELS)
RECTANGLES = IMAGE.format(tag="RectangleLabels", name="box", labels=LABELS)
DAYS = SERIES.format(format=' timeFormat="%d/%m/%Y %H:%M"')
CASES = {
    "spans": Case(SPANS, "ner", fill_texts, check_texts, (1, {"Acme Paris ORG", "Paris LOC", "Ada PER", "Oslo LOC"})),
    "numbers": segments(SERIES.format(format=""), "ts", "timeserieslabels", int, lambda _: curve(int)),
    "times": segments(DAYS, "ts", "timeserieslabels", day, lambda _: curve(day)),
    "sound": segments(SOUND, "a", "labels", lambda n: n / 100, tone),
    "masks": Case(BRUSH, "tag", fill_masks, check_masks, (0, {"cat", "dog"})),
    "boxes": Case(RECTANGLES, "box", fill_boxes, check_boxes, (0, {"cat", "dog"})),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_go_both_ways(make_project: Callable[..., Project], tmp_path: Path, name: str) -> None:
    case = CASES[name]
    project = make_project(case.xml)
    tasks = case.fill(project)
    people = 3 if name in ("masks", "boxes") else 4
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project, people), store, project.connector)
        again = cycle.run(settings(project, people), store, project.connector)
        untouched(settings(project, people), store, project.connector)
    assert report.pulled.problems == ()
    for number, task in enumerate(tasks):
        predictions = [one for one in project.task(task)["predictions"] if "consensus" in one["model_version"]]
        if number == len(tasks) - 1:
            assert predictions == []
            continue
        (prediction,) = predictions
        case.check(number, prediction["result"])
        assert all(0.5 < region["score"] <= 1 for region in prediction["result"])
    assert str(tasks[-1]) in {str(ask.item) for ask in report.judgement.plan.asks}
    assert again.changed == 0
    if name == "boxes":
        boxes = {(box.item, box.label): box for box in report.judgement.results["box"].parts}
        dog, cat = (boxes[str(tasks[0]), kind] for kind in ("dog", "cat"))
        assert (dog.marked, dog.answers, dog.place["image_width"], dog.place["image_height"]) == (2, 3, WIDTH, HEIGHT)
        assert dog.probability < cat.probability


KNOWN: dict[str, tuple[str, set[tuple[Any, ...]]]] = {
    "spans": (spans_as_label([(0, 3, "PER"), (8, 12, "LOC")]), {(0, 3, "PER"), (8, 12, "LOC")}),
    "sound": (spans_as_label([(0.1, 0.25, "walk")]), {(0.1, 0.25, "walk")}),
    "boxes": (boxes_as_label(0, 0, [DOG]), {DOG}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_parts_are_ground_truth(make_project: Callable[..., Project], tmp_path: Path, name: str) -> None:
    """`hitl gold` writes a ground-truth annotation; the next cycle knows it, and asks no more about it."""
    case, (label, places) = CASES[name], KNOWN[name]
    project = make_project(case.xml)
    last = str(case.fill(project)[-1])
    known = Operation("gold", case.control, {"questions": {case.control: {last: label}}})
    for changed in (1, 0):
        (receipt,) = project.connector.push([known])
        assert receipt.changed == changed
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        judgement = cycle.run(settings(project), store, project.connector).judgement
    evidence = judgement.evidence[case.control]
    assert [evidence.annotations.items[n] for n in evidence.known.nonzero()[0]] == [last]
    sides = ("x", "y", "width", "height") if name == "boxes" else ("start", "end")
    parts: list[Part] = [part for part in judgement.results[case.control].parts if part.item == last and part.found]
    assert {(*part.at(*sides), part.label) for part in parts} == places
    assert last not in {str(ask.item) for ask in judgement.plan.asks}


BEYOND = words("Eve saw Rome.", [("Eve", "PER"), ("Rome", "LOC")])
BEYOND[1]["value"] = {"start": 8, "end": 99, "labels": ["LOC"]}


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("spans", BEYOND, "'LOC' from 8 to 99 reaches beyond the text, which has 13 characters; it counts as a skip"),
        ("boxes", boxed([DOG], 30), "a box of 'dog' is turned by 30 degrees; expected an upright one; it counts as"),
    ],
    ids=["spans", "boxes"],
)
def test_a_part_that_does_not_fit_is_told(
    make_project: Callable[..., Project], tmp_path: Path, name: str, answer: Regions, said: str
) -> None:
    project = make_project(CASES[name].xml)
    task = CASES[name].fill(project)[-1]
    project.person(0).post(f"/api/tasks/{task}/annotations/", {"result": answer})
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
    (problem,) = report.pulled.problems
    assert problem.startswith(f"task {task}, annotation ")
    assert said in problem


@needs_browser
@pytest.mark.parametrize("name", ["spans", "times", "masks", "boxes"])
def test_the_page_shows_the_consensus(
    make_project: Callable[..., Project], tmp_path: Path, browser: Any, name: str
) -> None:
    """For spans, a name within a name, behind a character outside of the basic plane."""
    case = CASES[name]
    project = make_project(case.xml)
    place, expected = case.shown
    task = case.fill(project)[place]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings(project), store, project.connector)
    open_consensus(browser, project.server.url, project.people[0].email, project.number, task)

    def shown() -> set[str]:
        lines = text(browser).splitlines()
        if name == "spans":
            return {f"{part} {kind}" for kind, part in pairwise(lines) if kind in {"PER", "ORG", "LOC"}}
        return set(lines[lines.index("Regions") :] if "Regions" in lines else lines)

    assert wait(lambda: expected <= shown()), text(browser)
    if name == "times":
        assert wait(lambda: browser.find_elements("css selector", "rect.selection"))
        assert "cannot be parsed" not in text(browser)
    browser.save_screenshot(str(tmp_path / "consensus.png"))
