"""The pages over a project of a real Label Studio: a gold answer from an item's page; ratings are in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.label_studio.conftest import Project, choice
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served, run, serving

pytestmark = [pytest.mark.server, pytest.mark.journey]

BOTH = """<View><Text name="text" value="$text"/>
<Choices name="mood" toName="text"><Choice value="good"/><Choice value="bad"/></Choices>
<Rating name="stars" toName="text" maxRating="5"/></View>"""
HTML = {"Accept": "text/html"}


def rated(label: str, stars: int) -> list[dict[str, Any]]:
    rating = {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": stars}}
    return [*choice(label, control="mood"), rating]


@pytest.fixture
def lead(
    make_project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Project, list[int], Path]:
    project = make_project(BOTH)
    people = [int(person.id) for person in project.people]

    def annotated(n: int) -> list[dict[str, Any]]:
        votes = [(3, 4, 5), (1, 2, 3), (2, 2, 3)][n % 3]
        pairs = zip(people, votes, strict=False)
        answers = [(who, rated("good" if n % 2 else "bad", stars)) for who, stars in pairs]
        return [{"completed_by": who, "result": result, "ground_truth": False} for who, result in answers]

    tasks = project.add(12, annotated)
    config = tmp_path / "hitl.toml"
    config.write_text(
        f'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\nurl = "{project.server.url}"\n'
        f"project = {project.number}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    run(config)
    return project, tasks, config


def ended(served: Served) -> str:
    for _ in range(1500):
        work = served.project().work
        if work is not None and work.ended is not None:
            assert not work.failed, work.said
            served.refresh()
            return str(work.said)
        time.sleep(0.02)
    raise AssertionError("the action did not end in 30 s")


def test_a_gold_answer_of_the_page_is_ground_truth_in_label_studio(lead: tuple[Project, list[int], Path]) -> None:
    project, tasks, config = lead
    item = f"/projects/p/items/{tasks[0]}"
    with serving(config) as served:
        assert "/projects/p/gold" in Links(served.html(item)).of("action")
        given = {"item": str(tasks[0]), "question": "mood", "label": "good"}
        assert served.client.post("/projects/p/gold", data=given, headers=HTML).status_code == 303
        ended(served)
        assert "Gold item: the right answer is good" in Links(served.html(f"{item}?question=mood")).text
    known = [
        (row.question, row.label)
        for page in project.connect().pull(None)
        for row in page.annotations
        if row.kind == "gold" and row.item == str(tasks[0])
    ]
    assert known == [("mood", "good")]


def test_stars_are_in_order(lead: tuple[Project, list[int], Path]) -> None:
    _, tasks, config = lead
    with serving(config) as served:
        view = served.snapshot().view("stars")
        assert view.consensus.ordered
        assert view.consensus.fit.method == "default"
        label = dict(zip(view.consensus.items, view.consensus.labels.tolist(), strict=True))
        assert [label[str(task)] for task in tasks[:3]] == ["4", "2", "2"]
        assert not served.snapshot().view("mood").consensus.ordered
        low, high = (view.consensus.classes[code] for code in view.consensus.interval[0])
        shown = " ".join(Links(served.html(f"/projects/p/items/{tasks[0]}?question=stars")).text.split())
        assert low < high
        assert f"between {low} and {high} with a probability of at least 90 %" in shown
        assert "would change this label" not in shown
