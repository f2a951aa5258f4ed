"""What the first policy asks, whom, and what it calls done."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.active import stopping
from hitl.active.crew_value import typical_confusion
from hitl.active.policy import ExpectedGain
from hitl.active.scores import expected_information_gain
from hitl.annotations import Annotations
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene


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


def test_the_item_that_tells_most_is_asked_first() -> None:
    evidence, consensus = judged(np.random.default_rng(0))
    crew = Crew(consensus.annotators.names)
    plan = ExpectedGain().plan(evidence, consensus, crew, Budget(labels=100, target_confidence=1.0, max_labels=99))
    typical = consensus.annotators.confusion.mean(axis=0)
    gain = expected_information_gain(consensus.probabilities, typical)
    assert [ask.item for ask in plan.asks] == list(np.argsort(-gain, kind="stable"))
    assert np.allclose([ask.gain for ask in plan.asks], np.sort(gain)[::-1])


def test_the_annotator_most_likely_right_is_asked() -> None:
    evidence, consensus = judged(np.random.default_rng(1), seen=0.0)
    plan = ExpectedGain().plan(
        evidence, consensus, Crew(consensus.annotators.names), Budget(target_confidence=1.0, min_labels=0)
    )
    for ask in plan.asks:
        q = consensus.probabilities[ask.item]
        chances = [
            sum(q[j] * consensus.annotators.confusion[k, j, j] for j in range(3)) for k in range(5)
        ]  # eq. 12, plainly
        assert ask.annotator == int(np.argmax(chances))
        assert np.isclose(ask.right, max(chances))


@given(
    st.integers(0, 10_000),
    st.integers(0, 3),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11)), max_size=20),
)
def test_limits_are_never_violated(seed: int, capacity: int, labels: int, never: list[tuple[int, int]]) -> None:
    evidence, consensus = judged(np.random.default_rng(seed))
    crew = Crew(consensus.annotators.names, {0: 1}, capacity, frozenset(never), {2: frozenset({1, 2, 3})})
    budget = Budget(labels=labels, target_confidence=0.9, min_labels=1, max_labels=3)
    plan = ExpectedGain().plan(evidence, consensus, crew, budget)
    annotations = evidence.annotations
    answered = set(zip(annotations.annotator.tolist(), annotations.item.tolist(), strict=True))
    done = {entry.item for entry in plan.done}
    assert len(plan.asks) <= labels
    for name in crew.names:
        assert len(plan.asks_of(name)) <= crew.capacity_of(name)
    for ask in plan.asks:
        assert (ask.annotator, ask.item) not in answered
        assert (ask.annotator, ask.item) not in crew.never
        assert ask.item not in done
        assert ask.annotator != 2 or ask.item in {1, 2, 3}
    assert len({ask.item for ask in plan.asks}) == len(plan.asks)
    assert plan.open_items + len(plan.done) == annotations.n_items


def test_an_item_is_done_by_confidence_limit_or_truth_and_says_so() -> None:
    matrix = np.array([[0, 0, -1], [0, -1, -1], [0, 1, 0], [-1, -1, -1], [1, -1, -1]])
    annotations = Annotations.from_matrix(matrix)
    evidence = Evidence(annotations, truth=np.array([-1, -1, -1, -1, 1]))
    q = np.array([[0.97, 0.03], [0.99, 0.01], [0.6, 0.4], [0.99, 0.01], [0.0, 1.0]])
    consensus = DawidSkene().fit(evidence)
    consensus = Consensus(consensus.items, consensus.classes, q, consensus.annotators, consensus.class_shares)
    budget = Budget(target_confidence=0.95, min_labels=2, max_labels=3)
    states = stopping.item_states(evidence, consensus, budget)
    assert states.tolist() == [stopping.CONFIDENT, stopping.OPEN, stopping.LIMIT, stopping.OPEN, stopping.KNOWN]
    plan = ExpectedGain().plan(evidence, consensus, Crew(), budget)
    assert [(d.item, d.labels, d.why) for d in plan.done] == [
        (0, (0,), "confidence reached the target"),
        (2, (0,), "label limit reached"),
        (4, (1,), "its truth is known"),
    ]
    assert {ask.item for ask in plan.asks} == {1, 3}
    assert all(ask.annotator is None for ask in plan.asks)


def test_a_newcomer_is_judged_like_the_average() -> None:
    evidence, consensus = judged(np.random.default_rng(5), seen=0.5)
    plan = ExpectedGain().plan(
        evidence, consensus, Crew(("somebody new",)), Budget(target_confidence=1.0, max_labels=99)
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
    plan = ExpectedGain().plan_questions(made, Crew(("new",)), Budget(target_confidence=0.95, min_labels=0))
    assert [d.item for d in plan.done] == [0]
    assert plan.done[0].labels == ("class-0", "class-0")
    assert [ask.item for ask in plan.asks] == [2, 1, 3]


def test_evidence_and_consensus_must_be_about_the_same_items() -> None:
    evidence, _ = judged(np.random.default_rng(0), items=3)
    _, consensus = judged(np.random.default_rng(0), items=4)
    with pytest.raises(BadInput, match="different items"):
        ExpectedGain().plan(evidence, consensus, Crew(), Budget())


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"labels": -1}, "budget.labels"),
        ({"target_confidence": 0.0}, "budget.target_confidence"),
        ({"target_confidence": float("nan")}, "budget.target_confidence"),
        ({"min_labels": 5, "max_labels": 4}, "budget.min_labels"),
    ],
)
def test_an_impossible_budget_names_its_key(wrong: dict[str, float], key: str) -> None:
    with pytest.raises(BadSettings, match=key):
        Budget(**wrong)  # type: ignore[arg-type]


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"crew.capacity of 'ann' is -1"):
        Crew(("ann",), {"ann": -1})


def test_unlimited_capacity_does_not_drown_the_rest_of_the_crew() -> None:
    """Everybody counts with what they can take of this plan."""
    _, consensus = judged(np.random.default_rng(8))
    both = Crew((0, 1), capacity={0: 5})  # 1 may take any number
    typical = typical_confusion(consensus, both, labels=5)
    assert np.allclose(typical, consensus.annotators.confusion[:2].mean(axis=0))


def test_a_name_twice_in_a_crew_is_refused() -> None:
    with pytest.raises(BadSettings, match="names 'ann' twice"):
        Crew(("ann", "bob", "ann"))
