"""Crowd, person, rows: every step against scipy or plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln

from hitl.models.hierarchy import skills
from hitl.models.hierarchy.skills import CROWD, ROWS, STRENGTHS, Skills
from tests import oracles

Floats = oracles.Floats


def some_counts(
    seed: int, people: int = 6, classes: int = 3, options: int = 3, size: tuple[float, float] = (0, 30)
) -> Floats:
    """(K, L, J) expected counts of people who are mostly right; the last one has no label."""
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.ones(options), size=(people, classes)) + 1.5 * np.eye(classes, options)
    counts_kjl = rng.uniform(*size, size=(people, 1, 1)) * chance * rng.uniform(0.2, 1, size=(people, classes, 1))
    counts_kjl[-1] = 0
    return np.ascontiguousarray(counts_kjl.transpose(0, 2, 1))


# -- the same in plain loops ---------------------------------------------------------------------------------


def plain_mean_strength(log_likelihood: list[float]) -> float:
    """Weighed mean of the powers of two up to 128, in the logarithm."""
    weights = [np.exp(value - max(log_likelihood)) for value in log_likelihood]
    logs = [power * np.log(2) for power in range(1, 8)]
    return float(np.exp(sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)))


def plain_crowd(counts_kjl: Floats, expected: float) -> tuple[float, Floats]:
    """Accuracy of the crowd, and (J, L) what it says of each class."""
    _, classes, options = counts_kjl.shape
    right = sum(float(matrix[j, j]) for matrix in counts_kjl for j in range(classes))
    accuracy = (CROWD * expected + right) / (CROWD + counts_kjl[:, :, :classes].sum())
    accuracy = min(max(accuracy, 1 / options + 0.001), 0.999)
    rows = np.empty((classes, options))
    for j in range(classes):
        said = [sum(float(matrix[j, option]) for matrix in counts_kjl) for option in range(options)]
        hit = (ROWS * accuracy + said[j]) / (ROWS + sum(said))
        wrong = [0.0 if option == j else 1 + said[option] for option in range(options)]
        rows[j] = [(1 - hit) * errors / sum(wrong) for errors in wrong]
        rows[j, j] = max(hit, *rows[j])
        rows[j] /= rows[j].sum()
    return float(accuracy), rows


def odds(p: float) -> float:
    return p / (1 - p)


def plain_person(crowd_jl: Floats, foreseen: float, skill: float) -> Floats:
    """(J, L) rows of the crowd with the odds of being right multiplied, among answers that are a class."""
    rows = crowd_jl.copy()
    classes = len(rows)
    for j, row in enumerate(rows):
        said = row[:classes].sum()
        right = row[j] / said
        raised = odds(right) * odds(skill) / odds(foreseen)
        hit = raised / (1 + raised)
        row[:classes] *= (1 - hit) / (1 - right)
        row[j] = hit * said
    return rows


def plain_skills(counts_klj: Floats, expected: float) -> tuple[Floats, Floats]:
    """(J, L) and (K, J, L) Dirichlet parameters."""
    counts_kjl = counts_klj.transpose(0, 2, 1)
    classes = counts_kjl.shape[1]
    _, crowd_jl = plain_crowd(counts_kjl, expected)
    right = [sum(matrix[j, j] for j in range(classes)) for matrix in counts_kjl]
    total = [matrix[:, :classes].sum() for matrix in counts_kjl]
    foreseen = []
    for matrix in counts_kjl:
        mix = matrix[:, :classes].sum(axis=1) + 1e-9
        hit = [crowd_jl[j, j] / crowd_jl[j, :classes].sum() for j in range(classes)]
        foreseen.append(sum(mix[j] * hit[j] for j in range(classes)) / mix.sum())
    alike = []
    for s in 2.0 ** np.arange(1, 8):
        value = -0.5 * (np.log(s) - np.log(8)) ** 2
        for e, r, m in zip(foreseen, right, total, strict=True):
            value += betaln(s * e + r, s * (1 - e) + m - r) - betaln(s * e, s * (1 - e))
        alike.append(value)
    strength = plain_mean_strength(alike)
    means = [
        plain_person(crowd_jl, e, (strength * e + r) / (strength + m))
        for e, r, m in zip(foreseen, right, total, strict=True)
    ]
    likely = []
    for s in 2.0 ** np.arange(1, 8):
        value = 0.0
        for mean_jl, matrix in zip(means, counts_kjl, strict=True):
            for mean, row in zip(mean_jl, matrix, strict=True):
                value += gammaln(s * mean + row).sum() - gammaln(s * mean).sum()
                value += gammaln(s) - gammaln(s + row.sum())
        likely.append(value)
    rows = plain_mean_strength(likely)
    return rows * crowd_jl, rows * np.array(means)


SHAPES = {
    "plain": (6, 3, 3),
    "two classes": (8, 2, 2),
    "options beyond the classes": (5, 3, 5),
    "one person beside nobody": (2, 3, 3),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_is_learned_is_what_plain_loops_learn(shape: tuple[int, int, int], seed: int) -> None:
    counts_klj = some_counts(seed, *shape)
    found = Skills.learned(counts_klj, 0.75)
    crowd_jl, prior_kjl = plain_skills(counts_klj, 0.75)
    np.testing.assert_allclose(found.crowd_jl, crowd_jl, rtol=1e-9)
    np.testing.assert_allclose(found.prior_klj.transpose(0, 2, 1), prior_kjl, rtol=1e-9)


# -- the strengths -------------------------------------------------------------------------------------------


def test_how_likely_right_answers_are_is_beta_binomial() -> None:
    rng = np.random.default_rng(0)
    mean_k, total_k = rng.uniform(0.3, 0.95, 9), rng.integers(40, size=9)
    right_k = rng.binomial(total_k, mean_k)
    found_s = skills.beta_binomial(mean_k, right_k.astype(float), total_k.astype(float))
    off = [
        found - stats.betabinom.logpmf(right_k, total_k, s * mean_k, s * (1 - mean_k)).sum()
        for s, found in zip(STRENGTHS, found_s, strict=True)
    ]
    np.testing.assert_allclose(off, off[0], rtol=1e-9)


def test_how_likely_rows_are_is_dirichlet_multinomial() -> None:
    rng = np.random.default_rng(1)
    mean_kjl = rng.dirichlet(np.ones(4), size=(5, 3))
    total_kj = rng.integers(30, size=(5, 3))
    counts_kjl = np.array(
        [[rng.multinomial(m, p) for m, p in zip(*row, strict=True)] for row in zip(total_kj, mean_kjl, strict=True)]
    )
    found_s = skills.dirichlet_multinomial(mean_kjl.transpose(0, 2, 1), counts_kjl.transpose(0, 2, 1).astype(float))
    off = [
        found - stats.dirichlet_multinomial.logpmf(counts_kjl, s * mean_kjl, total_kj).sum()
        for s, found in zip(STRENGTHS, found_s, strict=True)
    ]
    np.testing.assert_allclose(off, off[0], rtol=1e-9)


def people(rng: np.random.Generator, right_k: Floats, labels: int) -> Floats:
    """(K, 3, 3) counts of people of these accuracies, whose errors are even."""
    counts = np.empty((len(right_k), 3, 3))
    for k, right in enumerate(right_k):
        for j in range(3):
            counts[k, :, j] = rng.multinomial(labels, np.where(np.arange(3) == j, right, (1 - right) / 2))
    return counts
