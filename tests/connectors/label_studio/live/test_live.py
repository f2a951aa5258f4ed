"""A real Label Studio, its webhooks and the live service: a belief changes, and the order, without any poll."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hitl.service.scheduling.scheduler import Scheduler, projects_of
from hitl.service.web.live import Live
from hitl.service.web.projects import Projects
from tests.connectors.label_studio.conftest import Project
from tests.scheduled import Told
from tests.service.web.live.serving import SECRET, Events, application, cycle, listening, until

pytestmark = [pytest.mark.server, pytest.mark.journey]


@pytest.fixture
def config(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", SECRET)
    path = tmp_path / "hitl.toml"
    path.write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\n'
        f'url = "{project.server.url}"\nproject = {project.number}\nabstain = ["Unsure"]\n'
        '[schedule]\nevery = "10h"\npoll = "1h"\ndebounce = "1s"\n'
    )
    return path


@contextmanager
def serving(project: Project, config: Path, scheduler: Scheduler | None = None) -> Iterator[tuple[Live, int]]:
    projects = Projects([config])
    live = Live(projects, scheduler)
    live.start()
    try:
        with listening(application(live)) as port:
            hook = {"url": f"http://127.0.0.1:{port}/webhook/p", "headers": {"X-Hitl-Secret": SECRET}}
            wanted = {"project": project.number, "send_payload": True, "send_for_all_actions": True}
            project.admin.post("/api/webhooks/", {**wanted, **hook})
            until(lambda: live.figures("p").pulls)
            yield live, port
            live.broadcast.close()
    finally:
        live.stop()
        projects.stop()


def test_an_annotation_changes_the_belief_and_a_browser_is_told(project: Project, config: Path) -> None:
    tasks = project.add(6)
    for k in range(3):
        for n, task in enumerate(tasks):
            project.answer(k, task, "good" if n % 2 else "bad")
    cycle(config)
    with serving(project, config) as (live, port):
        until(lambda: live.belief("p", "sentiment", str(tasks[0])) is not None)
        before = live.belief("p", "sentiment", str(tasks[0]))
        events = Events(port)
        began = time.monotonic()
        annotation = project.answer(3, tasks[0], "good")
        name, data = events.next()[1:]
        print(f"annotation to event: {time.monotonic() - began:.2f} s")
        assert (name, data) == ("belief", {"question": "sentiment", "items": [str(tasks[0])]})
        after = live.belief("p", "sentiment", str(tasks[0]))
        assert before is not None
        assert after is not None
        assert after[0] > before[0]  # good, bad
        project.person(3).delete(f"/api/annotations/{annotation['id']}/")
        assert events.next()[2]["items"] == [str(tasks[0])]
        until(lambda: abs(live.belief("p", "sentiment", str(tasks[0])) - before).max() < 0.05)  # type: ignore[operator]
        project.skip(3, tasks[1])
        until(lambda: live.projects["p"].store.counts("p")["skips"] == 1)
        events.close()
        assert live.figures("p").failures == 0


def test_an_annotation_brings_a_new_order(project: Project, config: Path) -> None:
    tasks = project.add(4)
    for k in range(2):
        for task in tasks:
            project.answer(k, task, "good")
    told = Told()
    scheduler = Scheduler(projects_of([config]), told)
    scheduler.start()
    try:
        until(lambda: told["done"])
        with serving(project, config, scheduler) as (live, _):
            cycles = len(told["done"])
            began = time.monotonic()
            project.answer(2, tasks[2], "bad")  # now it is in doubt
            until(lambda: len(told["done"]) > cycles)
            print(f"annotation to new order: {time.monotonic() - began:.2f} s")
            assert told["done"][-1]["labels"] == 9
            assert told["done"][-1]["changed"] > 0
            assert not told["failed"]
            store = live.projects["p"].store
            until(lambda: store.hint("p") is None)
            until(lambda: live.projects["p"].snapshot.number == store.last_cycle("p").number)  # type: ignore[union-attr]
            assert live.figures("p").failures == 0
    finally:
        scheduler.stop()
    order = next(each for each, _ in live_orders(config))
    assert order.payload["items"][0] == str(tasks[2])


def live_orders(config: Path) -> Iterator[tuple[object, object]]:
    """The order that was pushed last."""
    from hitl.store import Store

    with Store(f"sqlite:///{config.parent}/hitl.db") as store:
        yield from [(each, state) for each, state in store.operations("p") if each.kind == "order"]
