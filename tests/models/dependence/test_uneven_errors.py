"""Evidence that errors are uneven, against integrals and plain loops, and on crowds that do or do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.dependence.uneven_errors import crowd_counts, log_bayes_factor
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.registry import combiner
from tests import oracles
from tests.dependent_labels import answered, everywhere, labels_of, some_crowd, table

Floats = oracles.Floats
Ints = NDArray[np.int32]


# -- the Bayes factor ----------------------------------------------------------------------------------------


def hits_integrated(counts_lj: Ints) -> float:
    """Log evidence that classes differ in how often they are recognised, against that they do not; by quadrature."""
    right_j = counts_lj.diagonal()
    wrong_j = counts_lj.sum(axis=0) - right_j
    mean = (right_j.sum() + 7.5) / (counts_lj.sum() + 10)
    even = right_j.sum() * np.log(mean) + wrong_j.sum() * np.log(1 - mean)
    likelihoods = []
    for strength in (3, 10, 30, 100):
        people = stats.beta(strength * mean, strength * (1 - mean))
        value = 1.0
        for right, wrong in zip(right_j, wrong_j, strict=True):
            value *= quad(lambda c: people.pdf(c) * c**right * (1 - c) ** wrong, 0, 1, epsabs=0)[0]  # noqa: B023
        likelihoods.append(value)
    return float(np.log(np.mean(likelihoods)) - even)


def errors_enumerated(counts_lj: Ints) -> float:
    """Log evidence that errors gather in some classes, against that they spread evenly; by scipy."""
    classes = len(counts_lj)
    values = []
    for strength in (3, 10, 30, 100):
        value = 0.0
        for j in range(classes):
            errors = np.delete(counts_lj[:, j], j)
            size = int(errors.sum())
            ways = gammaln(size + 1) - gammaln(errors + 1).sum()
            if size:
                alpha = np.full(classes - 1, strength / (classes - 1))
                value += stats.dirichlet_multinomial.logpmf(errors, alpha, size) - ways
            value += size * np.log(classes - 1)
        values.append(value)
    return float(logsumexp(values) - np.log(4))


@pytest.mark.parametrize("counts", [[[5, 1], [2, 3]], [[9, 4], [0, 1]], [[0, 2], [3, 0]], [[12, 0], [0, 12]]], ids=str)
def test_with_two_classes_it_is_an_integral_over_how_often_each_is_recognised(counts: list[list[int]]) -> None:
    counts_lj = np.array(counts)
    assert log_bayes_factor(counts_lj.astype(float)) == pytest.approx(hits_integrated(counts_lj), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [3, 4])
def test_with_more_errors_gather_by_a_dirichlet_of_their_own(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts_lj = rng.integers(4, size=(classes, classes)) + 5 * np.eye(classes, dtype=int)
    counts_lj[:, 0] = [3, *[0] * (classes - 1)]
    expected = hits_integrated(counts_lj) + errors_enumerated(counts_lj)
    assert log_bayes_factor(counts_lj.astype(float)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("stray", [0, 1, 3])
def test_a_class_that_nobody_names_rightly_does_not_make_errors_uneven(stray: int) -> None:
    """A class that was declared and never used, or typing errors, took ln B from below -5 to above 5."""
    careless_lj = np.full((4, 4), 12.0) + 80 * np.eye(4)
    more_lj = np.zeros((5, 5))
    more_lj[:4, :4] = careless_lj
    more_lj[4, :stray] = 1
    more_lj[4, 4] = 0.9
    assert log_bayes_factor(careless_lj) < -5
    assert log_bayes_factor(more_lj) < -5


@pytest.mark.filterwarnings("ignore")
def test_one_typing_error_takes_no_items_back() -> None:
    """Of 120 items 52 were 95 % sure, and 23 with one answer "horse" among 400."""
    rng = np.random.default_rng(2)
    truth, right = rng.integers(4, size=120), (0.92, 0.85, 0.8, 0.79, 0.7)
    said = [
        (n, k, int(truth[n]) if rng.random() < right[k] else int(truth[n] + 1 + rng.integers(3)) % 4)
        for n in range(120)
        for k in range(5)
        if rng.random() < 0.7
    ]
    rows = [(f"i{n}", f"p{k}", "abcd"[label]) for n, k, label in said]
    table = {name: [row[place] for row in rows] for place, name in enumerate(("item", "annotator", "label"))}
    typed = {**table, "label": [*table["label"][:3], "horse", *table["label"][4:]]}
    sure = [
        int((combiner("default").fit(Evidence.from_tables(each)).confidence >= 0.95).sum()) for each in (table, typed)
    ]
    assert abs(sure[0] - sure[1]) <= 3


# -- the counts ----------------------------------------------------------------------------------------------


def plain_counts(evidence: Evidence, q_nj: Floats) -> Floats:
    classes = q_nj.shape[1]
    out = np.zeros((classes, classes))
    for n, q in enumerate(q_nj):
        said = [option for _, option in labels_of(evidence.annotations, n) if option < classes]
        weight = 1.0 if evidence.known[n] else max(len(said) - 2, 0) / max(len(said), 1)
        for option in said:
            for j in range(classes):
                out[option, j] += weight * q[j]
    return out


@everywhere
@pytest.mark.parametrize("known", [0.0, 0.4])
def test_counts_are_those_of_plain_loops(shape: dict[str, Any], known: float) -> None:
    evidence, _, share_j = some_crowd(shape, known=known)
    q_nj = np.random.default_rng(1).dirichlet(share_j, size=40)
    np.testing.assert_allclose(crowd_counts(evidence, q_nj), plain_counts(evidence, q_nj), atol=1e-10)


def with_unsure(annotations: Annotations, rng: np.random.Generator) -> Annotations:
    """The same, and one person more, who is sure of nothing, on two of three items."""
    n = np.flatnonzero(rng.random(annotations.n_items) < 0.67)
    return Annotations(
        np.append(annotations.item, n),
        np.append(annotations.annotator, np.full(n.size, annotations.n_annotators)),
        np.append(annotations.label, np.full(n.size, annotations.n_classes)),
        annotations.items,
        (*annotations.annotators, "unsure of all"),
        annotations.classes,
        (*annotations.classes, "unsure"),
    )


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_are_no_class_change_nothing(seed: int) -> None:
    evidence, _, share_j = some_crowd({"asked": 0.4}, seed=seed)
    rng = np.random.default_rng(seed)
    q_nj = rng.dirichlet(share_j, size=40)
    more = Evidence(with_unsure(evidence.annotations, rng), truth=evidence.truth)
    np.testing.assert_allclose(crowd_counts(more, q_nj), crowd_counts(evidence, q_nj), atol=1e-12)


# -- crowds --------------------------------------------------------------------------------------------------


def factor(evidence: Evidence, q_nj: Floats) -> float:
    return log_bayes_factor(crowd_counts(evidence, q_nj))


def crowd_with(pi_jl: Floats, people: int, items: int = 1000, hard: Floats | None = None) -> tuple[Evidence, Floats]:
    """Everybody answers each item by the same matrix, `hard` on a quarter of them; and what a fit believes."""
    rng = np.random.default_rng(0)
    truth = rng.integers(len(pi_jl), size=items).astype(np.int32)
    said = [
        answered(rng, truth[rows], np.repeat(matrix[None], people, axis=0)).label.reshape(-1, people)
        for matrix, rows in ((pi_jl, slice(items // 4, None)), (pi_jl if hard is None else hard, slice(items // 4)))
    ]
    evidence = Evidence(table(np.concatenate((said[1], said[0])), len(pi_jl), len(pi_jl)))
    return evidence, HierarchicalDawidSkene().fit(evidence).probabilities


def even(classes: int, right: float) -> Floats:
    wrong = (1 - right) / (classes - 1)
    return np.full((classes, classes), wrong) + (right - wrong) * np.eye(classes)


def test_one_label_an_item_says_something_where_the_truth_is_known() -> None:
    evidence, q_nj = crowd_with(even(4, 0.8), 1, 800)
    truth = q_nj.argmax(axis=1).astype(np.int32)
    assert factor(evidence, q_nj) == 0
    assert factor(replace(evidence, truth=truth), np.eye(4)[truth]) != 0


@pytest.mark.parametrize("right", [0.75, 0.9])
def test_items_that_look_like_another_class_are_seen(right: float) -> None:
    """On a quarter of the items seven in ten say the class next to it."""
    look_alike = 0.3 * np.eye(4) + 0.7 * np.roll(np.eye(4), 1, axis=1)
    evidence, q_nj = crowd_with(even(4, right), 5, hard=look_alike)
    assert factor(evidence, q_nj) > 3
