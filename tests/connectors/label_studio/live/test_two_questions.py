"""Two questions about each task of a real Label Studio, one of which is hard: each is done, or not, on its own.

Each is combined by its own method, if hitl.toml names one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hitl.project import opened
from tests.command_line import Run
from tests.connectors.label_studio.conftest import Project, choice
from tests.cycle.test_two_questions import told
from tests.events.receivers import SECRET

pytestmark = [pytest.mark.server, pytest.mark.journey]

TONE_AND_STARS = """<View><Text name="text" value="$text"/><Choices name="tone" toName="text"><Choice value="good"/>
<Choice value="bad"/></Choices><Rating name="stars" toName="text" maxRating="5"/></View>"""
AD_AND_STARS = """<View><Text name="text" value="$text"/><Choices name="kind" toName="text"><Choice value="ad"/>
<Choice value="post"/></Choices><View visibleWhen="choice-selected" whenTagName="kind" whenChoiceValue="ad">
<Rating name="stars" toName="text" maxRating="5"/></View></View>"""
PEOPLE, TASKS = 3, 40
FINISHED = "tone is finished: all 40 items are done."
STUCK = "stars is stuck: 0 of 40 items are done, and everyone has answered or skipped all 40 open items."


def rated(stars: int) -> dict[str, object]:
    """The result of a rating."""
    return {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": stars}}


def labels(question: str) -> list[dict[str, str]]:
    """Rows of the exported labels of a question."""
    with Path(f"labels.{question}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_question_on_which_all_agree_is_done_beside_one_that_nobody_agrees_about(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(TONE_AND_STARS)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    tasks = project.add(TASKS)
    for n, task in enumerate(tasks):
        for k in range(PEOPLE):
            result = [*choice("bad" if n % 2 else "good", control="tone"), rated(Random(f"{n} {k}").randint(1, 5))]
            project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": result, "lead_time": 1.5})
    crew = ",".join(person.email for person in project.people[:PEOPLE])
    address = f"{project.server.url}/projects/{project.number}"
    assert run("init", address, "--name", "reviews", "--annotators", crew)[0] == 0
    config = Path("hitl.toml")
    config.write_text(config.read_text() + '\n[[events]]\nname = "ci"\nurl = "http://127.0.0.1:9/hook"\n')
    assert run("run")[0] == 0

    status = run("status")[1]
    assert f"\n{FINISHED}\n{STUCK}" in status
    assert "add an annotator, " in status.lower()
    data = json.loads(run("status", "--json")[1])
    assert {name: one["done"] for name, one in data["last"]["questions"].items()} == {"tone": TASKS, "stars": 0}

    assert run("export", "labels.csv")[0] == 0
    for question, done, why in (("tone", "true", "confidence reached the target"), ("stars", "false", "")):
        found = [(row["done"], row["why"], row["item_done"]) for row in labels(question)]
        assert found == [(done, why, "false")] * TASKS

    assert run("report", "--output", "report.html")[0] == 0
    page = Path("report.html").read_text()
    assert page.index(FINISHED) < page.index(STUCK.partition(",")[0])
    with opened(config) as (_, store, _):
        events = told(store)
    assert [one["data"]["question"] for one in events["target.reached"]] == ["tone"]
    (stopped,) = events["project.stopped"]
    assert stopped["data"]["questions"]["stars"] == {"items": TASKS, "done": 0, "below": TASKS, "stuck": TASKS}

    config.write_text(config.read_text() + '\n[combine.tone]\nmethod = "majority"\n')
    assert "ok    combiner: default\nok    combiner: tone: majority\n" in run("doctor")[1]
    before = labels("stars")
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    assert {float(row["confidence"]) for row in labels("tone")} == {(PEOPLE + 1 / 2) / (PEOPLE + 1)}
    assert labels("stars") == before, "the other question keeps the default method"


def test_a_question_that_an_answer_hides_keeps_no_task_open(
    make_project: Callable[..., Project], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(AD_AND_STARS)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    tasks = project.add(TASKS)
    for n, task in enumerate(tasks):
        for k in range(PEOPLE):
            result = [*choice("post", control="kind")] if n % 2 else [*choice("ad", control="kind"), rated(1 + n % 5)]
            project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": result, "lead_time": 1.5})
    crew = ",".join(person.email for person in project.people[: PEOPLE + 1])
    address = f"{project.server.url}/projects/{project.number}"
    assert run("init", address, "--name", "reviews", "--annotators", crew)[0] == 0
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    hidden = {str(task) for task in tasks[1::2]}
    found = {row["item"]: (row["label"], row["done"]) for row in labels("stars")}
    assert {found[task] for task in hidden} == {("", "true")}
    assert all(found[str(task)][0] for task in tasks[::2])
    with opened(Path("hitl.toml")) as (_, store, _):
        _, plan = store.latest("reviews") or pytest.fail("no run")
    assert hidden <= {str(done.item) for done in plan.done}
