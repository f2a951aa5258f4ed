"""Class shares from weighed items, in plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from hitl.models.hierarchy.weighed_shares import WeighedShares
from tests import oracles

Floats = oracles.Floats


def some(seed: int, items: int = 12, classes: int = 3) -> tuple[WeighedShares, Floats]:
    """Shares that have learned something, and messages."""
    rng = np.random.default_rng(seed)
    unlearned = WeighedShares.unlearned(rng.random(items), rng.uniform(0.2, 5, classes))
    return unlearned.learn(rng.uniform(0, 9, classes)), rng.normal(size=(items, classes))


def weighed_evidence(share_j: Floats, weight_n: Floats, message_nj: Floats) -> float:
    return float(sum(u * logsumexp(np.log(share_j) + row) for u, row in zip(weight_n, message_nj, strict=True)))


def test_before_any_item_shares_are_at_the_mode_of_the_prior() -> None:
    found = WeighedShares.unlearned(np.ones(3), np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(found.share_j, [0.125, 0.25, 0.625])
    np.testing.assert_allclose(found.learn(np.zeros(3)).share_j, found.share_j)
    np.testing.assert_allclose(np.exp(found.log_prior()), found.share_j[None])


def test_the_density_is_that_of_a_dirichlet_up_to_a_constant() -> None:
    rng, pseudo_j = np.random.default_rng(0), np.array([0.5, 2.0, 7.0])
    shares = [WeighedShares(rng.dirichlet(np.ones(3)), np.ones(4), pseudo_j) for _ in range(5)]
    off = [each.log_density() - stats.dirichlet.logpdf(each.share_j, pseudo_j + 1) for each in shares]
    np.testing.assert_allclose(off, off[0], rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_beliefs_are_those_of_each_item_alone_and_evidence_is_weighed(seed: int) -> None:
    prior, message_nj = some(seed)
    found = prior.posterior(message_nj.copy(), np.ones(12, bool))
    for q, row in zip(found.q_nj, message_nj, strict=True):
        chance = prior.share_j * np.exp(row)
        np.testing.assert_allclose(q, chance / chance.sum(), atol=1e-12)
    assert found.log_evidence == pytest.approx(weighed_evidence(prior.share_j, prior.weight_n, message_nj))
    counted = sum(u * q for u, q in zip(prior.weight_n, found.q_nj, strict=True))
    np.testing.assert_allclose(found.statistics, counted)


def test_an_item_that_counts_nothing_is_judged_and_teaches_nothing() -> None:
    prior, message_nj = some(4)
    weight_n = np.where(np.arange(12) < 6, prior.weight_n, 0)
    none = WeighedShares(prior.share_j, weight_n, prior.pseudo_j).posterior(message_nj.copy(), np.ones(12, bool))
    half = WeighedShares(prior.share_j, weight_n[:6], prior.pseudo_j).posterior(message_nj[:6].copy(), np.ones(6, bool))
    np.testing.assert_allclose(none.q_nj, prior.posterior(message_nj.copy(), np.ones(12, bool)).q_nj)
    np.testing.assert_allclose(none.statistics, half.statistics)
    assert none.log_evidence == pytest.approx(half.log_evidence)


def test_no_nearby_shares_are_better() -> None:
    rng = np.random.default_rng(5)
    prior, message_nj = some(5)
    statistics = prior.posterior(message_nj.copy(), np.ones(12, bool)).statistics
    learned = prior.learn(statistics)
    better = oracles.beaten_by_a_neighbour(
        lambda share_j: float(statistics @ np.log(share_j) + prior.pseudo_j @ np.log(share_j)), learned.share_j, rng
    )
    assert better is None, better


@given(seed=st.integers(0, 10_000))
def test_each_step_raises_the_weighed_log_posterior(seed: int) -> None:
    prior, message_nj = some(seed)
    values = []
    for _ in range(10):
        found = prior.posterior(message_nj.copy(), np.ones(12, bool))
        values.append(found.log_evidence + prior.log_density())
        prior = prior.learn(found.statistics)
    assert (np.diff(values) >= -1e-10).all()
