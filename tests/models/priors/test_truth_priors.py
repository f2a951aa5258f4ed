"""Truth priors: known truth is evidence, also for neighbours; statistics add up; learning climbs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import Confusion, accurate_pseudo_counts
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference import em
from hitl.models.priors.calibrated import Calibrated
from tests import oracles
from tests.models.priors.chains import ToyChain


def chain_of_three(truth: tuple[int, ...]) -> Evidence:
    """Three items, nobody has labeled the last two; one annotator has labeled the first."""
    annotations = Annotations(
        np.array([0], np.int32),
        np.array([0], np.int32),
        np.array([1], np.int32),
        (0, 1, 2),
        ("k",),
        ("a", "b"),
        ("a", "b"),
    )
    return Evidence(annotations, truth=np.array(truth, np.int32))


STAY = ToyChain(np.array([0.5, 0.5]), np.array([[0.95, 0.05], [0.05, 0.95]]))


def enumerated(chain: ToyChain, evidence: Evidence, pi_kjl: Floats) -> tuple[Floats, float, Floats]:
    """Marginals, log evidence and expected transitions, over all truths that agree with what is known."""
    annotations = evidence.annotations
    n_items, j = annotations.n_items, annotations.n_classes
    q_nj, pairs, total = np.zeros((n_items, j)), np.zeros((j, j)), 0.0
    for z in product(range(j), repeat=n_items):
        if any(t >= 0 and t != z[n] for n, t in enumerate(evidence.truth)):
            continue
        p = chain.start_j[z[0]] * np.prod([chain.step_ij[a, b] for a, b in pairwise(z)])
        for n, k, said in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
            p *= pi_kjl[k, z[n], said]
        total += p
        for n, c in enumerate(z):
            q_nj[n, c] += p
        for a, b in pairwise(z):
            pairs[a, b] += p
    return q_nj / total, float(np.log(total)), pairs / total


def test_neighbours_learn_of_known_truth() -> None:
    evidence = chain_of_three((0, -1, -1))
    pi_kjl = np.array([[[0.8, 0.2], [0.3, 0.7]]])
    found = em.expectation(evidence, STAY, np.log(pi_kjl).transpose(0, 2, 1))
    q_nj, log_evidence, pairs = enumerated(STAY, evidence, pi_kjl)
    np.testing.assert_allclose(found.q_nj, q_nj, atol=1e-12)
    np.testing.assert_allclose(found.q_nj[:, 0], [1, 0.95, 0.95**2 + 0.05**2], atol=1e-12)
    assert found.log_evidence == pytest.approx(log_evidence, abs=1e-12)
    np.testing.assert_allclose(found.statistics, pairs, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_runs_through_the_one_loop(seed: int) -> None:
    """The objective never falls, and the E-step is the enumeration at the end."""
    rng = np.random.default_rng(seed)
    evidence, _ = oracles.crowd(rng, 6, 3, 2, known=0.3, unlabeled=1)
    start_nj = rng.dirichlet(np.ones(2), size=6)
    pseudo_jl = accurate_pseudo_counts(2, 2, 0.75, 0.2)
    people = Confusion.unlearned(pseudo_jl, 3)
    found = em.run_em(evidence, STAY, people, start_nj, tolerance=1e-10, max_iterations=60)
    assert (np.diff(found.objective) > -1e-9).all()
    pi_kjl = np.exp(found.annotators.log_pi_klj).transpose(0, 2, 1)
    q_nj, log_evidence, _ = enumerated(found.prior, evidence, pi_kjl)
    np.testing.assert_allclose(found.q_nj, q_nj, atol=1e-10)
    expected = log_evidence + found.annotators.log_density() + found.prior.log_density()
    assert found.objective[-1] == pytest.approx(expected, abs=1e-8)


def pool_of(evidence: Evidence) -> Calibrated:
    return Calibrated.from_evidence(evidence, LogTemperature())


def test_the_statistics_of_a_pool_are_gradient_and_curvature() -> None:
    """Of the expected log likelihood in the weights 1 / T, by differences."""
    rng = np.random.default_rng(9)
    evidence, _ = oracles.crowd(rng, 30, 4, 3, models=2, abstaining=0.3)
    q_nj, everything = rng.dirichlet(np.ones(3), size=30), np.ones(30, bool)
    pool = replace(pool_of(evidence), temperature_m=np.array([1.3, 0.7]))

    def likelihood(u_m: Floats) -> float:
        moved = replace(pool, temperature_m=1 / u_m)
        return float(np.sum((q_nj * moved.log_prior())[~pool.abstained_n]))

    found, u_m, h = pool.statistics(q_nj, everything), 1 / pool.temperature_m, 1e-4
    for m in range(2):
        step = h * np.eye(2)[m]
        slope = (likelihood(u_m + step) - likelihood(u_m - step)) / (2 * h)
        assert found.gradient_m[m] == pytest.approx(slope, rel=1e-6)
        bend = (likelihood(u_m + step) - 2 * likelihood(u_m) + likelihood(u_m - step)) / h**2
        assert found.curvature_mm[m, m] == pytest.approx(-bend, rel=1e-4)


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_newton_steps_of_a_pool_end_at_its_mode(models: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, truth = oracles.crowd(rng, 200, 4, 3, models=models, abstaining=0.2)
    truth_nj, everything = np.eye(3)[truth], np.ones(200, bool)
    pool = pool_of(evidence)
    expected = pool.fitted_to(pool.likelihood(truth_nj, everything), np.zeros(3))
    for _ in range(60):
        pool = pool.learn(pool.statistics(truth_nj, everything))
    np.testing.assert_allclose(pool.temperature_m, expected.temperature_m, rtol=2e-3)
    again = pool.learn(pool.statistics(truth_nj, everything))
    np.testing.assert_allclose(again.temperature_m, pool.temperature_m, rtol=1e-6)
