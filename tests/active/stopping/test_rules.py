"""When a project is done: what is believed, what known items say about it, and where it stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hitl.active.acquisition import value_of_information
from hitl.active.pool_state import PoolState
from hitl.active.stopping import known_items, rules
from hitl.active.stopping.project_stop import project_stop
from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
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
    return project_stop(PoolState.of([question], budget), crew, budget)


def two(confidence: Floats) -> Floats:
    return np.stack([confidence, 1 - confidence], axis=1)


def test_known_items_are_right_and_questions_are_averaged() -> None:
    one = believed(two(np.array([0.9, 0.8, 0.5])), truth=[-1, -1, 0])
    found = rules.expected_accuracy([one])
    assert found.accuracy == pytest.approx((0.9 + 0.8 + 1) / 3)
    assert (found.checked, found.low, found.high) == (0, 0.0, 1.0)
    other = believed(two(np.array([0.7, 0.6, 0.5])), truth=[-1, -1, 0])
    assert rules.expected_accuracy([one, other]).accuracy == pytest.approx((0.8 + 0.7 + 1) / 3)


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
    assert (unchecked.checked, unchecked.overconfident) == (0, False)
    holds = rules.expected_accuracy([gold(rng, True)])
    assert holds.checked == 100
    assert holds.wrong == pytest.approx(holds.expected_wrong, abs=8)
    assert holds.low < holds.accuracy < holds.high
    assert not holds.overconfident
    spoilt = rules.expected_accuracy([gold(rng, True, wrong_gold=0.3)])
    assert spoilt.overconfident
    assert spoilt.high < holds.high
    assert spoilt.wrong > holds.wrong + 10


def test_the_interval_of_few_known_items_is_exact_and_counts_known_ones_as_right() -> None:
    evidence, _ = gold(np.random.default_rng(4), True)
    assert evidence.truth is not None
    few = replace(evidence, truth=np.where(np.arange(300) < 60, evidence.truth, -1))
    found = rules.expected_accuracy([(few, OneCoin().fit(few))])
    exact = stats.binomtest(60 - int(found.wrong), 60).proportion_ci(0.95)
    assert (found.checked, found.low) == (60, pytest.approx(0.2 + 0.8 * exact.low))
    assert found.high == pytest.approx(0.2 + 0.8 * exact.high)
    both = rules.expected_accuracy([(few, OneCoin().fit(few)), believed(two(np.full(300, 0.9)))])
    assert (both.low, both.high) == (pytest.approx(found.low / 2), pytest.approx((found.high + 1) / 2))


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
    assert found.wrong > 6


def test_the_belief_may_use_half_of_the_permitted_errors() -> None:
    question = believed(two(np.full(400, 0.94)), np.zeros((400, 3), int).tolist())
    for target, ends in ((0.88, True), (0.8801, False), (0.94, False)):
        why = stop(question, Crew(), Budget(target_accuracy=target))
        assert (why is not None) is ends
        if why is not None:
            assert why == "94.0 % of the labels are believed to be right (target: 88.0 %)"


def test_known_items_may_use_all_of_them_and_no_more() -> None:
    for wrong, reaches in ((5, True), (6, False)):
        assert rules.reached(rules.Expected(0.98, 100, wrong=float(wrong)), 0.95) is reaches
    assert not rules.reached(rules.Expected(0.97, 100, wrong=0.0), 0.95)
    assert rules.reached(rules.Expected(1.0, 100, wrong=0.0), 1.0)
    assert not rules.reached(rules.Expected(0.99, 100, wrong=1.0), 1.0)


def test_where_known_items_contradict_the_belief_has_to_fall_as_far_as_they_do() -> None:
    found = rules.Expected(0.98, 100, wrong=10.0)
    assert found.permitted(0.95) == pytest.approx(0.02 / 2)
    assert found.permitted(0.8) == pytest.approx(0.1)


def test_every_item_done_ends_the_project() -> None:
    question = believed(two(np.array([0.99, 0.97])))
    assert stop(question, Crew(), Budget()) == "every item is done"
    assert len(PoolState.of([question], Budget()).done) == 2
    assert stop(question, Crew(), Budget(target_confidence=0.98)) is None
    assert [one.item for one in PoolState.of([question], Budget(target_confidence=0.98)).done] == [0]


def test_an_item_with_all_its_answers_is_done_in_a_question_that_nobody_was_shown_too() -> None:
    shown = believed(two(np.array([0.9, 0.9])), matrix=[[0, 0, 0], [0, -1, -1]])
    hidden = believed(two(np.array([0.5, 0.5])), matrix=[[-1] * 3, [-1] * 3])
    pool = PoolState.of([shown, hidden], Budget(max_labels=3))
    assert pool.states.tolist() == [[rules.LIMIT, rules.OPEN]] * 2
    assert pool.part([1]).states.tolist() == [[rules.LIMIT, rules.OPEN]]


def test_accepted_labels_are_done_where_the_consensus_says_the_same() -> None:
    question = believed(two(np.array([0.7, 0.7, 0.3, 0.99])), truth=[-1, 0, -1, -1])
    pool = PoolState.of([question], Budget(accepted={"0": "0", "1": "0", "2": "0", "9": "0"}))
    assert pool.states.tolist() == [[rules.ACCEPTED, rules.KNOWN, rules.OPEN, rules.CONFIDENT]]
    assert dict(zip(pool.done.items, pool.done.why, strict=True))[0] == "accepted without annotators"
    assert PoolState.of(pool, Budget()).states.tolist() == [[rules.OPEN, rules.KNOWN, rules.OPEN, rules.CONFIDENT]]


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
