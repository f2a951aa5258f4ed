"""The contract of every policy in the registry, and that the contract sees what breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitl.active.policy import ExpectedGain, Policy
from hitl.active.registry import POLICIES, policy
from hitl.active.replay.baselines import Evenly, Randomly
from hitl.active.stopping.pool_state import PoolState
from hitl.active.stopping.rules import Judged
from hitl.crew import Budget, Crew
from hitl.plan import Ask, Plan
from hitl.testing.policies import FACTS, check_policy

ORDER = "the_order_of_items_and_annotators_does_not_matter"
EXEMPT = {("even", ORDER): "draws among equals", ("random", ORDER): "draws"}
"""(policy, fact) -> why it need not hold."""


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_to(name: str, fact: str) -> None:
    if (name, fact) in EXEMPT:
        pytest.skip(EXEMPT[name, fact])
    FACTS[fact](policy(name))


def test_so_does_the_policy_with_other_settings() -> None:
    check_policy(ExpectedGain(even_shares=1.0, explore=0.0))
    check_policy(ExpectedGain(information=0.0))
    check_policy(ExpectedGain(calibrate=0.4), exempt=[ORDER])  # who of equals is checked leaves others their time


class Reckless:
    """Asks every annotator about every item."""

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Everything."""
        items = questions[0][0].annotations.items
        return Plan(tuple(Ask(item, who, 0.1, 0.5, "") for item in items for who in crew.members), (), len(items))


class Broken:
    """A policy whose plans are spoilt."""

    def __init__(self, how: Any) -> None:
        self.how, self.calls = how, 0

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """A good plan, spoilt."""
        self.calls += 1
        plan: Plan = self.how(self, questions, crew, budget)
        return plan


def spoilt(change: Any, policy: Policy | None = None) -> Broken:
    def how(self: Broken, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        plan: Plan = change(self, (policy or ExpectedGain()).plan(questions, crew, budget))
        return plan

    return Broken(how)


BREAKS = {
    "it_keeps_to_the_budget": Broken(
        lambda _, q, crew, budget: Evenly().plan(q, crew, replace(budget, labels=budget.labels + 1, cost=1e9))
    ),
    "it_keeps_to_the_capacities": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, capacity={}, default_capacity=99), budget)
    ),
    "it_asks_only_who_may_be_asked": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, never=frozenset(), needs={}), budget)
    ),
    "it_asks_nothing_twice": spoilt(lambda _, plan: replace(plan, asks=plan.asks + plan.asks[:1])),
    "it_leaves_done_items_alone": Broken(
        lambda _, q, crew, budget: Randomly().plan(q, crew, replace(budget, target_confidence=1.0, max_labels=99))
    ),
    "it_lists_the_finished_items_with_their_labels": spoilt(lambda _, plan: replace(plan, done=())),
    "it_asks_nothing_where_nothing_may_be_asked": Reckless(),
    "it_asks_where_it_can": spoilt(lambda _, plan: replace(plan, asks=plan.asks[:-1])),
    "it_asks_the_same_again": spoilt(lambda self, plan: replace(plan, asks=plan.asks[self.calls % 2 :])),
    "the_order_of_items_and_annotators_does_not_matter": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, names=crew.names[:2]), budget)
    ),
}
"""Fact -> a policy that does not keep to it."""


@pytest.mark.parametrize("fact", FACTS)
def test_the_contract_sees_a_policy_that_does_not_keep_to(fact: str) -> None:
    with pytest.raises(AssertionError):
        FACTS[fact](BREAKS[fact])


def test_a_policy_takes_the_state_of_the_pool_for_its_questions() -> None:
    """A policy that knows nothing of `PoolState` meets a sequence of pairs."""
    from hitl.testing.policies import project

    one = project(1)
    pool = PoolState.of(one.questions, one.budget)
    assert PoolState.of(pool, replace(one.budget, labels=0, cost=1.0)) is pool
    assert PoolState.of(pool, replace(one.budget, max_labels=77)) is not pool
    assert list(pool) == list(one.questions) == [*pool[:1], pool[1]]
    for name in POLICIES:
        assert policy(name).plan(pool, one.crew, one.budget) == one.plan(policy(name))
