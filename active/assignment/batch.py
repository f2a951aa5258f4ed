"""Questions of one plan: the best pairs that pay, and diverse items.

    best        of these items, so many pairs of the largest total value
    spread      beyond `max_load_ratio` even shares of them an answer counts half, so that others are asked
    diverse     the items are a core set (`core_set`) of `diverse` times as many of the best; an item without features
                is like no other, and in the batch if it is among the best
    pays        a pair that is not worth its cost is left out, and the next best are tried

Money: if annotators cost differently, pairs are ranked by gain per cost, v_nk / cost_k, and taken in this order while
money is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.core_set import core_set
from hitl.active.acquisition.expected_gain import Gains
from hitl.active.assignment.assign import Pair, assign
from hitl.active.assignment.eligibility import Eligibility, Rows
from hitl.active.assignment.load_balancing import shares
from hitl.annotations import Floats
from hitl.crew import CENT

Pays = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Tell which pairs (item codes, crew positions) are worth their cost."""

ROUNDS = 8
"""Attempts to replace pairs that do not pay."""

SETTLING = 4
"""Attempts to recompute shares if money buys fewer questions than the shares assumed."""

AT_LEAST = 64
"""Minimum number of pairs tried at first."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Candidates for one plan: eligible annotators, the value of their answers, and the limits.

    Attributes:
        value: gain of each answer.
        free: who may be asked about what; a crew without names is one average annotator, who can have every item.
        money: maximum cost of all questions together.
        max_load_ratio: beyond this many even shares of the questions an answer counts half; inf: all count in full.
        features: (N, D) features of the items, NaN for those without, if they are to be a core set together with
            waiting items; None: no core set.
        times: the core set is chosen from this many times as many candidates.
        given_k: (K',) answers of each so far, which limit newcomers; None: no limit for newcomers.
    """

    value: Gains
    free: Eligibility
    money: float = math.inf
    max_load_ratio: float = math.inf
    features: Floats | None = None
    times: float = 1.0
    given_k: Floats | None = None

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """Return at most `limit` pairs, each item once, most valuable first; ties in the order of `rows`."""
        if self.features is not None:
            rows = self._not_alike(self.features, rows, limit)
        if not self.free.crew.names:
            return self._of_anyone(rows, limit)
        cost_k, value = np.array(self.free.crew.prices), self.value.per_cost(np.array(self.free.crew.prices))
        free = replace(self.free, capacity=np.where(cost_k <= self.money + CENT, self.free.capacity, 0))
        bound, many = value.bound(rows), min(limit, len(rows), int(free.capacity.sum()))
        for _ in range(SETTLING):
            share = shares(free, rows, many, self.max_load_ratio, self.given_k)
            pairs = _affordable(assign(rows, bound, value.values, free, many, share=share), cost_k, self.money)
            if len(pairs) == many:
                break
            many = len(pairs)  # with fewer questions a share is smaller
        return pairs

    def without(self, pairs: Sequence[Pair]) -> Choice:
        """Exclude these pairs."""
        return replace(self, free=self.free.without(*_places(pairs)))

    def freely(self) -> Choice:
        """Drop the core set, the limit on cost and the capacities of annotators who have any."""
        free = replace(self.free, capacity=np.where(self.free.capacity > 0, len(self.free.items), 0))
        return Choice(self.value, free)

    def _not_alike(self, features: Floats, rows: Rows, limit: int) -> Rows:
        """Return the rows of a core set of the best; items without features are included if they are among the best."""
        waiting = np.flatnonzero(self.free.closed)
        candidates, _ = _places(self.freely().best(rows, math.ceil(limit * self.times)))
        bare = np.isnan(features[candidates]).sum(axis=1) > 0
        seen, unseen = candidates[~bare], candidates[bare]
        most = max(np.count_nonzero(bare[:limit]), limit - len(seen))
        there = np.append(waiting, seen)
        spread = core_set(features[there], np.arange(len(waiting)), limit - most)
        return rows[np.isin(rows, np.append(there[spread], unseen[:most]))]

    def _of_anyone(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """Return the items of largest value for the average annotator."""
        value = np.where(self.free.mask_rows(rows), self.value.values(rows), -math.inf)[:, 0]
        most = int(min(limit, self.money / self.free.crew.default_cost + CENT))
        first = np.argsort(-np.round(value, 9), kind="stable")[:most]  # the last bits vary from run to run
        return [Pair(int(rows[r]), 0, float(value[r])) for r in first if value[r] >= 0]


def _affordable(pairs: Sequence[Pair], cost_k: Floats, money: float) -> Sequence[Pair]:
    """Return the pairs that the money buys, those of most value for it first, in the order of `pairs`."""
    left, bought = money + CENT, set()
    for pair in sorted(pairs, key=lambda pair: -pair.value * pair.counts):
        if cost_k[pair.person] <= left:
            left -= cost_k[pair.person]
            bought.add(pair.item)
    return [pair for pair in pairs if pair.item in bought]


def _places(pairs: Sequence[Pair]) -> tuple[Rows, Rows]:
    return np.array([pair.item for pair in pairs], np.int64), np.array([pair.person for pair in pairs], np.int64)


def that_pay(choice: Choice, rows: Rows, limit: int, pays: Pays) -> Sequence[Pair]:
    """Return the best pairs that pay.

    Pairs that do not pay are left out, together with other top pairs that do not, trying twice as many each time. After
    ROUNDS attempts, return what was found.
    """

    def poor(pairs: Sequence[Pair]) -> list[Pair]:
        return [pair for pair, paid in zip(pairs, pays(*_places(pairs)).tolist(), strict=True) if not paid]

    pairs = choice.best(rows, limit)
    left_out = poor(pairs)
    for attempt in range(ROUNDS):
        if not left_out:
            break
        wide = choice.freely().best(rows, max(limit, AT_LEAST) * 2**attempt)
        choice = choice.without([*left_out, *poor(wide)])
        pairs = choice.best(rows, limit)
        left_out = poor(pairs)
    return [pair for pair in pairs if pair not in left_out]
