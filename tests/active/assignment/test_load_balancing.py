"""Nobody gets all the questions because they are best: even shares, whom they bind, and what is beyond them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.active.acquisition.expected_gain import utility
from hitl.active.assignment import batch
from hitl.active.assignment.assign import BEYOND, assign
from hitl.active.assignment.batch import FIRST, HANDFUL, Choice, even_share, shares
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.active.replay.simulated_annotators import confusion_matrix
from hitl.active.stopping.rules import Judged
from hitl.annotations import ANONYMOUS, Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import UNLIMITED, Budget, Crew
from hitl.evidence import Evidence
from tests.active.assignment.test_assign import TOLERANCE, best_by_program, total
from tests.active.test_policy import open_budget

NAMES = ("ann", "bob", "cyd", "dee", "eve")
LOTS = Budget(open_questions=200, target_confidence=1.0, min_labels=0, max_labels=99)


def team(accuracy: dict[str, float], items: int = 400, q: Floats | None = None) -> Judged:
    """A team of whom it is known how good they are, and items of which nothing is known."""
    names, n = tuple(accuracy), len(accuracy)
    none = np.zeros(0, np.int32)
    annotations = Annotations(none, none, none, tuple(range(items)), names, ("a", "b"), ("a", "b"))
    pi = np.stack([confusion_matrix("good", right, 2, 0) for right in accuracy.values()])
    known = AnnotatorReport(names, ("a", "b"), ("a", "b"), 100 * pi, pi, np.full(n, 100), np.full(2, 0.5))
    beliefs = np.full((items, 2), 0.5) if q is None else q
    return Evidence(annotations), Consensus(annotations.items, ("a", "b"), beliefs, known, np.full(2, 0.5))


def asked(question: Judged, crew: Crew | None = None, budget: Budget = LOTS, **options: Any) -> Counter[Any]:
    """How many questions each gets."""
    plan = ExpectedGain(**options).plan([question], crew or Crew(question[1].annotators.names), budget)
    return Counter(ask.annotator for ask in plan.asks)


# -- what is said in the guide --------------------------------------------------------------------------------


def test_a_plan_of_200_for_a_team_of_five_does_not_go_to_one_person() -> None:
    question = team({"ann": 0.95, "bob": 0.93, "cyd": 0.92, "dee": 0.9, "eve": 0.88})
    assert asked(question, max_load_ratio=math.inf) == {"ann": 200}
    found = asked(question)
    assert found.total() == 200
    assert found == {"ann": 60, "bob": 60, "cyd": 60, "dee": 20}
    assert asked(question, max_load_ratio=2) == {"ann": 80, "bob": 80, "cyd": 40}
    assert set(asked(question, max_load_ratio=1).values()) == {40}


def test_a_spammer_gets_nothing_for_being_idle() -> None:
    """Nobody else is half as good: what is beyond a share goes to those who can."""
    question = team({"ann": 0.95, "bob": 0.9, "cyd": 0.5, "dee": 0.52, "eve": 0.45})
    found = asked(question)
    assert found == {"ann": 140, "bob": 60}  # beyond their shares both count half, and ann is better
    assert asked(team({"ann": 0.9, "bob": 0.5, "cyd": 0.5, "dee": 0.5, "eve": 0.5})) == {"ann": 200}


def test_what_waits_counts_and_who_can_do_little_leaves_the_rest_to_others() -> None:
    question = team({"ann": 0.95, "bob": 0.93, "cyd": 0.92, "dee": 0.9, "eve": 0.88})
    waits = tuple(("ann", item) for item in range(60))
    crew = Crew(NAMES, asked=waits)
    assert asked(question, crew, Budget(open_questions=140, target_confidence=1.0)) == {"bob": 60, "cyd": 60, "dee": 20}
    full = Crew(NAMES, {"ann": 60}, asked=waits)  # has what she can take: the others' share is no larger for it
    assert asked(question, full, Budget(open_questions=140, target_confidence=1.0)) == {"bob": 60, "cyd": 60, "dee": 20}
    busy = Crew(NAMES, {"cyd": 20, "dee": 20, "eve": 0})  # leaves 160 to two: even shares of 80
    assert asked(question, busy) == {"ann": 120, "bob": 80}
    few = Crew(NAMES, only={"bob": frozenset(range(3)), "dee": frozenset({5})})
    found = asked(question, few)  # 196 in three even shares
    assert found["ann"] == 98
    assert found["bob"] <= 3
    assert found["dee"] <= 1


def test_a_handful_is_nobodys_load_and_who_is_asked_without_names_has_no_share() -> None:
    question = team({"ann": 0.95, "bob": 0.93, "cyd": 0.92, "dee": 0.9, "eve": 0.88})
    assert asked(question, budget=Budget(open_questions=HANDFUL, target_confidence=1.0)) == {"ann": HANDFUL}
    assert asked(question, Crew()) == {None: 200}
    nobody = Eligibility.of(Crew((*NAMES, ANONYMOUS)), [question[0].annotations])
    assert shares(nobody, np.arange(400), 200, 2.0).tolist() == [80] * 5 + [UNLIMITED]


def test_nobody_is_given_much_before_they_have_shown_something() -> None:
    free = Eligibility.of(Crew(NAMES), [team(dict.fromkeys(NAMES, 0.9))[0].annotations])
    given_k = np.array([0.0, 1.0, 10.0, 40.0, 40.0])
    found = shares(free, np.arange(400), 6, 2.0, given_k)
    assert found.tolist() == [FIRST, FIRST + 1, FIRST + 10, HANDFUL, HANDFUL]
    assert shares(free, np.arange(400), 200, 2.0, given_k).tolist() == [80] * 5  # an even share is always fine


def test_a_share_is_of_what_can_be_asked() -> None:
    """A hundred items are left, or money for a hundred: an even share is twenty, though 200 questions are allowed."""
    good = {"ann": 0.95, "bob": 0.93, "cyd": 0.92, "dee": 0.9, "eve": 0.88}
    assert asked(team(good, 100), max_load_ratio=2) == {"ann": 40, "bob": 40, "cyd": 20}
    paid = asked(team(good), Crew(NAMES, cost={"dee": 2.0, "eve": 2.0}), Budget(cost=100.0, target_confidence=1.0))
    assert paid == {"ann": 40, "bob": 30, "cyd": 30}  # for the money ann brings more at half than dee in full


def test_the_most_contested_items_are_not_all_one_persons() -> None:
    """200 questions of which 120 are about items that hang in the balance, the others all but decided."""
    q = np.tile([0.97, 0.03], (400, 1))
    q[:120] = 0.5
    question = team({"ann": 0.95, "bob": 0.93, "cyd": 0.92, "dee": 0.9, "eve": 0.88}, q=q)
    plan = ExpectedGain().plan([question], Crew(NAMES), LOTS)
    contested = Counter(ask.annotator for ask in plan.asks if ask.item in range(120))
    assert contested.total() == 120
    assert max(contested.values()) <= 60
    assert len(contested) > 1
    first = plan.asks[:40]
    assert {ask.item for ask in first} <= set(range(120))  # what is beyond a share is not served last


# -- even shares ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 100))
def test_an_even_share_is_the_level_at_which_all_have_what_is_asked(able: list[int], total: int) -> None:
    share = even_share(np.array(able), total)
    if total > sum(able):
        assert share == math.inf
    else:
        assert math.isclose(sum(min(each, share) for each in able), total, abs_tol=1e-9)


def test_whom_a_large_pool_can_ask_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    none = np.zeros(0, np.int32)
    given_nothing = Annotations(none, none, none, tuple(range(1000)), (), ("a", "b"), ("a", "b"))
    free = Eligibility.of(Crew(NAMES, only={"eve": frozenset(range(0, 1000, 50))}), [given_nothing])
    exact = shares(free, np.arange(1000), 400, 2.0)
    assert exact.tolist() == [190] * 5  # eve can have 20 of them, the other four 95 each
    monkeypatch.setattr(batch, "LOOKS", 1000)
    assert np.abs(shares(free, np.arange(1000), 400, 2.0) - exact).max() <= 4


# -- beyond a share, in the choice of pairs -------------------------------------------------------------------


def crowd(seed: int, n: int, k: int) -> tuple[Eligibility, Floats, Any]:
    """People who may not have everything, values, and shares."""
    rng = np.random.default_rng(seed)
    none = np.zeros(0, np.int32)
    nothing = Annotations(none, none, none, tuple(range(n)), (), ("a", "b"), ("a", "b"))
    crew = Crew(
        tuple(range(k)),
        {0: int(rng.integers(0, 5)), 1: 3},
        never=frozenset(zip(rng.integers(0, k, n).tolist(), rng.integers(0, n, n).tolist(), strict=True)),
        cost=dict(enumerate(rng.choice([1.0, 2.0], k).tolist())),
    )
    quality = rng.random(k) ** 2
    return Eligibility.of(crew, [nothing]), rng.random((n, 1)) * quality + 0.1 * rng.random((n, k)), rng


def doubled(free: Eligibility, value: Floats, share: Any) -> tuple[Floats, Any, list[int]]:
    """The same as a plain choice of pairs: everybody twice, once for their share and once for what is beyond."""
    allowed, n = free.mask_rows(np.arange(len(value))), len(value)
    most = np.minimum(free.capacity, n)
    within = np.minimum(share, most)
    twice = np.concatenate([value, BEYOND * value], axis=1)
    return twice, np.concatenate([allowed, allowed], axis=1), [*within.tolist(), *(most - within).tolist()]


@given(st.integers(0, 100_000), st.integers(1, 14))
def test_shares_are_kept_as_an_exact_solver_keeps_them(seed: int, limit: int) -> None:
    free, value, rng = crowd(seed, 12, 5)
    share = rng.integers(0, 4, 5)
    found = assign(np.arange(12), value.max(axis=1) * 1.2, lambda rows: value[rows], free, limit, share=share)
    best = best_by_program(*doubled(free, value, share), limit)
    assert best * (1 - TOLERANCE) - 1e-9 <= total(found) <= best * (1 + 1e-9) + 1e-12
    has = Counter(pair.person for pair in found)
    for person in range(5):
        beyond = [pair for pair in found if pair.person == person and pair.counts < 1]
        assert len(beyond) == max(has[person] - share[person], 0)
        assert all(pair.counts in (1, BEYOND) for pair in found)
        assert max((pair.value for pair in beyond), default=0) <= min(
            (pair.value for pair in found if pair.person == person and pair.counts == 1), default=math.inf
        )  # the least of theirs
    assert [pair.value for pair in found] == sorted((value[p.item, p.person] for p in found), reverse=True)


@given(st.integers(0, 100_000))
def test_beyond_a_share_nobody_half_as_good_is_passed_over(seed: int) -> None:
    free, value, rng = crowd(seed, 40, 6)
    share = rng.integers(0, 6, 6)
    found = assign(np.arange(40), value.max(axis=1), lambda rows: value[rows], free, 30, share=share)
    has = Counter(pair.person for pair in found)
    allowed = free.mask_rows(np.arange(40))
    for pair in found:
        for other in range(6):
            room = has[other] < min(share[other], free.capacity[other]) and allowed[pair.item, other]
            if pair.counts < 1 and room:
                assert value[pair.item, other] <= BEYOND * pair.value + TOLERANCE * total(found)


def test_many_over_their_share_are_paired_as_an_exact_solver_pairs_them() -> None:
    free, value, _ = crowd(7, 300, 60)
    share = np.full(60, 5)
    found = assign(np.arange(300), value.max(axis=1), lambda rows: value[rows], free, 250, share=share)
    best = best_by_program(*doubled(free, value, share), 250)
    assert best * (1 - TOLERANCE) <= total(found) <= best * (1 + 1e-9)


def test_answers_worth_nothing_are_asked_of_whoever_has_a_share_left() -> None:
    free, value, _ = crowd(3, 20, 5)
    share = np.array([0, 2, 9, 0, 9])
    found = assign(np.arange(20), np.zeros(20), lambda rows: 0 * value[rows], free, 15, share=share)
    has = Counter(pair.person for pair in found)
    for person in range(5):
        beyond = [pair for pair in found if pair.person == person and pair.counts < 1]
        assert len(beyond) == max(has[person] - share[person], 0)


def test_without_even_shares_nothing_changes() -> None:
    question = team({"ann": 0.95, "bob": 0.9})
    value = utility(PoolState.of([question], open_budget()), [question[1].annotators.confusion], 0.5)
    free = Eligibility.of(Crew(("ann", "bob")), [question[0].annotations])
    rows = np.arange(400)
    plainly = assign(rows, value.bound(rows), value.values, free, 50)
    assert tuple(Choice(value, free).best(rows, 50)) == plainly
    shared = Choice(value, free, max_load_ratio=1.0)
    assert Counter(pair.person for pair in shared.freely().best(rows, 50)) == {
        0: 50
    }  # candidates are the best there are
