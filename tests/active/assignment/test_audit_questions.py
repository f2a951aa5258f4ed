"""Questions about items drawn at random: with which chance, to whom, and what becomes of them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.gold_and_audits import AUDIT, audits, draw
from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.active.replay.baselines import Evenly, Randomly
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote

PEOPLE = ("ann", "bob", "cyd")


def judged(matrix: Any, names: Any, known: int = 0, features: Any = None) -> Any:
    """One question about items of these names; the truth of the first `known` is known to be class 0."""
    given = replace(Annotations.from_matrix(np.asarray(matrix), classes=(0, 1)), items=names, annotators=PEOPLE)
    truth = np.where(np.arange(len(names)) < known, 0, -1).astype(np.int32)
    evidence = Evidence(given, truth=truth)
    return replace(evidence, features=features), MajorityVote().fit(evidence)


def names_of(seed: int, items: int) -> tuple[str, ...]:
    """Another project with items of other names, at the same places."""
    return tuple(f"{seed}-{n}" for n in range(items))


MATRIX = [[0, 0, -1], [1, -1, -1], [0, 0, 0], [-1, -1, -1], [1, 1, -1], [0, 1, -1], [-1, 0, -1]]
"""Item 2 has been answered by all."""


@pytest.mark.journey
def test_each_item_that_may_be_asked_about_is_drawn_as_often_as_is_said() -> None:
    """Known truth (0), what waits (4) and what all have answered (2) are not; done and open items are alike."""
    crew, drawn = Crew(PEOPLE, asked=(("cyd", None),)), Counter[int]()
    for seed in range(3000):
        names = names_of(seed, 7)
        crew = Crew(PEOPLE, asked=(("cyd", names[4]),))
        pool = PoolState.of([judged(MATRIX, names, known=1)], Budget(target_confidence=0.9, min_labels=1))
        rows, probability = draw(pool, Eligibility.of(crew, pool.annotations), 2)
        assert (len(rows), probability) == (2, 0.5)
        drawn.update(rows.tolist())
    assert set(drawn) == {1, 3, 5, 6}
    assert all(abs(number / 3000 - 0.5) < 4 * math.sqrt(0.25 / 3000) for number in drawn.values())


@pytest.mark.journey
def test_pairs_of_items_are_drawn_alike_and_other_answers_draw_others() -> None:
    pairs = Counter[tuple[int, ...]]()
    again = 0
    for seed in range(1000):
        names = names_of(seed, 4)
        pool, later = (
            PoolState.of([judged(matrix, names)], Budget())
            for matrix in ([[-1, -1, -1]] * 4, [[0, -1, -1], *[[-1, -1, -1]] * 3])
        )
        first, second = (draw(one, Eligibility.of(Crew(PEOPLE), one.annotations), 2)[0] for one in (pool, later))
        pairs[tuple(sorted(first.tolist()))] += 1
        again += sorted(first.tolist()) == sorted(second.tolist())
    assert len(pairs) == 6
    assert all(abs(number / 1000 - 1 / 6) < 4 * math.sqrt(5 / 36 / 1000) for number in [*pairs.values(), again])


def test_the_order_of_the_items_does_not_matter_and_fewer_than_wanted_are_drawn_surely() -> None:
    names = names_of(0, 7)
    pool = PoolState.of([judged(MATRIX, names)], Budget())
    mixed = PoolState.of([judged(MATRIX[::-1], names[::-1])], Budget())
    drawn = [
        {one.items[row] for row in draw(one, Eligibility.of(Crew(PEOPLE), one.annotations), 3)[0]}
        for one in (pool, mixed)
    ]
    assert drawn[0] == drawn[1]
    rows, probability = draw(pool, Eligibility.of(Crew(PEOPLE), pool.annotations), 99)
    assert (sorted(rows.tolist()), probability) == ([0, 1, 3, 4, 5, 6], 1.0)
    for crew, money in ((Crew(), math.inf), (Crew(PEOPLE, default_capacity=0), math.inf), (Crew(PEOPLE), 0.5)):
        assert len(draw(pool, Eligibility.of(crew, pool.annotations), 3, money)[0]) == 0
    assert len(draw(pool, Eligibility.of(Crew(PEOPLE), pool.annotations), 0)[0]) == 0


def test_who_is_most_likely_right_is_asked_within_time_and_money() -> None:
    pool = PoolState.of([judged(MATRIX, names_of(0, 7))], Budget())
    right = np.tile([0.9, 0.7, 0.8], (3, 1))
    rows = np.array([3, 1, 6])  # ann has answered 1, bob 6

    def asked(crew: Crew, money: float = math.inf) -> list[tuple[int, int]]:
        return audits(rows, right, Eligibility.of(crew, pool.annotations), money)

    assert asked(Crew(PEOPLE)) == [(3, 0), (1, 2), (6, 0)]
    assert asked(Crew(PEOPLE, default_capacity=1)) == [(3, 0), (1, 2)]  # for 6 there is nobody left
    assert asked(Crew(PEOPLE, cost={"ann": 5.0}), 4.0) == [(3, 2), (1, 2), (6, 2)]
    assert asked(Crew(PEOPLE), 2.0) == [(3, 0), (1, 2)]
    even = audits(rows, np.full((3, 3), 0.5), Eligibility.of(Crew(PEOPLE), pool.annotations))
    assert even == [(3, 0), (1, 1), (6, 2)]


def test_the_policy_asks_its_share_and_an_item_once() -> None:
    """5 questions a plan, one audit in ten: 200 answers bring 20 of them."""
    matrix = np.full((250, 3), -1)
    names, rng, audited, items = names_of(1, 250), np.random.default_rng(0), 0, 0
    for _ in range(40):
        question = judged(matrix, names)
        plan = ExpectedGain(audit_share=0.1).plan([question], Crew(PEOPLE), Budget(5, 1.0, 1, 1))
        assert len(plan.asks) == len({ask.item for ask in plan.asks}) == 5
        done = {one.item for one in plan.done}
        for ask in plan.asks:
            row = names.index(ask.item)
            assert ask.audit == (ask.why == AUDIT)
            free = int((matrix < 0).any(axis=1).sum())
            assert ask.probability == (pytest.approx(sum(a.audit for a in plan.asks) / free) if ask.audit else 1.0)
            items += ask.audit and ask.item in done
            matrix[row, PEOPLE.index(ask.annotator)] = -2 - rng.integers(2)  # type: ignore[arg-type]
        matrix = np.where(matrix < -1, -2 - matrix, matrix)
        audited += sum(ask.audit for ask in plan.asks)
    assert audited == 20
    assert 0 < items < 20


def test_without_the_setting_nothing_changes() -> None:
    question, budget = judged(MATRIX, names_of(0, 7), known=1), Budget(open_questions=6)
    policies = [ExpectedGain(gold_share=0.2, audit_share=share) for share in (0.0, 0.4)]
    plain, some = (policy.plan([question], Crew(PEOPLE), budget) for policy in policies)
    assert all(ask.probability == 1.0 and not ask.audit for ask in plain.asks)
    assert any(ask.audit for ask in some.asks)
    assert (plain.done, plain.open_items) == (some.done, some.open_items)


def test_an_audit_of_a_done_item_waits_for_its_answer_and_keeps_its_probability() -> None:
    question = judged([[0, 0, -1]] * 6 + [[-1, -1, -1]] * 6, names_of(3, 12))
    crew, budget = Crew(PEOPLE), Budget(open_questions=6, target_confidence=0.8, min_labels=2)
    first = next_plan(ExpectedGain(audit_share=0.5), [question], crew, budget, now=1.0)
    done = {one.item for one in first.done}
    drawn = [ask for ask in first.asks if ask.audit]
    assert [ask.probability for ask in drawn] == [3 / 12] * 3
    assert done & {ask.item for ask in drawn}
    again = next_plan(ExpectedGain(audit_share=0.5), [question], crew, budget, first, now=2.0)
    assert [ask for ask in again.asks if ask.audit] == drawn
    given_up = next_plan(ExpectedGain(audit_share=0.5), [question], crew, budget, first, now=99.0, expire=10.0)
    assert not {ask.since for ask in given_up.asks} & {1.0}


# -- what else is drawn ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crew", [Crew(PEOPLE), Crew()])
def test_the_first_items_of_a_project_are_drawn_as_often_as_is_said(crew: Crew) -> None:
    """Without labels and with features; of 7 items 3."""
    drawn = Counter[int]()
    for seed in range(200):
        names = names_of(seed, 7)
        question = judged([[-1] * 3] * 7, names, features=np.arange(14.0).reshape(7, 2))
        asks = ExpectedGain().plan([question], crew, Budget(open_questions=3)).asks
        assert [ask.probability for ask in asks] == [3 / 7] * 3
        drawn.update(names.index(ask.item) for ask in asks)
    assert all(abs(drawn[n] / 200 - 3 / 7) < 4 * math.sqrt(12 / 49 / 200) for n in range(7))


def test_where_first_items_are_not_alike_their_probability_is_not_known() -> None:
    names, x_nd = names_of(0, 7), np.arange(14.0).reshape(7, 2)
    question = judged([[-1] * 3] * 7, names, features=x_nd)
    only = Crew(PEOPLE, only={"ann": frozenset(names[:2])})
    for policy, crew in ((ExpectedGain(), only), (ExpectedGain(diverse=2.0), Crew(PEOPLE))):
        asks = policy.plan([question], crew, Budget(open_questions=3)).asks
        assert {ask.probability for ask in asks} == {None}
    without = judged([[-1] * 3] * 7, names)  # in the order of the table
    plan = ExpectedGain().plan([without], Crew(PEOPLE), Budget(open_questions=3))
    assert {ask.probability for ask in plan.asks} == {1.0}


@pytest.mark.parametrize("policy", [Evenly, Randomly])
def test_the_baselines_say_how_they_draw(policy: Any) -> None:
    names, many = names_of(0, 7), 1500
    question, budget = judged(MATRIX, names, known=1), Budget(4, 1.0, 9, 9)
    asked, said = Counter[Any](), {}
    for seed in range(many):
        for ask in policy(seed=seed).plan([question], Crew(PEOPLE), budget).asks:
            asked[ask.item] += 1
            said[ask.item] = ask.probability
    fewest = {names[3]: 1.0, names[1]: 1.0, names[6]: 1.0, names[4]: 0.5, names[5]: 0.5}
    assert said == (dict.fromkeys(fewest, 0.8) if policy is Randomly else fewest)
    for item, probability in said.items():
        spread = math.sqrt(probability * (1 - probability) / many)
        assert abs(asked[item] / many - probability) <= 4 * spread
    busy = policy().plan([question], Crew(PEOPLE, default_capacity=1), budget).asks
    assert {ask.probability for ask in busy} == {None}
