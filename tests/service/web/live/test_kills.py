"""A service that is killed in the middle of webhooks has lost none: the store has the answer, or the hint of it."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from hitl.connectors.catalog import CONNECTORS
from tests.bench.service.webhooks import Run, process, send, stored, waits
from tests.service.web.live.serving import cycle, tables, until
from tests.store.conftest import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_in_the_middle_of_webhooks(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The long form: `python -m tests.bench.service.webhooks`."""
    url = f"sqlite:///{tmp_path}/p/hitl.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    monkeypatch.setitem(CONNECTORS.own, "tables", "tests.bench.service.platform:Growing")  # type: ignore[arg-type]
    config = tables(tmp_path / "p", 50, url)
    cycle(config)
    run = Run()
    with process(config) as (running, port):
        asyncio.run(send(port, config, Run(), 20, 0.2, first=10_000))  # it serves
        threading.Timer(0.6, running.send_signal, (signal.SIGKILL,)).start()
        asyncio.run(send(port, config, run, 80, 1.0, items=50))
        assert running.wait(30) == -signal.SIGKILL
    accepted = {(one.item, one.annotator) for one in run.sent if one.status == 200}
    assert accepted
    assert len(accepted) < len(run.sent)
    assert accepted <= stored(url) or waits(url)
    with process(config):
        until(lambda: accepted <= stored(url) and not waits(url))
