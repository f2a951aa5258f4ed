"""A cycle whose consensus has its matrices by factors plans, stores and shows what one with whole matrices does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.hierarchy import counted_by_cells
from hitl.project import stored_evidence
from hitl.store import Store
from hitl.tables.factored_rows import FactoredTable
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


def test_it_is_that_of_whole_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_tables, profiles, shown = ran(tmp_path / "tables")
    monkeypatch.setattr(counted_by_cells, "LARGE", 1)
    monkeypatch.setattr(counted_by_cells, "BLOCK", 1)
    by_factors, profiles_by_factors, shown_by_factors = ran(tmp_path / "factors")
    assert isinstance(by_factors.annotators.confusion, FactoredTable)
    assert isinstance(by_tables.annotators.confusion, np.ndarray)
    np.testing.assert_allclose(by_factors.probabilities, by_tables.probabilities, atol=1e-9)
    np.testing.assert_allclose(by_factors.annotators.confusion, by_tables.annotators.confusion, atol=1e-9)
    numbers = (frame.select_dtypes("number").astype(float) for frame in (profiles_by_factors, profiles))
    np.testing.assert_allclose(*numbers, atol=1e-6)
    assert shown_by_factors == shown
