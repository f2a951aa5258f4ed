"""Whether annotators err together, against plain loops, integrals, and crowds that do or do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import quad

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.dependence import replicas
from hitl.models.dependence.replicas import Dependence, Excess, dependence, errors_alike, errors_wrong, replicated
from hitl.models.inference.sample import Sample
from tests import oracles
from tests.dependent_labels import everywhere, labels_of, some_crowd, table

Floats = NDArray[np.float64]


# -- what is measured ----------------------------------------------------------------------------------------


def plain_wrong(evidence: Evidence, q_nj: Floats) -> tuple[Floats, Floats]:
    a, classes = evidence.annotations, q_nj.shape[1]
    wrong = [1 - q_nj[n, option] if option < classes else None for n, option in zip(a.item, a.label, strict=True)]
    rate = {
        k: np.mean([w for w, who in zip(wrong, a.annotator, strict=True) if who == k and w is not None] or [0.0])
        for k in set(a.annotator.tolist())
    }
    above, below = np.zeros(a.n_items), np.zeros(a.n_items)
    for m, n in enumerate(a.item):
        for other in np.flatnonzero(a.item == n):
            first, second = wrong[m], wrong[other]
            if other != m and first is not None and second is not None:
                r, s = rate[a.annotator[m]], rate[a.annotator[other]]
                above[n] += (first - r) * (second - s)
                below[n] += np.sqrt(r * (1 - r) * s * (1 - s))
    return above, below


def plain_alike(evidence: Evidence, q_nj: Floats) -> tuple[Floats, Floats]:
    a, classes = evidence.annotations, q_nj.shape[1]
    above, below = np.zeros(a.n_items), np.zeros(a.n_items)
    for n in range(a.n_items):
        said = [option for _, option in labels_of(a, n) if option < classes]
        for i, first in enumerate(said):
            for j, second in enumerate(said):
                if i != j:
                    below[n] += 1 - q_nj[n, first]
                    above[n] += (1 - q_nj[n, first]) ** 2 * (first == second)
    return above, below


@everywhere
def test_measures_are_sums_over_pairs(shape: dict[str, Any]) -> None:
    evidence, _, share_j = some_crowd(shape)
    q_nj = np.random.default_rng(1).dirichlet(share_j, size=40)
    np.testing.assert_allclose(errors_wrong(evidence, q_nj), plain_wrong(evidence, q_nj), atol=1e-10)
    np.testing.assert_allclose(errors_alike(evidence, q_nj), plain_alike(evidence, q_nj), atol=1e-10)


def test_the_error_of_a_ratio_is_that_of_many_draws() -> None:
    rng = np.random.default_rng(0)
    above, below = rng.gamma(2.0, size=(2000, 300)), rng.gamma(3.0, size=(2000, 300))
    found = np.array([replicas._ratio(pair) for pair in zip(above, below, strict=True)])
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.05)


# -- what it says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.02, 0.0, 0.01, 0.08])
@pytest.mark.parametrize("error", [0.003, 0.02])
def test_the_factor_and_the_size_of_an_excess_are_integrals(value: float, error: float) -> None:
    sd = np.hypot(error, 0.004)

    def density(h: float) -> float:
        return float(2 * stats.norm.pdf(h, 0, 0.09) * stats.norm.pdf(value, h, sd))

    total = quad(density, 0, 0.6, points=[max(value, 0.001)])[0]
    mean = quad(lambda h: h * density(h), 0, 0.6, points=[max(value, 0.001)])[0] / total
    factor, size = Excess(value, error).factor(0.09)
    assert factor == pytest.approx(total / stats.norm.pdf(value, 0, sd), rel=0.02)
    assert size == pytest.approx(mean, rel=0.02, abs=2e-4)


def test_without_a_measure_only_uneven_errors_count_and_not_for_much() -> None:
    assert dependence(0.0, None) == Dependence(pytest.approx(0.9))
    assert dependence(99.0, None).chance == pytest.approx(18 / 19)
    assert dependence(-99.0, None).chance == pytest.approx(0.45 / 1.45)


def test_an_excess_proves_shared_errors_and_none_speaks_against_them() -> None:
    large, none = Excess(0.1, 0.01), Excess(0.0, 0.002)
    assert dependence(-99.0, (large, none)).chance > 0.99
    assert dependence(-99.0, (none, large)).chance > 0.99
    doubted = dependence(0.0, (none, none))
    assert 0.57 < doubted.chance < 0.75  # a fit may explain all of it
    assert doubted.excess < 0.02 < 0.08 < dependence(0.0, (large, none)).excess < 0.11


# -- replicas ------------------------------------------------------------------------------------------------


def test_replicas_have_the_same_questions_and_the_answers_of_the_model() -> None:
    evidence, alpha_kjl, share_j = some_crowd({"asked": 0.6}, seed=3)
    q_nj = np.random.default_rng(0).dirichlet(share_j, size=40)
    rng, times = np.random.default_rng(1), 400
    given = []

    def refit(replica: Evidence, first_nj: Floats) -> tuple[Floats, Floats]:
        given.append(first_nj)
        return alpha_kjl, first_nj

    drawn = [replicated(evidence, alpha_kjl, q_nj, share_j, refit, rng)[0] for _ in range(times)]
    a, pi_kjl = evidence.annotations, alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    for one in drawn:
        np.testing.assert_array_equal(one.annotations.item, a.item)
        np.testing.assert_array_equal(one.annotations.annotator, a.annotator)
    expected_ml = np.einsum("mj,mjl->ml", q_nj[a.item], pi_kjl[a.annotator])
    found_ml = np.mean([np.eye(a.n_options)[one.annotations.label] for one in drawn], axis=0)
    assert np.abs(found_ml - expected_ml).max() < 5 * 0.5 / np.sqrt(times)
    np.testing.assert_allclose(given[0].sum(axis=1), 1.0)


# -- crowds --------------------------------------------------------------------------------------------------


def crowd(seed: int, labels: int, items: int, hard: float, classes: int, target: str) -> Evidence:
    """Forty annotators who are right in .8; `hard` of the items take three in four of them to one wrong class."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=items)
    right = np.clip(rng.normal(0.8, 0.06, 40), 0.5, 0.98)
    who = np.argsort(rng.random((items, 40)), axis=1)[:, :labels]
    other = rng.integers(1, classes, (items, labels)) if target == "even" else np.ones((items, labels), int)
    said = np.where(rng.random((items, labels)) < right[who], truth[:, None], (truth[:, None] + other) % classes)
    trap, misled = rng.random((items, 1)) < hard, rng.random((items, labels)) < 0.75
    away = rng.integers(1, classes, (items, 1)) if target == "even" else 1
    said = np.where(trap & misled, (truth[:, None] + away) % classes, said)
    matrix = np.full((items, 40), -1, np.int32)
    np.put_along_axis(matrix, who, said.astype(np.int32), axis=1)
    return Evidence(table(matrix, classes, classes), truth=truth.astype(np.int32))


def rho_of(evidence: Evidence) -> float:
    return DefaultCombiner().fit(Evidence(evidence.annotations)).design_effect.rho


@pytest.mark.parametrize("classes", [4, 6])
def test_items_that_mislead_are_seen_although_errors_lie_evenly(classes: int) -> None:
    rhos = {hard: np.mean([rho_of(crowd(s, 8, 1000, hard, classes, "even")) for s in range(3)]) for hard in (0.0, 0.2)}
    assert rhos[0.2] > 0.22
    assert rhos[0.0] < 0.3 * rhos[0.2]


def test_annotators_who_confuse_the_same_classes_are_believed_more_than_if_items_misled_them() -> None:
    rhos = [np.mean([rho_of(crowd(s, 8, 2000, hard, 6, "next")) for s in range(2)]) for hard in (0.0, 0.2)]
    assert rhos[0] < 0.3 < 0.33 < rhos[1]


def test_too_few_labels_per_item_and_pools_without_names_are_not_measured() -> None:
    refit: Any = None  # never called
    annotations = crowd(0, 3, 200, 0.2, 4, "even").annotations
    sample = Sample.of(Evidence(annotations), lambda _: np.full((200, 4), 0.25))
    assert replicas.excesses(sample, annotations, np.full(4, 0.25), refit) is None
    pool = Annotations(
        np.repeat(np.arange(50, dtype=np.int32), 5),
        np.zeros(250, np.int32),
        np.zeros(250, np.int32),
        oracles.names("n", 50),
        ("people",),
        ("a", "b"),
        ("a", "b"),
        anonymous=0,
    )
    pooled = Sample.of(Evidence(pool), lambda _: np.full((50, 2), 0.5))
    assert replicas.excesses(pooled, pool, np.full(2, 0.5), refit) is None
