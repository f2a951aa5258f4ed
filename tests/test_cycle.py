"""A cycle as a whole: what it comes to, and that a crash anywhere changes nothing of it."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle, score
from hitl.connectors.tables import Tables
from hitl.demo.recorded import QUESTION, RecordedPeople, rte
from hitl.errors import Busy
from hitl.settings import Settings
from hitl.store import Store

ANNOTATIONS = "item,annotator,label\n" + "".join(
    f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}\n" for n in range(9) for who in ("ann", "bob", "cyd")
)

KILLED = """
import os, signal, sys
from pathlib import Path
from hitl import cycle
from hitl.connectors import tables
from hitl.store import Store
from tests.test_cycle import settings

tables.PAGE = 4
events = 0

def kill_at(what, done, total):
    global events
    events += 1
    if events == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
with Store(f"sqlite:///{folder}/hitl.db") as store:
    cycle.run(settings(), store, tables.Tables(folder), kill_at)
print(events)
"""


def settings(**changes: Any) -> Settings:
    budget = {"labels": 6, "target_confidence": 0.97}
    crew = {"annotators": ("dee", "eve"), "capacity": 4}
    return Settings(name="p", source={"kind": "tables", "path": "."}, budget=budget, crew=crew, **changes)  # type: ignore[arg-type]


def folder_with_tables(folder: Path) -> Path:
    folder.mkdir()
    (folder / "annotations.csv").write_text(ANNOTATIONS)
    (folder / "items.csv").write_text("item,text\n" + "".join(f"{n},text {n}\n" for n in range(12)))
    return folder


def run_until(folder: Path, event: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, str(folder), str(event)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)


def state(folder: Path) -> dict[str, bytes]:
    """Everything the platform shows."""
    root = folder / "hitl-output"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_kill_between_any_two_steps_then_run_ends_in_the_same_state(tmp_path: Path) -> None:
    whole = folder_with_tables(tmp_path / "whole")
    finished = run_until(whole, 0)
    assert finished.returncode == 0, finished.stderr
    events = int(finished.stdout)
    assert events > 12
    for event in range(1, events + 1):
        folder = folder_with_tables(tmp_path / f"killed-{event}")
        assert run_until(folder, event).returncode == -signal.SIGKILL
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            cycle.run(settings(), store, Tables(folder))
            assert store.pending("p") == []
        assert state(folder) == state(whole), f"killed at event {event}"


def test_a_cycle_asks_the_crew_within_capacity_and_closes_what_is_done(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        report = cycle.run(settings(), store, Tables(folder))
    plan = report.judgement.plan
    assert len(plan.asks) == 6
    assert {len(plan.asks_of(name)) for name in ("dee", "eve")} <= {2, 3, 4}
    wanted = {r.operation.kind: r.operation.payload for r in report.receipts}["labels_wanted"]["items"]
    for ask in plan.asks:
        assert wanted[ask.item] == (4 if int(str(ask.item)) < 9 else 1)
    for done in plan.done:
        assert wanted[done.item] == 3
    assert report.judgement.metrics["labels"] == 27


def test_an_annotator_without_new_work_is_told_so(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(settings(), store, Tables(folder))
        assert (folder / "hitl-output/assignments/dee.csv").read_text().count("\n") > 1
        alone = settings().model_copy(update={"crew": settings().crew.model_copy(update={"annotators": ("eve",)})})
        cycle.run(alone, store, Tables(folder))
    assert (folder / "hitl-output/assignments/dee.csv").read_text().count("\n") == 1
    assert (folder / "hitl-output/assignments/eve.csv").read_text().count("\n") > 1


def test_two_cycles_at_once_are_refused(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store, store.lease("p"), pytest.raises(Busy, match="is held by"):
        cycle.run(settings(), store, Tables(folder))
    assert state(folder) == {}


def test_the_loop_reaches_the_accuracy_of_all_labels_with_half_of_them(tmp_path: Path) -> None:
    """Recorded people answer whoever is asked; the whole loop with the real store, to the end."""
    recorded = rte()
    people = RecordedPeople(recorded.annotations, {})
    rte_settings = Settings(
        name="rte",
        source={"kind": "tables", "path": "."},  # type: ignore[arg-type]
        budget={"labels": 200, "target_confidence": 0.9},  # type: ignore[arg-type]
        push={"consensus": False, "order": False, "labels_wanted": False},  # type: ignore[arg-type]
    )
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        for _ in range(60):
            before = people.spent
            judgement = cycle.run(rte_settings, store, people, crew=people.crew()).judgement
            if people.spent == before:
                break
        assert store.counts("rte")["annotations"] == people.spent
    truth = recorded.truth
    assert truth is not None
    assert len(judgement.plan.done) + len(judgement.plan.asks) == 800 or not judgement.plan.asks
    assert people.spent < 0.55 * len(recorded.annotations)
    assert score.accuracy(judgement.results[QUESTION].probabilities, truth) > 0.9
    assert np.isclose(judgement.metrics["labels"], people.spent)


def test_the_last_digits_of_a_fit_do_not_change_what_is_shown(tmp_path: Path) -> None:
    """Sums differ in the last bits from run to run; that must not push the consensus again."""
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        judgement = cycle.run(settings(), store, Tables(folder)).judgement
        (name,) = judgement.results

        def shifted(by: float) -> cycle.Judgement:
            result = judgement.results[name]
            p = result.probabilities.copy()
            p[0] += by * np.where(np.arange(p.shape[1]) == result.labels[0], -1, 1)
            moved = dataclasses.replace(result, probabilities=p)
            return dataclasses.replace(judgement, results={name: moved})

        shown = {operation.kind: operation.digest for operation, _ in store.operations("p")}
        for by, same in ((1e-7, True), (1e-3, False)):
            *_, again = cycle.operations_of(settings().push, store, "p", shifted(by))
            assert (again.digest == shown["consensus"]) is same
