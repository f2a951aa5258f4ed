"""Communities: the factorisation climbs to a stationary point, and five kinds of people are found as five."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from hitl.annotations import Annotations
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner
from hitl.models.analysis import communities as groups
from hitl.models.analysis.communities import Communities, CommunityModel

Array = np.ndarray

# Two classes, three answers, after figure 3 of Simpson 2011: clear of the first class only; extremists; always the
# first answer; never the first answer; non-committal.
SUPERNOVAE = np.array(
    [
        [[0.85, 0.10, 0.05], [0.30, 0.35, 0.35]],
        [[0.90, 0.02, 0.08], [0.08, 0.02, 0.90]],
        [[0.94, 0.03, 0.03], [0.90, 0.06, 0.04]],
        [[0.06, 0.60, 0.34], [0.04, 0.40, 0.56]],
        [[0.50, 0.48, 0.02], [0.15, 0.80, 0.05]],
    ]
)


def grades(j: int) -> Array:
    """(5, J, J): good, random, always the first class, one grade too low, one grade too high."""
    good = np.full((j, j), 0.1 / (j - 1)) + np.eye(j) * (0.9 - 0.1 / (j - 1))
    always = np.full((j, j), 0.05 / (j - 1))
    always[:, 0] = 0.95
    low, high = np.full((j, j), 0.1 / j), np.full((j, j), 0.1 / j)
    for true in range(j):
        low[true, [true, max(true - 1, 0)]] += 0.9 if true == 0 else 0.45
        high[true, [true, min(true + 1, j - 1)]] += 0.9 if true == j - 1 else 0.45
    shifted = np.array([good, np.full((j, j), 1 / j), always, low, high])
    return shifted / shifted.sum(axis=2, keepdims=True)


def people_of(
    rng: np.random.Generator, prototypes: Array, per: int, mixed: list[tuple[int, int]] | None = None
) -> tuple[Array, Array]:
    """(K, J, L) matrices scattered around the prototypes, mixtures of two last, and (K, G) true shares."""
    kinds = len(prototypes)
    near = [[rng.dirichlet(200 * row + 1e-3) for row in matrix] for matrix in prototypes for _ in range(per)]
    share = [np.eye(kinds)[kind] for kind in range(kinds) for _ in range(per)]
    for one, other in mixed or []:
        near.append(list((prototypes[one] + prototypes[other]) / 2))
        share.append((np.eye(kinds)[one] + np.eye(kinds)[other]) / 2)
    return np.array(near), np.array(share)


def labels_of(rng: np.random.Generator, pi_kjl: Array, n: int, each: int) -> tuple[Evidence, Array]:
    """`each` random people label each of n items of random classes."""
    k, j, options = pi_kjl.shape
    truth = rng.integers(j, size=n)
    item = np.repeat(np.arange(n), each)
    annotator = np.concatenate([rng.choice(k, each, replace=False) for _ in range(n)])
    row = pi_kjl[annotator, truth[item]]
    label = (row.cumsum(axis=1) < rng.random((len(item), 1))).sum(axis=1)
    names = tuple(f"o{option}" for option in range(options))
    codes = (item.astype(np.int32), annotator.astype(np.int32), np.minimum(label, options - 1).astype(np.int32))
    return Evidence(Annotations(*codes, tuple(range(n)), tuple(range(k)), names[:j], names)), truth


def report(counts_kjl: Array, prior: float = 0.5) -> AnnotatorReport:
    k, j, options = counts_kjl.shape
    names = tuple(f"o{option}" for option in range(options))
    a = counts_kjl + prior
    mean = a / a.sum(axis=2, keepdims=True)
    labels = counts_kjl.sum(axis=(1, 2)).astype(np.int64)
    return AnnotatorReport(tuple(range(k)), names[:j], names, a, mean, labels, np.full(j, 1 / j))


def counted(rng: np.random.Generator, pi_kjl: Array, labels: Array) -> AnnotatorReport:
    """A fit that knows the truth: each annotator's labels, spread over the classes at random."""
    counts = np.zeros(pi_kjl.shape)
    for k, matrix in enumerate(pi_kjl):
        for j, many in enumerate(rng.multinomial(labels[k], np.full(len(matrix), 1 / len(matrix)))):
            counts[k, j] = rng.multinomial(many, matrix[j])
    return report(counts)


def matched(found: Communities, share_kg: Array) -> Array:
    """Which community found stands for each true one, by the members they have in common."""
    _, match = linear_sum_assignment(-share_kg.T @ np.nan_to_num(found.membership[: len(share_kg)]))
    return np.asarray(match)


# -- the factorisation -----------------------------------------------------------------------------------------


def similarities(seed: int = 0, n: int = 14) -> Array:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, 0.4, (n // 2, 2)), rng.normal(3, 0.4, (n - n // 2, 2))])
    return np.exp(-np.linalg.norm(x[:, None] - x[None], axis=2))


def plain_objective(v: Array, w: Array, h: Array, beta: Array) -> float:
    """Log posterior, term by term, normalisers and all; Poisson without the factorial of V."""
    total = 0.0
    for k in range(len(v)):
        for m in range(len(v)):
            mean = sum(w[k, g] * h[g, m] for g in range(len(beta)))
            total += v[k, m] * np.log(mean) - mean
    for g, precision in enumerate(beta):
        for weight in (*w[:, g], *h[g]):
            total += 0.5 * np.log(2 * precision / np.pi) - 0.5 * precision * weight**2
        a, b = groups.SHAPE, groups.RATE
        total += a * np.log(b) - gammaln(a) + (a - 1) * np.log(precision) - b * precision
    return float(total)


def test_the_objective_is_the_log_posterior_and_never_falls() -> None:
    v, rng = similarities(), np.random.default_rng(1)
    w, h = groups.random_start(v, 5, rng)
    beta = groups.precisions(w, h)
    constant = groups.objective(v, w, h, beta) - plain_objective(v, w, h, beta)
    last = groups.objective(v, w, h, beta)
    for _ in range(40):
        for step in ("h", "w", "beta"):
            if step == "h":
                h = groups.ascend(v, w, h, beta)
            elif step == "w":
                w = groups.ascend(v.T, h.T, w.T, beta).T
            else:
                beta = groups.precisions(w, h)
            now = groups.objective(v, w, h, beta)
            assert now >= last - 1e-9
            assert now - plain_objective(v, w, h, beta) == pytest.approx(constant, abs=1e-8)
            last = now


# -- similarity ------------------------------------------------------------------------------------------------


def test_similarity_in_plain_loops() -> None:
    rng = np.random.default_rng(4)
    a = rng.gamma(1.0, 3.0, (4, 2, 3))
    model = CommunityModel(resolution=0.3, sharpness=1.7)
    rows = groups.rows_of(a)
    found = model.similarity(rows, rows)
    a = a + 1 / 3
    for k in range(4):
        for m in range(4):
            square = 0.0
            for j in range(2):
                one, other = a[k, j] / a[k, j].sum(), a[m, j] / a[m, j].sum()
                hellinger = 0.5 * np.sum((np.sqrt(one) - np.sqrt(other)) ** 2)
                noise = [1 - _mean_root(a[x, j]) @ _mean_root(a[x, j]) for x in (k, m)]
                square += hellinger / (0.3**2 + np.mean(noise)) / 2
            assert found[k, m] == pytest.approx(np.exp(-1.7 * np.sqrt(square)))
    assert np.diag(found) == pytest.approx(1)


def test_the_papers_similarity_is_eq_24() -> None:
    """exp(-H) of the matrices as the fit has them, loop by loop; a row is a distribution of answers in one class."""
    rng = np.random.default_rng(5)
    people = report(rng.gamma(1.0, 3.0, (5, 2, 3)))
    found = CommunityModel.paper().fit(people)
    assert found.learned.tolist() == [0, 1, 2, 3, 4]
    for k in range(5):
        for m in range(5):
            one, other = people.confusion[k] / 2, people.confusion[m] / 2  # (class, answer), the classes equally common
            hellinger = np.sqrt(0.5 * ((np.sqrt(one) - np.sqrt(other)) ** 2).sum())
            assert found.similarity[k, m] == pytest.approx(np.exp(-hellinger), abs=1e-7)
    usual = CommunityModel(least_labels=0.0).fit(people).similarity
    assert np.abs(usual - found.similarity).max() > 0.1  # the test can tell


def _mean_root(a: Array) -> Array:
    """E sqrt(pi_l) under a Dirichlet, by its Beta margins."""
    total = a.sum()
    return np.array([_mean_of_root(p, total - p) for p in a])


def _mean_of_root(a: float, b: float) -> float:
    """By quadrature; with x = y^(1 / a) there is no pole at 0."""
    from scipy.integrate import quad
    from scipy.special import beta

    value, _ = quad(lambda y: y ** (0.5 / a) * (1 - y ** (1 / a)) ** (b - 1) / a / beta(a, b), 0, 1)
    return float(value)


# -- people ----------------------------------------------------------------------------------------------------

CROWDS = [
    pytest.param(SUPERNOVAE, DefaultCombiner(), 800, 0.04, id="supernovae, default"),
    pytest.param(grades(5), VBIBCC(), 800, 0.02, id="five grades, VB-IBCC"),
]
"""Ten labels an item by sixty people: 133 labels each at 800 items. The default combiner leans on the votes, so that
its matrices are blurred where four people of five do poor work."""


@pytest.mark.parametrize(("prototypes", "combiner", "n", "error"), CROWDS)
def test_five_kinds_of_people_are_found_and_recovered(prototypes: Array, combiner: Any, n: int, error: float) -> None:
    """Their matrices are a combiner's, which knows no truth."""
    rng = np.random.default_rng(0)
    pi_kjl, share_kg = people_of(rng, prototypes, per=12)
    evidence, _ = labels_of(rng, pi_kjl, n=n, each=10)
    found = CommunityModel().fit(combiner.fit(evidence).annotators)
    assert len(found) == 5
    match = matched(found, share_kg)
    assert (match[share_kg.argmax(axis=1)] == found.main).mean() >= 0.97
    assert found.membership[np.arange(60), match[share_kg.argmax(axis=1)]].mean() > 0.85
    assert np.abs(found.prototype[match] - prototypes).mean() < error
    assert np.abs(found.prototype[match] - prototypes).max() < 6 * error


def test_a_community_is_as_accurate_as_its_members_where_each_has_a_prior_of_their_own() -> None:
    """As in the default combiner: people who are right in 80 to 95 of 100 cases were a community that never errs,
    because the crowd's prior, which is taken off, expects more errors of a row than they have with their labels."""
    right_k = np.array([0.95, 0.9, 0.85, 0.8])
    people = counted(np.random.default_rng(0), np.full((4, 2, 2), 0.5), np.full(4, 20))
    row_kjl = np.array([[[p, 1 - p], [1 - p, p]] for p in right_k])
    crowd_jl = 60 * np.array([[0.6, 0.4], [0.4, 0.6]])
    people = replace(people, concentration=80 * row_kjl, confusion=row_kjl, prior=crowd_jl)
    found = CommunityModel().fit(people)
    assert len(found) == 1
    assert found.prototype[0].diagonal() == pytest.approx(right_k.mean(), abs=0.01)


def test_what_nobody_of_a_community_has_seen_is_a_distribution_too() -> None:
    """A row of which nothing is known: its sum was the number of members by that of answers, if that is below 1."""
    counts_kjl = np.zeros((2, 4, 4))
    counts_kjl[:, 0], counts_kjl[:, 1] = [5, 1, 1, 1], [1, 8, 1, 1]
    prototype_gjl = groups.prototypes(np.array([[1, 0], [0, 0.6]]), counts_kjl, counts_kjl + 1 + 2 * np.eye(4))
    assert prototype_gjl.sum(axis=2) == pytest.approx(1)
    assert prototype_gjl[:, 3].tolist() == pytest.approx(np.tile([1 / 6, 1 / 6, 1 / 6, 1 / 2], (2, 1)))


@pytest.mark.parametrize(("prior", "told"), [(0.01, False), (3.0, True)])
@pytest.mark.parametrize("prototype", [grades(2)[0], grades(3)[1], grades(5)[3]])
def test_people_of_one_kind_are_one_community_however_many_labels_they_have(
    prototype: Array, prior: float, told: bool
) -> None:
    """A strong prior that all share draws those with few labels together, unless the fit tells of it."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        pi_kjl = np.array([[rng.dirichlet(60 * row + 1e-3) for row in prototype] for _ in range(60)])
        labels = np.exp(rng.uniform(np.log(5), np.log(1000), 60)).astype(int)
        people = counted(rng, pi_kjl, labels)
        shared = np.full(prototype.shape, prior) if told else None
        people = replace(people, concentration=people.concentration - 0.5 + prior, prior=shared)
        found = CommunityModel().fit(people)
        assert len(found) == 1
        assert (found.main >= 0).sum() == (labels >= 10 * len(prototype)).sum()


def test_people_with_few_labels_and_strangers_are_not_placed() -> None:
    rng = np.random.default_rng(0)
    pi_kjl, _ = people_of(rng, SUPERNOVAE, per=6)
    labels = np.where(np.arange(30) % 3 == 0, 19, 200)
    people = counted(rng, pi_kjl, labels)
    out = np.arange(30) == 1
    found = CommunityModel().fit(people, leave_out=out)
    unplaced = (labels < 20) | out
    assert np.isnan(found.membership[unplaced]).all()
    assert (found.main[unplaced] == -1).all()
    assert found.of(0) == []
    assert found.membership[~unplaced].sum(axis=1) == pytest.approx(1)
    assert found.sizes.sum() == (~unplaced).sum()
    assert list(found.sizes) == sorted(found.sizes, reverse=True)


@pytest.mark.parametrize("people", [0, 1, 2, 3])
def test_hardly_anybody(people: int) -> None:
    rng = np.random.default_rng(0)
    found = CommunityModel().fit(counted(rng, np.full((people, 2, 2), 0.5), np.full(people, 500)))
    assert len(found) == (people > 0)
    assert (found.main == 0).sum() == people


def test_those_who_join_are_placed_like_those_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    pi_kjl, share_kg = people_of(rng, grades(3), per=40)
    labels = rng.integers(100, 400, 200)
    people = counted(rng, pi_kjl, labels)
    everybody = CommunityModel().fit(people)
    monkeypatch.setattr(groups, "MOST_LEARNED", 80)
    some = CommunityModel().fit(people)
    assert len(some.learned) == 80
    assert set(some.learned) == set(np.argsort(-labels, kind="stable")[:80])
    kind = share_kg.argmax(axis=1)
    assert len(some) == len(everybody) == 5
    for found in (some, everybody):
        assert (matched(found, share_kg)[kind] == found.main).mean() > 0.97
    assert np.abs(some.prototype[matched(some, share_kg)] - grades(3)).max() < 0.1
