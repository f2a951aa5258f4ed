"""Choose the questions of one plan: the best pairs that are worth their cost, on request about diverse items.

    best        choose pairs with the largest total value, up to a limit
    spread      beyond `max_load_ratio` even shares per annotator an answer counts half, so that others are asked
    diverse     choose the items as a core set (`core_set`) of the best `diverse` times as many; an item without
                features is like no other, and is chosen if it is among the best
    pays        leave out pairs that are not worth their cost, and try the next best

Money: if annotators cost differently, pairs are ranked by gain per cost, v_nk / cost_k. If these pairs cost more than
the plan may, pairs are chosen by v_nk - nu cost_k instead, with a price nu of money that is found by bisection. Both
together would count the cost twice.

Shares limit the questions to one annotator while others have time. With `times` = `max_load_ratio`,

    r_k     number of questions that annotator k can have: outstanding ones, and those that can still be added
    s       even share, the solution of                sum_k min(r_k, s) = number of all questions
    m_k     limit of annotator k, rounded up:          max(times s, min(HANDFUL, FIRST + answers by k so far))

Annotators who can have fewer than s questions (small capacity, few items that they may see, away) leave the rest to the
others, whose share is then larger. Beyond m_k an answer counts half of its value (`assign`), so no annotator gets more
than m_k questions while another one who is half as good on the item has time. A spammer is not half as good, and so
gets no questions for being idle. Newcomers start with a limit of FIRST questions, unless even shares are larger.
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
"""Function from item codes and crew positions (P,) to a mask (P,) of the pairs that are worth their cost."""

HANDFUL = 20
"""Lower bound of the limit m_k of every annotator except newcomers (FIRST).

Chosen on five public crowds, 8 seeds (docs/decisions.md, 2026-11-20). Percent of the labels until the accuracy is
within half a point of that with all labels, for the first time in a replay / in the mean of the replays: 10: 30.2 /
41.2; 20: 27.6 / 30.9; 40: 26.9 / 30.1; no limit: 28.8 / 31.5. With 10, the best annotator may not get a tenth of a
small batch.
"""

FIRST = 3
"""Lower bound of the limit m_k of an annotator without answers. It rises by one with each answer, up to HANDFUL.

Chosen among 1, 2, 3 and 5 on twelve public and simulated crowds, 4 to 6 seeds (docs/decisions.md, 2026-11-23).
"""

LOOKS = 2**22
"""Maximum number of pairs checked to count the items that each annotator may be asked about.

If there are more pairs, the count is estimated from evenly spaced items.
"""

ROUNDS = 8
"""Maximum number of attempts to replace pairs that are not worth their cost."""

SETTLING = 4
"""Maximum number of times that shares are computed: again whenever fewer questions are found than they assumed."""

BISECTIONS = 16
"""Number of steps to find the price of money."""

AT_LEAST = 64
"""Minimum number of pairs checked in the first attempt to replace pairs."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Candidates for one plan: eligible annotators, the value of their answers, and the limits.

    Attributes:
        value: gain of each answer.
        free: who may be asked about which item; a crew without names is one average annotator, who can have every item.
        money: maximum cost of all questions together.
        max_load_ratio: number of even shares of the questions beyond which an annotator's answers count half; inf: all
            count in full.
        features: (N, D) features of the items, NaN for items without any. The chosen items form a core set together
            with the items that have an outstanding question. None: no core set.
        times: number of candidates for the core set per item wanted, >= 1.
        given_k: (K',) number of answers by each annotator so far; None: newcomers have the same limits as others.
    """

    value: Gains
    free: Eligibility
    money: float = math.inf
    max_load_ratio: float = math.inf
    features: Floats | None = None
    times: float = 1.0
    given_k: Floats | None = None

    def best(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """Return at most `limit` pairs, each item at most once, most valuable first. Ties keep the order of `rows`."""
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
        """Return pairs that the money buys, with nearly the largest total value, most valuable first."""
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
        """Drop the core set, the cost limit, the shares, and all capacities except those of 0."""
        free = replace(self.free, capacity=np.where(self.free.capacity > 0, len(self.free.items), 0))
        return Choice(self.value, free)

    def _not_alike(self, features: Floats, rows: Rows, limit: int) -> Rows:
        """Return the rows of a core set of the best items. Items without features stay if they are among the best."""
        waiting = np.flatnonzero(self.free.closed)
        candidates, _ = _places(self.freely().best(rows, math.ceil(limit * self.times)))
        bare = np.isnan(features[candidates]).sum(axis=1) > 0
        seen, unseen = candidates[~bare], candidates[bare]
        most = max(np.count_nonzero(bare[:limit]), limit - len(seen))
        there = np.append(waiting, seen)
        spread = core_set(features[there], np.arange(len(waiting)), limit - most)
        return rows[np.isin(rows, np.append(there[spread], unseen[:most]))]

    def _of_anyone(self, rows: Rows, limit: int) -> Sequence[Pair]:
        """Return pairs of the most valuable items with the average annotator."""
        value = np.where(self.free.mask_rows(rows), self.value.values(rows), -math.inf)[:, 0]
        most = int(min(limit, self.money / self.free.crew.default_cost + CENT))
        first = np.argsort(-np.round(value, 9), kind="stable")[:most]  # the last bits vary from run to run
        return [Pair(int(rows[r]), 0, float(value[r])) for r in first if value[r] >= 0]


def _cost(pairs: Sequence[Pair], cost_k: Floats) -> float:
    return math.fsum(cost_k[pair.person] for pair in pairs)


def _bought(pairs: Sequence[Pair], cost_k: Floats, money: float) -> list[Pair]:
    """Return the most valuable pairs that the money buys, in falling order of value."""
    left, bought = money + CENT, []
    for pair in sorted(pairs, key=lambda pair: -pair.value * pair.counts):
        if cost_k[pair.person] <= left:
            left -= cost_k[pair.person]
            bought.append(pair)
    return bought


def _places(pairs: Sequence[Pair]) -> tuple[Rows, Rows]:
    return np.array([pair.item for pair in pairs], np.int64), np.array([pair.person for pair in pairs], np.int64)


def that_pay(choice: Choice, rows: Rows, limit: int, pays: Pays) -> Sequence[Pair]:
    """Return the best pairs that are worth their cost.

    Exclude pairs that are not and choose again, up to ROUNDS times. Each time, check a longer list of top pairs and
    exclude those that are not worth their cost either. The list doubles in length each time.
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
    """Return (K',) how many of `many` new questions about these items (codes) each annotator may get.

    This is m_k less the outstanding questions. `times` in [1, inf]; inf: no limit. An anonymous pool has no limit,
    because it is many people. `given_k` (K',): number of answers so far; None: newcomers have the same limits as
    others.
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
    """Return s >= 0 with sum_k min(able_k, s) = `total`; inf if the sum of `able` (K',) is smaller than `total`."""
    most = np.sort(able)
    if total > most.sum():
        return math.inf
    below = np.append(0, np.cumsum(most))  # total of those who can have less
    levels = (total - below[:-1]) / np.arange(len(most), 0, -1)
    return float(levels[np.argmax(levels <= most)]) if len(most) else 0.0


def answerable(free: Eligibility, rows: Rows) -> Rows:
    """Return (K',) how many of these items each annotator may be asked about, estimated if there are many (LOOKS)."""
    many = max(LOOKS // max(len(free.crew.names), 1), 1)
    seen = rows if len(rows) <= many else rows[np.linspace(0, len(rows) - 1, many).astype(np.int64)]
    return np.asarray(np.ceil(free.mask_rows(seen).sum(axis=0) * (len(rows) / len(seen))), dtype=np.int64)
