"""When a project is done: the interval of the accuracy against enumeration, and that stopping there is right."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from hitl.active.acquisition import value_of_information
from hitl.active.stopping import known_items, rules
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.metrics import outlook
from hitl.models.coins import OneCoin
from hitl.models.dawid_skene import DawidSkene


def believed(
    q_nj: Floats, matrix: list[list[int]] | None = None, confusion: Floats | None = None, truth: list[int] | None = None
) -> tuple[Evidence, Consensus]:
    """A consensus that believes just this, of people with these confusion matrices."""
    n_items, n_classes = q_nj.shape
    annotations = Annotations.from_matrix(
        matrix if matrix is not None else np.zeros((n_items, 1), int), classes=tuple(range(n_classes))
    )
    k = annotations.n_annotators
    pi = np.repeat(np.eye(n_classes)[None], k, axis=0) * 0.6 + 0.4 / n_classes if confusion is None else confusion
    shares = np.full(n_classes, 1 / n_classes)
    people = AnnotatorReport(
        annotations.annotators,
        annotations.classes,
        annotations.options,
        20 * pi,
        pi,
        annotations.labels_per_annotator,
        shares,
    )
    known = None if truth is None else np.array(truth)
    return Evidence(annotations, truth=known), Consensus(annotations.items, annotations.classes, q_nj, people, shares)


def stop(question: tuple[Evidence, Consensus], crew: Crew, budget: Budget) -> str | None:
    return rules.project_stop(PoolState.of([question], budget), crew, budget)


def two(confidence: Floats) -> Floats:
    return np.stack([confidence, 1 - confidence], axis=1)


def number_wrong(error_n: Floats) -> Floats:
    """(N + 1,) chance of each number of wrong labels: the Poisson-binomial, item by item."""
    chance = np.ones(1)
    for e in error_n:
        chance = np.append(chance, 0) * (1 - e) + np.append(0, chance) * e
    return chance


def accuracy_interval(error_n: Floats, *doubt: float) -> tuple[float, float, float]:
    return rules.interval_of_errors(error_n.sum(), (error_n * (1 - error_n)).sum(), error_n.size, *doubt)


def test_the_mean_is_that_of_the_confidence() -> None:
    mean, low, high = accuracy_interval(np.array([0.1, 0.3, 0.02]))
    assert np.isclose(mean, 1 - 0.42 / 3)
    assert low < mean < high


@pytest.mark.parametrize(("size", "typical"), [(100, 0.05), (1000, 0.05), (1000, 0.3), (300, 0.01), (20, 0.4)])
def test_the_interval_holds_what_the_poisson_binomial_does(size: int, typical: float) -> None:
    error = np.random.default_rng(size).beta(1, 1 / typical - 1, size=size)
    _, low, high = accuracy_interval(error)
    chance = number_wrong(error)
    accuracy = 1 - np.arange(size + 1) / size
    assert chance[accuracy < low - 1e-12].sum() == pytest.approx(0.025, abs=0.016)
    assert chance[accuracy > high + 1e-12].sum() == pytest.approx(0.025, abs=0.022)


def test_doubt_in_the_confidence_widens_and_shifts_the_interval() -> None:
    error = np.full(500, 0.1)
    sure, doubtful = accuracy_interval(error), accuracy_interval(error, 1.0, 0.04)
    assert sure[0] == doubtful[0]
    assert doubtful[1] < sure[1] - 0.01
    assert accuracy_interval(error, 1.5)[0] == pytest.approx(0.85)
    rng = np.random.default_rng(0)
    r = rng.gamma(25, 1 / 25, size=20_000)  # the same by drawing ratio, then errors
    drawn = 1 - rng.binomial(500, np.minimum(0.1 * r, 1)) / 500
    assert doubtful[1] == pytest.approx(np.quantile(drawn, 0.025), abs=0.005)
    assert doubtful[2] == pytest.approx(np.quantile(drawn, 0.975), abs=0.005)


def test_known_items_are_right_and_questions_are_averaged() -> None:
    one = believed(two(np.array([0.9, 0.8, 0.5])), truth=[-1, -1, 0])
    assert rules.expected_accuracy([one]).accuracy == pytest.approx((0.9 + 0.8 + 1) / 3)
    found = rules.expected_accuracy([one])
    alone = accuracy_interval(np.array([0.1, 0.2, 0.0]), 1.0, 1 / rules.PRIOR_ERRORS)
    assert np.allclose((found.accuracy, found.low, found.high), alone)
    other = believed(two(np.array([0.7, 0.6, 0.5])), truth=[-1, -1, 0])
    both = rules.expected_accuracy([one, other])
    assert both.accuracy == pytest.approx((0.8 + 0.7 + 1) / 3)
    assert rules.expected_accuracy([one, one]) == rules.expected_accuracy([one])  # they are taken to err together


def gold(rng: np.random.Generator, truth_is_told: bool, wrong_gold: float = 0.0) -> tuple[Evidence, Consensus]:
    truth = rng.integers(2, size=300)
    said = np.where(rng.random((300, 5)) < 0.7, truth[:, None], 1 - truth[:, None])
    told = np.where(rng.random(300) < wrong_gold, 1 - truth, truth)
    known = np.where(np.arange(300) < 100, told, -1) if truth_is_told else None
    evidence = Evidence(Annotations.from_matrix(said), truth=known)
    return evidence, OneCoin().fit(evidence)


def test_known_items_say_what_the_confidence_is_worth() -> None:
    rng = np.random.default_rng(0)
    unchecked = rules.expected_accuracy([gold(np.random.default_rng(0), False)])
    assert (unchecked.checked, unchecked.ratio, unchecked.overconfident) == (0, 1.0, False)
    holds = rules.expected_accuracy([gold(rng, True)])
    assert holds.checked == 100
    assert holds.wrong == pytest.approx(holds.expected_wrong, abs=8)
    assert not holds.overconfident
    spoilt = rules.expected_accuracy([gold(rng, True, wrong_gold=0.3)])
    assert spoilt.overconfident
    assert spoilt.ratio > 1.2
    r = stats.gamma(4 + spoilt.wrong, scale=spoilt.scale / (4 + spoilt.expected_wrong))
    assert (spoilt.ratio, spoilt.ratio_variance) == (pytest.approx(r.mean()), pytest.approx(r.var()))
    evidence, consensus = question = gold(np.random.default_rng(0), True)
    found, error = rules.expected_accuracy([question]), np.where(evidence.known, 0.0, 1 - consensus.confidence)
    assert (found.accuracy, found.low, found.high) == accuracy_interval(error, found.ratio, found.ratio_variance)
    assert unchecked.ratio_variance == 0.5
    assert unchecked.high - unchecked.low > 2 * (found.high - found.low)


def test_known_items_are_judged_by_as_many_labels_as_the_others_have() -> None:
    """Asked about by everybody, they would be right far more often than an item with three labels."""
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=600)
    said = np.where(rng.random((600, 15)) < 0.7, truth[:, None], 1 - truth[:, None])
    known_n = np.arange(600) < 200
    said[~known_n[:, None] & (np.argsort(rng.random(said.shape), axis=1) >= 3)] = -1
    evidence = Evidence(Annotations.from_matrix(said, classes=(0, 1)), truth=np.where(known_n, truth, -1))
    consensus = DawidSkene().fit(evidence)
    found = rules.expected_accuracy([(evidence, consensus)])
    error = (consensus.codes != truth)[~known_n].mean()
    assert error > 0.15
    assert found.checked == known_items.MOST_CHECKED
    assert found.wrong / found.checked == pytest.approx(error, abs=0.1)  # with all of their labels: .05
    assert found.low < 1 - error * 400 / 600 < found.high


def test_a_target_is_reached_by_what_the_accuracy_surely_is() -> None:
    """Beside known items it is exceeded in 19 of 20 cases, without any in 39 of 40."""
    for evidence, consensus in (gold(np.random.default_rng(2), told) for told in (True, False)):
        found = rules.expected_accuracy([(evidence, consensus)])
        right = (np.where(evidence.known, 1.0, consensus.confidence)).sum() / 300
        wrong, spread = (1 - right) * found.ratio, (1 - consensus.confidence) * ~evidence.known
        variance = found.ratio * (spread * (1 - spread)).sum() + spread.sum() ** 2 * found.ratio_variance
        strength = wrong * (1 - wrong) / (variance / 300**2) - 1
        level = 0.05 if found.checked else 0.025
        expected = stats.beta.ppf(level, (1 - wrong) * strength, wrong * strength)
        assert found.sure == pytest.approx(expected, abs=1e-6)
        assert rules.reached(found, found.sure)
        assert not rules.reached(found, found.sure + 1e-6)


def test_few_labels_an_item_cannot_say_how_good_they_are() -> None:
    """Those who err together agree as well: a target ends no project until something else tells."""
    q_nj, budget = two(np.full(400, 0.99)), Budget(target_confidence=1.0, target_accuracy=0.9)
    thin, fair = (believed(q_nj, np.zeros((400, labels), int).tolist()) for labels in (2, 3))
    assert stop(thin, Crew(), budget) is None
    assert "the expected accuracy" in str(stop(fair, Crew(), budget))
    found = rules.expected_accuracy([thin])
    assert found.unknowable.startswith("With 2.0 answers per item")
    assert "20 gold items (`hitl gold truth.csv`: item, label), collect 3 answers per item, or " in str(
        found.unknowable
    )
    shown = {"expected": asdict(found), "labels": 1, "cost": 1.0}
    assert "can't tell yet. With 2.0 answers per item" in outlook(shown)[0]
    beside = (replace(thin[0], probabilities={"model": q_nj}), thin[1])
    checked = (replace(thin[0], truth=np.where(np.arange(400) < 30, 0, -1)), replace(thin[1], fit=Fit("dawid-skene")))
    for question in (fair, beside, checked):
        assert not rules.expected_accuracy([question]).unknowable


def test_models_stand_for_labels_of_what_they_predict_as_far_as_they_tell_anything() -> None:
    q_nj = two(np.full(40, 0.99))
    thin, consensus = believed(q_nj, np.zeros((40, 2), int).tolist())
    one = np.full((40, 2), np.nan)
    one[0] = 0.7, 0.3
    of_one = replace(thin, probabilities={"model": one})
    assert rules.expected_accuracy([(of_one, consensus)]).unknowable.startswith("With 2.0 answers per item")
    of_all = replace(thin, probabilities={"model": np.tile([0.7, 0.3], (40, 1))})
    assert not rules.expected_accuracy([(of_all, consensus)]).unknowable
    for told, enough in ((0.0, False), (0.3, False), (0.4, True)):
        learned = replace(consensus, parameters={"model informativeness": np.array(told)})
        assert (rules.expected_accuracy([(of_all, learned)]).unknowable == "") == enough


def test_every_item_done_ends_the_project() -> None:
    question = believed(two(np.array([0.99, 0.97])))
    assert stop(question, Crew(), Budget()) == "every item is done"
    assert len(PoolState.of([question], Budget()).done) == 2
    assert stop(question, Crew(), Budget(target_confidence=0.98)) is None
    assert [one.item for one in PoolState.of([question], Budget(target_confidence=0.98)).done] == [0]


def test_the_lower_end_has_to_reach_the_target() -> None:
    question = believed(two(np.full(400, 0.94)), np.zeros((400, 3), int).tolist())
    now = rules.expected_accuracy([question])
    for target, ends in ((now.low - 1e-6, True), (now.low + 1e-6, False), (now.accuracy - 1e-6, False)):
        why = stop(question, Crew(), Budget(target_accuracy=target))
        assert (why is not None) is ends
        if why is not None:
            assert "94.0%" in why
            assert f"{target:.1%}" in why


# -- what answers are worth ----------------------------------------------------------------------------------


def test_the_best_gain_per_label_is_that_of_the_best_number_of_answers() -> None:
    rng = np.random.default_rng(3)
    q, pi = rng.dirichlet(np.ones(3), size=6), rng.dirichlet(np.ones(4), size=3)
    best = value_of_information.best_gain_per_label(q, pi, 3)
    assert np.allclose(best, np.max([value_of_information.accuracy_gain(q, pi, m) / m for m in (1, 2, 3)], axis=0))
    q, pi = np.array([[0.9, 0.1]]), np.array([[0.8, 0.2], [0.2, 0.8]])  # answers that only help together
    assert np.isclose(value_of_information.best_gain_per_label(q, pi, 1)[0], 0)
    assert value_of_information.best_gain_per_label(q, pi, 10)[0] > 0.01


def test_the_project_ends_when_the_best_answer_is_not_worth_its_cost() -> None:
    question = believed(two(np.array([0.7, 0.9])), confusion=np.array([[[0.9, 0.1], [0.1, 0.9]]]))
    gain = value_of_information.best_gain_per_label(np.array([[0.7, 0.3]]), np.array([[0.9, 0.1], [0.1, 0.9]]), 10)[0]
    crew = Crew((0,), cost={0: 2.0})
    for value, ends in ((1.99 / gain, True), (2.01 / gain, False)):
        why = stop(question, crew, Budget(value_per_label=value))
        assert (why is not None) is ends
        assert why is None or "costs 2" in why


def test_a_cheaper_or_better_annotator_keeps_the_project_going() -> None:
    good, poor = [[0.9, 0.1], [0.1, 0.9]], [[0.6, 0.4], [0.4, 0.6]]
    question = believed(two(np.array([0.6])), [[0, 0]], np.array([good, poor]))
    rows = np.array([0])
    alone = value_of_information.best_next([question], rows, Crew((1,)), Budget())
    both = value_of_information.best_next([question], rows, Crew((1, 0)), Budget())
    dear = value_of_information.best_next([question], rows, Crew((1, 0), cost={0: 100.0}), Budget())
    assert both[0] > alone[0] > 0
    assert both == (pytest.approx(0.3), 1.0)
    assert dear == alone


def test_why_the_confidence_was_not_checked_is_said() -> None:
    evidence, consensus = gold(np.random.default_rng(0), True)
    assert rules.expected_accuracy([(evidence, consensus)]).unchecked == ""
    stranger = replace(consensus, fit=Fit("somebody's own"))
    found = rules.expected_accuracy([(evidence, stranger)])
    assert found.checked == 0
    assert "'somebody's own' is unknown" in found.unchecked or "somebody's own" in found.unchecked
    ebcc = replace(consensus, fit=Fit("ebcc", settings={}))
    found = rules.expected_accuracy([(evidence, ebcc)])
    assert found.checked == 0
    assert (
        found.unchecked == "The method ebcc cannot predict items without their ground truth. Use the method `default`."
    )
    one_checked = rules.expected_accuracy([(evidence, ebcc), (evidence, consensus)])
    assert (one_checked.checked, one_checked.unchecked) == (100, "")
    few = replace(evidence, truth=np.where(np.arange(300) < 7, 0, -1))
    for known, said in (
        (few, "(`hitl gold truth.csv`: item, label), and 7 of yours are answered."),
        (replace(evidence, truth=None), "(`hitl gold truth.csv`: item, label)."),
    ):
        found = rules.expected_accuracy([(known, consensus)])
        assert found.unchecked.startswith("Checking it takes 20 answered gold items")
        assert found.unchecked.endswith(said)
