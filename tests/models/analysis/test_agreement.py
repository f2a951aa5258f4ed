"""Agreement against kept libraries, plain loops, and what is known of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.models.analysis import agreement as agree
from tests.oracles import crowd


def table(rng: np.random.Generator, n: int, k: int, options: int, gaps: float, right: float = 0.7) -> np.ndarray:
    """(N, K) label codes, -1 where there is none."""
    truth = rng.integers(options, size=n)
    matrix = np.where(rng.random((n, k)) < right, truth[:, None], rng.integers(options, size=(n, k)))
    matrix[rng.random((n, k)) < gaps] = -1
    return matrix


def counts(matrix: np.ndarray, options: int) -> np.ndarray:
    return np.stack([(matrix == option).sum(axis=1) for option in range(options)], axis=1).astype(float)


@pytest.mark.parametrize("gaps", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("options", [2, 5])
def test_alpha_is_that_of_the_krippendorff_package(gaps: float, options: int) -> None:
    import krippendorff

    matrix = table(np.random.default_rng(options), 60, 7, options, gaps)
    ratings = np.where(matrix < 0, np.nan, matrix).T
    expected = krippendorff.alpha(reliability_data=ratings, level_of_measurement="nominal")
    found, low, high = agree.krippendorff_alpha(counts(matrix, options))
    assert found == pytest.approx(expected, abs=1e-12)
    assert low < found < high <= 1


def test_fleiss_is_that_of_statsmodels() -> None:
    from statsmodels.stats.inter_rater import fleiss_kappa

    for seed in range(5):
        counted = counts(table(np.random.default_rng(seed), 40, 6, 4, gaps=0), 4)
        assert agree.fleiss_kappa(counted) == pytest.approx(fleiss_kappa(counted), abs=1e-12)


def test_fleiss_with_gaps_weighs_every_item_alike() -> None:
    """The same vote fractions on items of 2 and of 4 labels: each item's agreement is that of its pairs."""
    counted = np.array([[2, 0], [1, 1], [4, 0], [3, 1]], float)
    observed = np.mean([1, 0, 1, 3 / 6])
    share = 10 / 12
    expected = share**2 + (1 - share) ** 2
    assert agree.fleiss_kappa(counted) == pytest.approx((observed - expected) / (1 - expected))


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_cohen_is_that_of_scikit_learn_over_the_common_items(gaps: float) -> None:
    from sklearn.metrics import cohen_kappa_score

    matrix = table(np.random.default_rng(3), 80, 5, 3, gaps)
    pairs, many, kappas = agree.cohen_kappas(Annotations.from_matrix(matrix), least_shared=1)
    assert len(kappas) == 10
    for (first, second), shared, kappa in zip(pairs, many, kappas, strict=True):
        both = (matrix[:, first] >= 0) & (matrix[:, second] >= 0)
        assert shared == both.sum()
        assert kappa == pytest.approx(cohen_kappa_score(matrix[both, first], matrix[both, second]), abs=1e-12)
    found = agree.agreement(Annotations.from_matrix(matrix)).cohen
    assert found == pytest.approx(np.average(kappas, weights=many))


def test_pairs_need_common_items_and_the_pool_is_nobody() -> None:
    matrix = np.full((30, 3), -1)
    matrix[:20, 0] = matrix[10:, 1] = matrix[25:, 2] = 0
    matrix[::2][matrix[::2] == 0] = 1
    annotations = Annotations.from_matrix(matrix)
    pairs, shared, _ = agree.cohen_kappas(annotations, least_shared=5)
    assert (pairs.tolist(), shared.tolist()) == ([[0, 1], [1, 2]], [10, 5])
    assert len(agree.cohen_kappas(replace(annotations, anonymous=1), least_shared=5)[0]) == 0
    assert len(agree.cohen_kappas(annotations, least_shared=5, most_people=2)[0]) == 1


def test_the_interval_of_alpha_is_that_of_leaving_items_out() -> None:
    matrix = table(np.random.default_rng(0), 300, 5, 4, gaps=0.3, right=0.8)
    matrix[matrix == 3] = 0  # one answer is common: chance agreement varies with the items too
    counted = counts(matrix, 3)
    counted = counted[counted.sum(axis=1) >= 2]
    alpha, low, high = agree.krippendorff_alpha(counted)
    left = np.array([agree.krippendorff_alpha(np.delete(counted, n, axis=0))[0] for n in range(len(counted))])
    jackknife = np.sqrt((len(left) - 1) / len(left) * np.sum((left - left.mean()) ** 2))
    assert (high - low) / 2 == pytest.approx(agree.Z95 * jackknife, rel=0.02)
    assert (high + low) / 2 == pytest.approx(alpha)


def test_agreement_with_others_in_plain_loops() -> None:
    evidence, _ = crowd(np.random.default_rng(2), 30, 6, 3, 4, asked=0.5, unlabeled=3, pool=20)
    annotations = evidence.annotations
    share, kappa = agree.agreement_with_others(annotations)
    rows = list(zip(annotations.item, annotations.annotator, annotations.label, strict=True))
    for k in range(annotations.n_annotators):
        same, own, theirs = [], np.zeros(4), np.zeros(4)
        for at, (n, person, said) in enumerate(rows):
            others = [label for other, (m, _, label) in enumerate(rows) if m == n and other != at]
            if person == k and others:
                same.append(np.mean([label == said for label in others]))
                own[said] += 1
                for label in others:
                    theirs[label] += 1 / len(others)
        expected = np.sum(own / own.sum() * theirs / theirs.sum())
        assert share[k] == pytest.approx(np.mean(same))
        assert kappa[k] == pytest.approx((np.mean(same) - expected) / (1 - expected))


def test_chance_gives_zero_and_the_same_answers_one() -> None:
    rng = np.random.default_rng(5)
    chance = agree.agreement(Annotations.from_matrix(table(rng, 3000, 4, 3, gaps=0.2, right=0)))
    for found in (chance.alpha, chance.fleiss, chance.cohen):
        assert abs(found) < 0.03
    assert chance.low < 0 < chance.high
    matrix = np.repeat(rng.integers(3, size=(50, 1)), 4, axis=1)
    same = agree.agreement(Annotations.from_matrix(matrix))
    assert (same.alpha, same.fleiss, same.cohen, same.observed) == (1, 1, 1, 1)
    assert (same.items, same.pairs) == (50, 6)


@pytest.mark.parametrize("matrix", [np.full((5, 3), 1), np.array([[0, -1], [-1, 1], [1, -1]]), np.full((4, 2), -1)])
def test_where_nothing_is_defined_it_is_nan(matrix: np.ndarray) -> None:
    found = agree.agreement(Annotations.from_matrix(matrix, classes=("a", "b")))
    assert np.isnan([found.alpha, found.low, found.high, found.fleiss, found.cohen]).all()
    assert found.pairs == 0
