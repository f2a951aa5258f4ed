"""Questions of one plan: the best pairs that pay, and diverse items.

    best        of these items, so many pairs of the largest total value
    spread      beyond `max_load_ratio` even shares of them an answer counts half, so that others are asked
    diverse     the items are a core set (`core_set`) of `diverse` times as many of the best; an item without features
                is like no other, and in the batch if it is among the best
    pays        a pair that is not worth its cost is left out, and the next best are tried

Money: if annotators cost differently, pairs are ranked by gain per cost, v_nk / cost_k. If that would spend more than
the plan may cost, the limit sets a price nu of money instead, found by bisection, and pairs are chosen by v_nk - nu
cost_k: both at once would count the cost twice.

Shares limit the questions of one annotator while others have time: to a few even shares, or a handful.

    r_k     questions that annotator k can have: those expected of them, and those they can still be given
    s       an even share, the level at which          sum_k min(r_k, s) = all questions together
    m_k     max(times x s, min(HANDFUL, FIRST + answers of k so far)), rounded up

Annotators who can have less than s (a small capacity, few items that they may see, away) leave the rest to the others,
whose share is larger. Beyond m_k an answer counts half of its value (`assign`): no annotator is given more than m_k
while another one, who is half as good about the item, has time. A spammer is not half as good, and gets nothing for
being idle. New annotators get few questions at first: those with few answers get about as many again.
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
from hitl.annotations import ANONYMOUS, Floats
from hitl.crew import CENT, UNLIMITED

Pays = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Tell which pairs (item codes, crew positions) are worth their cost."""

HANDFUL = 20
"""Minimum limit for one annotator, however many annotators there are.

Chosen on five public crowds, 8 seeds (docs/decisions.md, 2026-11-20), by the labels needed until first within half a
point of all labels, or in the mean, in percent of all: 10: 30.2 / 41.2; 20: 27.6 / 30.9; 40: 26.9 / 30.1; no shares:
28.8 / 31.5. With 10 the best annotator may not have a tenth of a small batch.
"""

FIRST = 3
"""Questions allowed beyond the number that an annotator has answered.

Chosen of 1, 2, 3 and 5 on twelve public and simulated crowds, 4 to 6 seeds (docs/decisions.md, 2026-11-23).
"""

LOOKS = 2**22
"""Pairs checked to count the items each may be asked about; beyond, evenly spaced items stand for all."""

ROUNDS = 8
"""Attempts to replace pairs that do not pay."""

SETTLING = 4
"""Attempts to recompute shares if money buys fewer questions than the shares assumed."""

BISECTIONS = 16
"""Steps to find the price of money."""

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
        cost_k = np.array(self.free.crew.prices)
        free = replace(self.free, capacity=np.where(cost_k <= self.money + CENT, self.free.capacity, 0))
        bound, many = self.value.bound(rows), min(limit, len(rows), int(free.capacity.sum()))
        value = self.value.per_cost(cost_k)
        for _ in range(SETTLING):
            share = shares(free, rows, many, self.max_load_ratio, self.given_k)
            pairs: Sequence[Pair] = assign(rows, value.bound(rows), value.values, free, limit, share=share)
            if _cost(pairs, cost_k) > self.money + CENT:
                pairs = self._within_money(rows, bound, free, limit, share)
            if len(pairs) == many:
                break
            many = len(pairs)  # with fewer questions a share is smaller
        return pairs

    def _within_money(self, rows: Rows, bound: Floats, free: Eligibility, limit: int, share: Rows) -> Sequence[Pair]:
        """Return the pairs of the largest total value that the money buys, nearly, most valuable first."""
        cost_k, low, high = np.array(free.crew.prices), 0.0, float(bound.max(initial=0.0) / min(free.crew.prices))
        best: Sequence[Pair] = ()
        for _ in range(BISECTIONS):
            price = (low + high) / 2 if best else 0.0
            net = assign(
                rows,
                bound - price * min(cost_k),
                lambda at, price=price: self.value.values(at) - price * cost_k,  # type: ignore[misc]
                free,
                limit,
                share=share,
            )
            found = [
                replace(pair, value=pair.value + price * cost_k[pair.person])
                for pair in _bought(net, cost_k, self.money)
            ]
            best = max(best, found, key=lambda pairs: math.fsum(pair.value * pair.counts for pair in pairs)) or found
            low, high = (price, high) if _cost(net, cost_k) > self.money else (low, price)
        return sorted(best, key=lambda pair: -round(pair.value, 9))

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


def _cost(pairs: Sequence[Pair], cost_k: Floats) -> float:
    return math.fsum(cost_k[pair.person] for pair in pairs)


def _bought(pairs: Sequence[Pair], cost_k: Floats, money: float) -> list[Pair]:
    """Return the pairs that the money buys, the most valuable first."""
    left, bought = money + CENT, []
    for pair in sorted(pairs, key=lambda pair: -pair.value * pair.counts):
        if cost_k[pair.person] <= left:
            left -= cost_k[pair.person]
            bought.append(pair)
    return bought


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


# -- even shares -----------------------------------------------------------------------------------------------


def shares(free: Eligibility, rows: Rows, many: int, times: float, given_k: Floats | None = None) -> Rows:
    """Return (K',) m_k less what is expected of each: their limit for `many` questions about these items (codes).

    `times` in [1, inf]; inf means no limit. A pool without names has no limit either, because it is many people.
    `given_k` (K',): answers so far; None: no limit for newcomers.
    """
    names = free.crew.names
    pool = np.array([name == ANONYMOUS for name in names], dtype=bool)
    if math.isinf(times) or not len(rows):
        return np.full(len(names), UNLIMITED)
    able = free.load + np.minimum(free.capacity, answerable(free, rows))
    level = even_share(able[~pool], many + int(free.load[~pool].sum()))
    fine_k = np.full(len(names), HANDFUL) if given_k is None else np.minimum(HANDFUL, FIRST + given_k)
    limit_k = np.ceil(np.minimum(np.maximum(times * level, fine_k), UNLIMITED) - 1e-9).astype(np.int64)
    return np.where(pool | (limit_k == UNLIMITED), UNLIMITED, np.maximum(limit_k - free.load, 0))


def even_share(able: npt.NDArray[np.integer], total: int) -> float:
    """Return the share s >= 0 that adds up to `total` under these capacities (K',); inf if they are too small."""
    most = np.sort(able)
    if total > most.sum():
        return math.inf
    below = np.append(0, np.cumsum(most))  # total of those who can have less
    levels = (total - below[:-1]) / np.arange(len(most), 0, -1)
    return float(levels[np.argmax(levels <= most)]) if len(most) else 0.0


def answerable(free: Eligibility, rows: Rows) -> Rows:
    """Return (K',) about how many of these items each may be asked; exact if there are few enough to check all."""
    many = max(LOOKS // max(len(free.crew.names), 1), 1)
    seen = rows if len(rows) <= many else rows[np.linspace(0, len(rows) - 1, many).astype(np.int64)]
    return np.asarray(np.ceil(free.mask_rows(seen).sum(axis=0) * (len(rows) / len(seen))), dtype=np.int64)
