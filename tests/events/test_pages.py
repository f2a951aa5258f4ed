"""The page of deliveries, what the runs say of them, and the figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hitl.events.sender import deliver
from hitl.project import stored
from hitl.service.web.operating import ProjectFigures
from tests.events.receivers import SECRET, receiving
from tests.service.web.served import Served, run, serving, small


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A project that tells two addresses; one of them is down."""
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    config = small().written(tmp_path / "p")
    with receiving() as to, receiving(503) as down:
        text = config.read_text().replace("0.97", "0.6")
        chat = f'[[events]]\nname = "chat"\nurl = "{down.url}"\ntemplate = "slack"\n'
        config.write_text(f'{text}[[events]]\nname = "ci"\nurl = "{to.url}"\n{chat}')
        run(config)
        with stored(config) as (settings, store):
            deliver(settings, store)
        with serving(config) as found:
            yield found


def test_the_page_and_its_rows(served: Served) -> None:
    page = served.html("/projects/p/deliveries")
    assert "items.decided" in page
    assert "503 Service Unavailable" in page
    found = served.json("/projects/p/deliveries")
    assert {(row["address"], row["state"]) for row in found["rows"]} == {("ci", "delivered"), ("chat", "waiting")}
    assert [row["address"] for row in found["addresses"]] == ["ci", "chat"]
    assert len(served.csv("/projects/p/deliveries")) == 2
    assert len(served.json("/projects/p/deliveries", size=1)["rows"]) == 1
    runs = served.html("/projects/p/runs")
    assert 'href="/projects/p/deliveries"' in runs
    assert "1 arrived" in runs
    for text in (page, runs, str(found)):
        assert "secret-part" not in text
        assert SECRET[8:20] not in text


def test_figures(served: Served) -> None:
    registry = CollectorRegistry()
    registry.register(ProjectFigures(served.projects))
    text = generate_latest(registry).decode()
    assert 'hitl_events_delivered_total{address="ci",project="p"} 1.0' in text
    assert 'hitl_events_waiting{address="chat",project="p"} 1.0' in text
    assert 'hitl_events_failed_total{address="chat",project="p"} 0.0' in text
    assert "127.0.0.1" not in text


def test_a_project_that_tells_nobody(tmp_path: Path) -> None:
    config = small().written(tmp_path / "q")
    run(config)
    with serving(config) as found:
        assert "Nobody is told" in found.html("/projects/p/deliveries")
        assert "deliveries" not in found.html("/projects/p/runs")
        assert found.csv("/projects/p/deliveries") == []
