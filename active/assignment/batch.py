"""The questions of one plan: the best pairs, as far as they pay, and not all alike.

    best        of these items, so many pairs of the largest total value
    spread      beyond so many even shares of them an answer counts half: others are asked           (`even_shares`)
    diverse     the items are a core set (`core_set`) of `diverse` times as many of the best
    pays        a pair that does not bring its cost is left out, and the next best are looked for

Money: where people cost differently, what is bought is gain for money, v_nk / cost_k. Where that alone would spend more
than the plan may cost, the limit sets the price of money instead (`assign`), and values are not divided: both at once
would count the cost twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.core_set import core_set
from hitl.active.acquisition.utility import Utility
from hitl.active.assignment.assign import Pair, assign
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.load_balancing import shares
from hitl.annotations import Floats

Rows = npt.NDArray[np.int64]
Pays = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Whether pairs (item codes, crew positions) bring their cost."""

ROUNDS = 8
"""How often the next best pairs are looked for where some do not pay."""

SETTLING = 4
"""How often shares are made anew where money buys fewer questions than they were shares of."""

AT_LEAST = 64
"""Pairs that are looked at the first time, at least."""


class Choice(Protocol):
    """Who can be asked, and what that would bring."""

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """At most `limit` pairs about these items, an item once, most valuable first."""
        ...

    def without(self, pairs: Sequence[Pair]) -> Choice:
        """The same where these pairs may not be asked."""
        ...


class Limited(Choice, Protocol):
    """The same, where money or annotators' time is limited."""

    def freely(self) -> Choice:
        """The same without these limits."""
        ...

    def without(self, pairs: Sequence[Pair]) -> Limited:
        """The same where these pairs may not be asked."""
        ...


@dataclass(frozen=True, eq=False)
class ByName:
    """Annotators asked by name, who cost `money` together at most. `rows` in the order in which equals are asked.

    Beyond `even_shares` even shares of the questions (inf: without limit) an answer counts half.
    """

    value: Utility
    free: Eligibility
    money: float = math.inf
    even_shares: float = math.inf

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """The pairs of largest total value."""
        many = min(limit, len(rows), int(self.free.capacity.sum()))
        pairs = self._best(rows, limit, many)
        for _ in range(SETTLING):
            if len(pairs) == many or math.isinf(self.even_shares):
                break
            many = len(pairs)  # of fewer questions a share is less
            pairs = self._best(rows, limit, many)
        return pairs

    def _best(self, rows: Rows, limit: int, many: int) -> Sequence[Pair]:
        """The same with shares of so many questions."""
        crew = self.free.crew
        cost_k = np.array(crew.prices)
        share = shares(self.free, rows, many, self.even_shares)
        pairs = self._assigned(rows, limit, share, self.value.per_cost(cost_k), math.inf)
        if math.fsum(cost_k[pair.person] for pair in pairs) > self.money:
            pairs = self._assigned(rows, limit, share, self.value, self.money)
        return pairs

    def without(self, pairs: Sequence[Pair]) -> ByName:
        """The same where these pairs may not be asked."""
        item, person = (np.array([getattr(pair, part) for pair in pairs], np.int64) for part in ("item", "person"))
        return replace(self, free=self.free.without(item, person))

    def freely(self) -> ByName:
        """The same without limits on cost, and on how much those can do who can do anything."""
        free = replace(self.free, capacity=np.where(self.free.capacity > 0, len(self.free.items), 0))
        return replace(self, free=free, money=math.inf, even_shares=math.inf)

    def _assigned(self, rows: Rows, limit: int, share: Rows, value: Utility, money: float) -> Sequence[Pair]:
        bound = value.bound(rows)
        return assign(rows, bound, value.values, self.free, limit, cost=money, share=share, alike=value.alike).pairs


@dataclass(frozen=True, eq=False)
class Anyone:
    """Anyone: one average annotator, who can have every item; `most` questions can be paid."""

    value: Utility
    most: float = math.inf
    barred: frozenset[int] = field(default_factory=frozenset)

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """The items of largest value."""
        value = self.value.values(rows)[:, 0]
        if self.barred:
            value[np.isin(rows, list(self.barred))] = -math.inf
        most = int(min(limit, self.most, len(rows)))
        first = np.argsort(-np.round(value, 9), kind="stable")[:most]  # the last bits vary from run to run
        return [Pair(int(rows[r]), 0, float(value[r])) for r in first if value[r] >= 0]

    def without(self, pairs: Sequence[Pair]) -> Anyone:
        """The same where these items may not be asked about."""
        return replace(self, barred=self.barred | {pair.item for pair in pairs})

    def freely(self) -> Anyone:
        """The same without a limit on cost."""
        return replace(self, most=math.inf)


@dataclass(frozen=True, eq=False)
class Diverse:
    """A choice whose items are a core set of `times` as many candidates, beside those of `waiting` (codes)."""

    choice: Limited
    features: Floats
    waiting: Rows
    times: float

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """The best pairs about items that are not alike."""
        wide = self.choice.freely().best(rows, math.ceil(limit * self.times))
        candidates = np.array([pair.item for pair in wide], dtype=np.int64)
        there = np.append(self.waiting, candidates)
        spread = core_set(self.features[there], np.arange(len(self.waiting)), limit)
        return self.choice.best(rows[np.isin(rows, there[spread])], limit)

    def without(self, pairs: Sequence[Pair]) -> Diverse:
        """The same where these pairs may not be asked."""
        return replace(self, choice=self.choice.without(pairs))

    def freely(self) -> Choice:
        """The best pairs without limits, alike or not."""
        return self.choice.freely()


def that_pay(choice: Limited, rows: Rows, limit: int, pays: Pays) -> Sequence[Pair]:
    """The best pairs that pay.

    Those that do not are left out, with others of the best that do not, twice as many looked at each time; after ROUNDS
    attempts what was found.
    """

    def poor(pairs: Sequence[Pair]) -> list[Pair]:
        item, person = (np.array([getattr(pair, part) for pair in pairs], np.int64) for part in ("item", "person"))
        return [pair for pair, paid in zip(pairs, pays(item, person).tolist(), strict=True) if not paid]

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
