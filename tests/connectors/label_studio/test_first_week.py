"""What teams ran into in their first week with a real Label Studio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.consensus import Consensus
from hitl.doctor import checks
from hitl.errors import BadSettings, Refused
from hitl.operations import push
from hitl.plan import Plan
from hitl.platform import Operation, Receipt
from hitl.store import Store
from hitl.store.results import CycleRecord
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import connect, settings_for

pytestmark = [pytest.mark.server, pytest.mark.journey]


def open_store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder}/hitl.db")


def test_an_operation_for_somebody_unknown_neither_stops_the_others_nor_stays(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project()
    tasks = [str(task) for task in project.add(4)]
    mine = project.people[1]
    older = (
        Operation("assign", "ann@exmaple.org", {"items": tasks[:2]}),
        Operation("assign", str(mine.id), {"items": tasks[2:]}),
        Operation("labels_wanted", "", {"items": {tasks[0]: 2}}),
    )
    no_results: dict[str, Consensus] = {}
    with open_store(tmp_path) as store:
        with store.lease("p") as lease:
            store.record_cycle(lease, CycleRecord(no_results, Plan(), older))
            receipts: list[Receipt] = []
            pushed = push(lease, store, connect(project))
            with pytest.raises(Refused, match=r"no user ann@exmaple\.org: fix crew\.annotators"):
                receipts.extend(pushed)  # what comes before the error stays
        assert [receipt.operation.kind for receipt in receipts] == ["assign", "labels_wanted"]
        assert project.next(1, project.tab(1)) == int(tasks[2])
        assert [operation.key for operation in store.pending("p")] == ["ann@exmaple.org"]
        cycle.run(settings_for(project.number, [mine.email]), store, connect(project))
        assert store.pending("p") == []


def test_doctor_asks_the_server_who_there_is_and_looks_at_what_waits(
    make_project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    project.add(3)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    config = tmp_path / "hitl.toml"

    def looked_at(crew: list[str]) -> dict[str, tuple[bool, str]]:
        source = f'[source]\nkind = "label-studio"\nurl = "{project.server.url}"\nproject = {project.number}\n'
        config.write_text(f'name = "p"\nstore = "sqlite:///hitl.db"\n{source}[crew]\nannotators = {crew}\n')
        return {check.name: (check.ok, check.detail) for check in checks(config)}

    people = [project.people[k].email for k in (1, 2)]
    found = looked_at(people)  # before anything was pulled
    assert found["crew"] == (True, "2 named")
    assert found["outbox"] == (True, "nothing waits to be sent")
    ok, detail = looked_at([people[0], "ann@exmaple.org"])["crew"]
    assert not ok
    assert "no user 'ann@exmaple.org'" in detail
    with open_store(tmp_path) as store, store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({}, Plan(), (Operation("assign", "999", {"items": ["1"]}),)))
        store.note_failure(lease, Refused("there is no user 999"))
    ok, detail = looked_at(people)["outbox"]
    assert not ok
    assert detail == "1 to be sent: questions of 999; the last run failed (`hitl status`)"


def test_an_answer_mended_later_counts(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project()
    tasks = project.add(2)
    wrong = project.answer(1, tasks[0], "no such choice")
    with open_store(tmp_path) as store:
        cycle.run(settings_for(project.number), store, connect(project))
        assert store.counts("p")["annotations"] == 0 or store.skips("p").num_rows == 1
        project.admin.patch(f"/api/annotations/{wrong['id']}/", {"result": choice("bad")})
        report = cycle.run(settings_for(project.number), store, connect(project))
        assert report.pulled.problems == ()
        assert store.skips("p").num_rows == 0
        assert len(store.annotations("p", "sentiment")) == 1


# -- several controls ---------------------------------------------------------------------------------------------

THREE = """<View><Text name="text" value="$text"/>
<Choices name="tone" toName="text"><Choice value="good"/><Choice value="bad"/></Choices>
<Choices name="place" toName="text"><Choice value="here"/><Choice value="there"/><Choice value="away"/></Choices>
<Rating name="stars" toName="text" maxRating="3"/></View>"""


def all_three(tone: str, place: str, stars: int | None) -> list[dict[str, Any]]:
    rating = {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": stars}}
    said = [*choice(tone, control="tone"), *choice(place, control="place")]
    return said if stars is None else [*said, rating]


def test_several_controls_are_combined_and_planned_together(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project(THREE)
    tasks = project.add(4)
    for k in (1, 2):
        for n, task in enumerate(tasks[:2]):
            body = {"result": all_three("good", ("here", "there")[n], None if (k, n) == (2, 1) else 2), "lead_time": 1}
            project.person(k).post(f"/api/tasks/{task}/annotations/", body)
    with open_store(tmp_path) as store:
        report = cycle.run(settings_for(project.number, max_labels=3), store, project.connect())
        results = report.judgement.results
        assert list(results) == ["tone", "place", "stars"]
        assert [results["place"].classes[code] for code in results["place"].codes[:2]] == ["here", "there"]
        assert results["stars"].classes == ("1", "2", "3")
        (shown,) = [
            row["result"] for row in project.task(tasks[0])["predictions"] if "consensus" in row["model_version"]
        ]
        assert [item["from_name"] for item in shown] == ["tone", "place", "stars"]
        served = []
        while (task := project.next(3)) is not None:
            served.append(task)
            project.person(3).post(f"/api/tasks/{task}/annotations/", {"result": all_three("bad", "away", 1)})
        assert set(served) == set(tasks)
        for _ in range(4):
            plan = cycle.run(settings_for(project.number, max_labels=3), store, project.connect()).judgement.plan
            if plan.stop:
                break
            for k in (0, 1, 2, 3):  # one left the rating open: another is asked
                while (task := project.next(k)) is not None:
                    project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": all_three("bad", "away", 1)})
        assert plan.stop
        first = next(done for done in plan.done if str(done.item) == str(tasks[0]))
        assert len(first.labels) == 3


def test_two_configs_on_one_project_are_refused(project: Project, tmp_path: Path) -> None:
    project.add(2)
    with open_store(tmp_path) as store:
        cycle.run(settings_for(project.number), store, connect(project))
        other = settings_for(project.number).model_copy(update={"name": "q"})
        with pytest.raises(BadSettings, match=f"project {project.number} under the name 'p' already, and two projects"):
            cycle.run(other, store, connect(project))
