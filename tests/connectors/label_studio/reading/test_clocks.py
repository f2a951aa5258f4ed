"""Clocks apart, clocks that go back, rows that come late: a pull loses nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.label_studio import compare
from hitl.platform import PullSummary
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.reading.clocks import Proxy, Stamps

pytestmark = [pytest.mark.server, pytest.mark.journey]


class Reading:
    """A project, and a store that pulls it."""

    def __init__(self, project: Project, store: Store, **options: Any) -> None:
        self.project = project
        self.store = store
        self.connector = project.connect(**options)
        self.stamps = Stamps(project.server)

    def pull(self) -> PullSummary:
        with self.store.lease("p") as lease:
            return cycle.pull(lease, self.store, self.connector)

    def stored(self) -> list[tuple[str, str, str]]:
        rows = self.store.annotations("p", "sentiment").to_pylist()
        return sorted((row["item"], row["annotator"], row["label"]) for row in rows)

    def there(self) -> list[tuple[str, str, str]]:
        return sorted(
            (str(task["id"]), str(one["completed_by"]), one["result"][0]["value"]["choices"][0])
            for task in self.project.admin.get(
                f"{self.project.path}/export", exportType="JSON", download_all_tasks="true"
            )
            for one in task["annotations"]
        )

    def settle(self) -> None:
        """As if the last change had been seen long ago."""
        self.note(moved=0.0)

    def note(self, **changes: float) -> None:
        """Change the stored cursor."""
        with self.store.lease("p") as lease:
            self.store._note(lease, cursor=json.dumps({**(self.store.cursor("p") or {}), **changes}))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/hitl.db") as opened:
        yield opened


@pytest.mark.parametrize("ahead", [-600.0, 120.0, 600.0])
def test_the_clock_of_a_proxy_does_not_matter(project: Project, store: Store, ahead: float) -> None:
    tasks = project.add(9)
    reading = Reading(project, store, transport=Proxy(ahead))
    reading.pull()
    for number in tasks:
        project.answer(0, number, "good")
    reading.pull()
    assert len(reading.stored()) == 9
    assert reading.stored() == reading.there()


@pytest.mark.parametrize("late", [1.0, 60.0, 300.0])
def test_an_annotation_that_becomes_visible_late_is_found(project: Project, store: Store, late: float) -> None:
    tasks = project.add(4)
    reading = Reading(project, store)
    reading.stamps.new(tasks, -3600.0)
    reading.pull()
    reading.stamps.annotation(project.answer(0, tasks[0], "good")["id"], 30.0)
    reading.pull()
    said = project.answer(1, tasks[1], "bad")
    reading.stamps.annotation(said["id"], -late)
    assert reading.pull().fixed == 1
    assert reading.stored() == reading.there()
    assert reading.pull().fixed == 0


def test_a_late_edit_among_many_tasks_is_found_when_it_must_be_visible(
    project: Project, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks of one time, such as an import, are compared once the overlap has passed, not by each pull."""
    monkeypatch.setattr(compare, "FEW", 2)
    tasks = project.add(5)
    reading = Reading(project, store)
    said = project.answer(0, tasks[0], "good")
    reading.stamps.annotation(said["id"], -300.0)
    project.answer(1, tasks[1], "good")
    reading.pull()
    project.admin.patch(f"/api/annotations/{said['id']}/", {"result": choice("bad")})
    reading.stamps.annotation(said["id"], -200.0)  # later than before, earlier than the last change
    assert reading.pull().fixed == 0
    reading.note(moved=time.time() - 2000.0, compared=time.time() - 1990.0)  # as if it were half an hour later
    assert reading.pull().fixed == 1
    assert reading.stored() == reading.there()
    project.recorder.requests.clear()
    reading.note(moved=time.time() - 2000.0)
    assert reading.pull().fixed == 0
    assert len(project.recorder.requests) <= 8, "it is compared once"


def test_an_edit_that_becomes_visible_late_is_found(project: Project, store: Store) -> None:
    tasks = project.add(3)
    reading = Reading(project, store)
    said = project.answer(0, tasks[0], "good")
    reading.stamps.annotation(said["id"], -3600.0)
    reading.pull()
    project.answer(1, tasks[1], "good")
    reading.pull()
    project.admin.patch(f"/api/annotations/{said['id']}/", {"result": choice("bad")})
    reading.stamps.annotation(said["id"], -300.0)
    assert reading.pull().fixed == 1
    assert reading.stored() == reading.there()


def test_tasks_that_become_visible_late_are_found(project: Project, store: Store) -> None:
    tasks = project.add(3)
    reading = Reading(project, store)
    reading.pull()
    project.answer(0, tasks[0], "good")
    reading.pull()
    rows = [{"completed_by": int(project.people[1].id), "ground_truth": False, "result": choice("bad")}]
    reading.stamps.new(project.add(2, lambda _: rows), -300.0)
    assert reading.pull().fixed == 2
    assert reading.stored() == reading.there()
    assert len(reading.stored()) == 3


def test_an_edit_by_a_clock_that_went_back_stands(project: Project, store: Store) -> None:
    (number, other) = project.add(2)
    reading = Reading(project, store)
    said = project.answer(0, number, "good")
    reading.stamps.annotation(said["id"], 600.0)
    reading.pull()
    project.admin.patch(f"/api/annotations/{said['id']}/", {"result": choice("bad")})
    reading.pull()
    assert reading.stored() == reading.there()
    project.answer(1, other, "good")
    reading.pull()
    assert reading.stored() == reading.there()


def test_an_edit_with_an_earlier_stamp_stands_under_a_later_task(project: Project, store: Store) -> None:
    (number,) = project.add(1)
    reading = Reading(project, store)
    said = project.answer(0, number, "good")
    reading.stamps.annotation(said["id"], 600.0)
    reading.pull()
    project.admin.patch(f"/api/annotations/{said['id']}/", {"result": choice("bad")})
    reading.stamps.task(number, 700.0)
    reading.pull()
    assert reading.stored() == reading.there()


def test_a_clock_that_was_a_day_ahead_once_hides_nothing(project: Project, store: Store) -> None:
    tasks = project.add(4)
    reading = Reading(project, store)
    first = project.answer(0, tasks[0], "good")
    reading.pull()
    reading.stamps.annotation(project.answer(0, tasks[1], "good")["id"], 86400.0)
    reading.pull()
    reading.settle()
    project.admin.patch(f"/api/annotations/{first['id']}/", {"result": choice("bad")})
    project.answer(0, tasks[2], "good")
    reading.pull()
    assert reading.stored() == reading.there()
    reading.settle()
    project.admin.patch(f"/api/annotations/{first['id']}/", {"result": choice("good")})
    reading.pull()
    assert reading.stored() == reading.there()


def test_our_own_clock_does_not_matter(project: Project, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = project.add(4)
    reading = Reading(project, store)
    reading.pull()
    true = time.time
    for n, ahead in enumerate((600.0, -600.0, 600.0, 0.0)):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: true() + ahead)
        reading.stamps.annotation(project.answer(0, tasks[n], "good")["id"], -300.0 if n % 2 else 600.0)
        reading.pull()
        assert reading.stored() == reading.there()


def test_an_unchanged_project_is_counted_and_not_listed(project: Project, store: Store) -> None:
    project.add(30, lambda _: [{"completed_by": 1, "ground_truth": False, "result": choice("good")}])
    reading = Reading(project, store)
    reading.pull()
    reading.settle()
    reading.pull()
    before = store.cursor("p")
    project.recorder.requests.clear()
    assert reading.pull() == PullSummary(pages=2)
    assert store.cursor("p") == before
    assert len(project.recorder.requests) <= 8


def test_counts_that_label_studio_keeps_wrongly_cost_one_listing(project: Project, store: Store) -> None:
    tasks = project.add(5, lambda _: [{"completed_by": 1, "ground_truth": False, "result": choice("good")}])
    reading = Reading(project, store)
    reading.stamps.count(tasks[0], 7)
    reading.pull()
    reading.settle()
    reading.pull()
    project.recorder.requests.clear()
    assert reading.pull() == PullSummary(pages=2)
    assert len(project.recorder.requests) <= 8
    reading.stamps.count(tasks[0], 1)
    reading.pull()
    assert reading.stored() == reading.there()
