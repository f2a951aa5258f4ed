"""The contract of every policy in the registry, and that the contract sees what breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.active.acquisition.scores import entropy
from hitl.active.policy import ExpectedGain, Policy
from hitl.active.pool_state import PoolState
from hitl.active.registry import POLICIES, policy
from hitl.active.replay.baselines import WHY, Evenly, Randomly, Uncertain
from hitl.active.stopping.rules import Judged
from hitl.connectors.tables import Tables
from hitl.crew import Budget, Crew
from hitl.plan import Ask, Plan
from hitl.settings import CrewSettings, PolicySettings
from hitl.store import Store
from hitl.testing.policies import FACTS, check_policy, project
from tests.of_the_day import of_the_day
from tests.projects import folder_with_tables, settings

ORDER = "the order of items and annotators does not matter"
EXEMPT = {
    ("even", ORDER): "draws among equals",
    ("random", ORDER): "draws",
    ("uncertainty", ORDER): "looks at one item at a time: who of equals is asked leaves others their time",
}
"""(policy, fact) -> why it need not hold."""


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_to(name: str, fact: str) -> None:
    if (name, fact) in EXEMPT:
        pytest.skip(EXEMPT[name, fact])
    FACTS[fact](policy(name))


@pytest.mark.journey
@pytest.mark.parametrize(
    "case",
    of_the_day(
        [
            (ExpectedGain(max_load_ratio=1.0, exploration_weight=0.0), None),
            (
                ExpectedGain(information=0.0),
                "answers that bring nothing are equal, whoever gives them, and cost differently",
            ),
            (ExpectedGain(gold_share=0.4), "who of equals is checked leaves others their time"),
            (ExpectedGain(audit_share=0.4), "who of equals is drawn for leaves others their time"),
            (ExpectedGain(audit_share=0.4, gold_share=0.5), "the same"),
        ],
        2,
    ),
)
def test_so_does_the_policy_with_other_settings(case: tuple[ExpectedGain, str | None]) -> None:
    policy, exempt = case
    check_policy(policy, exempt and {ORDER: exempt})


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
    "it keeps to the budget": Broken(
        lambda _, q, crew, budget: Evenly().plan(
            q, crew, replace(budget, open_questions=budget.open_questions + 1, cost=1e9)
        )
    ),
    "it keeps to the capacities": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, capacity={}, default_capacity=99), budget)
    ),
    "it asks only who may be asked": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, never=frozenset(), needs={}), budget)
    ),
    "it asks nothing twice": spoilt(lambda _, plan: replace(plan, asks=plan.asks + plan.asks[:1])),
    "it leaves done items alone": Broken(
        lambda _, q, crew, budget: Randomly().plan(q, crew, replace(budget, target_confidence=1.0, max_labels=99))
    ),
    "it says how probable each question was": spoilt(
        lambda _, plan: replace(plan, asks=tuple(replace(ask, probability=0.0) for ask in plan.asks))
    ),
    "it lists the finished items with their labels": spoilt(lambda _, plan: replace(plan, done=())),
    "it asks nothing where nothing may be asked": Reckless(),
    "it asks where it can": spoilt(lambda _, plan: replace(plan, asks=plan.asks[:-1])),
    "it asks the same again": spoilt(lambda self, plan: replace(plan, asks=plan.asks[self.calls % 2 :])),
    "the order of items and annotators does not matter": Broken(
        lambda _, q, crew, budget: ExpectedGain().plan(q, replace(crew, names=crew.names[:2]), budget)
    ),
}
"""Fact -> a policy that does not keep to it."""


@pytest.mark.parametrize("fact", FACTS)
def test_the_contract_sees_a_policy_that_does_not_keep_to(fact: str) -> None:
    with pytest.raises(AssertionError):
        FACTS[fact](BREAKS[fact])


@pytest.mark.parametrize("seed", range(20))
def test_uncertainty_asks_about_the_largest_entropy_the_annotators_in_turn(seed: int) -> None:
    one = project(seed)
    free = replace(
        one, crew=Crew(("dee", "eve", "fay")), budget=Budget(open_questions=7, max_labels=99, target_confidence=1.0)
    )
    asks = free.plan(Uncertain()).asks
    open_entropy = {
        item: sum(
            entropy(consensus.probabilities[[n]])[0] for evidence, consensus in one.questions if not evidence.known[n]
        )
        for n, item in enumerate(one.items)
        if free.is_open(n)
    }
    asked = [open_entropy[ask.item] for ask in asks]
    assert asked == sorted(open_entropy.values(), reverse=True)[: len(asks)]
    assert [ask.annotator for ask in asks] == [free.crew.names[rank % 3] for rank in range(len(asks))]


def test_a_policy_takes_the_state_of_the_pool_for_its_questions() -> None:
    """A policy that knows nothing of `PoolState` meets a sequence of pairs."""
    one = project(1)
    pool = PoolState.of(one.questions, one.budget)
    assert PoolState.of(pool, replace(one.budget, open_questions=0, cost=1.0)) is pool
    assert PoolState.of(pool, replace(one.budget, max_labels=77)) is not pool
    assert list(pool) == list(one.questions) == [*pool[:1], pool[1]]
    for name in POLICIES:
        assert policy(name).plan(pool, one.crew, one.budget) == one.plan(policy(name))


# -- a whole cycle ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crew", [{"annotators": ("dee", "eve"), "capacity": 4}, {}], ids=["named", "anyone"])
@pytest.mark.parametrize("name", ["even", "random", "uncertainty"])
def test_a_baseline_named_in_the_settings_runs_whole_cycles(tmp_path: Path, name: str, crew: dict[str, Any]) -> None:
    folder = folder_with_tables(tmp_path / "p")
    options = {} if name == "uncertainty" else {"seed": 3}
    ours = settings().model_copy(
        update={"policy": PolicySettings(name=name, options=options), "crew": CrewSettings(**crew)}
    )
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        first = cycle.run(ours, store, Tables(folder)).judgement.plan
        assert len(first.asks) == 6
        assert {ask.why for ask in first.asks} == {WHY}
        assert {ask.item for ask in first.asks} >= {"9", "10", "11"} or name == "random"  # without a label
        again = cycle.run(ours, store, Tables(folder))
        assert again.judgement.plan == first
        assert again.changed == 0
        rows = [f"{ask.item},{ask.annotator or 'guest'},{int(ask.item) % 2}" for ask in first.asks]
        with (folder / "annotations.csv").open("a") as handle:
            handle.write("\n".join(rows) + "\n")
        later = cycle.run(ours, store, Tables(folder)).judgement.plan
    asked = {(ask.item, ask.annotator) for ask in first.asks}
    assert not asked & {(ask.item, ask.annotator) for ask in later.asks} or not crew
    assert not {done.item for done in later.done} & {ask.item for ask in later.asks}
    assert len(later.done) + later.open_items == 12
