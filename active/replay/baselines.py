"""What a policy is measured against: policies that look at no belief.

    even      an item with the fewest labels, drawn among equals, to any annotator who may have it
    random    any item, to any annotator who may have it

Both ask about open items only, an item once in a plan. Where confidence must not end an item, as in a comparison with
spreading labels evenly over all items, set `Budget.min_labels` to `max_labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.stopping.pool_state import PoolState, Rows
from hitl.active.stopping.rules import Judged
from hitl.crew import Budget, Crew
from hitl.plan import Ask, Plan

WHY = "by turns"
"""What a baseline says of a question; its gain and its chance of being right are not estimated (0)."""

CENT = 1e-9
"""Sums of costs that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class Evenly:
    """Labels spread evenly over the open items, each from an annotator drawn among those who may give it.

    Attributes:
        seed: draws among equals, >= 0; the same seed and answers give the same plan.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import Evenly
        >>> from hitl.models import MajorityVote
        >>> said = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(said, MajorityVote().fit(said))]
        >>> plan = Evenly(seed=1).plan(questions, Crew(("al", "bob")), Budget(labels=1))
        >>> [(ask.item, ask.annotator) for ask in plan.asks]
        [(2, 'bob')]
    """

    seed: int = 0

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The next questions, the items with fewest labels first. Raises BadInput where the questions' items differ."""
        return _dealt(self.seed, PoolState.of(questions, budget), crew, budget, PoolState.fewest_first)


@dataclass(frozen=True, slots=True)
class Randomly:
    """Any open item, to an annotator drawn among those who may have it.

    Attributes:
        seed: draws, >= 0; the same seed and answers give the same plan.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import Randomly
        >>> from hitl.models import MajorityVote
        >>> said = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(said, MajorityVote().fit(said))]
        >>> len(Randomly(seed=1).plan(questions, Crew(("cy", "dee")), Budget(labels=5)).asks)
        2
    """

    seed: int = 0

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The next questions, in no order. Raises BadInput where the questions' items differ."""
        return _dealt(self.seed, PoolState.of(questions, budget), crew, budget, lambda _, rows: rows)


def _dealt(seed: int, pool: PoolState, crew: Crew, budget: Budget, ordered: Callable[[PoolState, Rows], Rows]) -> Plan:
    """Each open item in order to an annotator drawn among those who may have it; other draws in each round."""
    rng = np.random.default_rng([seed, pool.answered, len(crew.asked)])
    free = Eligibility.of(crew, pool.annotations)
    order = ordered(pool, rng.permutation(pool.open_rows[~free.closed[pool.open_rows]]))
    left, price, money = free.capacity.copy(), np.array(crew.prices), budget.cost + CENT
    asks: list[Ask] = []
    for block, mask in free.blocks(order):
        for row, may in zip(block.tolist(), mask, strict=True):
            able = np.flatnonzero(may & (left > 0) & (price <= money))
            if len(asks) < budget.labels and able.size:
                person = int(rng.choice(able)) if crew.names else 0
                left[person] -= 1
                money -= price[person]
                asks.append(Ask(pool.items[row], crew.members[person], 0.0, 0.0, WHY))
        if len(asks) >= budget.labels:
            break
    return Plan(tuple(asks), pool.done, len(pool.open_rows))
