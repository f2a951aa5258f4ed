"""Webhooks of a real Label Studio: an answer brings a cycle, and what a cycle pushes brings no other."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from hitl.service.loops import Loops, projects_of
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project
from tests.scheduled import Told, until

pytestmark = [pytest.mark.server, pytest.mark.journey]


def settled(told: Told) -> int:
    """How many cycles there were when none has begun for two seconds: on a slow machine an answer is heard late."""
    for _ in range(20):
        before = len(told["began"])
        threading.Event().wait(2.0)
        if len(told["began"]) == len(told["done"]) == before:
            break
    return len(told["began"])


def test_an_answer_brings_a_cycle_and_a_push_brings_none(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    config = tmp_path / "hitl.toml"
    config.write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\n'
        f'url = "{project.server.url}"\nproject = {project.number}\nabstain = ["Unsure"]\n'
        f'[schedule]\nevery = "10h"\nwebhook = "127.0.0.1:{port}"\ndebounce = "0.5s"\n'
    )
    tasks = project.add(4)
    hook = {"url": f"http://127.0.0.1:{port}/webhook/p", "headers": {"X-Hitl-Secret": "s3cret"}}
    project.admin.post(
        "/api/webhooks/", {"project": project.number, "send_payload": True, "send_for_all_actions": True, **hook}
    )
    told = Told()
    scheduler = Loops(projects_of([config]), told)
    scheduler.prepare()
    scheduler.start()
    try:
        until(lambda: len(told["done"]) == 1)
        assert told["done"][0]["labels"] == 0
        assert told["done"][0]["changed"] > 0
        project.answer(0, tasks[0], "good")
        project.answer(1, tasks[0], "good")
        until(lambda: len(told["done"]) >= 2)
        until(lambda: told["done"][-1]["labels"] == 2)
        cycles = settled(told)
        assert cycles <= 3  # two answers are one cycle, or two on a slow machine
        project.skip(2, tasks[1])
        until(lambda: len(told["done"]) > cycles)
        assert settled(told) == cycles + 1  # what the cycles pushed has been heard, and has caused nothing
        assert scheduler.next_runs()[0]["kind"] == "every"
    finally:
        scheduler.stop()
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        assert store.counts("p")["skips"] == 1
        assert len(store.cycles("p")) == cycles + 1
    assert [said for event, _, said in told.events if event in ("failed", "waits")] == []
