"""Gains, matrices of the crew, plans and forecasts by factors are those by whole tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active import ExpectedGain
from hitl.active.acquisition import gain_by_factors
from hitl.active.acquisition.expected_gain import (
    accuracy_bound,
    accuracy_gain,
    information_bound,
    information_gain,
)
from hitl.active.acquisition.value_of_information import average_confusion, best_next, crew_confusion
from hitl.active.stopping.forecast import forecast
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.tables.factored_rows import FactoredTable, as_array
from hitl.testing import crowd
from tests.core.factored_tables import some_chances
from tests.oracles import Floats

SHAPES = [(4, 5, 7), (3, 6, 6), (1, 2, 3)]


def beliefs(classes: int) -> Floats:
    """(R, J) sure and unsure ones, one of them certain."""
    raw = np.exp(np.random.default_rng(0).normal(0, 3, size=(20, classes)))
    raw[0] = np.eye(classes)[0]
    return raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gains_are_those_of_whole_tables(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    table, q_rj = some_chances(np.random.default_rng(1), *shape), beliefs(shape[1])
    whole = np.asarray(table)
    for gain in (information_gain, accuracy_gain):
        np.testing.assert_allclose(gain(q_rj, as_array(table)), gain(q_rj, whole), atol=1e-9)
    monkeypatch.setattr(gain_by_factors, "ANSWERS", 3 * whole[:, 0].size)  # three items at a time
    for gain in (information_gain, accuracy_gain):
        np.testing.assert_allclose(gain(q_rj, as_array(table)), gain(q_rj, whole), atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_gain_exceeds_its_bound(shape: tuple[int, int, int]) -> None:
    table, q_rj = as_array(some_chances(np.random.default_rng(2), *shape)), beliefs(shape[1])
    for gain, bound in ((information_gain, information_bound), (accuracy_gain, accuracy_bound)):
        most_r, bound_r = gain(q_rj, table).max(axis=1), bound(q_rj, table)
        assert (most_r <= bound_r + 1e-9).all()
        assert (bound(q_rj, np.asarray(table)) <= bound_r + 1e-9).all()  # the one of whole tables is closer


def test_the_entropy_of_rows_counts_their_cells() -> None:
    table = some_chances(np.random.default_rng(3))
    whole = np.asarray(table)
    np.testing.assert_allclose(gain_by_factors.row_entropy(table), -(whole * np.log(whole)).sum(axis=2), rtol=1e-12)


def test_classes_that_are_next_to_impossible_are_left_out() -> None:
    table = some_chances(np.random.default_rng(4), classes=5)
    q_rj = np.array([[0.6, 0.4, 0, 0, 0]])
    nearly = q_rj + np.array([[0, 0, 4e-12, 4e-12, 4e-12]])  # 5 LEAST is 5e-12
    for gain in (information_gain, accuracy_gain):
        np.testing.assert_array_equal(gain(q_rj, as_array(table)), gain(nearly, as_array(table)))


# -- a plan --------------------------------------------------------------------------------------------------


def judged() -> tuple[Evidence, Consensus, Consensus]:
    """Evidence, its consensus by factors, and the same by whole tables."""
    evidence, _ = crowd(np.random.default_rng(5), n_items=40, n_annotators=4, n_classes=5, n_options=6, asked=0.5)
    consensus, table = DefaultCombiner().fit(evidence), some_chances(np.random.default_rng(6), 4, 5, 6)
    people = replace(consensus.annotators, concentration=as_array(table), confusion=as_array(table))
    whole = replace(people, concentration=np.asarray(table), confusion=np.asarray(table))
    return evidence, replace(consensus, annotators=people), replace(consensus, annotators=whole)


def crew_of(named: bool) -> Crew:
    """Three who are known and one who is not, or anyone."""
    return Crew(("k2", "newcomer", "k0", "k1"), default_capacity=9) if named else Crew()


@pytest.mark.parametrize("named", [False, True], ids=["anyone", "named"])
def test_the_matrices_of_a_crew(named: bool) -> None:
    _, by_factors, by_tables = judged()
    found = crew_confusion(by_factors, crew_of(named))
    assert isinstance(found, FactoredTable)
    np.testing.assert_allclose(found, crew_confusion(by_tables, crew_of(named)), rtol=1e-12)
    np.testing.assert_allclose(average_confusion(by_factors), average_confusion(by_tables), rtol=1e-12)


@pytest.mark.parametrize("named", [False, True], ids=["anyone", "named"])
def test_plans_and_forecasts_are_those_of_whole_tables(named: bool) -> None:
    evidence, *forms = judged()
    crew, budget = crew_of(named), Budget(open_questions=12, target_confidence=0.95)
    plans = [ExpectedGain(audit_share=0.1).plan([(evidence, consensus)], crew, budget) for consensus in forms]
    asked = [[(ask.item, ask.annotator, round(ask.gain, 8), round(ask.right, 8)) for ask in p.asks] for p in plans]
    assert asked[0] == asked[1]
    assert len(asked[0]) == 12
    rows = np.arange(40)
    worth = [best_next([(evidence, consensus)], rows, crew, budget) for consensus in forms]
    assert worth[0] == pytest.approx(worth[1])
    if not named:  # else matrices are drawn, but for those by factors
        seen = [forecast([(evidence, consensus)], crew, budget) for consensus in forms]
        assert seen[0].labels == pytest.approx(seen[1].labels)
