"""Steps of a chain from answers to consecutive items: against the chain that made them, and plain least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from hitl import Annotations, Evidence
from hitl.errors import BadEvidence
from hitl.models import DawidSkene, SequentialDawidSkene
from hitl.models.priors.markov_chain import Sequences
from hitl.models.sequences.cross_moments import joint_shares, with_chain
from tests.models.sequences.test_sequential import macro_f, simulated

J = 4


def alone(evidence: Evidence) -> Evidence:
    return Evidence(evidence.annotations)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_chain_that_made_the_answers(seed: int) -> None:
    evidence, _, chain, log_pi_klj = simulated(10_000, seed)
    people = DawidSkene().fit(alone(evidence))
    known = replace(people, annotators=replace(people.annotators, confusion=np.exp(log_pi_klj).transpose(0, 2, 1)))
    found = with_chain(evidence, known).parameters["steps"]
    assert np.abs(found - chain.step_ij).max() < 0.05
    estimated = with_chain(evidence, people).parameters["steps"]
    assert np.abs(estimated - chain.step_ij).max() < 0.12


def test_no_other_shares_fit_the_moments_better() -> None:
    """By a general minimiser over the simplex, of the sum over all pairs of labels as it is written."""
    evidence, _, _, _ = simulated(60, 5)
    gaps = np.random.default_rng(0).random(len(evidence.annotations)) < 0.4
    evidence = replace(evidence, annotations=evidence.annotations.select(gaps))
    people = DawidSkene().fit(alone(evidence))
    assert evidence.sequence is not None
    order = Sequences(evidence.sequence)
    labels = evidence.annotations
    said: list[list[tuple[int, int]]] = [[] for _ in range(60)]
    for item, annotator, code in zip(labels.item, labels.annotator, labels.label, strict=True):
        said[item].append((annotator, code))
    pi_kjl = people.annotators.confusion

    def misfit(a: np.ndarray) -> float:  # type: ignore[type-arg]
        total = 0.0
        for t, (n, m) in enumerate(zip(order.rows, order.rows[1:], strict=False)):
            if not order.follows[t]:
                continue
            for k, one in said[n]:
                for h, other in said[m]:
                    shown = np.zeros((J, J))
                    shown[one, other] = 1
                    total += ((shown - pi_kjl[k].T @ a.reshape(J, J) @ pi_kjl[h]) ** 2).sum()
        return total

    found = joint_shares(evidence, people, order)
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    best = minimize(
        misfit,
        np.full(J * J, 1 / J**2),
        bounds=[(0, 1)] * J**2,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
        method="SLSQP",
        options={"maxiter": 30},
    )
    assert misfit(found.ravel()) <= best.fun * (1 + 1e-5)


def test_it_is_a_start_for_em_and_judges_better_than_items_alone() -> None:
    evidence, truth, _, _ = simulated(3000, 7, sticky=0.8, right=(0.05, 0.45))
    people = DawidSkene().fit(alone(evidence))
    start = with_chain(evidence, people)
    judged = SequentialDawidSkene().apply(start, evidence)
    assert macro_f(truth, judged.probabilities) > macro_f(truth, people.probabilities) + 0.02
    begun, cold = SequentialDawidSkene().fit(evidence, start=start), SequentialDawidSkene().fit(evidence)
    assert macro_f(truth, begun.probabilities) > macro_f(truth, cold.probabilities) - 0.003
    assert begun.fit.iterations <= cold.fit.iterations


def test_what_is_missing_is_said() -> None:
    labels = Annotations.from_matrix([[0, 0], [1, 1]])
    people = DawidSkene().fit(Evidence(labels))
    with pytest.raises(BadEvidence, match="need the sequence of the items"):
        with_chain(Evidence(labels), people)
    with pytest.raises(BadEvidence, match="two consecutive items with labels"):
        with_chain(Evidence(labels, sequence=np.array([[0, 0], [1, 0]])), people)
