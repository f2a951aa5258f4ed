"""Ordered answers: rows, persons and strengths against scipy and plain loops; what is planted is found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from hitl.models.hierarchy import ordered_skills
from hitl.models.hierarchy.ordered_skills import GRID, learn_ordered
from hitl.models.hierarchy.skills import CROWD, STRENGTHS, USUAL_ALIKE
from tests import oracles

Floats = oracles.Floats


def graded(
    rng: np.random.Generator, bias_k: Floats, scale_k: Floats, labels: int, classes: int = 5, options: int = 5
) -> Floats:
    """(K, L, J) counts of people who see a class with a normal error, and name the nearest class."""
    counts = np.zeros((len(bias_k), options, classes))
    for k, (bias, scale) in enumerate(zip(bias_k, scale_k, strict=True)):
        for j in range(classes):
            seen = np.clip(np.round(rng.normal(j + bias, scale, labels)), 0, classes - 1).astype(int)
            counts[k, :classes, j] = np.bincount(seen, minlength=classes)
    return counts


def plain_rows(threshold_j: Floats, bias: float, log_scale: float) -> list[float]:
    """Chances of the answers to one class, one integral of the normal density each."""
    ends = [-np.inf, *((threshold_j - bias) / np.exp(log_scale)), np.inf]
    found = [max(stats.norm.cdf(high) - stats.norm.cdf(low), 1e-6) for low, high in itertools.pairwise(ends)]
    return [p / sum(found) for p in found]


def plain_learned(counts_klj: Floats, expected: float, strength: float | None) -> tuple[Floats, Floats]:
    """(J, L) and (K, L, J) Dirichlet parameters without options beyond the classes, in plain loops."""
    people, classes, _ = counts_klj.shape
    counts_lj = counts_klj.sum(axis=0)
    shapes = []
    for scale in np.geomspace(0.15, classes, 40):
        edges = np.arange(classes - 1) + 0.5
        shapes.append(np.array([plain_rows((edges - j) / scale, 0.0, 0.0) for j in range(classes)]).T)
    usual = min(shapes, key=lambda shape: abs(shape.trace() / classes - expected))
    score = np.array([(np.log(shape) * (counts_lj + CROWD / classes * usual)).sum() for shape in shapes])
    weight = np.exp(score - score.max())
    shape = sum(w * s for w, s in zip(weight / weight.sum(), shapes, strict=True))
    if strength is None:
        strength = plain_strength(
            [
                prior
                + sum(
                    gammaln(s)
                    - gammaln(s + counts_lj[:, j].sum())
                    + (gammaln(s * shape[:, j] + counts_lj[:, j]) - gammaln(s * shape[:, j])).sum()
                    for j in range(classes)
                )
                for s, prior in zip(STRENGTHS, USUAL_ALIKE, strict=True)
            ]
        )
    crowd = strength * shape + counts_lj
    for j in range(classes):
        crowd[j, j] = crowd[:, j].max()
    crowd /= crowd.sum(axis=0)
    thresholds = [stats.norm.ppf(np.clip(np.cumsum(crowd[:, j])[:-1], 1e-6, 1 - 1e-6)) for j in range(classes)]
    rows = np.array([np.array([plain_rows(t, b, s) for t in thresholds]).T for b, s in GRID.T])
    likely = np.array([[(counts * np.log(row)).sum() for row in rows] for counts in counts_klj])
    variance = np.array([0.25, 0.25])
    for _ in range(10):
        prior = stats.norm.logpdf(GRID.T, 0, np.sqrt(variance)).sum(axis=1)
        chance = np.exp(likely + prior - (likely + prior).max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        variance = ((chance @ GRID.T**2).sum(axis=0) + 4 * 0.25) / (people + 4)
    means = np.array([sum(p * row for p, row in zip(own, rows, strict=True)) for own in chance])
    likely_s = []
    for s in STRENGTHS:
        total = counts_klj.sum(axis=1)
        inside = (gammaln(s * means + counts_klj) - gammaln(s * means)).sum()
        likely_s.append(inside + (gammaln(s) - gammaln(s + total)).sum())
    strength_of_rows = plain_strength(likely_s)
    return strength_of_rows * crowd.T, strength_of_rows * means


def plain_strength(log_likelihood: list[float]) -> float:
    weight = np.exp(np.array(log_likelihood) - max(log_likelihood))
    return float(np.exp(weight @ np.log(STRENGTHS) / weight.sum()))


@pytest.mark.parametrize("strength", [None, 500.0])
@pytest.mark.parametrize("classes", [3, 5])
def test_plain_loops_learn_the_same(classes: int, strength: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_skills, "WITHIN", 0.0)  # the variances are learned in ten steps, as in the loops
    rng = np.random.default_rng(classes)
    counts = graded(rng, rng.normal(0, 0.5, 6), np.exp(rng.normal(-0.3, 0.4, 6)), 12, classes, classes)
    counts[-1] = 0
    found = learn_ordered(counts, 0.7, strength)
    crowd_jl, prior_klj = plain_learned(counts, 0.7, strength)
    np.testing.assert_allclose(found.crowd_jl, crowd_jl, rtol=1e-6)
    np.testing.assert_allclose(found.prior_klj, prior_klj, rtol=1e-5)


def test_bias_and_precision_of_a_person_are_found() -> None:
    rng = np.random.default_rng(0)
    bias_k, scale_k = np.array([0.0] * 8 + [1.0, -1.0, 0.0]), np.array([0.5] * 10 + [1.5])
    counts = graded(rng, bias_k, scale_k, 40)
    prior = learn_ordered(counts, 0.7, None).prior_klj
    mean_k = np.einsum("klj,l->k", prior / prior.sum(axis=1, keepdims=True), np.arange(5.0)) / 5 - 2
    right_k = np.einsum("kjj->k", prior / prior.sum(axis=1, keepdims=True)) / 5
    assert mean_k[8] > 0.5, "rates higher"
    assert mean_k[9] < -0.5, "rates lower"
    assert right_k[10] < right_k[:8].min() - 0.15, "less precise"


def test_a_person_without_labels_is_one_of_the_crowd() -> None:
    counts = graded(np.random.default_rng(1), np.zeros(7), np.full(7, 0.6), 30)
    counts[-1] = 0
    found = learn_ordered(counts, 0.7, None)
    own, crowd = found.prior_klj[-1] / found.prior_klj[-1].sum(axis=0), found.crowd_jl.T / found.crowd_jl.sum(axis=1)
    np.testing.assert_allclose(own, crowd, atol=0.04)


def test_answers_that_are_no_class_have_the_frequency_of_the_crowd() -> None:
    counts = graded(np.random.default_rng(2), np.zeros(5), np.full(5, 0.6), 30, options=6)
    counts[:, 5] = 10.0
    found = learn_ordered(counts, 0.7, None)
    for rows_lj in (found.crowd_jl.T, *found.prior_klj):
        chance = rows_lj / rows_lj.sum(axis=0)
        np.testing.assert_allclose(chance[5], 0.25, atol=0.05)
        assert (chance[:5].argmax(axis=0) == np.arange(5)).all()
