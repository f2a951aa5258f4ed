"""What the policy asks, whom, and what it calls done: against enumeration, and within all limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from hitl.active.acquisition.value_of_information import average_confusion, best_gain_per_label
from hitl.active.assignment.batch import FIRST
from hitl.active.assignment.gold_and_audits import CHECK
from hitl.active.policy import ExpectedGain
from hitl.active.replay.baselines import Randomly
from hitl.active.replay.experiments import Simulation, run_trials, spent_to_reach
from hitl.active.replay.replay import Replay
from hitl.active.replay.simulated_annotators import Group
from hitl.active.stopping import rules
from hitl.annotations import ANONYMOUS, Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.vb_ibcc import VBIBCC


def judged(
    rng: np.random.Generator, items: int = 12, people: int = 5, classes: int = 3, seen: float = 0.3
) -> tuple[Evidence, Consensus]:
    """Random annotations and a consensus with random beliefs and confusion matrices."""
    matrix = np.where(rng.random((items, people)) < seen, rng.integers(0, classes, (items, people)), -1)
    names = tuple(f"class-{j}" for j in range(classes))
    annotations = Annotations.from_matrix(matrix, classes=names)
    q = rng.dirichlet(np.full(classes, 0.5), size=items)
    concentration = rng.gamma(2.0, size=(people, classes, classes)) + 3 * np.eye(classes)
    confusion = concentration / concentration.sum(axis=2, keepdims=True)
    shares = np.full(classes, 1 / classes)
    learned = AnnotatorReport(
        annotations.annotators, names, names, concentration, confusion, annotations.labels_per_annotator, shares
    )
    return Evidence(annotations), Consensus(annotations.items, names, q, learned, shares)


def one_answer(q_j: Floats, pi_jl: Floats, information: float = ExpectedGain().information) -> float:
    """What an answer brings, answer by answer: right labels, and nats."""
    right, nats = -q_j.max(), -xlogy(q_j, q_j).sum()
    for option in range(pi_jl.shape[1]):
        joint = q_j * pi_jl[:, option]
        right += joint.max()
        nats += xlogy(joint, joint / joint.sum()).sum()
    return float(right + information * nats)


def open_budget(labels: int = 100) -> Budget:
    """Nothing is done before anything was asked."""
    return Budget(open_questions=labels, target_confidence=1.0, min_labels=0, max_labels=99)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 4), st.floats(0, 2))
def test_the_questions_are_those_worth_most_together(seed: int, labels: int, capacity: int, explore: float) -> None:
    """Against the best assignment there is: everybody as often as they have capacity, nobody twice about an item."""
    evidence, consensus = judged(np.random.default_rng(seed))
    learned, annotations = consensus.annotators, evidence.annotations
    policy = ExpectedGain(exploration_weight=explore, max_load_ratio=np.inf)  # nothing counts half
    plan = policy.plan([(evidence, consensus)], Crew(learned.names, default_capacity=capacity), open_budget(labels))
    bonus = 1 + explore / np.sqrt(1 + learned.labels)
    value = np.array([[one_answer(q, pi) for pi in learned.confusion] for q in consensus.probabilities]) * bonus
    allowed = value.copy()
    allowed[annotations.item, annotations.annotator] = -100.0
    slots = np.repeat(allowed, capacity, axis=1)
    if slots.shape[1] > labels:  # a dummy item takes each place that may not be filled
        slots = np.vstack([slots, np.zeros((slots.shape[1] - labels, slots.shape[1]))])
        slots[12:] = 1000.0
    row, column = linear_sum_assignment(slots, maximize=True)
    real = (row < 12) & (slots[row, column] > 0)
    best = slots[row[real], column[real]].sum()
    found = [value[ask.item, ask.annotator] for ask in plan.asks]  # type: ignore[index]
    assert sum(found) >= 0.99 * best
    assert len(plan.asks) <= labels
    for ask in plan.asks:
        pi, q = learned.confusion[ask.annotator], consensus.probabilities[ask.item]  # type: ignore[index,call-overload]
        assert np.isclose(ask.gain, one_answer(q, pi))
        assert np.isclose(ask.right, q @ np.diag(pi))  # Rodrigues 2014, eq. 12


def test_whoever_comes_is_asked_about_the_items_worth_most() -> None:
    evidence, consensus = judged(np.random.default_rng(0))
    average = average_confusion(consensus)
    gain = np.array([one_answer(q, average) for q in consensus.probabilities])
    plan = ExpectedGain().plan([(evidence, consensus)], Crew(), open_budget(7))
    assert [ask.item for ask in plan.asks] == np.argsort(-gain, kind="stable")[:7].tolist()
    assert np.allclose([ask.gain for ask in plan.asks], np.sort(gain)[::-1][:7])
    assert {ask.annotator for ask in plan.asks} == {None}


def test_beside_models_whoever_comes_errs_evenly() -> None:
    """The pattern of a pool is that of the items it was asked about: there the models hesitate between two classes."""
    evidence, bare = judged(np.random.default_rng(5))
    consensus = replace(bare, temperatures={"model": 1.0})
    beside = replace(evidence, probabilities={"model": bare.probabilities})
    right = float(np.trace(average_confusion(bare))) / 3
    even = np.full((3, 3), (1 - right) / 2) + (right - (1 - right) / 2) * np.eye(3)
    gain = np.array([one_answer(q, even) for q in bare.probabilities])
    plan = ExpectedGain().plan([(beside, consensus)], Crew(), open_budget(7))
    assert [ask.item for ask in plan.asks] == np.argsort(-gain, kind="stable")[:7].tolist()
    assert np.allclose([ask.gain for ask in plan.asks], np.sort(gain)[::-1][:7])
    assert np.allclose([ask.right for ask in plan.asks], right)
    alone = ExpectedGain().plan([(evidence, bare)], Crew(), open_budget(7))
    assert not np.allclose([ask.gain for ask in alone.asks], np.sort(gain)[::-1][:7])
    named = [
        ExpectedGain().plan([(e, c)], Crew((0, 1)), open_budget(7)) for e, c in ((evidence, bare), (beside, consensus))
    ]
    assert named[0].asks == named[1].asks  # people have patterns of their own


def test_of_equal_items_the_one_with_fewest_labels_is_asked() -> None:
    matrix = np.array([[0, 1, -1], [0, -1, -1], [-1, -1, -1], [0, 1, 0]])
    annotations = Annotations.from_matrix(matrix)
    _, some = judged(np.random.default_rng(1), 4, 3, 2)
    even = Consensus(annotations.items, (0, 1), np.full((4, 2), 0.5), some.annotators, np.full(2, 0.5))
    for crew in (Crew(), Crew(("new",))):
        plan = ExpectedGain().plan([(Evidence(annotations), even)], crew, open_budget())
        assert [ask.item for ask in plan.asks] == [2, 1, 0, 3]


def test_a_pool_without_names_that_has_no_more_answers_is_not_asked_for_them() -> None:
    evidence, consensus = judged(np.random.default_rng(2))
    order = [ask.item for ask in ExpectedGain().plan([(evidence, consensus)], Crew(), open_budget()).asks]
    never = frozenset({(ANONYMOUS, order[0]), ("ann", order[1])})  # ann is one of many
    plan = ExpectedGain().plan(
        [(evidence, consensus)], Crew(never=never, asked=((ANONYMOUS, order[2]),)), open_budget()
    )
    assert [ask.item for ask in plan.asks] == [order[1], *order[3:]]
    by_name = ExpectedGain().plan([(evidence, consensus)], Crew(("bob",), never=never), open_budget())
    assert {ask.item for ask in by_name.asks} == set(order)


def test_whoever_comes_is_paid_from_the_budget() -> None:
    evidence, consensus = judged(np.random.default_rng(2))
    for cost, many in ((7.0, 3), (7.5, 3), (1.9, 0), (0.0, 0), (100.0, 9)):
        budget = replace(open_budget(9), cost=cost)
        assert len(ExpectedGain().plan([(evidence, consensus)], Crew(default_cost=2.0), budget).asks) == many


def test_newcomers_are_tried_before_equally_good_people_who_are_known() -> None:
    evidence, consensus = judged(np.random.default_rng(3), people=3, seen=0.0)
    learned = consensus.annotators
    same = replace(learned, confusion=np.tile(average_confusion(consensus), (3, 1, 1)), labels=np.array([50, 50, 50]))
    consensus = replace(consensus, annotators=same)
    crew = Crew((0, 1, 2, "new"), default_capacity=4)
    for ask in ExpectedGain().plan([(evidence, consensus)], crew, open_budget(FIRST)).asks:
        assert ask.annotator == "new"
    asked = [ask.annotator for ask in ExpectedGain().plan([(evidence, consensus)], crew, open_budget(4)).asks]
    assert asked.count("new") == FIRST  # and no more before they have shown something
    spread = ExpectedGain(exploration_weight=0.0).plan([(evidence, consensus)], crew, open_budget(4)).annotators
    assert len(spread) == 4  # all the same: each a little


def test_items_that_are_not_alike_where_there_are_features() -> None:
    evidence, consensus = judged(np.random.default_rng(6), items=60)
    group = np.arange(60) % 3
    features = 50.0 * np.eye(3)[group] + np.random.default_rng(7).standard_normal((60, 3))
    seen = Evidence(evidence.annotations, features=features)
    for crew in (Crew(), Crew(consensus.annotators.names, default_capacity=1)):
        plan = ExpectedGain(diverse=10.0).plan([(seen, consensus)], crew, open_budget(3))
        assert sorted(group[[ask.item for ask in plan.asks]].tolist()) == [0, 1, 2]
        plain = ExpectedGain().plan([(seen, consensus)], crew, open_budget(3))
        without = ExpectedGain(diverse=10.0).plan([(evidence, consensus)], crew, open_budget(3))
        assert plain.asks == without.asks
    far = int(np.flatnonzero(group == 2)[0])
    waiting = Crew(consensus.annotators.names, asked=((0, far),))
    plan = ExpectedGain(diverse=10.0).plan([(seen, consensus)], waiting, open_budget(2))
    assert sorted(group[[ask.item for ask in plan.asks]].tolist()) == [0, 1]  # group 2 is being asked about


def test_what_does_not_pay_is_not_asked_and_the_plan_says_so() -> None:
    evidence, consensus = judged(np.random.default_rng(8), items=30)
    crew = Crew(consensus.annotators.names, cost={0: 3.0})
    everything = ExpectedGain().plan([(evidence, consensus)], crew, open_budget())
    assert everything.stop is None
    for price in (5.0, 10.0, 40.0):
        budget = replace(open_budget(), value_per_label=price)
        plan = ExpectedGain().plan([(evidence, consensus)], crew, budget)
        for ask in plan.asks:
            q, pi = consensus.probabilities[[ask.item]], consensus.annotators.confusion[ask.annotator]  # type: ignore[call-overload]
            assert price * best_gain_per_label(q, pi, 99)[0] >= crew.cost_of(ask.annotator)  # type: ignore[arg-type]
        assert 0 < len(plan.asks) <= len(everything.asks)
        assert plan.stop is None
    cheap = replace(open_budget(), value_per_label=0.01)
    for someone in (crew, Crew(default_cost=2.0)):
        nothing = ExpectedGain(gold_share=0.9).plan([(evidence, consensus)], someone, cheap)
        assert nothing.asks == ()
        assert nothing.stop is not None
        assert "worth its cost" in nothing.stop
    waiting = replace(crew, asked=((1, 0),))
    assert ExpectedGain().plan([(evidence, consensus)], waiting, cheap).stop is None
    busy = replace(crew, default_capacity=0)
    assert ExpectedGain().plan([(evidence, consensus)], busy, cheap).stop is None


@pytest.mark.journey
def test_a_crew_with_spammers_and_newcomers_needs_far_fewer_labels_than_random() -> None:
    """A small version of bench_replay_crew: 3 of 10 answer without looking, 2 come later."""
    groups = (Group("good", 5, (0.7, 0.9)), Group("random", 3), Group("good", 2, (0.7, 0.9), joins=6))
    truth = (np.arange(150) % 2).astype(np.int32)
    nothing = Annotations.from_matrix(np.full((150, 0), -1), classes=(0, 1))
    budget = Budget(open_questions=20, target_confidence=1.0, min_labels=0, max_labels=99)
    policies = {"gain": ExpectedGain(), "random": Randomly()}
    replays = {
        name: Replay(VBIBCC(), policy, budget, most_labels=1100, crew=Crew(default_capacity=4))
        for name, policy in policies.items()
    }
    tracks = run_trials(Simulation(Evidence(nothing, truth=truth), groups), replays, seeds=2)
    needed = {name: spent_to_reach(found, 0.93).labels[0] for name, found in tracks.items()}
    assert needed["gain"] * 1.5 < needed["random"], needed


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"information": -1.0}, "information"),
        ({"exploration_weight": float("nan")}, "exploration_weight"),
        ({"exploration_weight": "much"}, "exploration_weight"),
        ({"diverse": 0.5}, "diverse"),
        ({"max_load_ratio": 0.5}, "max_load_ratio"),
        ({"max_load_ratio": float("nan")}, "max_load_ratio"),
        ({"max_load_ratio": None}, "max_load_ratio"),
        ({"gold_share": 1.0}, "gold_share"),
        ({"gold_share": True}, "gold_share"),
        ({"audit_share": 1.0}, "audit_share"),
        ({"audit_share": True}, "audit_share"),
    ],
)
def test_an_impossible_setting_names_its_key(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(BadSettings, match=rf"policy\.options\.{key} is .*expected"):
        ExpectedGain(**wrong)
    with pytest.raises(BadSettings, match=r"gold_share 0\.5 and audit_share 0\.5 leave no other"):
        ExpectedGain(audit_share=0.5, gold_share=0.5)


def test_an_item_is_done_by_confidence_limit_or_truth_and_says_so() -> None:
    matrix = np.array([[0, 0, -1], [0, -1, -1], [0, 1, 0], [-1, -1, -1], [1, -1, -1]])
    annotations = Annotations.from_matrix(matrix)
    evidence = Evidence(annotations, truth=np.array([-1, -1, -1, -1, 1]))
    q = np.array([[0.97, 0.03], [0.99, 0.01], [0.6, 0.4], [0.99, 0.01], [0.0, 1.0]])
    consensus = DawidSkene().fit(evidence)
    consensus = Consensus(consensus.items, consensus.classes, q, consensus.annotators, consensus.class_shares)
    budget = Budget(target_confidence=0.95, min_labels=2, max_labels=3)
    states = rules.item_states(evidence, consensus, budget)
    assert states.tolist() == [rules.CONFIDENT, rules.OPEN, rules.LIMIT, rules.OPEN, rules.KNOWN]
    plan = ExpectedGain().plan([(evidence, consensus)], Crew(), budget)
    assert [(d.item, d.labels, d.why) for d in plan.done] == [
        (0, (0,), "confidence reached the target"),
        (2, (0,), "label limit reached"),
        (4, (1,), "ground truth is known"),
    ]
    assert {ask.item for ask in plan.asks} == {1, 3}
    assert all(ask.annotator is None for ask in plan.asks)


def test_a_newcomer_is_judged_like_the_average() -> None:
    evidence, consensus = judged(np.random.default_rng(5), seen=0.5)
    plan = ExpectedGain().plan(
        [(evidence, consensus)], Crew(("somebody new",)), Budget(target_confidence=1.0, max_labels=99)
    )
    weight = consensus.annotators.labels + 1.0
    mean = np.einsum("k,kjl->jl", weight / weight.sum(), consensus.annotators.confusion)
    for ask in plan.asks:
        assert ask.annotator == "somebody new"
        assert np.isclose(ask.right, consensus.probabilities[ask.item] @ np.diag(mean))


def test_several_questions_add_their_gains_and_are_done_together() -> None:
    rng = np.random.default_rng(6)
    evidence, first = judged(rng, items=4, people=2, classes=2, seen=1.0)
    sure = np.array([[0.99, 0.01], [0.99, 0.01], [0.5, 0.5], [0.6, 0.4]])
    unsure = np.array([[0.99, 0.01], [0.5, 0.5], [0.5, 0.5], [0.99, 0.01]])
    made = [
        (evidence, Consensus(first.items, first.classes, q, first.annotators, first.class_shares))
        for q in (sure, unsure)
    ]
    plan = ExpectedGain().plan(made, Crew(("new",)), Budget(target_confidence=0.95, min_labels=0))
    assert [d.item for d in plan.done] == [0]
    assert plan.done[0].labels == ("class-0", "class-0")
    assert plan.done[0].confidence == 0.99
    assert [ask.item for ask in plan.asks] == [2, 1, 3]


def test_of_several_questions_the_least_sure_and_the_most_answered_count() -> None:
    first, second = judged(np.random.default_rng(9), 3, 2, 2, 0.0), judged(np.random.default_rng(9), 3, 2, 2, 1.0)
    for (_, consensus), p in ((first, 0.96), (second, 0.99)):
        consensus.probabilities[:2] = [[p, 1 - p], [0.5 + p / 5, 0.5 - p / 5]]
    plan = ExpectedGain().plan([first, second], Crew(("new",)), Budget(target_confidence=0.95, min_labels=0))
    assert plan.done[0].confidence == 0.96
    [ask] = [ask for ask in plan.asks if ask.item == 1]
    assert ask.why == "its least sure question at 69 % after 2 answers"
    average = [average_confusion(consensus) for _, consensus in (first, second)]
    chances = [c.probabilities[1] @ np.diag(pi) for (_, c), pi in zip((first, second), average, strict=True)]
    assert np.isclose(ask.right, np.mean(chances))


def test_evidence_and_consensus_must_be_about_the_same_items() -> None:
    evidence, _ = judged(np.random.default_rng(0), items=3)
    _, consensus = judged(np.random.default_rng(0), items=4)
    with pytest.raises(BadInput, match="different items"):
        ExpectedGain().plan([(evidence, consensus)], Crew(), Budget())


def test_with_a_target_known_items_are_asked_about_as_the_others_are() -> None:
    """Or they could not tell how good the others are: of 200 items 40 are known, of 120 questions 24 are about them."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    said = np.where(rng.random((200, 3)) < 0.75, truth[:, None], 1 - truth[:, None])
    said = np.hstack([said, np.full((200, 9), -1)])
    evidence = Evidence(Annotations.from_matrix(said, classes=(0, 1)), truth=np.where(np.arange(200) < 40, truth, -1))
    consensus = DawidSkene().fit(evidence)
    crew, budget = Crew(tuple(range(12))), Budget(open_questions=120, target_confidence=1.0)
    plain = ExpectedGain().plan([(evidence, consensus)], crew, budget)
    assert not any(ask.check for ask in plain.asks)
    plan = ExpectedGain().plan([(evidence, consensus)], crew, replace(budget, target_accuracy=0.9))
    assert {ask.item for ask in plan.asks if ask.check} == {ask.item for ask in plan.asks if ask.item < 40}
    assert 12 <= sum(ask.check for ask in plan.asks) <= 36
    assert {ask.why == CHECK for ask in plan.asks if ask.check} == {True}
    assert list(plan.done.items) == list(plain.done.items)
    share = ExpectedGain(gold_share=0.25).plan([(evidence, consensus)], crew, replace(budget, target_accuracy=0.9))
    assert sum(ask.check for ask in share.asks) >= 30
    assert len({(ask.item, ask.annotator) for ask in share.asks}) == len(share.asks) == 120
