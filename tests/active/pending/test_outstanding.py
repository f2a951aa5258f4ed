"""Questions wait, expire and return to the pool; whatever people do, nothing is lost and nobody is asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl.active.pending.outstanding import next_plan, waiting
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.plan import Activity, Ask, Expired, Plan

DAY = 24 * 3600.0
PEOPLE = ("ann", "bob", "cyd")
ITEMS = 8
NEVER_DONE = Budget(open_questions=100, target_confidence=1.0, max_labels=99)


def questions(answers: dict[tuple[str, int], int] | None = None, items: Sequence[int] = range(ITEMS)) -> list[Judged]:
    """What is known when these people have answered these items."""
    pairs = [(who, item, label) for (who, item), label in (answers or {}).items() if item in items]
    names = tuple(dict.fromkeys(who for who, _, _ in pairs))
    codes = [(list(items).index(item), names.index(who), label) for who, item, label in pairs]
    item, annotator, label = np.array(codes, dtype=np.int32).reshape(-1, 3).T
    evidence = Evidence(Annotations(item, annotator, label, tuple(items), names, (0, 1), (0, 1)))
    return [(evidence, DawidSkene().fit(evidence))]


def planned(
    known: list[Judged], crew: Crew, previous: Plan | None, now: float, budget: Budget = NEVER_DONE, expire: float = DAY
) -> Plan:
    return next_plan(ExpectedGain(), known, crew, budget, previous, now, expire)


def pairs(plan: Plan) -> list[tuple[object, object]]:
    return [(ask.annotator, ask.item) for ask in plan.asks]


def old(*asked: tuple[str, int], since: float = 100.0, **more: object) -> Plan:
    return Plan(tuple(Ask(item, who, 0.1, 0.8, "as it was", since) for who, item in asked), **more)  # type: ignore[arg-type]


def test_what_waits_stays_first_in_the_same_order_with_the_time_it_was_asked() -> None:
    before = old(("ann", 5), ("bob", 2), ("ann", 0), ("ann", 7))
    plan = planned(questions({("bob", 1): 0, ("cyd", 1): 1}), Crew(PEOPLE, default_capacity=4), before, 500.0)
    assert plan.asks[:4] == before.asks
    assert [ask.item for ask in plan.asks_of("ann")][:3] == [5, 0, 7]
    assert all(ask.since == 500.0 for ask in plan.asks[4:])
    asked = [ask.item for ask in plan.asks]
    assert len(set(asked)) == len(asked)  # no second question about what waits
    assert all(len(plan.asks_of(name)) <= 4 for name in PEOPLE)


def test_the_same_again_changes_nothing() -> None:
    known = questions({("bob", 1): 0})
    crew, budget = Crew(PEOPLE, default_capacity=2), Budget(open_questions=5, target_confidence=0.99)
    first = planned(known, crew, None, 10.0, budget)
    assert len(first.asks) == 5
    assert planned(known, crew, first, 2000.0, budget) == first


def test_no_more_answers_are_asked_for_than_the_project_may_have() -> None:
    known = questions({(who, 1): 0 for who in PEOPLE})
    crew, may = Crew(PEOPLE), replace(NEVER_DONE, answers=7)
    plan = planned(known, crew, None, 10.0, may)
    assert len(plan.asks) == 7 - 3
    assert (
        planned(known, crew, plan, 20.0, replace(may, answers=5)).asks == plan.asks[:2]
    )  # the last ones are taken back
    done = planned(known, crew, plan, 20.0, replace(may, answers=3))
    assert (done.asks, done.stop) == ((), "3 answers were given, and the budget was 3 (budget.answers)")


def test_questions_to_anyone_are_planned_anew_and_keep_their_time() -> None:
    known = questions({("bob", 1): 0})
    first = planned(known, Crew(), None, 10.0, Budget(open_questions=4))
    assert {ask.annotator for ask in first.asks} == {None}
    assert planned(known, Crew(), first, 5 * DAY, Budget(open_questions=4)) == first


def held(before: Plan, crew: Crew, answers: dict[tuple[str, int], int], now: float = 200.0, **more: object) -> Plan:
    known = questions(answers, **more)  # type: ignore[arg-type]
    budget = Budget(open_questions=100, target_confidence=0.9, max_labels=2)
    kept = waiting(before, PoolState.of(known, budget), crew, budget, now, DAY)
    return Plan(kept.asks, expired=kept.expired, people=kept.people)


def test_what_is_answered_skipped_done_deleted_or_left_does_not_wait() -> None:
    before = old(("ann", 0), ("ann", 1), ("bob", 2), ("bob", 3), ("cyd", 4), ("eve", 5), ("ann", 6))
    crew = Crew(PEOPLE, never=frozenset({("ann", 1)}), needs={6: frozenset({"de"})})
    answers = {("ann", 0): 1, ("ann", 2): 0, ("cyd", 2): 0}  # 2 has its share of labels
    plan = held(before, crew, answers, items=[0, 1, 2, 3, 5, 6, 7])  # 4 was deleted
    assert pairs(plan) == [("bob", 3)]
    assert plan.expired == ()


def test_an_expired_question_goes_to_somebody_else() -> None:
    before = old(("ann", 0), ("bob", 1))
    known = questions({("ann", 3): 0, ("bob", 3): 0})
    plan = planned(known, Crew(PEOPLE), before, 100.0 + DAY)
    assert plan.expired == (Expired(0, "ann", 100.0), Expired(1, "bob", 100.0))
    assert ("ann", 0) not in pairs(plan)
    assert ("bob", 1) not in pairs(plan)
    assert {0, 1} <= {ask.item for ask in plan.asks}
    later = planned(known, Crew(PEOPLE), Plan(expired=plan.expired), 200.0 + DAY)
    assert ("ann", 0) not in pairs(later)  # not in the plan after that either


def test_a_moment_before_it_expires_it_waits() -> None:
    plan = planned(questions(), Crew(PEOPLE), old(("ann", 0)), 99.0 + DAY)
    assert plan.asks[0].since == 100.0
    assert plan.expired == ()


def test_an_expired_question_is_asked_again_if_nobody_else_can() -> None:
    alone = Crew(PEOPLE, only={"bob": frozenset({3}), "cyd": frozenset({3})})
    answered = {("ann", 5): 0}
    before = old(("ann", 0), people=(Activity("ann", 0, 0.0),))  # has answered 5 since
    plan = planned(questions(answered), alone, before, 100.0 + DAY)
    assert ("ann", 0) in pairs(plan)
    assert next(ask for ask in plan.asks if ask.item == 0).since == 100.0 + DAY


def test_who_answers_nothing_is_away_and_gets_one_question_until_they_do() -> None:
    known = questions({("bob", 3): 0})
    start = planned(known, Crew(PEOPLE, default_capacity=3), None, 0.5)
    assert len(start.asks_of("ann")) == 3 or len(start.asks_of("cyd")) == 3
    name = "ann" if len(start.asks_of("ann")) == 3 else "cyd"
    crew = Crew(PEOPLE, default_capacity=3)
    gone = planned(known, crew, start, 1 + DAY)
    assert {person.annotator: person.away for person in gone.people}[name]
    assert len(gone.asks_of(name)) <= 1
    others = [other for other in PEOPLE if other != name and other not in {p.annotator for p in gone.people if p.away}]
    assert all(len(gone.asks_of(other)) == 3 for other in others)  # what the one cannot take, others do
    soon = planned(known, crew, gone, 3600 + DAY)
    assert {person.annotator: person.away for person in soon.people}[name]
    assert len(soon.asks_of(name)) <= 1
    still = planned(known, crew, gone, 2 + 2 * DAY)
    assert len(still.asks_of(name)) <= 1
    late = {("bob", 3): 0, (name, start.asks_of(name)[0].item): 1}  # a late answer, long after it expired
    back = planned(questions(late), crew, still, 3 + 2 * DAY)  # type: ignore[arg-type]
    assert not {person.annotator: person.away for person in back.people}[name]
    again = planned(questions(late), crew, back, 4 + 2 * DAY)  # type: ignore[arg-type]
    assert len(again.asks_of(name)) > 1
    assert (name, start.asks_of(name)[0].item) not in pairs(again)


def test_a_policy_is_told_who_is_away() -> None:
    before = Plan(people=(Activity("ann", 0, 0.0, away=True),))
    plan = planned(questions(), Crew(PEOPLE, default_capacity=4), before, DAY)
    assert len(plan.asks) == ITEMS  # nothing was given to somebody who may not have it
    assert len(plan.asks_of("ann")) <= 1


def test_a_question_asked_again_counts_though_somebody_else_could_answer_now() -> None:
    """Bob was asked a second time because nobody else could; ann is back, and bob is still busy with it."""
    away = (Activity("bob", 0, 0.0, away=True), Activity("cyd", 0, 0.0, away=True))
    before = old(("bob", 1), since=DAY, expired=(Expired(1, "bob", 100.0),), people=away)
    budget = Budget(open_questions=3, target_confidence=1.0)
    plan = planned(questions({("ann", 0): 0}), Crew(PEOPLE), before, DAY + 1, budget)
    assert pairs(plan)[0] == ("bob", 1)
    assert len(plan.asks_of("bob")) == 1
    assert len(plan.asks) == 3  # the policy gave nothing to bob that had to be taken back


def test_who_answers_some_of_their_questions_is_not_away() -> None:
    before = old(("ann", 0), ("ann", 1), people=(Activity("ann", 1, 50.0),))
    seen = planned(questions({("ann", 3): 0, ("ann", 0): 1}), Crew(PEOPLE), before, 300.0)
    assert [person for person in seen.people if person.annotator == "ann"] == [Activity("ann", 2, 300.0)]
    plan = planned(questions({("ann", 3): 0, ("ann", 0): 1}), Crew(PEOPLE), seen, 100.0 + DAY)
    assert Expired(1, "ann", 100.0) in plan.expired
    assert not any(person.away for person in plan.people)


def test_a_skip_is_a_sign_of_life() -> None:
    before = old(("ann", 0), ("ann", 1))
    crew = Crew(PEOPLE, never=frozenset({("ann", 0)}))
    seen = planned(questions(), crew, before, 300.0)
    plan = planned(questions(), crew, seen, 100.0 + DAY)
    assert Expired(1, "ann", 100.0) in plan.expired
    assert not any(person.away for person in plan.people)


def test_smaller_limits_hold_for_what_waits_too() -> None:
    before = old(("ann", 0), ("ann", 1), ("ann", 2), ("bob", 3))
    assert pairs(planned(questions(), Crew(PEOPLE, {"ann": 1, "cyd": 0}, 2), before, 200.0))[:2] == [
        ("ann", 0),
        ("bob", 3),
    ]
    alone = Crew(PEOPLE, {"bob": 0, "cyd": 0})
    small = planned(questions(), alone, before, 200.0, Budget(open_questions=2, target_confidence=1.0))
    assert pairs(small) == [("ann", 0), ("ann", 1)]
    cheap = planned(
        questions(), Crew(PEOPLE, cost={"ann": 3.0}), before, 200.0, Budget(cost=4.0, target_confidence=1.0)
    )
    assert pairs(cheap)[:2] == [("ann", 0), ("bob", 3)]


def test_a_plan_without_times_starts_the_clock_now() -> None:
    plan = planned(questions(), Crew(PEOPLE), old(("ann", 0), since=0.0), 10 * DAY)
    assert plan.asks[0].since == 10 * DAY


def test_a_project_that_is_done_asks_nothing_and_says_why() -> None:
    known = questions({(who, item): 0 for who in PEOPLE for item in range(ITEMS)})
    plan = planned(known, Crew((*PEOPLE, "dee")), old(("dee", 0)), 200.0, Budget(target_confidence=0.6))
    assert plan.asks == ()
    assert plan.stop == "every item is done"
    assert len(plan.done) == ITEMS
    early = planned(
        known, Crew((*PEOPLE, "dee")), old(("dee", 0)), 200.0, Budget(target_confidence=1.0, target_accuracy=0.5)
    )
    assert early.asks == ()
    assert early.stop is not None
    assert "target: 50.0 %" in early.stop
    assert early.open_items == ITEMS


class Greedy:
    """A policy that knows nothing of what waits: it asks everybody for everything."""

    def plan(self, known: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        items = known[0][0].annotations.items
        return Plan(tuple(Ask(item, name, 0.1, 0.5, "") for item in items for name in crew.names), (), len(items))


def test_a_project_whose_open_items_nobody_can_answer_is_done_until_somebody_can() -> None:
    answers = {("ann", item): 0 for item in range(ITEMS)} | {("bob", item): 1 for item in range(1, ITEMS)}
    skipped = frozenset({("bob", 0)})
    two = Crew(("ann", "bob"), never=skipped)
    plan = planned(questions(answers), two, None, 10.0)
    assert plan.asks == ()
    assert plan.stop == f"no annotator of the crew can answer any of the {ITEMS} items that are open"
    assert planned(questions(answers), Crew(("ann", "bob", "cyd"), never=skipped), plan, 20.0).stop is None
    full = Crew(("ann", "bob", "cyd"), {"cyd": 0}, never=skipped)  # could, but has no time today
    assert planned(questions(answers), full, plan, 20.0).stop is None
    assert planned(questions(answers), Crew(), plan, 20.0).stop is None


def test_any_policy_is_held_to_capacity_and_to_what_waits() -> None:
    before = old(("ann", 5), ("bob", 2))
    crew = Crew(PEOPLE, default_capacity=3)
    plan = next_plan(Greedy(), questions(), crew, NEVER_DONE, before, 200.0, DAY)
    assert [len(plan.asks_of(name)) for name in PEOPLE] == [3, 3, 3]
    assert [ask.annotator for ask in plan.asks if ask.item in (5, 2)] == ["ann", "bob"]


def test_no_policy_spends_more_than_a_plan_may_cost() -> None:
    crew, budget = Crew(PEOPLE, cost={"ann": 3.0, "bob": 2.0}), Budget(cost=6.0, target_confidence=1.0)
    plan = next_plan(Greedy(), questions(), crew, budget, old(("ann", 5)), 200.0, DAY)
    assert sum(crew.cost_of(ask.annotator) for ask in plan.asks if ask.annotator) == 6.0
    assert plan.asks[0].item == 5
    tenths, third = Crew(PEOPLE, default_cost=0.1, default_capacity=1), Budget(cost=0.3, target_confidence=1.0)
    first = planned(questions(), tenths, None, 1.0, third)
    assert len(first.asks) == 3  # 0.1 + 0.1 + 0.1 > 0.3 in floating point
    assert planned(questions(), tenths, first, 2.0, third) == first
    anyone = planned(questions(), Crew(default_cost=2.0), None, 1.0, Budget(cost=5.0))
    assert len(anyone.asks) == 2


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["answer", "skip", "wait", "leave", "return", "delete", "late", "unasked"]),
        st.integers(0, 50),
        st.integers(0, 1),
    ),
    max_size=40,
)


@settings(max_examples=20, deadline=None)
@given(MOVES, st.integers(1, 4), st.integers(1, 12))
def test_whatever_people_do_nothing_is_lost_and_nobody_is_asked_twice(
    moves: list[tuple[str, int, int]], capacity: int, labels: int
) -> None:
    budget = Budget(open_questions=labels, target_confidence=0.9, max_labels=3)
    answers: dict[tuple[str, int], int] = {}
    skipped: set[tuple[str, int]] = set()
    there, items, now, plan = list(PEOPLE), list(range(ITEMS)), 0.0, Plan()
    ever: list[tuple[str, int]] = []
    for kind, number, label in (*moves, ("wait", 0, 0)):
        ours = [pair for pair in pairs(plan) if pair[0] in there]
        if kind == "answer" and ours:
            answers[ours[number % len(ours)]] = label  # type: ignore[index]
        elif kind == "skip" and ours:
            skipped.add(ours[number % len(ours)])  # type: ignore[arg-type]
        elif kind == "late" and ever:
            answers[ever[number % len(ever)]] = label
        elif kind == "unasked":
            answers[PEOPLE[number % 3], items[number % len(items)]] = label
        elif kind == "leave" and len(there) > 1:
            there.pop(number % len(there))
        elif kind == "return":
            there = list(PEOPLE)
        elif kind == "delete" and len(items) > 4:
            items.pop(number % len(items))
        else:
            now += 9 * 3600.0
        now += 60.0
        crew = Crew(tuple(there), default_capacity=capacity, never=frozenset(skipped))
        known = questions(answers, items)
        before, plan = plan, planned(known, crew, plan, now, budget)
        ever += [pair for pair in pairs(plan) if pair not in ever]  # type: ignore[misc]
        holds(plan, before, known[0], crew, budget, answers, skipped)


def holds(
    plan: Plan,
    before: Plan,
    known: tuple[Evidence, Consensus],
    crew: Crew,
    budget: Budget,
    answers: dict[tuple[str, int], int],
    skipped: set[tuple[str, int]],
) -> None:
    """What must be true of any plan."""
    items = known[0].annotations.items
    done = {entry.item for entry in plan.done}
    asked = pairs(plan)
    away = {person.annotator for person in plan.people if person.away}
    assert plan.open_items + len(done) == len(items)
    assert len(set(asked)) == len(asked) <= budget.open_questions
    assert not set(asked) & (set(answers) | skipped)
    for name in crew.names:
        assert len(plan.asks_of(name)) <= (1 if name in away else crew.capacity_of(name))
    for name, item in asked:
        assert name in crew.names
        assert item in items
        assert item not in done
    item_names = [item for _, item in asked]
    assert len(set(item_names)) == len(item_names)  # this policy asks nobody a second time while somebody is asked
    for name in crew.names:  # what is kept is kept in order, before what is new
        old_order = [ask.item for ask in before.asks_of(name)]
        queue = [ask.item for ask in plan.asks_of(name) if ask in before.asks]
        assert queue == [item for item in old_order if item in queue]
        assert [ask.item for ask in plan.asks_of(name)][: len(queue)] == queue
    if plan.stop is None and len(plan.asks) < budget.open_questions:
        free = {name for name in crew.names if name not in away and len(plan.asks_of(name)) < crew.capacity_of(name)}
        left = set(items) - done - set(item_names)
        gave_up = {(expired.annotator, expired.item) for expired in plan.expired}
        for item in left:  # an open item is only left aside where nobody with room may be asked
            assert not [name for name in free if (name, item) not in set(answers) | skipped | gave_up]


def test_checks_wait_for_their_answer_like_other_questions_though_their_items_are_done() -> None:
    matrix = np.array([[0, -1, -1], [1, -1, -1], [0, -1, -1], [1, -1, -1], [-1, -1, -1], [-1, -1, -1]])
    annotations = Annotations.from_matrix(matrix, classes=("cat", "dog"))
    evidence = Evidence(annotations, truth=np.array([0, 1, -1, -1, -1, -1], np.int32))
    known = [(evidence, DawidSkene().fit(evidence))]
    crew, budget = Crew((1, 2)), Budget(open_questions=4, target_confidence=0.999)
    policy = ExpectedGain(gold_share=0.5)
    first = next_plan(policy, known, crew, budget, now=1.0)
    checks = [ask for ask in first.asks if ask.item in (0, 1)]
    assert len(checks) == 2
    assert [ask.check for ask in first.asks] == [ask.item in (0, 1) for ask in first.asks]
    reworded = replace(first, asks=tuple(replace(ask, why="a check in other words") for ask in first.asks))
    assert next_plan(policy, known, crew, budget, reworded, now=2.0).asks == reworded.asks
    # Asked as others are, and done since:
    unchecked = replace(first, asks=tuple(replace(ask, check=False) for ask in first.asks))
    left = next_plan(ExpectedGain(), known, crew, budget, unchecked, now=2.0).asks
    assert not {ask.item for ask in left} & {0, 1}
    again = next_plan(policy, known, crew, budget, first, now=2.0)
    assert again.asks == first.asks
