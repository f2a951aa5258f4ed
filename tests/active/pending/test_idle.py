"""Who gets no question while the limit is full: newcomers get a share; not who is away, or left out by the policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.replay.baselines import Randomly
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.plan import Activity, Ask, Plan
from tests.active.pending.test_outstanding import DAY, ITEMS, NEVER_DONE, PEOPLE, old, pairs, planned, questions

SIX = replace(NEVER_DONE, open_questions=6)
FULL = old(("ann", 0), ("ann", 1), ("ann", 2), ("ann", 3), ("bob", 4), ("bob", 5))


def test_who_has_no_question_gets_an_even_share_although_the_limit_is_full() -> None:
    plan = planned(questions(), Crew(PEOPLE), FULL, 500.0, SIX)
    assert len(plan.asks) == 6
    assert [ask.item for ask in plan.asks_of("ann")] == [0, 1]  # the last of the longest queue made room
    assert [ask.item for ask in plan.asks_of("bob")] == [4, 5]
    assert len(plan.asks_of("cyd")) == 2
    again = planned(questions(), Crew(PEOPLE), plan, 600.0, SIX)
    assert pairs(again) == pairs(plan)


def test_who_has_no_question_gets_a_share_where_all_open_items_wait_below_the_limit() -> None:
    """The last items of a project, or a small one: the limit leaves room, but for no item."""
    all_asked = old(*((("ann", "bob")[item % 4 == 3], item) for item in range(ITEMS)))
    plan = planned(questions(), Crew(PEOPLE), all_asked, 500.0, NEVER_DONE)
    assert len(plan.asks) == ITEMS
    assert len(plan.asks_of("cyd")) == ITEMS // 3
    again = planned(questions(), Crew(PEOPLE), plan, 600.0, NEVER_DONE)
    assert pairs(again) == pairs(plan)


def test_nobody_makes_room_for_whom_nothing_can_be_asked() -> None:
    done = frozenset(("cyd", item) for item in range(ITEMS))
    plan = planned(questions(), Crew(PEOPLE, never=done), FULL, 500.0, SIX)
    assert pairs(plan) == pairs(FULL)
    none = planned(questions(), Crew(PEOPLE, {"cyd": 0}), FULL, 500.0, SIX)
    assert pairs(none) == pairs(FULL)


def test_room_is_made_for_as_many_as_can_be_asked() -> None:
    only_one = frozenset(("cyd", item) for item in range(ITEMS) if item != 6)
    plan = planned(questions(), Crew(PEOPLE, never=only_one), FULL, 500.0, SIX)
    assert [ask.item for ask in plan.asks_of("cyd")] == [6]
    assert [ask.item for ask in plan.asks_of("ann")] == [0, 1, 2]


def test_a_queue_of_one_question_stays() -> None:
    two = old(("ann", 0), ("bob", 1))
    plan = planned(questions(), Crew(PEOPLE), two, 500.0, replace(NEVER_DONE, open_questions=2))
    assert pairs(plan) == pairs(two)


def crowd() -> list[Judged]:
    """Three annotators who are right nine times of ten, and cyd, who always says the same."""
    rng = np.random.default_rng(3)
    truth = rng.integers(3, size=60)
    said = [[int(t if rng.random() < 0.9 else rng.integers(3)) for _ in range(3)] + [0] for t in truth]
    item, annotator = np.nonzero(rng.random((60, 4)) < 0.5)
    codes, people = np.array(said)[item, annotator], ("ann", "bob", "dee", "cyd")
    rows = (column.astype(np.int32) for column in (item, annotator, codes))
    evidence = Evidence(Annotations(*rows, tuple(range(60)), people, (0, 1, 2), (0, 1, 2)))
    return [(evidence, DefaultCombiner().fit(evidence))]


LIMIT = Budget(open_questions=20, target_confidence=0.999, max_labels=10)


def test_whom_the_policy_gave_nothing_is_given_nothing_by_planning_again() -> None:
    """Questions of good annotators went to one who always says the same, with each plan that brought no answer."""
    pool = crowd()
    for crew in (Crew(("ann", "bob", "cyd")), Crew(("ann", "cyd"))):
        first = next_plan(ExpectedGain(), pool, crew, LIMIT, None, 100.0, DAY)
        assert len(first.asks) == 20
        assert len(first.asks_of("cyd")) <= 2
        again = next_plan(ExpectedGain(), pool, crew, LIMIT, first, 200.0, DAY)
        assert pairs(again) == pairs(first)


class OneQuestion:
    """A policy that would ask cyd about item 2, whatever it is given."""

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        return Plan((Ask(2, "cyd", 0.5, 0.5, "unsure"),))


def test_a_question_that_goes_to_another_annotator_is_taken_from_the_first() -> None:
    """Item 3 is behind item 2 in ann's queue: it was taken, and nobody had item 2 for cyd."""
    answers = {("cyd", item): 0 for item in (6, 7)}
    plan = next_plan(OneQuestion(), questions(answers), Crew(PEOPLE), SIX, FULL, 500.0, DAY)  # type: ignore[arg-type]
    assert pairs(plan) == [("ann", 0), ("ann", 1), ("ann", 3), ("bob", 4), ("bob", 5), ("cyd", 2)]


def test_whoever_comes_back_is_asked_and_as_many_questions_are_open_as_before() -> None:
    pool = crowd()
    first = next_plan(ExpectedGain(), pool, Crew(("ann", "bob")), LIMIT, None, 100.0, DAY)
    for room in (1, 2, 4, 20):
        crew = Crew(("ann", "bob", "dee"), {"dee": room})
        back = next_plan(ExpectedGain(), pool, crew, LIMIT, first, 200.0, DAY)
        assert 0 < len(back.asks_of("dee")) <= room
        assert len(back.asks) == len(first.asks) == 20


def test_who_could_not_be_asked_for_a_while_is_asked_again() -> None:
    answers = {(who, item): item % 2 for who in PEOPLE for item in (6, 7)}
    none = planned(questions(answers), Crew(PEOPLE, {"cyd": 0}), FULL, 500.0, SIX)  # type: ignore[arg-type]
    assert pairs(none) == pairs(FULL)
    back = planned(questions(answers), Crew(PEOPLE), none, 600.0, SIX)  # type: ignore[arg-type]
    assert len(back.asks) == 6
    assert back.asks_of("cyd")


def test_who_is_away_makes_room_for_whoever_is_there() -> None:
    """Three of the best had left and held both questions, a day each by turns: the other two were never asked."""
    right, gone = {"ann": 0.95, "bob": 0.95, "dee": 0.95, "fay": 0.7, "gus": 0.7}, ("ann", "bob", "dee")
    for budget in (Budget(open_questions=2), Budget(cost=2.0)):
        rng, plan, answered = np.random.default_rng(0), None, []
        truth = rng.integers(2, size=300)
        said = {
            (who, int(n)): int(truth[n]) ^ int(rng.random() > right[who]) for who in right for n in rng.choice(300, 20)
        }
        for quarter in range(16):
            known = questions(said, range(300))
            plan = next_plan(ExpectedGain(), known, Crew(tuple(right)), budget, plan, 100.0 + quarter * DAY / 4, DAY)
            theirs = [ask for ask in plan.asks if ask.annotator not in gone]
            said |= {(str(ask.annotator), int(ask.item)): int(truth[int(ask.item)]) for ask in theirs}
            answered.append(len(theirs))
        assert all(answered[12:])


def test_planning_again_gives_the_same_plan_whatever_the_policy() -> None:
    """The policy chose anew for a part of the questions, by turns that are others than for all of them."""
    pool, crew, budget = crowd(), Crew(("ann", "bob", "dee", "cyd")), replace(LIMIT, open_questions=5)
    for seed in range(20):
        first = next_plan(Randomly(seed), pool, crew, budget, None, 100.0, DAY)
        assert len(first.asks) == 5
        assert next_plan(Randomly(seed), pool, crew, budget, first, 200.0, DAY).asks == first.asks


def test_no_question_is_given_up_for_one_that_is_too_dear() -> None:
    """A cheap question made room for a dear one, which was then left out for want of money."""
    crew = Crew(PEOPLE, cost={"cyd": 3.0})
    for money, expected in ((6.0, 6), (7.9, 6), (8.0, 6), (9.0, 6)):
        budget = replace(SIX, cost=money)
        plan = planned(questions(), crew, FULL, 500.0, budget)
        assert math.fsum(crew.cost_of(ask.annotator) for ask in plan.asks) <= money
        again = planned(questions(), crew, plan, 600.0, budget)
        assert pairs(again) == pairs(plan)
        assert len(plan.asks) + 2 * len(plan.asks_of("cyd")) >= expected


# -- who is abstaining though their questions are done before they expire ----------------------------------------

FOUR = ("ann", "bob", "cyd", "dee")
QUICK = Budget(open_questions=100, target_confidence=1.0, max_labels=2)
"""Two answers and an item is done: what ann was asked, others do unasked."""


def others_do_everything(hours: Sequence[int], words: dict[int, int] | None = None, new: int = 2) -> list[Plan]:
    """A plan at each hour; by then bob, cyd and dee have done what ann was asked. `words`: hour -> what she answers.

    Items come as they are needed: in each hour there are two for her.
    """
    answers: dict[tuple[str, int], int] = {}
    plans: list[Plan] = []
    for rank, hour in enumerate(hours):
        for ask in plans[-1].asks if plans else ():
            answers |= {(who, ask.item): 0 for who in ("bob", "cyd")}  # type: ignore[dict-item]
        if words and hour in words:
            answers["ann", words[hour]] = 0
        items = range((rank + 1) * new)
        crew = Crew(FOUR, {"bob": 0, "cyd": 0, "dee": 0}, default_capacity=2)
        plans.append(planned(questions(answers, items), crew, plans[-1] if plans else None, hour * 3600.0 + 1, QUICK))
    return plans


def away(plan: Plan) -> set[object]:
    return {person.annotator for person in plan.people if person.away}


def test_who_never_answers_is_away_though_others_do_all_they_are_asked() -> None:
    plans = others_do_everything(range(0, 36, 4))
    assert all(ask.annotator == "ann" for plan in plans for ask in plan.asks)
    assert not any(plan.expired for plan in plans)  # nothing was left lying long enough
    noticed = [hour for hour, plan in zip(range(0, 36, 4), plans, strict=True) if "ann" in away(plan)]
    assert noticed == [24, 28, 32]
    assert [len(plan.asks) for plan in plans] == [2] * 6 + [1] * 3


def test_a_word_in_between_and_a_time_without_questions_are_no_silence() -> None:
    hours = range(0, 36, 4)
    assert not any(away(plan) for plan in others_do_everything(hours, words={12: 0}))
    late = others_do_everything(range(0, 52, 4), words={12: 0})
    assert [bool(away(plan)) for plan in late] == [False] * 9 + [True] * 4  # a day after the word at 12
    plans = others_do_everything(range(0, 8, 4))
    idle = next_plan(
        ExpectedGain(),
        questions({(who, item): 0 for who in ("bob", "cyd") for item in range(4)}, range(5)),
        Crew(FOUR, {"ann": 0, "bob": 0, "cyd": 0, "dee": 0}),
        QUICK,
        plans[-1],
        9 * 3600.0,
        DAY,
    )
    assert not idle.asks_of("ann")
    assert not any(person.unanswered for person in idle.people)
    again = planned(questions({}, range(5)), Crew(FOUR), idle, 30 * 3600.0, QUICK)
    assert not away(planned(questions({}, range(5)), Crew(FOUR), again, 31 * 3600.0, QUICK))


def test_what_is_remembered_of_the_silent_is_kept_with_the_plan_and_does_not_grow() -> None:
    plans = others_do_everything(range(0, 12, 4))
    last = plans[-1]
    assert {(person.annotator, person.unanswered) for person in last.people} >= {("ann", 1.0)}
    assert Plan.from_json(last.to_json()) == last
    answers = {(who, ask.item): 0 for plan in plans[:-1] for ask in plan.asks for who in ("bob", "cyd")}
    crew = Crew(FOUR, {"bob": 0, "cyd": 0, "dee": 0}, default_capacity=2)
    same = planned(questions(answers, range(6)), crew, last, 8 * 3600.0 + 2, QUICK)  # type: ignore[arg-type]
    assert same == last


def test_what_was_asked_before_somebody_was_heard_of_is_no_silence() -> None:
    crew = Crew(FOUR, {"bob": 0, "cyd": 0, "dee": 0})
    heard = (Activity("ann", 1, 300.0),)
    done = {("ann", 5): 0, ("bob", 0): 0, ("cyd", 0): 0}
    for since, remembered in ((100.0, 0.0), (300.0, 300.0)):
        before = old(("ann", 0), ("ann", 1), since=since, people=heard)
        plan = planned(questions(done), crew, before, 400.0, QUICK)  # type: ignore[arg-type]
        assert Activity("ann", 1, 300.0, unanswered=remembered) in plan.people
