"""Stretches of time in a real Label Studio: four annotators' regions pulled, combined, planned, pushed back."""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.parts import spans_as_label, spans_in
from hitl.platform import Operation
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.browser import needs_browser, open_consensus, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import untouched

pytestmark = [pytest.mark.server, pytest.mark.journey]

SERIES = """<View><TimeSeriesLabels name="what" toName="ts"><Label value="walk"/><Label value="run"/>
</TimeSeriesLabels><TimeSeries name="ts" valueType="json" value="$ts" timeColumn="time"{format}>
<Channel column="speed"/></TimeSeries></View>"""
DAYS = ' timeFormat="%d/%m/%Y %H:%M"'
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
"""The right stretches of six recordings of 100 units."""

Write = Callable[[int], Any]
"""How a border is written in a result."""


def day(minute: int) -> str:
    """Days, months, years, so that the order of the texts is not that of the times."""
    return f"{31 if minute < 50 else 1:02}/{1 if minute < 50 else 2:02}/2026 {20 + minute // 60:02}:{minute % 60:02}"


def answers(right: Sequence[tuple[int, int, str]]) -> list[list[tuple[int, int, str]]]:
    """Of four annotators: the second overlooks the last, the third is late, the fourth takes running for walking."""
    late = [(start + 2, end + 1, kind) for start, end, kind in right]
    return [list(right), list(right[:-1]), late, [(start, end, "walk") for start, end, _ in right]]


def series(write: Write, start: int, end: int, kind: str) -> dict[str, Any]:
    value = {"start": write(start), "end": write(end), "instant": False, "timeserieslabels": [kind]}
    return {"from_name": "what", "to_name": "ts", "type": "timeserieslabels", "value": value}


def sound(write: Write, start: int, end: int, kind: str) -> dict[str, Any]:
    value = {"start": write(start), "end": write(end), "channel": 0, "labels": [kind]}
    return {"from_name": "what", "to_name": "a", "type": "labels", "original_length": 1, "value": value}


def recorded(
    project: Project, data: Mapping[str, Any], region: Callable[..., dict[str, Any]], write: Write
) -> list[int]:
    """Tasks of all recordings; four annotators answered all but the last."""
    rows = []
    for number, right in enumerate(RIGHT):
        annotations = [
            {"completed_by": int(who.id), "ground_truth": False, "result": [region(write, *one) for one in own]}
            for who, own in zip(project.people[:4], answers(right), strict=True)
        ]
        rows.append({"data": data, "annotations": annotations if number < 5 else []})
    answer = project.admin.post(f"{project.path}/import", rows, return_task_ids="true")
    return [int(number) for number in answer["task_ids"]]


def curve(write: Write) -> dict[str, Any]:
    """A time series as data of a task."""
    return {"ts": {"time": [write(n) for n in range(100)], "speed": [math.sin(n / 9) for n in range(100)]}}


def tone(project: Project) -> dict[str, Any]:
    """The address of a second of sound that was uploaded."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, 8000, 8000, "NONE", ""))
        file.writeframes(b"".join(struct.pack("<h", round(9000 * math.sin(n / 5))) for n in range(8000)))
    import httpx

    headers = {"Authorization": f"Token {project.server.token}"}
    files = {"file": ("tone.wav", content.getvalue(), "audio/wav")}
    sent = httpx.post(
        f"{project.server.url}{project.path}/import?commit_to_project=false", headers=headers, files=files
    )
    (upload,) = sent.json()["file_upload_ids"]
    told = project.admin.get(f"/api/import/file-upload/{upload}")
    return {"sound": f"/data/{told['file']}"}


def settings(project: Project) -> Settings:
    crew = CrewSettings(annotators=tuple(person.email for person in project.people[:4]), capacity=3)
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, crew=crew, budget=BudgetSettings(open_questions=4))


def consensus_of(project: Project, task: int) -> dict[str, Any]:
    (found,) = [one for one in project.task(task)["predictions"] if one["model_version"].startswith("hitl-consensus-")]
    return dict(found)


def said(regions: Sequence[Mapping[str, Any]], key: str) -> set[tuple[Any, Any, str]]:
    return {(one["value"]["start"], one["value"]["end"], *one["value"][key]) for one in regions}


@pytest.mark.parametrize(
    ("xml", "write"), [(SERIES.format(format=""), int), (SERIES.format(format=DAYS), day)], ids=["numbers", "times"]
)
def test_a_time_series_goes_both_ways(
    make_project: Callable[..., Project], tmp_path: Path, xml: str, write: Write
) -> None:
    project = make_project(xml)
    tasks = recorded(project, curve(write), series, write)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
        again = cycle.run(settings(project), store, project.connector)
        untouched(settings(project), store, project.connector)
    assert report.pulled.problems == ()
    for number, task in enumerate(tasks[:5]):
        found = consensus_of(project, task)["result"]
        assert said(found, "timeserieslabels") == {(write(s), write(e), kind) for s, e, kind in RIGHT[number]}
        assert all(0.5 < region["score"] <= 1 and region["value"]["instant"] is False for region in found)
    assert str(tasks[5]) in {str(ask.item) for ask in report.judgement.plan.asks}
    assert again.changed == 0


def test_a_sound_goes_both_ways(make_project: Callable[..., Project], tmp_path: Path) -> None:
    """And known stretches are ground truth: the next cycle knows them, and asks no more about them."""
    project = make_project(SOUND)
    tasks = recorded(project, tone(project), sound, lambda n: n / 100)
    known = spans_as_label([(0.1, 0.25, "walk")])
    (receipt,) = project.connector.push([Operation("gold", "what", {"questions": {"what": {str(tasks[5]): known}}})])
    assert receipt.changed == 1
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
        stored = store.annotations("p", "what").to_pylist()
    assert report.pulled.problems == ()
    assert spans_in(stored[0]["label"]) == [(0.05, 0.3, "walk"), (0.3, 0.55, "run"), (0.7, 0.95, "walk")]
    for number, task in enumerate(tasks[:5]):
        right = {(s / 100, e / 100, kind) for s, e, kind in RIGHT[number]}
        assert said(consensus_of(project, task)["result"], "labels") == right
    evidence = report.judgement.evidence["what"]
    assert [evidence.annotations.items[n] for n in evidence.known.nonzero()[0]] == [str(tasks[5])]
    assert str(tasks[5]) not in {str(ask.item) for ask in report.judgement.plan.asks}


@needs_browser
def test_the_page_shows_the_consensus(make_project: Callable[..., Project], tmp_path: Path, browser: Any) -> None:
    project = make_project(SERIES.format(format=DAYS))
    task = recorded(project, curve(day), series, day)[0]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings(project), store, project.connector)
    open_consensus(browser, project.server.url, project.people[0].email, project.number, task)

    def shown() -> list[str]:
        return [line for line in text(browser).splitlines() if line in ("walk", "run")]

    assert wait(lambda: len(shown()) >= 3 + 2 and browser.find_elements("css selector", "rect.selection")), text(
        browser
    )
    assert "cannot be parsed" not in text(browser)
    browser.save_screenshot(str(tmp_path / "consensus.png"))
