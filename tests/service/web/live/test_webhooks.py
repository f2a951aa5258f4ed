"""Webhooks over a real server: hints are durable, cause a look, and change nothing wrong."""

from __future__ import annotations

from pathlib import Path

from tests.service.web.live.serving import answer, cycle, served, tables, until


def test_an_answer_and_its_hint_change_a_belief(tmp_path: Path) -> None:
    config = tables(tmp_path / "p")
    cycle(config)
    with served(config) as service:
        before = service.belief("i4").copy()
        answer(config, "i4,dee,yes", "i4,eve,yes", "i4,fay,yes")
        assert service.hint() == (200, {"queued": True})
        until(lambda: service.belief("i4")[1] > before[1] + 0.05)
        assert service.live.figures("p").labels >= 1
        until(lambda: service.projects["p"].store.hint("p") is None)
