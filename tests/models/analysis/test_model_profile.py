"""Theorem 1, conditional mutual information and the whole profile, against loops, enumeration and closed forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.errors import BadEvidence, BadInput
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, DefaultCombiner
from hitl.models.analysis.complementarity import judge, most_probable
from hitl.models.analysis.conditional_information import a_label, conditional_information, dependence, fixed, two_labels
from hitl.models.analysis.confidence_ratios import accuracy_bound, log_odds
from hitl.models.analysis.model_profile import ModelProfiler
from hitl.models.combiner import Combiner
from tests.oracles import crowd
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


QUICK = ModelProfiler(shuffles=20)


# -- Theorem 1 -----------------------------------------------------------------------------------------------


def product_of(rng: np.random.Generator, n: int, j: int):
    """Model probabilities, likelihoods of the people, their combination, truths drawn from it."""
    model = rng.dirichlet(np.full(j, 0.5), n)
    people = rng.dirichlet(np.full(j, 0.4), n) * 3
    both = model * people / (model * people).sum(axis=1, keepdims=True)
    truth = np.array([rng.choice(j, p=row) for row in both])
    return model, people, both, truth


@pytest.mark.parametrize("j", [2, 3, 7])
def test_ratios_and_bounds_are_those_of_plain_loops(rng: np.random.Generator, j: int) -> None:
    model, people, both, truth = product_of(rng, 300, j)
    model_odds, people_odds = log_odds(np.log(model)), log_odds(np.log(people))
    guaranteed = tighter = 0
    for n, z in enumerate(truth):
        for i in range(j):
            odds = model[n, i] / sum(model[n, o] for o in range(j) if o != i)
            assert np.exp(model_odds[n, i]) == pytest.approx(odds)
            odds = people[n, i] / sum(people[n, o] for o in range(j) if o != i)
            assert np.exp(people_odds[n, i]) == pytest.approx(odds, rel=1e-6)
        others = [i for i in range(j) if i != z]
        guaranteed += model[n, z] * people[n, z] > sum(model[n, others]) * sum(people[n, others])
        tighter += model[n, z] * people[n, z] > max(model[n, others]) * max(people[n, others])
    found = accuracy_bound(model, np.log(people), np.eye(j)[truth])
    assert found.bound == pytest.approx(guaranteed / 300)
    assert found.tighter == pytest.approx(tighter / 300)
    accuracy = (both.argmax(axis=1) == truth).mean()
    assert found.accuracy == accuracy
    assert found.bound <= found.tighter <= accuracy
    if j == 2:
        assert found.bound == found.tighter == accuracy
    else:
        assert found.bound < accuracy


@pytest.mark.journey
@pytest.mark.parametrize(("j", "method"), [(2, DefaultCombiner()), (3, PL())])
def test_of_a_fit_the_people_count_by_their_confusion_matrices(
    rng: np.random.Generator, j: int, method: Combiner
) -> None:
    """With two classes the bound is the accuracy of the combination, measured without the items' own truth."""
    evidence, truth = crowd(rng, 300, 4, j, j + 1, asked=0.6, known=0.4, models=1)
    consensus = method.fit(evidence)
    judged = judge(evidence, consensus)
    a, pi_kjl = evidence.annotations, consensus.annotators.confusion
    for n in np.flatnonzero(~evidence.known)[:20]:
        rows = range(a.item_start[n], a.item_start[n + 1])
        expected = sum((np.log(pi_kjl[a.annotator[m], :, a.label[m]]) for m in rows), np.zeros(j))
        assert judged.log_likelihood[n] == pytest.approx(expected)
    for account in (lambda p: p.expected, lambda p: p.measured):
        bound = account(QUICK.fit(evidence, consensus)).bound
        assert bound.bound <= bound.tighter <= bound.accuracy
        assert (bound.bound == bound.accuracy) == (j == 2)
        overall = account(QUICK.fit(evidence, consensus)).overall
        assert bound.accuracy == pytest.approx(overall["both"][0], abs=0.02)  # a shift is in the one, not in the other
    assert (most_probable(judged.both)[judged.compared] == truth[judged.compared]).mean() > 0.6


def test_certainty_stays_finite() -> None:
    model = np.array([[1.0, 0.0, 0.0], [1 - 1e-15, 1e-15, 0.0]])
    odds = log_odds(np.log(np.maximum(model, 1e-300)))
    assert np.isfinite(odds).all()
    assert odds[1, 0] == pytest.approx(np.log(1e15), rel=1e-6)  # 1 - p would have lost it
    likelihood = np.array([[0.0, -900.0, -900.0], [-900.0, 0.0, -900.0]])
    found = accuracy_bound(model, likelihood, np.eye(3)[[0, 1]])
    assert found.bound == found.tighter == 1.0


# -- conditional mutual information --------------------------------------------------------------------------


def by_loops(p_zab: np.ndarray) -> float:
    total = 0.0
    for z, table in enumerate(p_zab):
        for a, b in np.ndindex(table.shape):
            if table[a, b]:
                apart = table[a].sum() * table[:, b].sum() / table.sum()
                total += p_zab[z, a, b] * np.log2(table[a, b] / apart)
    return total


def test_the_information_of_known_counts_is_that_of_the_definition(rng: np.random.Generator) -> None:
    counts = rng.integers(0, 6, (3, 4, 2))
    z, a, b = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    order = rng.permutation(len(z))
    found = conditional_information(a[order], b[order], z[order])
    assert found == pytest.approx(by_loops(counts / counts.sum()))
    assert conditional_information(a, a, np.zeros_like(a)) == pytest.approx(
        -sum(p * np.log2(p) for p in np.bincount(a) / len(a))
    )
    assert conditional_information(a, b * 100_000, z) == pytest.approx(found)  # no table of so many cells
    assert conditional_information(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int)) == 0


def test_chance_is_the_mean_over_every_order(rng: np.random.Generator) -> None:
    z = np.array([0, 0, 0, 0, 1, 1, 1])
    a, b = rng.integers(2, size=7), rng.integers(2, size=7)
    every = [
        conditional_information(a, np.concatenate((b[:4][list(p)], b[4:][list(q)])), z)
        for p in permutations(range(4))
        for q in permutations(range(3))
    ]
    observed = conditional_information(a, b, z)
    found = dependence(fixed(a), fixed(b), np.eye(2)[z], shuffles=2000)
    assert found.chance == pytest.approx(np.mean(every), abs=0.01)
    assert found.bits == pytest.approx(max(observed - np.mean(every), 0), abs=0.01)
    assert found.p_value == pytest.approx(np.mean(np.array(every) >= observed - 1e-9), abs=0.03)
    assert found.together == pytest.approx(conditional_information(a, b, np.zeros(7, int)))


def errors(rng: np.random.Generator, n: int, hard: float):
    """Two judges of four classes who are wrong together on a share `hard` of the items, else on their own."""
    z = rng.integers(4, size=n)
    together = rng.random(n) < hard
    wrong = (z + rng.integers(1, 4, n)) % 4
    alone = [np.where(rng.random(n) < 0.8, z, (z + rng.integers(1, 4, n)) % 4) for _ in range(2)]
    return z, np.where(together, wrong, alone[0]), np.where(together, wrong, alone[1])


def test_independent_judges_show_nothing_and_dependent_ones_all_of_it(rng: np.random.Generator) -> None:
    p_values, bits = [], []
    for _ in range(40):
        z, a, b = errors(rng, 400, 0.0)
        found = dependence(fixed(a), fixed(b), np.eye(4)[z], shuffles=99)
        assert found.chance > found.bits
        p_values.append(found.p_value)
        bits.append(found.bits)
    assert np.mean(bits) < 0.015 < 0.3 < found.together
    assert 0.3 < np.mean(p_values) < 0.7
    assert np.mean(np.array(p_values) <= 0.1) <= 0.25
    p_zab = np.zeros((4, 4, 4))
    for z, a, b in np.ndindex(4, 4, 4):
        one, other = (0.8 if x == z else 0.2 / 3 for x in (a, b))
        p_zab[z, a, b] = 0.25 * (0.9 * one * other + 0.1 * (a == b != z) / 3)
    z, a, b = errors(rng, 20_000, 0.1)
    found = dependence(fixed(a), fixed(b), np.eye(4)[z], shuffles=99)
    assert found.bits == pytest.approx(by_loops(p_zab), abs=0.01)
    assert found.p_value == 0.01
    small = errors(rng, 500, 0.1)
    few = dependence(fixed(small[1]), fixed(small[2]), np.eye(4)[small[0]], shuffles=99)
    assert few.bits == pytest.approx(by_loops(p_zab), abs=0.05)  # what chance adds is off
    assert few.chance > 0.02


def test_of_several_labels_any_is_drawn_and_two_are_different() -> None:
    annotations = Annotations.from_matrix(np.array([[0, 1, 2], [2, -1, -1], [0, 1, -1]]))
    rng = np.random.default_rng(0)
    drawn = np.array([a_label(annotations, np.arange(3))(rng) for _ in range(900)])
    assert np.bincount(drawn[:, 0]) == pytest.approx([300, 300, 300], abs=60)
    assert set(drawn[:, 1]) == {2}
    one, another = two_labels(annotations, np.array([0, 2]))
    pairs = {(int(x[0]), int(y[0])) for x, y in ((one(rng), another(rng)) for _ in range(200))}
    assert pairs == {(i, j) for i in range(3) for j in range(3) if i != j}


# -- the whole -----------------------------------------------------------------------------------------------


def told(rng: np.random.Generator, known: float = 0.0, n: int = 150) -> tuple[Evidence, np.ndarray]:
    return crowd(rng, n, 5, 3, 4, unlabeled=12, pool=10, known=known, models=2, abstaining=0.2)


@pytest.mark.parametrize("known", [0.0, 0.5])
def test_the_profile_counts_what_can_be_compared(rng: np.random.Generator, known: float) -> None:
    evidence, _ = told(rng, known)
    found = QUICK.fit(evidence, PLEM().fit(evidence))
    spoken = ~np.isnan(np.stack([p[:, 0] for p in evidence.probabilities.values()])).all(axis=0)
    labeled = evidence.annotations.labels_per_item > 0
    assert (found.items, found.labeled, found.spoken) == (150, labeled.sum(), spoken.sum())
    assert found.expected.items == (spoken & labeled).sum()
    assert (found.measured is None) == (known == 0)
    if found.measured is not None:
        assert found.measured.items == (spoken & labeled & evidence.known).sum()
        assert found.best is found.measured
    for account in (found.expected, found.best):
        assert account.overall["items"].tolist() == [account.items]
        for frame in (account.classes, account.confidence):
            assert frame["items"].sum() == pytest.approx(account.items)
            for who in ("model", "people", "both"):  # the parts make the whole
                whole = (frame[who] * frame["items"]).sum() / account.items
                assert whole == pytest.approx(account.overall[who][0])
        assert account.deferral["accuracy"].iloc[0] == pytest.approx(account.overall["both"][0])
        assert account.deferral["accuracy"].iloc[-1] == pytest.approx(account.overall["model"][0])
        assert account.bound.bound <= account.bound.tighter <= account.bound.accuracy + 1e-9
        names = account.dependence[["first", "second"]].to_numpy().tolist()
        models = list(evidence.probabilities)
        assert names == [*[["annotators", m] for m in models], models, ["annotators", "annotators (another label)"]]
    speaks = [~np.isnan(p[:, 0]) for p in evidence.probabilities.values()]
    many = evidence.annotations.labels_per_item
    assert found.expected.dependence["items"].tolist() == [
        *((one & labeled).sum() for one in speaks), (speaks[0] & speaks[1] & labeled).sum(), (spoken & (many > 1)).sum()
    ]  # fmt: skip


def test_held_out_truth_measures_without_a_refit(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, truth = told(rng)
    consensus = PLEM().fit(evidence)
    profiler = QUICK
    monkeypatch.setattr(PLEM, "fit", None)
    held_out = np.where(np.arange(150) < 100, truth, -1)
    found = profiler.fit(evidence, consensus, truth=held_out).measured
    rows = np.flatnonzero(
        (evidence.annotations.labels_per_item > 0)
        & (held_out >= 0)
        & ~np.isnan(np.stack([p[:, 0] for p in evidence.probabilities.values()])).all(axis=0)
    )
    assert found is not None
    assert found.items == len(rows)
    assert found.overall["both"][0] == pytest.approx((consensus.codes == truth)[rows].mean())
    before = found.calibration[found.calibration["when"] == "before"]
    assert set(before["model"]) == set(evidence.probabilities)
    for name, p in evidence.probabilities.items():
        speaks = rows[~np.isnan(p[rows, 0])]
        one = before[before["model"] == name]
        assert one["items"].sum() == len(speaks)
        right = (p[speaks].argmax(axis=1) == truth[speaks]).mean()
        assert (one["accuracy"] * one["items"]).sum() / len(speaks) == pytest.approx(right)
        assert found.error[name] == pytest.approx(
            ((one["confidence"] - one["accuracy"]).abs() * one["items"]).sum() / len(speaks)
        )


def test_who_knows_nothing_is_told_apart_from_who_does_not_match(rng: np.random.Generator) -> None:
    evidence, truth = told(rng)
    consensus = PLEM().fit(evidence)
    with pytest.raises(BadEvidence, match="no model to compare"):
        QUICK.fit(replace(evidence, probabilities={}), consensus)
    with pytest.raises(BadInput, match="other items"):
        QUICK.fit(told(rng, n=40)[0], consensus)
    for codes in (np.full(len(truth), 99), truth[:5]):
        with pytest.raises(BadEvidence, match="truth"):
            QUICK.fit(evidence, consensus, truth=codes)


def test_where_nothing_can_be_compared_there_are_no_numbers(rng: np.random.Generator) -> None:
    evidence, _ = told(rng, n=1500)
    nobody = replace(evidence, annotations=evidence.annotations.select(np.zeros(len(evidence.annotations), bool)))
    found = QUICK.fit(nobody, PLEM().fit(nobody))
    assert found.expected.items == 0
    assert np.isnan(found.expected.overall["both"][0])
    assert np.isnan(found.expected.bound.bound)


def test_the_two_accounts_on_real_people(rng: np.random.Generator) -> None:
    """The paper's own case: what people add is where the model doubts, and the theorem's bound is not far off."""
    truth, classes = cifar10h_truth()
    labels = np.array([row[0] for row in cifar10h_labels(0)], dtype=np.int32)
    evidence = Evidence(anonymous(labels, classes), {"resnet-110": cifar10h_probabilities("resnet-110")})
    found = QUICK.fit(evidence, PLEM().fit(evidence), truth=truth).measured
    assert found is not None
    assert found.overall["both_low"][0] > max(found.overall["model_high"][0], found.overall["people_high"][0])
    assert found.confidence["people_add_low"].iloc[0] > 0.2 > 0.005 > found.confidence["people_add_high"].iloc[-1]
    assert 0.95 < found.bound.bound < found.bound.tighter < found.bound.accuracy
    (row,) = found.dependence.to_dict("records")
    assert 0.01 < row["bits"] < 0.037 < 0.05 < row["together"]  # the paper's 0.037 has chance in it
    assert row["p_value"] < 0.05
    assert found.error["calibrated"] < 0.5 * found.error["resnet-110"]
