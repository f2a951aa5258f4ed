"""Boxes on images: what the control reads and writes, and three annotators' boxes in a real Label Studio.

There they are pulled, combined, planned, pushed back and shown.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.connectors.label_studio.config import Form, parse
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.connectors.label_studio.regions import Boxes
from hitl.errors import BadSettings, Refused
from hitl.kinds.boxes import corners, overlap_of
from hitl.parts import BoxTuple, boxes_as_label, boxes_in
from hitl.platform import Operation, Question
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.browser import needs_browser, open_consensus, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import untouched

BOXES = """<View><Image name="image" value="$image"/>
<RectangleLabels name="box" toName="image"><Label value="cat" background="#d55e00"/><Label value="dog"/>
</RectangleLabels></View>"""

HEIGHT, WIDTH = 300, 400
CAT, DOG = (10.0, 20.0, 30.0, 40.0, "cat"), (60.0, 30.0, 25.0, 50.0, "dog")

CONTROL = Form((Boxes("box", "image", ("cat", "dog"), "image"),))


def region(box: BoxTuple, **changes: Any) -> dict[str, Any]:
    """A box as the web page writes it; `changes` to its value, or to the region itself."""
    x, y, width, height, kind = box
    value = {"x": x, "y": y, "width": width, "height": height, "rotation": 0, "rectanglelabels": [kind]}
    whole = {
        "from_name": "box",
        "to_name": "image",
        "type": "rectanglelabels",
        "original_width": WIDTH,
        "original_height": HEIGHT,
        "image_rotation": 0,
        "value": value,
    }
    value |= {name: change for name, change in changes.items() if name in value}
    return whole | {name: change for name, change in changes.items() if name not in value}


# -- the control -------------------------------------------------------------------------------------------


def test_the_control_asks_about_boxes() -> None:
    (question,) = parse(BOXES).questions
    assert question == Question("box", ("cat", "dog"), ("cat", "dog"), kind="boxes", field="image")
    with pytest.raises(Refused, match="labels parts of 'text', which is no <Image>"):
        parse('<View><Text name="text" value="$t"/>' + BOXES.split("\n", 1)[1].replace('"image"', '"text"'))


def test_answers_are_read() -> None:
    label = CONTROL.read([region(DOG), region(CAT), {"from_name": "other"}])["box"]
    assert label == boxes_as_label(HEIGHT, WIDTH, [CAT, DOG])
    assert CONTROL.read([]) == {"box": '{"height":0,"width":0,"boxes":[]}'}
    untold = {**region(CAT), "original_width": None}
    assert CONTROL.read([untold])["box"] == boxes_as_label(0, 0, [CAT])
    assert CONTROL.read([untold, region(DOG)])["box"] == label


@st.composite
def boxes(draw: st.DrawFn) -> BoxTuple:
    x, y = draw(st.floats(0, 99)), draw(st.floats(0, 99))
    return x, y, draw(st.floats(0.01, 100 - x)), draw(st.floats(0.01, 100 - y)), draw(st.sampled_from(("cat", "dog")))


@given(st.lists(boxes(), max_size=5), st.randoms())
def test_a_label_has_one_form_and_goes_both_ways(drawn: list[BoxTuple], random: Any) -> None:
    label = boxes_as_label(HEIGHT, WIDTH, drawn)
    assert boxes_as_label(*boxes_in(label)) == label, "what is rounded stays as it is"
    random.shuffle(drawn)
    assert boxes_as_label(HEIGHT, WIDTH, [*drawn, *drawn[:1]]) == label
    for kept in boxes_in(label)[2]:
        near = min(
            drawn, key=lambda box: (box[4] != kept[4], max(abs(a - b) for a, b in zip(box, kept[:4], strict=False)))
        )
        assert near[:4] == pytest.approx(kept[:4], abs=0.51e-4)
    if drawn:
        written = CONTROL.write({"box": label})
        assert [region["original_width"] for region in written] == [WIDTH] * len(written)
        assert CONTROL.read(written) == {"box": label}


def test_nought_has_no_sign() -> None:
    assert boxes_as_label(1, 1, [(-0.0, -1e-9, 2, 2, "cat")]) == boxes_as_label(1, 1, [(0, 0, 2.0, 2.0, "cat")])


def test_each_region_has_its_probability() -> None:
    label = boxes_as_label(HEIGHT, WIDTH, [CAT, DOG])
    sure = {boxes_as_label(HEIGHT, WIDTH, [CAT]): 0.9, boxes_as_label(HEIGHT, WIDTH, [DOG]): 0.6}
    assert [one["score"] for one in CONTROL.write({"box": label}, {"box": sure})] == [0.9, 0.6]
    assert "original_width" not in CONTROL.write({"box": boxes_as_label(0, 0, [CAT])})[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (region(CAT, rotation=12.5), "a box of 'cat' is turned by 12.5 degrees; expected an upright one"),
        (region(CAT, image_rotation=90), "the image below a box of 'cat' is turned by 90 degrees"),
        (region((80, 20, 30, 10, "cat")), "the box of 'cat' at x 80, y 20 with width 30, height 10 reaches beyond"),
        (region((-5, 20, 30, 10, "dog")), "reaches beyond the image; expected 0 to 100 percent"),
        (region((10, 20, 0, 10, "dog")), "has no area within the image"),
        (region((10, 20, 5, 0.00001, "dog")), "has no area within the image"),
        (region((-0.5, 20, 0.4, 10, "dog")), "has no area within the image"),
        (region((10, 20, -5, 10, "dog")), "has no area within the image"),
        (region(CAT, rectanglelabels=["cow"]), "'cow' is not among the labels of 'box'"),
        (region(CAT, rectanglelabels=["cat", "dog"]), "has the labels ['cat', 'dog']; expected one label"),
        (region(CAT, rectanglelabels=[]), "has the labels []; expected one label"),
        (region(CAT, width=None), "a box of 'cat' has no place"),
        (region(CAT, x=float("nan")), "a box of 'cat' has no place"),
        (region(CAT, type="brushlabels"), "'brushlabels' is no answer to the control 'box'"),
        (region(CAT, original_width=500), "its boxes are on images of different sizes (height, width): [(300, 400)"),
        (region(CAT, original_width="wide"), "a side of 'wide' pixels"),
    ],
)
def test_what_is_no_box_is_told_and_not_dropped(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        CONTROL.read([region(DOG), wrong])
    assert said in str(caught.value)


def test_what_reaches_a_little_beyond_the_image_is_cut_off() -> None:
    label = CONTROL.read([region((-0.5, 90.0, 20.0, 10.4, "cat"))])["box"]
    assert boxes_in(label or "")[2] == [(0.0, 90.0, 19.5, 10.0, "cat")]


def test_what_is_no_answer_is_not_written() -> None:
    assert CONTROL.write({}) == []
    for labels in (
        {"box": "good"},
        {"other": boxes_as_label(0, 0, [CAT])},
        {"box": boxes_as_label(0, 0, [(*CAT[:4], "cow")])},
    ):
        with pytest.raises(BadSettings):
            CONTROL.write(labels)


# -- a real Label Studio -----------------------------------------------------------------------------------

TRUE: list[list[BoxTuple]] = [[CAT, DOG], [(30, 30, 40, 40, "cat")], [], [(15, 50, 30, 30, "dog")], [DOG]]
"""What is on the images; nobody has answered the last one."""


def png(boxes: list[BoxTuple]) -> bytes:
    image, out = pytest.importorskip("PIL.Image"), BytesIO()
    picture = image.new("RGB", (WIDTH, HEIGHT), (235, 235, 235))
    for x, y, width, height, kind in boxes:
        corner = int(x * WIDTH / 100), int(y * HEIGHT / 100)
        shade = 90 if kind == "cat" else 150
        picture.paste(
            (shade,) * 3, (*corner, corner[0] + int(width * WIDTH / 100), corner[1] + int(height * HEIGHT / 100))
        )
    picture.save(out, "PNG")
    return out.getvalue()


def moved(box: BoxTuple, by: float) -> BoxTuple:
    x, y, width, height, kind = box
    return x + by, y - by, width - by, height + by, kind


def drawn(project: Project) -> list[int]:
    """Tasks of all images. The first annotator draws what is there; the second a little off, and an object of their own
    on the third image; the third off to the other side, and without the dog of the first image."""
    headers = {"Authorization": f"Token {project.server.token}"}
    for number, boxes in enumerate(TRUE):
        one = ("file", (f"{number}.png", png(boxes), "image/png"))
        answer = httpx.post(f"{project.server.url}{project.path}/import", files=[one], headers=headers, timeout=60)
        assert answer.status_code == 201, answer.text
    tasks = sorted(int(task["id"]) for task in project.connector.client.tasks(project.number, ("id",)))
    for number, task in enumerate(tasks[:-1]):
        right = TRUE[number]
        second = [moved(box, 1.5) for box in right] + ([(5.0, 5.0, 10.0, 10.0, "cat")] if number == 2 else [])
        third = [moved(box, -1) for box in right if number or box[4] == "cat"]
        for k, boxes in enumerate((right, second, third)):
            result = [region(box) for box in boxes]
            project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": result, "lead_time": 9.0})
    return tasks


def settings(project: Project) -> Settings:
    crew = CrewSettings(annotators=tuple(person.email for person in project.people[:3]), capacity=3)
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, crew=crew, budget=BudgetSettings(open_questions=4))


@pytest.mark.server
@pytest.mark.journey
def test_boxes_go_both_ways(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(BOXES)
    tasks = drawn(project)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
        again = cycle.run(settings(project), store, project.connector)
        untouched(settings(project), store, project.connector)
    assert report.pulled.problems == ()
    for number, task in enumerate(tasks[:-1]):
        shown = [one for one in project.task(task)["predictions"] if one["model_version"].startswith("hitl-consensus-")]
        boxes = boxes_in(CONTROL.read(shown[0]["result"])["box"] or "")[2]
        assert [kind for *_, kind in boxes] == [kind for *_, kind in sorted(TRUE[number])], number
        for box, right in zip(boxes, sorted(TRUE[number]), strict=True):
            assert overlap_of(corners(np.array([box[:4]])), corners(np.array([right[:4]])))[0] > 0.85
        assert all(0.5 < one["score"] <= 1 for one in shown[0]["result"])
        assert all(one["original_width"] == WIDTH for one in shown[0]["result"])
    assert str(tasks[-1]) in {str(ask.item) for ask in report.judgement.plan.asks}
    assert again.changed == 0
    found = {(box.item, box.label): box for box in report.judgement.results["box"].parts}
    dog = found[str(tasks[0]), "dog"]
    assert (dog.marked, dog.answers) == (2, 3)
    assert (dog.place["image_width"], dog.place["image_height"]) == (WIDTH, HEIGHT)
    assert dog.probability < found[str(tasks[0]), "cat"].probability


@pytest.mark.server
@pytest.mark.journey
def test_known_boxes_are_ground_truth(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(BOXES)
    tasks = drawn(project)
    known = Operation("gold", "box", {"questions": {"box": {str(tasks[4]): boxes_as_label(0, 0, [DOG])}}})
    for changed in (1, 0):
        (receipt,) = project.connector.push([known])
        assert receipt.changed == changed
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        judgement = cycle.run(settings(project), store, project.connector).judgement
    evidence = judgement.evidence["box"]
    assert [evidence.annotations.items[n] for n in evidence.known.nonzero()[0]] == [str(tasks[4])]
    (box,) = (box for box in judgement.results["box"].parts if box.item == str(tasks[4]))
    assert (box.label, *box.at("x", "y", "width", "height"), box.probability) == (
        "dog",
        *DOG[:4],
        1.0,
    )


@pytest.mark.server
@pytest.mark.journey
def test_a_turned_box_is_told(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(BOXES)
    task = drawn(project)[4]
    project.person(0).post(f"/api/tasks/{task}/annotations/", {"result": [region(DOG, rotation=30)]})
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
    (problem,) = report.pulled.problems
    assert f"task {task}, annotation" in problem
    assert "a box of 'dog' is turned by 30 degrees; expected an upright one; it counts as a skip" in problem


@pytest.mark.server
@pytest.mark.journey
@needs_browser
def test_the_page_shows_the_boxes_of_the_consensus(
    make_project: Callable[..., Project], tmp_path: Path, browser: Any
) -> None:
    project = make_project(BOXES)
    task = drawn(project)[0]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings(project), store, project.connector)
    open_consensus(browser, project.server.url, project.people[0].email, project.number, task)

    def kinds_shown() -> list[str]:
        lines = text(browser).splitlines()
        return sorted(line for line in lines[lines.index("Regions") :] if line in ("cat", "dog"))

    assert wait(lambda: kinds_shown() == ["cat", "dog"]), text(browser)
    browser.save_screenshot(str(tmp_path / "boxes.png"))
