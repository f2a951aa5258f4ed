"""Known items mixed in: the share is exact in the long run, and who was checked least is checked first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.gold_and_audits import checks, checks_due
from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote

PEOPLE = tuple(range(4))


def judged(matrix: list[list[int]], known: int) -> tuple[Evidence, Consensus]:
    """Evidence in which the truth of the first `known` items is known, and its majority."""
    annotations = Annotations.from_matrix(matrix, classes=(0, 1))
    truth = np.full(len(matrix), -1)
    truth[:known] = 0
    evidence = Evidence(annotations, truth=truth)
    return evidence, MajorityVote().fit(evidence)


def situation(question: tuple[Evidence, Consensus], crew: Crew) -> tuple[PoolState, Eligibility]:
    return PoolState.of([question], Budget()), Eligibility.of(crew, [question[0].annotations])


@given(st.floats(0, 0.99), st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 1000))
def test_over_many_plans_the_share_is_exact(share: float, sizes: list[int], before: int) -> None:
    answered, asked = before, 0
    for size in sizes:
        due = checks_due(share, answered, size)
        assert 0 <= due <= size
        answered, asked = answered + size, asked + due
    assert abs(asked - share * (answered - before)) < 1 + 1e-6


@pytest.mark.parametrize("labels", [1, 5, 7, 20])
def test_one_question_in_twenty_is_a_check_however_few_a_plan_has(labels: int) -> None:
    assert sum(checks_due(0.05, answered, labels) for answered in range(0, labels * 2000, labels)) == labels * 100


def test_a_share_of_whole_numbers_is_met_at_once() -> None:
    assert [checks_due(0.1, answered, 10) for answered in range(0, 300, 10)] == [1] * 30
    assert [checks_due(0.07, answered, 100) for answered in range(0, 3000, 100)] == [7] * 30
    assert checks_due(0.0, 17, 1000) == 0


def test_who_was_checked_least_is_checked_first_about_the_item_with_fewest_answers() -> None:
    gap = -1
    question = judged([[0, 0, gap, gap], [0, gap, gap, gap], [gap] * 4, [0, 0, 0, 0], [0, 0, 0, 0]], known=3)
    now, free = situation(question, Crew(PEOPLE))
    # Persons 2 and 3 have none, 1 has one, 0 has two; answers on items 0, 1, 2: two, one, none.
    assert checks(now, free, 2) == [(2, 2), (1, 3)]
    assert checks(now, free, 3) == [(2, 2), (1, 3), (0, 2)]  # of equals the first, who has not answered it
    assert checks(now, free, 9) == checks(now, free, 3)
    assert checks(now, free, 0) == []


def test_what_is_outstanding_counts_and_is_not_asked_again() -> None:
    question = judged([[-1] * 4] * 5, known=3)
    now, free = situation(question, Crew(PEOPLE, asked=((0, 1), (1, 4))))
    assert np.flatnonzero(free.closed).tolist() == [1, 4]  # they wait
    assert checks(now, free, 2) == [(0, 1), (2, 2)]  # person 0 has one coming; what 1 was asked is not known
    limited, free = situation(question, Crew(PEOPLE, default_capacity=1, asked=((1, 4), (2, 3))))
    assert checks(limited, free, 9) == [(0, 0), (1, 3)]  # 1 and 2 are busy


def test_checks_keep_to_the_limits() -> None:
    question = judged([[-1] * 4] * 6, known=4)
    crew = Crew(
        PEOPLE,
        {3: 0},
        2,
        never=frozenset({(0, 0)}),
        cost={1: 5.0},
        skills={0: frozenset({"de"})},
        needs={n: frozenset({"de"}) for n in (1, 2)},
    )
    now, free = situation(question, crew)
    assert checks(now, free, 9) == [(1, 0), (0, 1), (3, 2), (2, 0)]
    assert checks(now, free, 9, money=4.0) == [(1, 0), (0, 2), (2, 0), (3, 2)]  # 1 is too dear
    assert checks(now, free, 9, money=1.5) == [(1, 0)]


@pytest.mark.parametrize("option", ["gold_share", "audit_share"])
def test_the_share_is_one_of_what_is_asked_not_of_what_may_be_open(option: str) -> None:
    """A hundred questions may be open, and the four have time for two each: 40 % were about known or drawn items."""
    matrix, truth = np.full((200, 4), -1), np.where(np.arange(200) < 50, 0, -1)
    policy, crew, marked = ExpectedGain(**{option: 0.05}), Crew(PEOPLE, default_capacity=2), []
    for _ in range(25):
        evidence = Evidence(Annotations.from_matrix(matrix, classes=(0, 1)), truth=truth)
        asks = policy.plan([(evidence, MajorityVote().fit(evidence))], crew, Budget(100, 1.0)).asks
        assert len(asks) == 8
        for ask in asks:
            matrix[ask.item, ask.annotator] = 0  # type: ignore[index]
        marked += [ask.check or ask.audit for ask in asks]
    assert sum(marked) == 10


@pytest.mark.parametrize("option", ["gold_share", "audit_share"])
def test_where_nothing_else_is_left_to_ask_planning_again_adds_nothing(option: str) -> None:
    """Each plan that brought no answer added questions about known or drawn items."""
    question = judged([[0, 0, 0, 0]] * 30 + [[-1] * 4] * 10, known=15)
    policy, crew, budget = ExpectedGain(**{option: 0.3}), Crew((*PEOPLE, "new")), Budget(100, max_labels=4)
    first = next_plan(policy, [question], crew, budget, None, 100.0)
    assert sum(ask.check or ask.audit for ask in first.asks) == checks_due(0.3, 30 * 4, len(first.asks)) > 0
    assert len(first.asks) > 10
    assert next_plan(policy, [question], crew, budget, first, 200.0).asks == first.asks


@pytest.mark.parametrize("option", ["gold_share", "audit_share"])
def test_money_that_fewer_checks_leave_buys_other_questions(option: str) -> None:
    """All of it went to checks of those who cost most; without these, as many questions were asked as before."""
    question = judged([[0] * 4] * 30 + [[-1] * 4] * 90, known=60)
    crew = Crew(PEOPLE, cost={0: 10.0, 1: 10.0, 2: 10.0})
    plan = ExpectedGain(**{option: 0.1}).plan([question], crew, Budget(1000, cost=60.0))
    assert len(plan.asks) > 35
    assert sum(ask.check or ask.audit for ask in plan.asks) <= 0.1 * len(plan.asks) + 1


def test_whoever_comes_is_asked_known_items_too() -> None:
    question = judged([[0, 0], [0, -1], [-1, -1], [-1, -1], [-1, -1]], known=3)
    plan = ExpectedGain(gold_share=0.5).plan([question], Crew(), Budget(open_questions=3))
    assert [ask.item for ask in plan.asks if ask.check] == [2, 1]  # 3 of 6, 1 of the 3 before
    assert all(ask.annotator is None for ask in plan.asks)


def test_without_open_items_nobody_is_checked() -> None:
    question = judged([[0, 0, 0, 0]] * 3, known=3)
    assert ExpectedGain(gold_share=0.5).plan([question], Crew(("new",)), Budget()).asks == ()


def test_what_is_outstanding_moves_the_next_check() -> None:
    """Every second question: none answered, but one is out, so the next is the second."""
    question = judged([[-1] * 4] * 6, known=3)
    policy, budget = ExpectedGain(gold_share=0.5), Budget(open_questions=1)
    assert not policy.plan([question], Crew(PEOPLE), budget).asks[0].check
    assert policy.plan([question], Crew(PEOPLE, asked=((0, 4),)), budget).asks[0].check


def test_of_several_questions_all_have_to_know_the_truth() -> None:
    both, one = judged([[-1] * 4] * 4, known=2), judged([[-1] * 4] * 4, known=1)
    plan = ExpectedGain(gold_share=0.75).plan([both, one], Crew(PEOPLE), Budget(open_questions=4))
    assert [ask.item for ask in plan.asks if ask.check] == [0]
    assert {ask.item for ask in plan.asks} == {0, 1, 2, 3}


def test_checks_are_spread_among_the_other_questions() -> None:
    question = judged([[-1] * 4] * 20, known=5)
    for crew in (Crew(PEOPLE), Crew()):
        plan = ExpectedGain(gold_share=0.25).plan([question], crew, Budget(open_questions=12))
        assert [n for n, ask in enumerate(plan.asks) if ask.check] == [1, 5, 9]
        assert len(plan.asks) == 12


def test_checks_of_whoever_comes_are_paid_for() -> None:
    question = judged([[-1] * 4] * 20, known=5)
    plan = ExpectedGain(gold_share=0.8).plan([question], Crew(default_cost=2.0), Budget(open_questions=5, cost=5.0))
    assert [ask.check for ask in plan.asks] == [True, False]  # the share is one of the two that can be paid for
