"""Choose the pairs of items and annotators of the largest total value.

    maximize    sum over pairs (n, k) of v_nk
    subject to  each item is in one pair at most, annotator k in capacity_k, `limit` in total, and only who may be
    asked;
                sum over pairs of cost_k <= cost

Items that cannot matter are skipped. With any prices lambda_k >= 0 of an annotator's time and nu >= 0 of money, no
choice has a total above (weak duality) (1)

    sum_k capacity_k lambda_k  +  nu cost  +  the `limit` largest pi_n > 0 of   pi_n = max_k v_nk - lambda_k - nu cost_k

and if v_n. was not computed, a bound U_n >= v_nk gives pi_n <= U_n - min_k (lambda_k + nu cost_k). So the algorithm
computes values for the items of the largest bounds, the best pairs among them and their prices (`transport`), then
values for other items whose pi_n may exceed the gain of the last pair, and repeats until (1) is near the total found.
Items of equal beliefs are evaluated once.

Spread: beyond an annotator's share m_k of the questions, answers count BEYOND of their value. Their time is two
columns, of capacities m_k and capacity_k - m_k.

Values are rounded to steps of the tolerance. Among equally good annotators the one with the least to do is taken, item
by item from the most valuable on, which spreads the load and the contested items evenly. nu is found by bisection;
money left over buys what brings most for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Eligibility, Rows
from hitl.active.assignment.transport import MOST, best_pairs, best_purchases, in_steps, most_profit
from hitl.annotations import Floats

BLOCK = 4096  # items whose values are computed at a time

BEYOND = 0.5
"""Share of its value that an answer beyond an annotator's share counts: others half as good are asked instead.

The middle between 1, which spreads nothing, and 0, a hard cap, which gives the rest to annotators who guess. Only this
value was measured, on five public crowds and simulated ones (docs/decisions.md, 2026-11-20).
"""

AHEAD = 256  # minimum number of items evaluated first, beyond the number wanted
NUMBERS = 2**22  # maximum number of values computed at a time
BISECTIONS = 30  # maximum number of steps to find the price of money
ROUGH = 0.02
"""Share of the limit on cost that may be left over if many pairs are chosen: it is spent one by one."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One question: code of the item, position in the crew, its value, and how much of that counts."""

    item: int
    person: int
    value: float
    counts: float = 1.0


@dataclass(frozen=True, eq=False)
class Assignment:
    """Chosen pairs, most valuable first.

    Attributes:
        pairs: chosen questions with their annotators.
        most: upper bound on the total value of any choice.
        looked_at: number of items whose values were computed.
    """

    pairs: tuple[Pair, ...] = ()
    most: float = 0.0
    looked_at: int = 0

    @property
    def value(self) -> float:
        """Total value of the pairs, as far as it counts."""
        return math.fsum(pair.value * pair.counts for pair in self.pairs)

    @property
    def gap(self) -> float:
        """Proven upper bound on the missing share of `most`, in [0, 1]."""
        return max(0.0, 1 - self.value / self.most) if self.most > 0 else 0.0

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def assign(
    rows: npt.NDArray[np.integer],
    bound: Floats,
    values: Callable[[Rows], Floats],
    eligible: Eligibility,
    limit: int,
    *,
    cost: float = math.inf,
    share: npt.NDArray[np.integer] | None = None,
    alike: Callable[[Rows], Rows] | None = None,
    tolerance: float = 0.004,
    effort: int = 30_000_000,
) -> Assignment:
    """Choose the pairs of the largest total value, at most `limit`, each item once; together at most `cost`.

    `rows` (R,) are the codes of the candidate items; ties go to the first. `bound` (R,) is an upper bound on
    the gain from any annotator about each; `values(rows)` (R', K') is the gain from each of the crew;
    `alike` (R',) gives items with equal gains the same code. A pair of negative value is not asked. If
    costs matter, pass values that are not divided by cost: the price of money is found here. Beyond `share` (K',) of
    these questions an annotator's answers count BEYOND of their value; None: everything counts.

    The total is at least 1 - `tolerance` of the largest one, with two exceptions. If the limit on cost binds, the best
    choice may spend the last of the money better. And at most `effort` values are computed, plus those of twice `limit`
    items: if everyone is busy, so that values depend on who is left, bounds for the best annotator exclude few items.
    `gap` is the proven bound.

    Example:
        >>> import numpy as np
        >>> from hitl import Crew, Evidence
        >>> from hitl.active import Eligibility, assign
        >>> said = Evidence.from_tables({"item": [0, 1, 2], "annotator": ["cy"] * 3, "label": ["x", "y", "x"]})
        >>> free = Eligibility.of(Crew(("ann", "bob"), default_capacity=2), [said.annotations])
        >>> value = np.array([[0.3, 0.2], [0.1, 0.4], [0.2, 0.1]])
        >>> chosen = assign(np.arange(3), value.max(axis=1), lambda rows: value[rows], free, limit=2)
        >>> [(pair.item, pair.person) for pair in chosen]
        [(1, 1), (0, 0)]
    """
    codes: Rows = np.asarray(rows, dtype=np.int64)
    price = np.array(eligible.crew.prices)
    capacity = np.minimum(eligible.capacity, len(codes))
    limit = min(limit, int(capacity.sum()), len(codes))
    if limit and cost < limit * price.max():
        limit = min(limit, int(cost / price.min() * (1 + 1e-12)))
        cost = math.inf if price.min() == price.max() else cost
    else:
        cost = math.inf
    if limit <= 0:
        return Assignment()
    first = np.argsort(-np.round(bound, 9), kind="stable")
    within: Rows = capacity if share is None else np.clip(share, 0, capacity).astype(np.int64)
    columns = _Columns.of(capacity, eligible.load, within)
    about = codes[first], bound[first].astype(np.float64)
    market = _Market(*about, values, eligible, limit, cost, price, capacity, within, columns)
    return market.run(tolerance, max(effort // len(price), 2 * limit), alike)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns that items are paired with: annotators within their share, then those who can have more, beyond it.

    Attributes:
        person: (C,) position in the crew; column k is person k, for the first K.
        counts: (C,) multiplier of a value.
        capacity, load: (C,) how many each can have, and has already.
    """

    person: Rows
    counts: Floats
    capacity: Rows
    load: Rows

    @classmethod
    def of(cls, capacity: Rows, load: Rows, share: Rows) -> _Columns:
        more = np.flatnonzero(share < capacity)
        return cls(
            np.append(np.arange(len(capacity)), more),
            np.append(np.ones(len(capacity)), np.full(len(more), BEYOND)),
            np.append(share, (capacity - share)[more]),
            np.append(load, (load + share)[more]),
        )

    def profit(self, value_rk: Floats, toll: Floats) -> Floats:
        """Return (R,) the largest counted value over the toll (C,)."""
        return np.asarray(most_profit(value_rk, self.person, self.counts, toll))

    def bound(self, bound: Floats, toll: Floats) -> Floats:
        """Return (R,) upper bound over the columns' tolls (C,), from the bound (R,) over annotators."""
        within = self.counts == 1
        most: Floats = bound - toll[within].min()
        return most if within.all() else np.maximum(most, BEYOND * bound - toll[~within].min())


@dataclass(frozen=True, eq=False)
class _Prices:
    """Prices of the columns' time (C,) and of money, the gain over them that a pair needs, and the step of values."""

    column: Floats
    money: float
    threshold: float
    step: float


@dataclass(eq=False)
class _Market:
    """Items evaluated so far, and the best pairs among them."""

    rows: Rows
    bound: Floats
    values: Callable[[Rows], Floats]
    eligible: Eligibility
    limit: int
    cost: float
    price: Floats
    capacity: Rows
    share: Rows
    columns: _Columns
    inside: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    value: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    looked_at: int = 0
    money: float = 0.0

    def run(self, tolerance: float, most_looks: int, alike: Callable[[Rows], Rows] | None) -> Assignment:
        """Evaluate more items until no more can matter, or up to `most_looks`."""
        here = np.arange(min(len(self.rows), self.limit + max(self.limit // 8, AHEAD)))
        self.inside, self.value = here, self._values(here)
        fineness, most = tolerance, math.inf
        while True:
            column, prices = self._best(fineness)
            total = self._total(column)
            bound, fresh, value = self._look(prices, total * (1 + tolerance), most_looks, alike)
            most = min(most, bound)
            if most <= total * (1 + tolerance):
                return self._assignment(column, most)
            if len(fresh):
                self.inside, self.value = np.append(self.inside, fresh), np.concatenate([self.value, value])
            elif self.looked_at >= most_looks or self.cost < math.inf or fineness <= tolerance / 1000:
                return self._assignment(column, most)
            else:
                fineness /= 8

    # -- the best pairs among the items inside --------------------------------------------------------------

    def _best(self, fineness: float) -> tuple[Rows, _Prices]:
        """Return the column of each evaluated item (-1: not asked), and the prices, within the limit on cost."""
        if not self.money:
            column, prices = self._pairs(fineness, 0.0)
            if self._spent(column) <= self.cost:
                return column, prices
        self.money = self._price_of_money(max(fineness, ROUGH if self.value.size > NUMBERS else 0.0))
        column, prices = self._pairs(fineness, self.money)
        while self._spent(column) > self.cost:
            self.money *= 1 + max(fineness, 1e-4)
            column, prices = self._pairs(fineness, self.money)
        self._buy(column)
        return column, prices

    def _price_of_money(self, fineness: float) -> float:
        """Find the price at which at most the limit is spent, and little less, starting near the last one."""
        low, high = self.money / 1.05, self.money * 1.05
        most = float((self.value.max(axis=0) / self.price).max()) + 1e-12
        if not self.money or self._spent(self._pairs(fineness, high)[0]) > self.cost:
            low, high = high, most
        if low and self._spent(self._pairs(fineness, low)[0]) <= self.cost:
            low, high = 0.0, low
        for _ in range(BISECTIONS):
            money = (low + high) / 2
            spent = self._spent(self._pairs(fineness, money)[0])
            low, high = (low, money) if spent <= self.cost else (money, high)
            if (1 - fineness) * self.cost <= spent <= self.cost or high - low <= 1e-6 * high:
                break
        return high

    def _pairs(self, fineness: float, money: float) -> tuple[Rows, _Prices]:
        """Return the best pairs at a price of money, values rounded to `fineness` of those that would be asked."""
        columns, toll = self.columns, money * self.price[self.columns.person]
        best = np.sort(np.maximum(columns.profit(self.value, toll), 0.0))[::-1][: self.limit]
        step = max(fineness * float(best.mean()), float(best[0]) / MOST * 1.001, 1e-300)
        steps = in_steps(self.value, columns.person, columns.counts, toll, step)
        pairing = best_pairs(steps, columns.capacity, columns.load, self.limit)
        return pairing.column, _Prices(pairing.price.astype(np.float64) * step, money, pairing.threshold * step, step)

    def _buy(self, column: Rows) -> None:
        """Spend the rest on the questions, and the better annotators, with the most gain for the money."""
        value, price = self.value[:, self.columns.person] * self.columns.counts, self.price[self.columns.person]
        room = self.columns.capacity - np.bincount(column[column >= 0], minlength=len(price))
        bought = True
        while bought:
            bought = False
            left = self.cost - self._spent(column)
            choice, rate = best_purchases(value, price, column, room, left, self.limit)
            for row in np.argsort(-rate, kind="stable")[: int((rate >= 0).sum())]:
                before, k = int(column[row]), int(choice[row])
                extra = price[k] - (price[before] if before >= 0 else 0.0)
                if extra > left or room[k] <= 0 or (before < 0 and (column >= 0).sum() >= self.limit):
                    continue
                if before >= 0:
                    room[before] += 1
                column[row] = k
                room[k] -= 1
                left -= extra
                bought = True

    def _spent(self, column: Rows) -> float:
        return float(self.price[self.columns.person[column[column >= 0]]].sum())

    def _total(self, column: Rows) -> float:
        asked = np.flatnonzero(column >= 0)
        at = column[asked]
        return math.fsum((self.value[asked, self.columns.person[at]] * self.columns.counts[at]).tolist())

    # -- the items outside ----------------------------------------------------------------------------------

    def _look(
        self, prices: _Prices, enough: float, most_looks: int, alike: Callable[[Rows], Rows] | None
    ) -> tuple[float, Rows, Floats]:
        """Return the bound (1), and skipped items that may improve on the result, with their values."""
        toll = prices.column + prices.money * self.price[self.columns.person]
        profit = self.columns.bound(self.bound, toll)
        profit[self.inside] = self.columns.profit(self.value, toll)
        fixed = float(self.columns.capacity @ prices.column) + (prices.money * self.cost if prices.money else 0.0)
        outside = np.ones(len(self.rows), dtype=bool)
        outside[self.inside] = False
        rest = np.flatnonzero(outside & (profit > prices.threshold))
        rest = rest[np.argsort(-profit[rest], kind="stable")]
        same = None if alike is None or not len(rest) else alike(self.rows[rest])
        fresh: list[tuple[Rows, Floats]] = []
        profit_of_code: dict[int, float] = {}
        changed = True
        begin = 0
        while begin < len(rest) and self.looked_at < most_looks:
            if changed and fixed + self._largest(profit) <= enough:
                break
            block = rest[begin : begin + min(BLOCK, most_looks - self.looked_at)]
            begin, here = begin + len(block), slice(begin, begin + len(block))
            if same is not None:
                block = self._unlike(block, same[here], toll, prices.threshold + prices.step, profit, profit_of_code)
                changed = len(block) > 0
                if not changed:
                    continue
            value = self._values(block)
            profit[block] = self.columns.profit(value, toll)
            self.bound[block] = np.minimum(self.bound[block], value.max(axis=1))
            good = profit[block] > prices.threshold + prices.step
            fresh.append((block[good], value[good]))
            if sum(len(codes) for codes, _ in fresh) >= max(self.limit // 4, 256):
                break
        most = fixed + self._largest(profit)
        if not fresh:
            return most, np.zeros(0, np.int64), np.zeros((0, len(self.price)))
        return most, np.concatenate([codes for codes, _ in fresh]), np.concatenate([value for _, value in fresh])

    def _unlike(
        self, block: Rows, code: Rows, toll: Floats, enough: float, profit: Floats, profit_of_code: dict[int, float]
    ) -> Rows:
        """Select the items of a block to evaluate one by one, because items like them would improve on the choice.

        The others get the profit that the first item like them would make if every annotator could be asked.
        """
        codes, one, place = np.unique(code, return_index=True, return_inverse=True)
        new = np.flatnonzero([c not in profit_of_code for c in codes.tolist()])
        for position, most in zip(new, self.columns.profit(self._raw(block[one[new]]), toll), strict=True):
            profit_of_code[int(codes[position])] = float(most)
        best = np.array([profit_of_code[c] for c in codes.tolist()])[place]
        profit[block] = np.minimum(profit[block], best)
        return block[best > enough]

    def _largest(self, profit: Floats) -> float:
        if len(profit) > self.limit:
            profit = np.partition(profit, len(profit) - self.limit)[-self.limit :]
        return float(np.maximum(profit, 0.0).sum())

    def _raw(self, at: Rows) -> Floats:
        self.looked_at += len(at)
        step = max(1, NUMBERS // len(self.price))
        out = np.empty((len(at), len(self.price)))
        for begin in range(0, len(at), step):
            out[begin : begin + step] = self.values(self.rows[at[begin : begin + step]])
        return out

    def _values(self, at: Rows) -> Floats:
        """Return (R', K') values of the items at these positions; -inf where an annotator may not be asked."""
        value = self._raw(at)
        value[~self.eligible.mask_rows(self.rows[at])] = -math.inf
        value[:, self.capacity <= 0] = -math.inf
        return value

    def _assignment(self, column: Rows, most: float) -> Assignment:
        asked = np.flatnonzero(column >= 0)
        person, place = self.columns.person[column[asked]], self.inside[asked]
        value = self.value[asked, person]
        best = np.lexsort((place, -np.round(value, 9)))  # the last bits vary from machine to machine
        counts = np.where(_rank(person[best]) < self.share[person[best]], 1.0, BEYOND)  # the best ones in full
        parts = (self.rows[place][best], person[best], value[best], counts)
        pairs = zip(*(part.tolist() for part in parts), strict=True)
        return Assignment(tuple(Pair(*pair) for pair in pairs), most, self.looked_at)


def _rank(person: Rows) -> Rows:
    """Return (P,) number of earlier entries of the same person, in this order."""
    together = np.argsort(person, kind="stable")
    rank = np.empty(len(person), np.int64)
    rank[together] = np.arange(len(person)) - np.searchsorted(person[together], person[together])
    return rank
