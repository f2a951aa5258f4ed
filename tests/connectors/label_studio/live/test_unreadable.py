"""Annotations that cannot be read, in a real Label Studio: named as long as they are there, and the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.kinds.run_length import encode
from tests.command_line import Run
from tests.connectors.label_studio.conftest import Project, choice

pytestmark = [pytest.mark.server, pytest.mark.journey]

LABELS = '<Label value="wound"/><Label value="skin"/>'
BRUSH = f'<View><Image name="im" value="$im"/><BrushLabels name="q" toName="im">{LABELS}</BrushLabels></View>'
BOXES = BRUSH.replace("BrushLabels", "RectangleLabels")
SPANS = f'<View><Labels name="q" toName="text">{LABELS}</Labels><Text name="text" value="$text"/></View>'
Result = list[dict[str, Any]]


def on_image(kind: str, **value: Any) -> Result:
    size = {"original_width": 37, "original_height": 23, "image_rotation": 0}
    return [{"from_name": "q", "to_name": "im", "type": kind, **size, "value": {**value, kind: ["wound"]}}]


def brushed(**changes: Any) -> Result:
    rle = encode(np.add.outer(np.arange(23), np.arange(37)) % 9 > 5)
    (entry,) = on_image("brushlabels", format="rle", rle=rle)
    entry["value"] |= {name: value for name, value in changes.items() if name in entry["value"]}
    return [entry | {name: value for name, value in changes.items() if name not in entry["value"]}]


def boxed(**changes: Any) -> Result:
    return on_image("rectanglelabels", **{"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 0, **changes})


def marked(*spans: tuple[int, int, str | None]) -> Result:
    quotes = [({} if text is None else {"text": text}) for *_, text in spans]
    values = [
        {"start": a, "end": b, "labels": ["wound"], **more} for (a, b, _), more in zip(spans, quotes, strict=True)
    ]
    return [{"from_name": "q", "to_name": "text", "type": "labels", "value": value} for value in values]


PARTY = "🎉🎉🎉 Ada met Bo in Rome today"
IMAGE, TEXT = {"im": "http://x.example/0.png"}, {"text": PARTY}

BROKEN: dict[str, tuple[str, dict[str, str], Result, Result, str]] = {
    "mask cut short": (BRUSH, IMAGE, brushed(), brushed(rle=[30, 2, 200, 4]), "brush mask: 4 bytes"),
    "mask of another length": (BRUSH, IMAGE, brushed(), brushed(original_width=36), "expected 23 x 36 x 4 = 3312"),
    "sides swapped": (
        BRUSH, IMAGE, brushed(), brushed(original_width=23, original_height=37), "an image of 23 x 37 pixels"
    ),
    "box on another image": (
        BOXES, IMAGE, boxed(), [boxed()[0] | {"original_width": 23, "original_height": 37}], "on an image of 23 x 37"
    ),
    "turned box": (BOXES, IMAGE, boxed(), boxed(rotation=45), "turned by 45 degrees"),
    "span beyond": (SPANS, TEXT, marked((4, 7, None)), marked((4, 99, None)), "reaches beyond the text"),
    "span of white space": (SPANS, TEXT, marked((4, 7, None)), marked((3, 4, None)), "nothing but white space"),
    "span of something else": (SPANS, TEXT, marked((4, 7, None)), marked((4, 7, "Eve")), "it marks 'Eve' from 4 to 7"),
}  # fmt: skip


def project_of(make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch, xml: str) -> Project:
    project = make_project(xml)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    assert run("init", "--label-studio", project.server.url, "--project", str(project.number))[0] == 0
    return project


def filled(project: Project, rows: list[tuple[dict[str, str], list[Result]]]) -> list[int]:
    tasks = [
        {
            "data": data,
            "annotations": [
                {"completed_by": int(project.people[k].id), "ground_truth": False, "result": result}
                for k, result in enumerate(results)
            ],
        }
        for data, results in rows
    ]
    answer = project.admin.post(f"{project.path}/import", tasks, return_task_ids="true")
    return [int(number) for number in answer["task_ids"]]


@pytest.mark.parametrize("name", BROKEN)
def test_one_broken_annotation_is_a_skip_that_is_named_in_run_status_and_doctor(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    xml, data, good, broken, why = BROKEN[name]
    project = project_of(make_project, run, monkeypatch, xml)
    tasks = filled(project, [(data, [good, good, broken]), (data, [good, good])])
    wrong = project.task(tasks[0])["annotations"]
    (key,) = (one["id"] for one in wrong if one["result"] == broken)
    for _ in range(2):
        code, _, err = run("run")
        assert code == 0, err
        assert f"task {tasks[0]}, annotation {key}: " in err.replace("\n", " ")
        assert why in " ".join(err.split())
    assert json.loads(run("status", "--json")[1])["stored"]["skips"] == 1
    code, out, _ = run("doctor")
    assert f"task {tasks[0]}, annotation {key}" in out
    assert why in " ".join(out.split())
    assert code != 0
    assert json.loads(run("audit", "--json")[1])["differences"] == []
    assert run("export", "l.csv")[0] == 0
    found = Path("l.csv").read_text()
    assert found.count("wound") == 2, "both tasks have what the others marked"
    project.admin.delete(f"/api/annotations/{key}/")
    assert "annotation" not in run("run")[2]


def test_offsets_in_utf_16_units_are_placed_by_what_they_quote(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(make_project, run, monkeypatch, SPANS)
    result = marked((7, 10, "Ada"), (21, 25, "Rome"))
    filled(project, [(TEXT, [result] * 3)])
    code, _, err = run("run")
    assert code == 0
    assert "3 annotations" in err
    assert "offsets counted in UTF-16 units" in " ".join(err.split())
    assert run("export", "l.csv")[0] == 0
    assert {line.split(",")[-1].strip('"') for line in Path("l.csv").read_text().splitlines()[1:]} == {"Ada", "Rome"}
    code, out, _ = run("doctor")
    assert "UTF-16" in out
    assert "Ada" not in run("run")[2], "a repair is told once"


def test_boxes_turned_by_a_whole_turn_are_upright(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(make_project, run, monkeypatch, BOXES)
    filled(project, [(IMAGE, [boxed(), boxed(rotation=360), boxed(x=-0.4, width=40.4)])])
    said = " ".join(run("run")[2].split())
    assert "turned by 360 degrees, which is no turn" in said
    assert "cut at the edge" in said
    assert json.loads(run("status", "--json")[1])["stored"]["skips"] == 0


def test_a_renamed_class_is_a_question_until_it_is_answered(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    xml = '<View><Text name="text" value="$text"/><Choices name="sentiment" toName="text">{}</Choices></View>'
    choices = '<Choice value="{}"/><Choice value="dog"/>'
    project = project_of(make_project, run, monkeypatch, xml.format(choices.format("cat")))
    filled(project, [({"text": str(n)}, [choice("dog" if n % 3 else "cat")] * 2) for n in range(6)])
    assert run("run")[0] == 0
    project.admin.patch(f"{project.path}/", {"label_config": xml.format(choices.format("feline"))})
    for _ in range(2):
        code, _, err = run("run")
        said = " ".join(err.split())
        assert code == 0
        assert "4 annotations (task " in said
        assert "'cat' is not among the choices of 'sentiment'" in said
        assert '`"cat" = "new name"` to [source.rename] in hitl.toml' in said
    assert "'cat' is not among" in " ".join(run("status")[1].split())
    code, out, _ = run("doctor")
    assert code != 0
    assert "[source.rename]" in " ".join(out.split())
    config = Path("hitl.toml")
    text = config.read_text()
    config.write_text(text + '\n[source.rename]\ncat = "feline"\n')
    code, _, err = run("run")
    assert (code, "annotation" in err) == (0, False), err
    stored = json.loads(run("status", "--json")[1])["stored"]
    assert (stored["labels"], stored["skips"]) == (12, 0)
    run("export", "l.csv")
    assert Path("l.csv").read_text().count("feline") >= 2
    config.write_text(text + '\n[source.rename]\ncat = "lion"\n')
    assert "source.rename" in run("run")[2]
