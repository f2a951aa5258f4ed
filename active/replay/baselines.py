"""Baseline policies, which ignore how good annotators are.

    even           ask a random annotator about an item with the fewest labels, ties drawn at random
    random         ask a random annotator about a random item
    uncertainty    ask the annotators in turn about the item whose label is least certain

All ask about open items only, each item once per plan, and only annotators who may be asked. If m items are drawn from
n equal ones, each has probability m / n (`Ask.probability`). The probability is unknown if capacities or money do not
suffice for all of them. If confidence must not end an item, as in a comparison with spreading labels evenly over all
items, set `Budget.min_labels` to `max_labels`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from hitl.active.acquisition.expected_gain import labels_of
from hitl.active.acquisition.scores import entropy
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pool_state import PoolState, Rows
from hitl.active.stopping.rules import OPEN, Judged
from hitl.annotations import places_of
from hitl.crew import CENT, Budget, Crew
from hitl.errors import BadSettings
from hitl.plan import Ask, Plan

WHY = "by turns"
"""Reason for a baseline's questions. Their gain and their chance of a right answer are not estimated (0)."""


@dataclass(frozen=True, slots=True)
class Randomly:
    """Random open items, each for an annotator drawn among those who may answer it.

    Attributes:
        seed: seed of the draws, >= 0; the same seed and answers give the same plan.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import Randomly
        >>> from hitl.models import MajorityVote
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(data, MajorityVote().fit(data))]
        >>> len(Randomly(seed=1).plan(questions, Crew(("cy", "dee")), Budget(open_questions=5)).asks)
        2
    """

    seed: int = 0

    def __post_init__(self) -> None:
        seed: object = self.seed  # settings may hold any type
        if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
            raise BadSettings(f"policy.options.seed is {seed!r}; expected a whole number of at least 0")

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Return the next questions, in random order. Raise BadInput if the questions' items differ."""
        pool = PoolState.of(questions, budget)
        return _drawn(self.seed, pool, crew, budget, np.zeros(len(pool.items), np.int64))


class Evenly(Randomly):
    """Labels spread evenly over the open items, each by an annotator drawn among those who may give it.

    Attributes:
        seed: seed of the draws, >= 0; the same seed and answers give the same plan.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import Evenly
        >>> from hitl.models import MajorityVote
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(data, MajorityVote().fit(data))]
        >>> plan = Evenly(seed=1).plan(questions, Crew(("al", "bob")), Budget(open_questions=1))
        >>> [(ask.item, ask.annotator) for ask in plan.asks]
        [(2, 'bob')]
    """

    __slots__ = ()

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Return the next questions, fewest labels first. Raise BadInput if the questions' items differ."""
        pool = PoolState.of(questions, budget)
        return _drawn(self.seed, pool, crew, budget, pool.labels)


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Uncertainty sampling: the open items whose labels are least certain, to the annotators in turn.

    The uncertainty of an item is the entropy of its label, summed over its open questions
    (`acquisition.scores.entropy`). Among those who may be asked, the annotator with the fewest answers and questions is
    chosen.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import Uncertain
        >>> from hitl.models import MajorityVote
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(data, MajorityVote().fit(data))]
        >>> plan = Uncertain().plan(questions, Crew(("cy", "dee")), Budget(open_questions=5))
        >>> [(ask.item, ask.annotator) for ask in plan.asks]
        [(1, 'cy'), (2, 'dee')]
    """

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Return the next questions, least certain items first. Raise BadInput if the questions' items differ."""
        pool = PoolState.of(questions, budget)
        free = Eligibility.of(crew, pool.annotations)
        score_qn = np.where(pool.states == OPEN, [entropy(consensus.probabilities) for _, consensus in pool], 0.0)
        rows = pool.open_rows[~free.closed[pool.open_rows]]
        order = rows[np.argsort(-score_qn.sum(axis=0)[rows], kind="stable")]
        had = free.load + (labels_of(pool, crew) if crew.names else 0)
        return _dealt(pool, free, budget, order, lambda able, given: able[np.argmin((had + given)[able])])


def _drawn(seed: int, pool: PoolState, crew: Crew, budget: Budget, rank: Rows) -> Plan:
    """Ask a random annotator about each open item. Items of lower `rank` (N,) come first, in random order within each.

    The draws differ from round to round.
    """
    rng = np.random.default_rng([seed, pool.answered, len(crew.asked)])
    free = Eligibility.of(crew, pool.annotations)
    rows = pool.open_rows[~free.closed[pool.open_rows]]
    order = rng.permutation(rows)
    order = order[np.argsort(rank[order], kind="stable")]
    plan = _dealt(pool, free, budget, order, lambda able, _: rng.choice(able))
    return replace(plan, asks=_with_probabilities(plan.asks, pool, free, budget, rows, rank))


def _with_probabilities(
    asks: tuple[Ask, ...], pool: PoolState, free: Eligibility, budget: Budget, rows: Rows, rank: Rows
) -> tuple[Ask, ...]:
    """Set each probability to the share of its rank that is asked, or None if capacities or money may not suffice."""
    able = free.capacity > 0
    enough = bool((free.capacity[able] >= budget.open_questions).all())
    if not (enough and budget.open_questions * max(free.crew.prices) <= budget.cost + CENT):
        return tuple(replace(ask, probability=None) for ask in asks)
    might = np.concatenate([np.zeros(0, bool), *(mask[:, able].any(axis=1) for _, mask in free.blocks(rows))])
    there = Counter(rank[rows[might]].tolist())
    rank_of = {item: int(rank[row]) for item, row in places_of(pool.items, [ask.item for ask in asks]).items()}
    asked = Counter(rank_of.values())
    return tuple(replace(ask, probability=asked[rank_of[ask.item]] / there[rank_of[ask.item]]) for ask in asks)


def _dealt(pool: PoolState, free: Eligibility, budget: Budget, order: Rows, whom: Callable[[Rows, Rows], int]) -> Plan:
    """Ask about these items in order, within the budget. `whom` chooses the annotator (a crew position).

    Its arguments are the positions that may be asked, and (K',) the number of questions assigned so far.
    """
    crew, price, money = free.crew, np.array(free.crew.prices), budget.cost + CENT
    assigned = np.zeros(len(crew.members), dtype=np.int64)
    asks: list[Ask] = []
    for block, mask in free.blocks(order):
        for row, may in zip(block.tolist(), mask, strict=True):
            able = np.flatnonzero(may & (assigned < free.capacity) & (price <= money))
            if len(asks) < budget.open_questions and able.size:
                person = whom(able, assigned)
                assigned[person] += 1
                money -= price[person]
                asks.append(Ask(pool.items[row], crew.members[person], 0.0, 0.0, WHY))
        if len(asks) >= budget.open_questions:
            break
    return Plan(tuple(asks), pool.done, len(pool.open_rows))
