"""With many classes annotators keep one accuracy each and share their errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hitl import Consensus, Evidence
from hitl.evidence import Annotations
from hitl.models import DefaultCombiner
from hitl.models.hierarchy import shared_error_fit
from hitl.models.hierarchy.counted import Left, Pairs, Weighed, shares_before
from hitl.models.hierarchy.shared_error_fit import fit_shared_errors, has_few_labels_for_its_classes
from hitl.models.inference.observed_outputs import Outputs
from hitl.tables.shared_errors import SharedErrors
from tests.bench.scale.classes import crowd


def test_learned_numbers_are_their_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """By plain loops over labels, with the strengths held: the posterior means of accuracies and of errors."""
    monkeypatch.setattr(shared_error_fit, "STRENGTHS", np.array([8.0]))
    monkeypatch.setattr(shared_error_fit, "strength", lambda *_: 8.0)
    evidence = crowd(6, 40, 4, 3)
    a, rng = evidence.annotations, np.random.default_rng(0)
    weighed = Weighed.of(evidence, Pairs.of(evidence), 0.0)
    q_nj = rng.dirichlet(np.ones(6), size=40)
    found = shared_error_fit._Labels(a, weighed).learn(q_nj, 0.75)
    right, said, errors = np.zeros(4), np.zeros(4), np.zeros((6, 6))
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        u = weighed.weight_n[n]
        right[k] += u * q_nj[n, label]
        said[k] += u
        for j in range(6):
            errors[j, label] += u * q_nj[n, j] if j != label else 0.0
    accuracy = (20 * 0.75 + right.sum()) / (20 + said.sum())
    np.testing.assert_allclose(found.right_k, (8 * accuracy + right) / (8 + said))
    expected = (errors + 8 / 5) / (errors.sum(axis=1, keepdims=True) + 8)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(np.asarray(found.of(np.zeros(1)))[0], expected, atol=1e-12)


def test_iterations_end_where_nothing_moves() -> None:
    evidence = crowd(12, 200, 6, 4)
    outputs = Outputs.of(evidence)
    weighed = Weighed.of(evidence, Pairs.of(evidence), 0.0)
    prior = outputs.beside(shares_before(Left.by_weights(evidence, weighed), weighed.weight_n, 0.0, outputs.share_j))
    everything = np.ones(200, dtype=bool)
    found = fit_shared_errors(evidence, np.full((200, 12), 1 / 12), prior, weighed, everything, 0.75)
    again = fit_shared_errors(evidence, found.q_nj.copy(), found.prior, weighed, everything, 0.75)
    assert found.converged
    np.testing.assert_allclose(again.q_nj, found.q_nj, atol=1e-4)


@pytest.fixture(scope="module")
def fitted() -> tuple[Evidence, Consensus]:
    evidence = crowd(200, 1500, 200, 3)
    assert has_few_labels_for_its_classes(evidence.annotations)
    return evidence, DefaultCombiner().fit(evidence)


def test_the_default_takes_it_and_is_right_more_often_than_votes(fitted: tuple[Evidence, Consensus]) -> None:
    evidence, consensus = fitted
    truth = np.random.default_rng(0).integers(200, size=1500)  # as `crowd` draws it
    a = evidence.annotations
    votes = np.zeros((1500, 200))
    np.add.at(votes, (a.item, a.label), 1)
    assert isinstance(consensus.annotators.confusion, SharedErrors)
    assert (consensus.codes == truth).mean() > (votes.argmax(axis=1) == truth).mean() + 0.01
    accuracy = np.random.default_rng(0)
    accuracy.integers(200, size=1500)
    skill = accuracy.uniform(0.6, 0.9, size=200)
    assert np.corrcoef(consensus.annotators.accuracy, skill)[0, 1] > 0.5


def test_it_is_saved_and_judges_other_items(fitted: tuple[Evidence, Consensus]) -> None:
    evidence, consensus = fitted
    loaded = Consensus.from_bytes(consensus.to_bytes())
    np.testing.assert_array_equal(loaded.annotators.confusion, consensus.annotators.confusion)
    applied = DefaultCombiner().apply(loaded, evidence)
    np.testing.assert_allclose(applied.probabilities, consensus.probabilities, atol=1e-9)
    few = Annotations.from_matrix([[0, 0], [3, -1]], classes=list(evidence.annotations.classes))
    assert DefaultCombiner().apply(consensus, Evidence(few)).codes.tolist() == [0, 3]


def test_how_likely_errors_are_is_dirichlet_multinomial() -> None:
    """Against scipy's distribution, whose likelihood has a factor that no strength changes."""
    counts = np.array([[0, 3, 1, 0, 0], [2, 0, 0, 0, 5]])
    found = shared_error_fit._dirichlet_multinomial(counts[counts > 0].astype(float), counts.sum(axis=1) * 1.0, 1 / 5)
    expected = [
        sum(stats.dirichlet_multinomial.logpmf(row, np.full(5, s / 5), row.sum()) for row in counts)
        for s in shared_error_fit.STRENGTHS
    ]
    np.testing.assert_allclose(np.diff(found), np.diff(expected))
