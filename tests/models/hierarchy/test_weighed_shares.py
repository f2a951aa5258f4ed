"""Class shares from weighed items, in plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from hitl.models.hierarchy.counted import WeighedShares
from tests import oracles

Floats = oracles.Floats


def some(seed: int, items: int = 12, classes: int = 3) -> tuple[WeighedShares, Floats]:
    """Shares that have learned something, and messages."""
    rng = np.random.default_rng(seed)
    weight_n, pseudo_j = rng.random(items), rng.uniform(0.2, 5, classes)
    unlearned = WeighedShares(pseudo_j / pseudo_j.sum(), pseudo_j, weight_n)
    return unlearned.learn(rng.uniform(0, 9, classes)), rng.normal(size=(items, classes))


def weighed_evidence(share_j: Floats, weight_n: Floats, message_nj: Floats) -> float:
    return float(sum(u * logsumexp(np.log(share_j) + row) for u, row in zip(weight_n, message_nj, strict=True)))


def test_the_density_is_that_of_a_dirichlet_up_to_a_constant() -> None:
    rng, pseudo_j = np.random.default_rng(0), np.array([0.5, 2.0, 7.0])
    shares = [WeighedShares(rng.dirichlet(np.ones(3)), pseudo_j, np.ones(4)) for _ in range(5)]
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
    none = replace(prior, weight_n=weight_n).posterior(message_nj.copy(), np.ones(12, bool))
    half = replace(prior, weight_n=weight_n[:6]).posterior(message_nj[:6].copy(), np.ones(6, bool))
    np.testing.assert_allclose(none.q_nj, prior.posterior(message_nj.copy(), np.ones(12, bool)).q_nj)
    np.testing.assert_allclose(none.statistics, half.statistics)
    assert none.log_evidence == pytest.approx(half.log_evidence)


def test_no_nearby_shares_are_better() -> None:
    rng = np.random.default_rng(5)
    prior, message_nj = some(5)
    statistics = prior.posterior(message_nj.copy(), np.ones(12, bool)).statistics
    learned = prior.learn(statistics)
    better = oracles.beaten_by_a_neighbour(
        lambda share_j: float(statistics @ np.log(share_j) + prior.smoothing @ np.log(share_j)), learned.share_j, rng
    )
    assert better is None, better
