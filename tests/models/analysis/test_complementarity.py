"""What human and model do alone and together: every figure against plain loops, enumeration or a closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import multinomial

from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import PLEM, DawidSkene, DefaultCombiner
from hitl.models.analysis.complementarity import Comparison, deferral_curve, judge
from hitl.models.analysis.proportions import difference, wilson
from tests.oracles import crowd


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# -- intervals -----------------------------------------------------------------------------------------------


def test_the_interval_of_a_difference_covers_it() -> None:
    """Exactly, by the sum over all tables of 40 items."""
    n = 40
    for chances in ((0.1, 0.1), (0.3, 0.05), (0.02, 0.02), (0.6, 0.3), (0.0, 0.2)):
        covered = 0.0
        for won, lost in product(range(n + 1), repeat=2):
            if won + lost > n:
                continue
            chance = multinomial.pmf([won, lost, n - won - lost], n, [*chances, 1 - sum(chances)])
            found, low, high = difference(won, lost, n)
            assert found == pytest.approx((won - lost) / n)
            assert -1 <= low <= found <= high <= 1
            covered += chance * (low <= chances[0] - chances[1] <= high)
        assert covered >= 0.93, chances
        assert covered <= 0.999 or min(chances) < 0.05
    assert np.isnan(difference(0, 0, 0)).all()


# -- accuracies ----------------------------------------------------------------------------------------------


def some(rng: np.random.Generator, n: int = 60, j: int = 3, *, known: bool = False) -> Comparison:
    truth = rng.dirichlet(np.full(j, 0.4), n)
    if known:
        truth = np.eye(j)[truth.argmax(axis=1)]
    labels = [rng.integers(j, size=n).astype(np.int32) for _ in range(3)]
    return Comparison(*labels, np.round(rng.random(n), 2), truth)


@pytest.mark.parametrize("known", [False, True])
def test_accuracies_are_those_of_plain_loops(rng: np.random.Generator, known: bool) -> None:
    c = some(rng, known=known)
    (row,) = c.overall().to_dict("records")
    for who in ("model", "people", "both"):
        label = getattr(c, who)
        right = sum(c.truth[n, label[n]] for n in range(60))
        assert row[who] == pytest.approx(right / 60)
        assert (row[f"{who}_low"], row[f"{who}_high"]) == pytest.approx(tuple(map(float, wilson(right, 60))))
    for name, before in (("people_add", c.model), ("model_adds", c.people)):
        won = sum(c.truth[n, c.both[n]] for n in range(60) if c.both[n] != before[n])
        lost = sum(c.truth[n, before[n]] for n in range(60) if c.both[n] != before[n])
        expected = [float(x) for x in difference(won, lost, 60)]
        assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected)
    assert row["people_add"] == pytest.approx(row["both"] - row["model"])
    assert row["model_adds"] == pytest.approx(row["both"] - row["people"])


@pytest.mark.parametrize("known", [False, True])
def test_classes_and_bins_are_those_of_plain_loops(rng: np.random.Generator, known: bool) -> None:
    c = some(rng, known=known)
    by_class = c.by_class(("a", "b", "c"))
    assert list(by_class["class"]) == ["a", "b", "c"]
    for j, row in enumerate(by_class.to_dict("records")):
        total = sum(c.truth[:, j])
        assert row["items"] == pytest.approx(total)
        for who in ("model", "people", "both"):
            assert row[who] == pytest.approx(sum(c.truth[n, j] for n in range(60) if getattr(c, who)[n] == j) / total)
        assert row["people_add"] == pytest.approx(row["both"] - row["model"])
        assert row["people_add_low"] < row["people_add"] < row["people_add_high"]
    bins = c.by_confidence(4)
    assert len(bins) == 3  # twenty items each at least
    assert bins["items"].sum() == 60
    assert (bins["from"].to_numpy()[1:] > bins["to"].to_numpy()[:-1]).all()
    for row in bins.to_dict("records"):
        inside = [n for n in range(60) if row["from"] <= c.confidence[n] <= row["to"]]
        assert row["items"] == len(inside)
        assert row["confidence"] == pytest.approx(np.mean(c.confidence[inside]))
        for who in ("model", "people", "both"):
            assert row[who] == pytest.approx(np.mean([c.truth[n, getattr(c, who)[n]] for n in inside]))
        assert row["model_adds"] == pytest.approx(row["both"] - row["people"])


# -- deferral ------------------------------------------------------------------------------------------------


def test_the_deferral_curve_is_that_of_plain_loops(rng: np.random.Generator) -> None:
    confidence, alone, both = rng.permutation(50) / 50, rng.random(50), rng.random(50)
    curve = deferral_curve(confidence, alone, both, points=51)
    surest = sorted(range(50), key=lambda n: -confidence[n])
    for many in range(51):
        skips, rest = surest[:many], surest[many:]
        right = sum(alone[n] for n in skips) + sum(both[n] for n in rest)
        assert curve.accuracy[many] == pytest.approx(right / 50)
        low, high = wilson(right, 50)
        assert (curve.low[many], curve.high[many]) == pytest.approx((float(low), float(high)))
        if many:
            assert curve.skipped[many] == pytest.approx(np.mean(alone[skips]))
            assert curve.confidence[many] == pytest.approx(min(confidence[skips]))
    assert np.isnan(curve.skipped[0])
    assert np.isnan(curve.confidence[0])


def test_items_of_equal_confidence_are_in_no_order(rng: np.random.Generator) -> None:
    """The curve is the mean over every order of the items that are equally sure."""
    confidence, alone, both = np.array([0.9, 0.7, 0.7, 0.7, 0.7]), rng.random(5), rng.random(5)
    curve = deferral_curve(confidence, alone, both, points=6)
    for many in range(1, 6):
        means = [
            (alone[0] + alone[list(o[: many - 1])].sum() + both[list(o[many - 1 :])].sum()) / 5
            for o in permutations((1, 2, 3, 4))
        ]
        assert curve.accuracy[many] == pytest.approx(np.mean(means))


# -- who judges ----------------------------------------------------------------------------------------------


def told(rng: np.random.Generator, known: float = 0.5, n: int = 80) -> Evidence:
    evidence, _ = crowd(rng, n, 5, 3, 4, unlabeled=6, pool=10, known=known, models=2, abstaining=0.2)
    return evidence


def test_model_alone_is_the_calibrated_pool_and_people_alone_know_no_model(rng: np.random.Generator) -> None:
    evidence = told(rng, known=0.0)
    one = replace(
        evidence, probabilities={"m": np.where(rng.random((80, 1)) < 0.1, np.nan, rng.dirichlet(np.ones(3), 80))}
    )
    consensus = PLEM().fit(one)
    judged = judge(one, consensus)
    p_nj = one.probabilities["m"]
    speaks = ~np.isnan(p_nj[:, 0])
    powered = p_nj[speaks] ** (1 / consensus.temperatures["m"])
    assert np.allclose(judged.model[speaks], powered / powered.sum(axis=1, keepdims=True), atol=1e-6)
    assert np.allclose(judged.people, DefaultCombiner().fit(Evidence(one.annotations)).probabilities)
    assert (judged.both == consensus.probabilities).all()
    assert (judged.compared == (speaks & (one.annotations.labels_per_item > 0))).all()


def test_nobody_is_told_the_truth_of_the_item_they_judge(rng: np.random.Generator) -> None:
    evidence = told(rng)
    judged = judge(evidence, PLEM().fit(evidence))
    for item in np.flatnonzero(evidence.known)[:2]:
        truth = evidence.truth.copy()
        truth[item] = (truth[item] + 1) % 3
        other = replace(evidence, truth=truth)
        again = judge(other, PLEM().fit(other))
        for name in ("model", "people", "both", "log_likelihood"):
            before, after = getattr(judged, name), getattr(again, name)
            assert np.allclose(before[item], after[item], atol=1e-9)
            assert not np.allclose(before, after, atol=1e-6)  # of the others it tells something
    assert judged.compared[evidence.known].any()
    assert judged.both[evidence.known].max() < 1


def test_a_method_that_makes_nothing_of_models_is_told(rng: np.random.Generator) -> None:
    evidence = told(rng, known=0.0)
    with pytest.raises(BadEvidence, match="'dawid-skene' does not use models"):
        judge(evidence, DawidSkene().fit(Evidence(evidence.annotations)))
    constant = replace(evidence, probabilities={"m": np.full((80, 3), 1 / 3)})
    judge(constant, PLEM().fit(constant))


def test_few_known_truths_measure_nothing_and_are_left_out(rng: np.random.Generator) -> None:
    evidence = told(rng, known=0.0)
    truth = np.full(80, -1, np.int32)
    truth[:9] = 0
    judged = judge(replace(evidence, truth=truth), PLEM().fit(replace(evidence, truth=truth)))
    assert not judged.compared[:9].any()
    assert judged.model[:9].max() < 1  # the pool, not what is known
    assert judged.compared[9:].any()
