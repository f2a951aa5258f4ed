"""A run whose annotators share their errors plans, stores and pushes as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.hierarchy import shared_error_fit
from hitl.project import stored_evidence
from hitl.store import Store
from hitl.tables.shared_errors import SharedErrors
from tests.projects import NOON, settings, state

CLASSES, PEOPLE = 60, ("ann", "bob", "cyd", "dee")


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{n},{who},{n % CLASSES if rng.random() < 0.7 else rng.integers(CLASSES)}\n"
        for n in range(70)
        for who in PEOPLE[n % 2 : n % 2 + 3]
    ]
    folder.mkdir()
    (folder / "annotations.csv").write_text("item,annotator,label\n" + "".join(rows))
    (folder / "items.csv").write_text("item,text\n" + "".join(f"{n},text {n}\n" for n in range(74)))


def ran(folder: Path) -> tuple[Any, Any, dict[str, bytes]]:
    """The consensus that is stored, what its profiles say, and everything the platform shows."""
    write(folder)
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        report = cycle.run(settings(), store, Tables(folder), now=NOON)
        (question,) = report.judgement.results
        evidence = stored_evidence(settings(), store, tuple(Tables(folder).questions()))[question]
        latest = store.latest("p")
    assert latest is not None
    consensus = latest[0][question]
    return consensus, AnnotatorProfiler().fit(evidence, consensus).frame(), state(folder)


def test_a_run_plans_stores_and_pushes_with_shared_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_error_fit, "LARGE", 1)
    monkeypatch.setattr(shared_error_fit, "MANY_CLASSES", 1)
    consensus, profiles, shown = ran(tmp_path / "project")
    assert isinstance(consensus.annotators.confusion, SharedErrors)
    truth = [str(int(item) % CLASSES) for item in consensus.items]
    right = consensus.frame()["label"] == truth
    assert right[consensus.confidence > 0.5].mean() > 0.9
    assert set(profiles["annotator"]) == set(PEOPLE)
    assert {"order.csv", "consensus.csv"} <= set(shown)
