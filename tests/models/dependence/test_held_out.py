"""How much tempering held-out labels bear, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from hitl.models.dependence import held_out
from hitl.models.dependence.design_effect import separations
from tests import oracles
from tests.dependent_labels import (
    answered,
    everywhere,
    labels_of,
    plain_log_posterior,
    some_crowd,
    table,
)

Floats = oracles.Floats


def parts(annotations: Any, alpha_kjl: Floats, share_j: Floats) -> tuple[Floats, ...]:
    """What the functions take behind the annotations."""
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    delta_m = separations(annotations, log_q0_nj, pi_kjl)
    return log_q0_nj, softmax(log_q0_nj, axis=1), delta_m, alpha_kjl, np.log(pi_kjl).transpose(0, 2, 1), share_j


def plain_scores(
    annotations: Any, alpha_kjl: Floats, share_j: Floats, strength: float, learned_nj: Floats
) -> tuple[float, float]:
    """Mean log probability of each label given its item's others tempered, and given nothing."""
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    delta_m = parts(annotations, alpha_kjl, share_j)[2]
    told, blind = [], []
    for n in range(annotations.n_items):
        given = labels_of(annotations, n)
        delta = delta_m[annotations.item == n]
        if len(given) < 2:
            continue
        rho = np.mean(strength * delta / (1 + strength * delta))
        for out, (k, option) in enumerate(given):
            log_q = np.log(share_j)
            for other, (k2, option2) in enumerate(given):
                if other != out:
                    log_q = log_q + np.log(pi_kjl[k2, :, option2])
            taken = alpha_kjl[k].copy()
            taken[:, option] -= learned_nj[n]
            chance = taken[:, option] / taken.sum(axis=1)
            told.append(np.log(softmax(log_q / (1 + (len(given) - 2) * rho)) @ chance))
            blind.append(np.log(share_j @ chance))
    return float(np.mean(told)), float(np.mean(blind))


@everywhere
def test_scores_are_those_of_plain_loops(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape)
    annotations, alpha_kjl = evidence.annotations, alpha_kjl + 1  # taking back stays above LEAST
    log_q0_nj, _, *rest = parts(annotations, alpha_kjl, share_j)
    learned_nj = softmax(log_q0_nj, axis=1)
    learned_nj[::3] = np.eye(share_j.size)[0]  # as if these truths had been known
    score_c, blind = held_out.scores(annotations, log_q0_nj, learned_nj, *rest, np.array([0.0, 0.7, 5.0]))
    expected = [plain_scores(annotations, alpha_kjl, share_j, c, learned_nj) for c in (0.0, 0.7, 5.0)]
    np.testing.assert_allclose(score_c, [told for told, _ in expected], rtol=1e-9)
    assert blind == pytest.approx(expected[0][1])


def test_what_is_bearable_loses_as_much_as_is_tolerated() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=150).astype(np.int32)
    annotations = answered(rng, truth, np.repeat((0.55 * np.eye(3) + 0.15)[None], 5, axis=0))
    alpha_kjl = oracles.counts(annotations, np.eye(3)[truth]) + 1
    given = parts(annotations, alpha_kjl, np.full(3, 1 / 3))
    found = held_out.bearable_strength(annotations, *given)
    fine = np.append(held_out.GRID, found)
    score_c, blind = held_out.scores(annotations, *given, fine)
    loss_c = (score_c.max() - score_c) / (score_c.max() - blind)
    assert held_out.GRID[1] < found < held_out.GRID[-1]
    assert loss_c[-1] == pytest.approx(held_out.TOLERANCE, abs=0.1 * held_out.TOLERANCE)
    assert (loss_c[:-1][found > held_out.GRID] < held_out.TOLERANCE).all()
    assert (loss_c[:-1][found < held_out.GRID] > held_out.TOLERANCE).all()


def test_labels_that_tell_nothing_of_one_another_say_nothing() -> None:
    """One label an item, and people who all answer at random."""
    rng = np.random.default_rng(1)
    one = np.full((30, 3), -1)
    one[np.arange(30), np.arange(30) % 3] = rng.integers(2, size=30)
    for said in (one, rng.integers(2, size=(30, 3))):
        annotations = table(said, 2, 2)
        alpha_kjl = np.full((3, 2, 2), 10.0)
        assert held_out.bearable_strength(annotations, *parts(annotations, alpha_kjl, np.full(2, 0.5))) == 1.0


def test_a_large_table_is_judged_by_some_of_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(2, size=100).astype(np.int32)
    annotations = answered(rng, truth, np.repeat((0.5 * np.eye(2) + 0.25)[None], 4, axis=0))
    alpha_kjl = oracles.counts(annotations, np.eye(2)[truth]) + 1
    given = parts(annotations, alpha_kjl, np.full(2, 0.5))
    everything, _ = held_out.scores(annotations, *given, held_out.GRID)
    monkeypatch.setattr(held_out, "ENOUGH", 100)
    some, _ = held_out.scores(annotations, *given, held_out.GRID)
    fourth = annotations.select(annotations.item % 4 == 0)
    log_q0_nj, learned_nj, delta_m, *rest = given
    few, _ = held_out.scores(fourth, log_q0_nj, learned_nj, delta_m[annotations.item % 4 == 0], *rest, held_out.GRID)
    np.testing.assert_allclose(some, few)
    assert not np.allclose(some, everything)
