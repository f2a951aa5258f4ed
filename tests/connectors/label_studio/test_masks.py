"""Masks over images in a real Label Studio: three annotators' brushes pulled, combined, planned, pushed back."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.kinds.run_length import decode, encode
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.browser import needs_browser, open_consensus, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import untouched

pytestmark = [pytest.mark.server, pytest.mark.journey]

MASKS = """<View><Image name="image" value="$image"/>
<BrushLabels name="tag" toName="image"><Label value="cat" background="#d55e00"/><Label value="dog"/></BrushLabels>
</View>"""

HEIGHT, WIDTH = 90, 120
Mask = npt.NDArray[np.bool_]


def disc(y: float, x: float, radius: float) -> Mask:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    inside: Mask = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    return inside


TRUE: list[dict[str, Mask]] = [
    {"cat": disc(40, 40, 20), "dog": disc(50, 92, 15)},
    {"cat": disc(45, 60, 25)},
    {},
    {"dog": disc(30, 30, 18)},
    {"cat": disc(50, 80, 20)},
]
"""What is on the images; nobody has answered the last one."""


def png(masks: dict[str, Mask]) -> bytes:
    image, out = pytest.importorskip("PIL.Image"), BytesIO()
    picture = np.full((HEIGHT, WIDTH, 3), 235, np.uint8)
    for shade, mask in zip((90, 150), masks.values(), strict=False):
        picture[mask] = shade
    image.fromarray(picture).save(out, "PNG")
    return out.getvalue()


def regions(masks: dict[str, Mask]) -> list[dict[str, Any]]:
    """The result of BrushLabels, as the web page writes it."""
    return [
        {
            "from_name": "tag",
            "to_name": "image",
            "type": "brushlabels",
            "original_width": WIDTH,
            "original_height": HEIGHT,
            "image_rotation": 0,
            "value": {"format": "rle", "rle": encode(mask), "brushlabels": [kind]},
        }
        for kind, mask in masks.items()
    ]


def drawn(project: Project) -> list[int]:
    """Tasks of all images. The first annotator draws what is there, the second too large, the third a pixel too low and
    without the dog of the first image."""
    headers = {"Authorization": f"Token {project.server.token}"}
    for number, masks in enumerate(TRUE):
        one = ("file", (f"{number}.png", png(masks), "image/png"))
        answer = httpx.post(f"{project.server.url}{project.path}/import", files=[one], headers=headers, timeout=60)
        assert answer.status_code == 201, answer.text
    tasks = sorted(int(task["id"]) for task in project.connector.client.tasks(project.number, ("id",)))
    for number, task in enumerate(tasks[:-1]):
        grown = {
            kind: np.roll(mask, 2, 0) | np.roll(mask, -2, 0) | np.roll(mask, 2, 1)
            for kind, mask in TRUE[number].items()
        }
        moved = {kind: np.roll(mask, 1, 0) for kind, mask in TRUE[number].items() if number or kind == "cat"}
        for k, masks in enumerate((TRUE[number], grown, moved)):
            project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": regions(masks), "lead_time": 9.0})
    return tasks


def settings(project: Project) -> Settings:
    crew = CrewSettings(annotators=tuple(person.email for person in project.people[:3]), capacity=3)
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, crew=crew, budget=BudgetSettings(open_questions=4))


def test_masks_go_both_ways(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(MASKS)
    tasks = drawn(project)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
        again = cycle.run(settings(project), store, project.connector)
        untouched(settings(project), store, project.connector)
    assert report.pulled.problems == ()
    for number, task in enumerate(tasks[:-1]):
        shown = [one for one in project.task(task)["predictions"] if one["model_version"].startswith("hitl-consensus-")]
        values = [(region["value"], region["score"]) for region in shown[0]["result"]]
        found = {value["brushlabels"][0]: decode(value["rle"], HEIGHT, WIDTH) for value, _ in values}
        assert found.keys() == TRUE[number].keys()
        for kind, mask in TRUE[number].items():
            overlap = (found[kind] & mask).sum() / (found[kind] | mask).sum()
            assert overlap > 0.8, (number, kind, overlap)  # whose boundary is right, few objects do not tell
        assert all(0.5 < score <= 1 for _, score in values)
    assert str(tasks[-1]) in {str(ask.item) for ask in report.judgement.plan.asks}
    assert again.changed == 0


@needs_browser
def test_the_page_shows_the_masks_of_the_consensus(
    make_project: Callable[..., Project], tmp_path: Path, browser: Any
) -> None:
    project = make_project(MASKS)
    task = drawn(project)[0]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings(project), store, project.connector)
    open_consensus(browser, project.server.url, project.people[0].email, project.number, task)

    def kinds_shown() -> list[str]:
        lines = text(browser).splitlines()
        return sorted(line for line in lines[lines.index("Regions") :] if line in ("cat", "dog"))

    assert wait(lambda: kinds_shown() == ["cat", "dog"]), text(browser)
    browser.save_screenshot(str(tmp_path / "masks.png"))
