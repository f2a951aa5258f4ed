"""From values to questions: money counted once, what pays, and batches that are not all alike."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl.active.acquisition import value_of_information
from hitl.active.acquisition.expected_gain import utility
from hitl.active.acquisition.value_of_information import crew_confusion
from hitl.active.assignment.assign import Pair
from hitl.active.assignment.batch import ROUNDS, Choice, that_pay
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pool_state import PoolState
from hitl.crew import Budget, Crew
from tests.active.test_policy import judged, open_budget


def choice(seed: int, crew: Crew, money: float = np.inf, items: int = 5) -> Choice:
    """Random beliefs and people, nothing answered."""
    evidence, consensus = judged(np.random.default_rng(seed), items, 3, 3, seen=0.0)
    value = utility(PoolState.of([(evidence, consensus)], open_budget()), [crew_confusion(consensus, crew)], 0.1)
    return Choice(value, Eligibility.of(crew, [evidence.annotations]), money)


def best_total(values: np.ndarray, cost: np.ndarray, capacity: int, limit: int, money: float) -> float:  # type: ignore[type-arg]
    """The largest total of all choices there are."""
    best = 0.0
    for people in itertools.product(range(-1, len(cost)), repeat=len(values)):
        asked = [(n, k) for n, k in enumerate(people) if k >= 0]
        if len(asked) > limit or sum(cost[k] for _, k in asked) > money + 1e-9:
            continue
        if max(np.bincount(np.array([k for _, k in asked], int), minlength=1)) <= capacity:
            best = max(best, sum(values[n, k] for n, k in asked))
    return best


@given(st.integers(0, 2000), st.integers(1, 3), st.integers(1, 5))
def test_gain_for_money_where_no_limit_on_cost_binds(seed: int, capacity: int, limit: int) -> None:
    cost = np.random.default_rng(seed).choice([1.0, 2.0, 5.0], 3)
    crew = Crew((0, 1, 2), default_capacity=capacity, cost=dict(enumerate(cost.tolist())))
    named, rows = choice(seed, crew), np.arange(5)
    pairs = named.best(rows, limit)
    values = named.value.values(rows) / cost * cost.mean()
    found = sum(values[pair.item, pair.person] for pair in pairs)
    assert found >= 0.99 * best_total(values, cost, capacity, limit, np.inf)
    spent = sum(cost[pair.person] for pair in pairs)
    again = choice(seed, crew, money=spent).best(rows, limit)  # a limit that does not bind changes nothing
    assert [(p.item, p.person) for p in again] == [(p.item, p.person) for p in pairs]


def test_costs_that_add_up_to_the_limit_but_for_rounding_are_within_it() -> None:
    crew = Crew((0, 1, 2), default_capacity=1, cost={0: 0.1, 1: 0.2, 2: 0.7})
    assert {pair.person for pair in choice(1, crew, money=0.3).best(np.arange(5), 5)} == {0, 1}  # 0.1 + 0.2 > 0.3


@settings(max_examples=20)
@given(st.integers(0, 2000), st.integers(2, 9))
def test_gain_within_the_money_where_the_limit_binds(seed: int, money: int) -> None:
    """In the order of gain for money: no item is left out for one that brings less for it."""
    cost = np.array([1.0, 2.0, 4.0])
    crew = Crew((0, 1, 2), default_capacity=2, cost=dict(enumerate(cost.tolist())))
    rows = np.arange(5)
    cheap = sum(cost[p.person] for p in choice(seed, crew).best(rows, 5))
    named = choice(seed, crew, money=float(money))
    pairs = named.best(rows, 5)
    assert sum(cost[pair.person] for pair in pairs) <= money
    values = named.value.values(rows)
    if cheap > money:
        best = best_total(values, cost, 2, 5, money)
        assert sum(values[pair.item, pair.person] for pair in pairs) >= best - values.max()  # the last coins


def test_money_is_not_counted_twice() -> None:
    """The good bring three times as much for twice the price: two of them, not four of the others."""
    matrices = np.array([[[0.6, 0.4], [0.4, 0.6]], [[0.8, 0.2], [0.2, 0.8]]])
    question = judged(np.random.default_rng(0), 6, 2, 2, seen=0.0)
    question[1].probabilities[:] = 0.5
    value = utility(PoolState.of([question], open_budget()), [matrices], 0.0)
    free = Eligibility.of(Crew((0, 1), cost={1: 2.0}), [question[0].annotations])
    found = Choice(value, free, money=4.0).best(np.arange(6), 5)
    assert [pair.person for pair in found] == [1, 1]


@pytest.mark.parametrize("worth_of_one", [2.0, 5.0, 12.0, 40.0])
def test_what_is_asked_pays_and_what_pays_is_asked(worth_of_one: float) -> None:
    crew = Crew((0, 1, 2), cost={1: 2.0})
    question = judged(np.random.default_rng(3), 12, 3, 3, seen=0.0)
    value = utility(PoolState.of([question], open_budget()), [crew_confusion(question[1], crew)], 0.1)
    named, rows = Choice(value, Eligibility.of(crew, [question[0].annotations])), np.arange(12)
    budget = Budget(value_per_label=worth_of_one, max_labels=3)

    def pays(item: np.ndarray, person: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return value_of_information.pays([question], item, person, crew, budget)

    def plainly(n: int, k: int) -> bool:
        q, pi = question[1].probabilities[n : n + 1], question[1].annotators.confusion[k]
        best = max(float(value_of_information.accuracy_gain(q, pi, m)[0]) / m for m in (1, 2, 3))
        return worth_of_one * best >= crew.cost_of(k)

    found = that_pay(named, rows, 12, pays)
    every = [(n, k) for n in range(12) for k in range(3) if plainly(n, k)]
    assert {(pair.item, pair.person) for pair in found} <= set(every)
    assert {pair.item for pair in found} == {n for n, _ in every}


def test_the_search_for_what_pays_ends_and_is_thorough_first() -> None:
    """Nothing pays: so many attempts, in which more and more pairs are looked at, none twice in vain."""
    named = choice(4, Crew((0, 1, 2), default_capacity=1), items=300)
    looks = []

    def nothing(item: np.ndarray, person: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        looks.append(set(zip(item.tolist(), person.tolist(), strict=True)))
        return np.zeros(len(item), dtype=bool)

    assert that_pay(named, np.arange(300), 3, nothing) == []
    assert len(looks) <= 1 + 2 * ROUNDS
    assert len(set().union(*looks)) == 900


def test_what_pays_is_found_behind_many_that_do_not() -> None:
    """One pair of 900 pays, the least valuable; everybody can take one question."""
    named = choice(4, Crew((0, 1, 2), default_capacity=1), items=300)
    value = named.value.values(np.arange(300))
    one = np.unravel_index(value.argmin(), value.shape)

    def pays(item: np.ndarray, person: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return (item == one[0]) & (person == one[1])

    found = that_pay(named, np.arange(300), 1, pays)
    assert [(pair.item, pair.person) for pair in found] == [one]


def test_whoever_comes_gets_the_most_valuable_of_those_left() -> None:
    question = judged(np.random.default_rng(5), 8, 3, 3, seen=0.0)
    value = utility(PoolState.of([question], open_budget()), [crew_confusion(question[1], Crew())], 0.1)
    free = Eligibility.of(Crew(), [question[0].annotations])
    anyone, rows = Choice(value, free, money=3.0), np.array([6, 1, 4, 0, 3])
    order = rows[np.argsort(-value.values(rows)[:, 0])].tolist()
    assert [pair.item for pair in anyone.best(rows, 9)] == order[:3]
    assert [pair.item for pair in anyone.best(rows, 2)] == order[:2]
    left = anyone.without([Pair(order[0], 0, 0.0)]).without([Pair(order[2], 0, 0.0)])
    assert [pair.item for pair in left.best(rows, 9)] == [order[1], *order[3:]]


def test_a_diverse_batch_is_a_core_set_of_the_best() -> None:
    """Twenty items are the most valuable, in four groups of the same: a batch of four has one of each."""
    question = judged(np.random.default_rng(6), 40, 3, 2, seen=0.0)
    q = question[1].probabilities
    q[:] = [0.95, 0.05]
    q[:20] = np.linspace(0.5, 0.6, 20)[:, None] * [1, -1] + [0, 1]
    value = utility(PoolState.of([question], open_budget()), [crew_confusion(question[1], Crew())], 0.1)
    features = 10.0 * np.eye(8)[np.arange(40) // 5] + 0.01 * np.arange(40)[:, None]
    free, rows = Eligibility.of(Crew(), [question[0].annotations]), np.arange(40)
    plain = Choice(value, free, money=40.0)
    assert sorted(pair.item // 5 for pair in plain.best(rows, 4)) == [0, 0, 0, 0]
    spread = replace(plain, features=features, times=5.0)
    assert sorted(pair.item // 5 for pair in spread.best(rows, 4)) == [0, 1, 2, 3]
    waits = replace(free, closed=np.isin(rows, [25, 2]))
    beside = replace(plain, free=waits, features=features, times=20 / 3)  # the first group is covered by what waits
    assert sorted(pair.item // 5 for pair in beside.best(rows, 3)) == [1, 2, 3]
    assert len(replace(spread, money=2.0).best(rows, 4)) == 2
    without = spread.without([Pair(item, 0, 0.0) for item in range(5)])
    assert sorted({pair.item // 5 for pair in without.best(rows, 4)} & {0, 1, 2, 3}) == [1, 2, 3]


def test_items_without_features_are_asked_about_as_far_as_they_are_the_best() -> None:
    """Values rise with the row. Of the best four, two have no features; beside them a core set of two."""
    question = judged(np.random.default_rng(6), 40, 3, 2, seen=0.0)
    question[1].probabilities[:] = np.linspace(0.95, 0.5, 40)[:, None] * [1, -1] + [0, 1]
    value = utility(PoolState.of([question], open_budget()), [crew_confusion(question[1], Crew())], 0.1)
    features = 10.0 * np.eye(8)[np.arange(40) // 5]
    features[[39, 36, 31, 30, 29]] = np.nan
    free, rows = Eligibility.of(Crew(), [question[0].annotations]), np.arange(40)
    spread = Choice(value, free, money=40.0, features=features, times=3.0)
    assert sorted(pair.item for pair in spread.best(rows, 4)) == [34, 36, 38, 39]
    features[:] = np.nan
    assert sorted(pair.item for pair in spread.best(rows, 4)) == [36, 37, 38, 39]


def test_busy_people_do_not_make_a_batch_less_diverse() -> None:
    """Three people with two questions each: the candidates are as many as where they could do anything."""
    crew = Crew((0, 1, 2), default_capacity=2)
    named = choice(7, crew, money=6.0, items=30)
    features = 100.0 * np.eye(6)[np.arange(30) % 6] + 0.01 * np.arange(30)[:, None]
    rows = np.arange(30)
    pairs = replace(named, features=features, times=30 / 6).best(rows, 6)
    assert sorted(pair.item % 6 for pair in pairs) == list(range(6))
    assert np.bincount([pair.person for pair in pairs]).tolist() == [2, 2, 2]
