"""The Gaussian process prior against dense integration: beliefs contain an item's own labels once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from hitl.annotations import Floats
from hitl.models.priors.gp import GaussianProcess, Turn


def exact(prior: GaussianProcess, message_nj: Floats) -> tuple[Floats, float]:
    """(N, 2) beliefs and the log evidence, by quadrature over all f of all 2^N truths."""
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    n = len(message_nj)
    g = np.array(list(product(node, repeat=n)))
    w = np.prod(np.array(list(product(weight, repeat=n))), axis=1) / np.sqrt(2 * np.pi) ** n
    f = g @ np.linalg.cholesky(prior.kernel.over(prior.x_nd)).T
    joint_gnj = np.stack((ndtr(-f), ndtr(f)), axis=2) * np.exp(message_nj)
    total_gn = joint_gnj.sum(axis=2)
    z = w @ total_gn.prod(axis=1)
    others_gn = total_gn.prod(axis=1)[:, None] / total_gn
    return np.einsum("g,gn,gnj->nj", w, others_gn, joint_gnj) / z, float(np.log(z))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_beliefs_are_near_those_of_dense_integration(n: int) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        prior = replace(GaussianProcess.unlearned(rng.normal(size=(n, 2)), False), sweeps=200)
        message_nj = rng.normal(scale=1.5, size=(n, 2))
        q_nj, log_evidence = exact(prior, message_nj)
        found = prior.posterior(message_nj.copy(), np.ones(n, bool))
        near = 1e-6 if n == 1 else 0.02  # EP is exact for one item
        np.testing.assert_allclose(found.q_nj, q_nj, atol=near)
        assert abs(found.log_evidence - log_evidence) < near


def test_an_item_that_does_not_count_is_judged_by_the_others_and_its_labels() -> None:
    """As if it had been there and said nothing; then its own labels."""
    rng = np.random.default_rng(5)
    prior = replace(GaussianProcess.unlearned(rng.normal(size=(6, 2)), False), sweeps=200)
    message_nj = rng.normal(size=(6, 2))
    silent_nj = message_nj.copy()
    silent_nj[5] = 0.3
    counted = np.arange(6) < 5
    silent, judged = (prior.posterior(given.copy(), counted) for given in (silent_nj, message_nj))
    expected = silent.q_nj[5] * np.exp(message_nj[5])
    np.testing.assert_allclose(judged.q_nj[5], expected / expected.sum(), atol=1e-9)
    assert judged.log_evidence == pytest.approx(silent.log_evidence)


def test_learning_raises_the_evidence_and_ends_at_a_flat_place() -> None:
    rng = np.random.default_rng(6)
    x_nd = rng.normal(size=(40, 2))
    truth = (x_nd[:, 0] > 0).astype(int)
    message_nj = np.where(np.eye(2)[truth] == 1, 0.0, -2.0)
    prior, everything = replace(GaussianProcess.unlearned(x_nd, True), sweeps=100), np.ones(40, bool)
    trace = []
    for _ in range(12):
        found = prior.posterior(message_nj.copy(), everything)
        trace.append(found.log_evidence + prior.log_density())
        prior = prior.learn(found.statistics)
    assert np.diff(trace).min() > -1e-6
    assert trace[-1] > trace[0] + 1
    assert trace[-1] - trace[-3] < 0.01
    assert prior.kernel.log_length[0] < prior.kernel.log_length[1]
    near = [replace(prior, kernel=prior.kernel.at(prior.kernel.theta + step)) for step in 0.05 * signs(3)]
    at_top = prior.posterior(message_nj.copy(), everything).log_evidence + prior.log_density()
    for other in near:
        assert other.posterior(message_nj.copy(), everything).log_evidence + other.log_density() < at_top + 1e-3


def signs(n: int) -> Floats:
    """(2 n, n) one step up and one down along each axis."""
    return np.vstack((np.eye(n), -np.eye(n)))


def test_the_gradient_of_a_process_is_that_of_differences() -> None:
    rng = np.random.default_rng(7)
    prior = replace(GaussianProcess.unlearned(rng.normal(size=(15, 2)), True), sweeps=300)
    message_nj, everything = rng.normal(scale=2, size=(15, 2)), np.ones(15, bool)

    def value(theta: Floats) -> float:
        at = replace(prior, kernel=prior.kernel.at(theta))
        return at.posterior(message_nj.copy(), everything).log_evidence + at.log_density()

    theta = prior.kernel.theta
    slope = [(value(theta + step) - value(theta - step)) / 2e-4 for step in 1e-4 * np.eye(3)]
    found = prior.posterior(message_nj.copy(), everything).statistics.gradient()
    np.testing.assert_allclose(found, slope, atol=1e-4)


def test_a_turn_learns_what_the_last_move_did_to_the_gradient() -> None:
    """On a quadratic: the secant holds, the inverse stays symmetric and positive, and the turns end at the top."""
    rng = np.random.default_rng(8)
    root = rng.normal(size=(3, 3))
    hessian = root @ root.T + np.eye(3)
    theta = np.array([0.3, -0.2, 0.5])
    turn = Turn(theta, -hessian @ theta, np.eye(3) / np.linalg.norm(hessian))
    for _ in range(40):
        there = turn.theta + turn.move
        onwards = turn.onwards(there, -hessian @ there)
        if np.linalg.norm(there - turn.theta) < 1e-9:
            break
        np.testing.assert_allclose(onwards.inverse @ hessian @ turn.move, turn.move, atol=1e-8)
        np.testing.assert_allclose(onwards.inverse, onwards.inverse.T, atol=1e-10)
        assert np.linalg.eigvalsh(onwards.inverse).min() > 0
        turn = onwards
    np.testing.assert_allclose(turn.theta, 0, atol=1e-7)


def test_a_move_against_the_slope_teaches_nothing() -> None:
    turn = Turn(np.zeros(2), np.ones(2), np.eye(2), 1)
    assert turn.onwards(np.ones(2), np.full(2, 2.0)).inverse is turn.inverse
