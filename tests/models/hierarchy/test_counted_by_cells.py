"""A fit by cells is the fit by whole tables, without the tables."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.hierarchy import counted_by_cells, hierarchical_dawid_skene
from hitl.models.hierarchy.counted import Counted
from hitl.models.hierarchy.counted_by_cells import FULL, CountedByCells, is_by_cells
from hitl.tables.factored_rows import FactoredTable
from hitl.testing import crowd

CROWDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "answers that are no class": {"n_options": 33},
    "known truth": {"known": 0.2},
    "a model": {"models": 1, "abstaining": 0.3},
    "everything": {"n_options": 31, "known": 0.1, "models": 2, "abstaining": 0.2, "unlabeled": 4, "pool": 20},
    "one label an item": {"asked": 0.2},
    "two classes": {"n_classes": 2},
}


def some(seed: int = 0, **kind: Any) -> Evidence:
    shape = {"n_items": 80, "n_annotators": 6, "n_classes": 30} | kind
    return crowd(np.random.default_rng(seed), **shape)[0]


def fitted(
    form: type, monkeypatch: pytest.MonkeyPatch, evidence: Evidence, start: Consensus | None = None
) -> Consensus:
    with monkeypatch.context() as patch:
        patch.setattr(hierarchical_dawid_skene, "is_by_cells", lambda _: form is CountedByCells)
        return DefaultCombiner().fit(evidence, start=start)


def with_whole_tables(consensus: Consensus) -> Consensus:
    people = consensus.annotators
    whole = {name: np.asarray(getattr(people, name)) for name in ("concentration", "confusion")}
    return replace(consensus, annotators=replace(people, **whole))


def assert_same(found: Consensus, expected: Consensus, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=atol)
    np.testing.assert_allclose(found.class_shares, expected.class_shares, atol=atol)
    for name in ("concentration", "confusion", "accuracy", "prior"):
        there, here = getattr(expected.annotators, name), np.asarray(getattr(found.annotators, name))
        np.testing.assert_allclose(here, there, rtol=atol, atol=atol)
    assert found.design_effect.rho == pytest.approx(expected.design_effect.rho, abs=1e-7)  # a minimum found in steps


@pytest.mark.parametrize("kind", CROWDS.values(), ids=CROWDS)
def test_both_forms_find_the_same(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = some(**kind)
    by_tables, by_cells = (fitted(form, monkeypatch, evidence) for form in (Counted, CountedByCells))
    assert isinstance(by_cells.annotators.concentration, FactoredTable)
    assert isinstance(by_tables.annotators.concentration, np.ndarray)
    known = evidence.known.any()
    assert_same(by_cells, by_tables, 1e-6 if known else 1e-9)
    np.testing.assert_allclose(by_cells.fit.objective, by_tables.fit.objective, rtol=1e-10)
    again = [fitted(form, monkeypatch, some(1, **kind), by_tables) for form in (Counted, CountedByCells)]
    assert_same(*again[::-1], 1e-6 if known else 1e-9)


def test_steps_with_momentum_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, momenta, ahead = some(n_items=150, n_classes=12, accuracy=(0.2, 0.5)), [], counted_by_cells._ahead

    def noted(q_nj: Floats, last_nj: Floats, momentum: float) -> Floats:
        momenta.append(momentum)
        return ahead(q_nj, last_nj, momentum)

    monkeypatch.setattr(counted_by_cells, "_ahead", noted)
    by_tables, by_cells = (fitted(form, monkeypatch, evidence) for form in (Counted, CountedByCells))
    assert max(momenta) > 0.5
    np.testing.assert_allclose(by_cells.fit.objective, by_tables.fit.objective, rtol=1e-11)
    assert_same(by_cells, by_tables)


@pytest.mark.parametrize("kind", [{}, {"models": 1}], ids=["annotators", "a model"])
def test_what_was_learned_judges_other_items(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learned, evidence = fitted(CountedByCells, monkeypatch, some(**kind)), some(1, **kind)
    evidence = replace(evidence, annotations=_with_a_newcomer(evidence.annotations))
    found, expected = (DefaultCombiner().apply(one, evidence) for one in (learned, with_whole_tables(learned)))
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-9)


def _with_a_newcomer(annotations: Annotations) -> Annotations:
    names = (*annotations.annotators[:-1], "a newcomer")
    return replace(annotations, annotators=names)


# -- which form, and how large -------------------------------------------------------------------------------


def test_the_form_goes_by_the_size_of_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    a, full = some(n_annotators=8, n_classes=60), some(n_annotators=8, n_classes=60, n_items=1000)
    assert len(a.annotations) < FULL * 8 * 60 <= len(full.annotations)
    monkeypatch.setattr(counted_by_cells, "LARGE", 8 * 60 * 60)
    monkeypatch.setattr(counted_by_cells, "BLOCK", 60)
    assert is_by_cells(a.annotations)
    assert not is_by_cells(full.annotations)  # labels in every row
    monkeypatch.setattr(counted_by_cells, "BLOCK", 61)
    assert not is_by_cells(a.annotations)
    monkeypatch.setattr(counted_by_cells, "BLOCK", 60)
    monkeypatch.setattr(counted_by_cells, "LARGE", 8 * 60 * 60 + 1)
    assert not is_by_cells(a.annotations)


def test_two_thousand_classes_and_fifty_annotators_need_less_than_half_a_table() -> None:
    """A whole table of their matrices takes 1.6 GB; the consensus keeps two of them."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(400), 4)
    truth = rng.integers(2000, size=400)[item]
    label = np.where(rng.random(1600) < 0.8, truth, rng.integers(2000, size=1600))
    said = {"item": item, "annotator": rng.permuted(np.tile(np.arange(50), 32)), "label": label}
    evidence = Evidence(Annotations.from_frame(_first_answers(said), classes=range(2000)))
    tracemalloc.start()
    found = DefaultCombiner().fit(evidence)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.5 * 50 * 2000 * 2000 * 8
    table = found.annotators.concentration
    assert isinstance(table, FactoredTable)
    assert table.nbytes < 100e6
    assert len(found.to_bytes()) < 100e6
    assert (found.labels == truth[np.unique(item, return_index=True)[1]]).mean() > 0.8


def _first_answers(said: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(said).drop_duplicates(["item", "annotator"])
