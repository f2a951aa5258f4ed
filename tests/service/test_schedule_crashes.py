"""Schedulers killed with SIGKILL at random points: no cycle is lost, none runs twice. `tests/crashing.py` says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import results
from tests.store.conftest import postgres, postgres_url, sqlite_url, url

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("HITL_KILLS", "10"))
"""How many on SQLite, and half of it on PostgreSQL; `make bench-schedule_crashes` kills a hundred on each."""

__all__ = ["postgres", "postgres_url", "sqlite_url", "url"]


def crashed(folder: Path, url: str, kills: int, seed: int) -> dict[str, Any]:
    """In a process that has no threads, which it may fork."""
    one_thread = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.crashing", str(folder), url, str(kills), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | one_thread, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.journey
def test_no_cycle_is_lost_and_none_runs_twice_whenever_the_scheduler_is_killed(tmp_path: Path, url: str) -> None:
    kills = KILLS if url.startswith("sqlite") else (KILLS + 1) // 2
    figures = crashed(tmp_path / "p", url, kills, seed=20261120)
    assert figures["kills"] == kills
    assert figures["lost"] == []
    assert figures["twice"] == []
    assert figures["same"], "the platform shows something else than without kills"


def test_the_kept_figures_are_those_of_the_documents() -> None:
    figures = results.load("schedule_crashes")
    assert set(figures) == {"SQLite", "PostgreSQL"}
    for found in figures.values():
        assert (found["kills"], found["lost"], found["twice"], found["same"]) == (100, [], [], True)
    assert "killed at a hundred random points" in (ROOT / "docs" / "howto" / "schedule.md").read_text()


@pytest.mark.journey
def test_the_command_itself_killed_in_a_cycle_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """`hitl schedule`, killed between recording and pushing, and started again."""
    from hitl.store import Store
    from tests.scheduled import project

    config = project(tmp_path / "p", 'every = "10h"')
    code = (
        "import os, signal, sys; from hitl import cycle; record = cycle.record\n"
        "def die(*a):\n    record(*a); os.kill(os.getpid(), signal.SIGKILL)\n"
        "cycle.record = die; sys.argv = ['hitl', 'schedule', '--json']; from hitl.cli import main; main()"
    )
    killed = subprocess.run([sys.executable, "-c", code], cwd=config.parent, capture_output=True, check=False)
    assert killed.returncode == -9
    with Store(f"sqlite:///{config.parent}/hitl.db") as store:
        assert len(store.cycles("p")) == 1
        assert len(store.pending("p")) == 3
    command = [sys.executable, "-m", "hitl", "schedule", "--json"]
    process = subprocess.Popen(command, cwd=config.parent, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    jobs, began, done = (json.loads(process.stderr.readline()) for _ in range(3))
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert (jobs["jobs"][0]["kind"], began["event"], done["event"]) == ("every", "began", "done")
    assert done["operations"] == 3
    with Store(f"sqlite:///{config.parent}/hitl.db") as store:
        assert [cycle.metrics["due"] for cycle in store.cycles("p")] == [began["due"]]
        assert store.pending("p") == []
