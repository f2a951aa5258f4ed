"""Who is asked what: the pairs of items and annotators that are worth most together.

    maximise    sum over pairs (n, k) of v_nk
    where       each item is in one pair at most, annotator k in capacity_k, all in `limit`, and only who may be asked;
                sum over pairs of cost_k <= cost

No item is looked at that cannot matter. With any prices lambda_k >= 0 of an annotator's time and nu >= 0 of money, no
choice is worth more than (weak duality) (1)

    sum_k capacity_k lambda_k  +  nu cost  +  the `limit` largest pi_n > 0 of   pi_n = max_k v_nk - lambda_k - nu cost_k

and where v_n. was not computed, a bound U_n >= v_nk tells that pi_n <= U_n - min_k (lambda_k + nu cost_k). So: values
for the items of the largest bounds; the best pairs among them and their prices (`transport`); values for those others
whose pi_n may exceed what the last pair brings; again, until (1) is near what was found. Items of equal beliefs are
looked at once.

Values are told apart in steps of the tolerance: of equally good annotators the one with the least
to do is taken, item by item from the most valuable on, which spreads the load and the contested items alike. nu is
found by bisection; what it leaves over buys what brings most for the money.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hitl.active.availability import Availability
from hitl.active.transport import MOST, best_pairs, best_purchases, in_steps, most_profit
from hitl.annotations import Floats

Rows = npt.NDArray[np.int64]

BLOCK = 4096
"""Items whose values are computed at a time."""

AHEAD = 256
"""Items looked at first beyond as many as are wanted, at least."""

NUMBERS = 2**22
"""Values computed at a time, at most."""

BISECTIONS = 30
"""Steps to find the price of money, at most."""

ROUGH = 0.02
"""Share of the limit on cost that may be left over where many pairs are chosen: it is spent one by one."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One question: code of the item, position in the crew, and what it is worth."""

    item: int
    person: int
    value: float


@dataclass(frozen=True, eq=False)
class Assignment:
    """The pairs chosen, most valuable first.

    Attributes:
        pairs: what is asked, and whom.
        most: what no choice of pairs is worth more than.
        looked_at: for how many items values were computed.
    """

    pairs: tuple[Pair, ...] = ()
    most: float = 0.0
    looked_at: int = 0

    @property
    def value(self) -> float:
        """What the pairs are worth together."""
        return math.fsum(pair.value for pair in self.pairs)

    @property
    def gap(self) -> float:
        """The share of `most` that may be missing, in [0, 1]; proven."""
        return max(0.0, 1 - self.value / self.most) if self.most > 0 else 0.0

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def assign(
    rows: npt.NDArray[np.integer],
    bound: Floats,
    values: Callable[[Rows], Floats],
    availability: Availability,
    limit: int,
    *,
    cost: float = math.inf,
    alike: Callable[[Rows], Rows] | None = None,
    tolerance: float = 0.004,
    effort: int = 30_000_000,
) -> Assignment:
    """The pairs that are worth most together, `limit` at most, an item once; together at most `cost`.

    `rows` (R,) are the codes of the items in question; of equally valuable ones the first are asked. `bound` (R,) says
    what nobody would bring more than about each, `values(rows)` (R', K') what each of the crew would bring; `alike`
    (R',) gives items for which these are the same the same code. A pair worth less than 0 is not asked. Where costs
    matter, give what pairs are worth, not divided by cost: the price of money is found here.

    What is found is worth at least 1 - `tolerance` of the best choice, with two exceptions. Where the limit on cost
    binds, the best choice may use up the last coins better. And no more than `effort` values are computed, and those
    of twice `limit` items: where all are busy, so that values depend on who is left, bounds that hold for the best
    annotator exclude few items. `gap` says what is proven.
    """
    codes: Rows = np.asarray(rows, dtype=np.int64)
    price = np.array([availability.crew.cost_of(name) for name in availability.crew.names])
    capacity = np.minimum(availability.capacity, len(codes))
    limit = min(limit, int(capacity.sum()), len(codes))
    if limit and cost < limit * price.max():
        limit = min(limit, int(cost / price.min() * (1 + 1e-12)))
        cost = math.inf if price.min() == price.max() else cost
    else:
        cost = math.inf
    if limit <= 0:
        return Assignment()
    first = np.argsort(-np.round(bound, 9), kind="stable")
    market = _Market(codes[first], bound[first].astype(np.float64), values, availability, limit, cost, price, capacity)
    return market.run(tolerance, max(effort // len(price), 2 * limit), alike)


@dataclass(eq=False)
class _Prices:
    """Prices of people's time (K,) and of money, and what a pair must bring over them."""

    people: Floats
    money: float
    threshold: float


@dataclass(eq=False)
class _Market:
    """The items looked at so far, and what the best pairs among them are."""

    rows: Rows
    bound: Floats
    values: Callable[[Rows], Floats]
    availability: Availability
    limit: int
    cost: float
    price: Floats
    capacity: Rows
    inside: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    worth: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    looked_at: int = 0
    money: float = 0.0

    def run(self, tolerance: float, most_looks: int, alike: Callable[[Rows], Rows] | None) -> Assignment:
        """Look at more items until no more can matter, or at so many."""
        here = np.arange(min(len(self.rows), self.limit + max(self.limit // 8, AHEAD)))
        self.inside, self.worth = here, self._values(here)
        fineness, most = tolerance, math.inf
        while True:
            person, prices, grid = self._best(fineness)
            found = self._total(person)
            bound, fresh, worth = self._look(prices, grid, found * (1 + tolerance), most_looks, alike)
            most = min(most, bound)
            if most <= found * (1 + tolerance):
                return self._assignment(person, most)
            if len(fresh):
                self.inside, self.worth = np.append(self.inside, fresh), np.concatenate([self.worth, worth])
            elif self.looked_at >= most_looks or self.cost < math.inf or fineness <= tolerance / 1000:
                return self._assignment(person, most)
            else:
                fineness /= 8

    # -- the best pairs among the items inside --------------------------------------------------------------

    def _best(self, fineness: float) -> tuple[Rows, _Prices, float]:
        """The person of each item inside (-1: not asked), the prices, and the step in which values were told apart."""
        if not self.money:
            person, prices, grid = self._pairs(fineness, 0.0)
            if self._spent(person) <= self.cost:
                return person, prices, grid
        self.money = self._price_of_money(max(fineness, ROUGH if self.worth.size > NUMBERS else 0.0))
        person, prices, grid = self._pairs(fineness, self.money)
        while self._spent(person) > self.cost:
            self.money *= 1 + max(fineness, 1e-4)
            person, prices, grid = self._pairs(fineness, self.money)
        self._buy(person)
        return person, prices, grid

    def _price_of_money(self, fineness: float) -> float:
        """At which no more than the limit is spent, and little less. Begins near the last one."""
        low, high = self.money / 1.05, self.money * 1.05
        most = float((self.worth.max(axis=0) / self.price).max()) + 1e-12
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

    def _pairs(self, fineness: float, money: float) -> tuple[Rows, _Prices, float]:
        """The best pairs at a price of money, values told apart in steps of `fineness` of those worth asking."""
        toll = money * self.price
        best = np.sort(np.maximum(most_profit(self.worth, toll), 0.0))[::-1][: self.limit]
        grid = max(fineness * float(best.mean()), float(best[0]) / MOST * 1.001, 1e-300)
        steps = in_steps(self.worth, toll, grid)
        found = best_pairs(steps, self.capacity, self.availability.load, self.limit)
        people = found.price.astype(np.float64) * grid
        return found.column, _Prices(people, money, found.threshold * grid), grid

    def _buy(self, person: Rows) -> None:
        """Spend what is left: the questions, and the better annotators, that bring most for the money."""
        room = self.capacity - np.bincount(person[person >= 0], minlength=len(self.capacity))
        bought = True
        while bought:
            bought = False
            left = self.cost - self._spent(person)
            choice, rate = best_purchases(self.worth, self.price, person, room, left, self.limit)
            for row in np.argsort(-rate, kind="stable")[: int((rate > 0).sum())]:
                before, k = int(person[row]), int(choice[row])
                extra = self.price[k] - (self.price[before] if before >= 0 else 0.0)
                if extra > left or room[k] <= 0 or (before < 0 and (person >= 0).sum() >= self.limit):
                    continue
                if before >= 0:
                    room[before] += 1
                person[row] = k
                room[k] -= 1
                left -= extra
                bought = True

    def _spent(self, person: Rows) -> float:
        return float(self.price[person[person >= 0]].sum())

    def _total(self, person: Rows) -> float:
        asked = np.flatnonzero(person >= 0)
        return math.fsum(self.worth[asked, person[asked]].tolist())

    # -- the items outside ----------------------------------------------------------------------------------

    def _look(
        self, prices: _Prices, grid: float, enough: float, most_looks: int, alike: Callable[[Rows], Rows] | None
    ) -> tuple[float, Rows, Floats]:
        """The bound (1), and items outside that may improve on what was found, with their values."""
        toll = prices.people + prices.money * self.price
        profit = self.bound - toll.min()
        profit[self.inside] = most_profit(self.worth, toll)
        fixed = float(self.capacity @ prices.people) + (prices.money * self.cost if prices.money else 0.0)
        outside = np.ones(len(self.rows), dtype=bool)
        outside[self.inside] = False
        rest = np.flatnonzero(outside & (profit > prices.threshold))
        rest = rest[np.argsort(-profit[rest], kind="stable")]
        same = None if alike is None or not len(rest) else alike(self.rows[rest])
        fresh: list[tuple[Rows, Floats]] = []
        known: dict[int, float] = {}
        changed = True
        begin = 0
        while begin < len(rest) and self.looked_at < most_looks:
            if changed and fixed + self._largest(profit) <= enough:
                break
            block = rest[begin : begin + min(BLOCK, most_looks - self.looked_at)]
            begin, here = begin + len(block), slice(begin, begin + len(block))
            if same is not None:
                block = self._unlike(block, same[here], toll, prices.threshold + grid, profit, known)
                changed = len(block) > 0
                if not changed:
                    continue
            worth = self._values(block)
            profit[block] = most_profit(worth, toll)
            self.bound[block] = np.minimum(self.bound[block], most_profit(worth, np.zeros(len(toll))))
            good = profit[block] > prices.threshold + grid
            fresh.append((block[good], worth[good]))
            if sum(len(codes) for codes, _ in fresh) >= max(self.limit // 4, 256):
                break
        most = fixed + self._largest(profit)
        if not fresh:
            return most, np.zeros(0, np.int64), np.zeros((0, len(toll)))
        return most, np.concatenate([codes for codes, _ in fresh]), np.concatenate([worth for _, worth in fresh])

    def _unlike(
        self, block: Rows, code: Rows, toll: Floats, enough: float, profit: Floats, known: dict[int, float]
    ) -> Rows:
        """Those of a block that have to be looked at one by one: people like them would improve on what was found.

        The others get the profit that the first of those like them would make if everybody could be asked.
        """
        codes, one, place = np.unique(code, return_index=True, return_inverse=True)
        new = np.array([position for position, c in enumerate(codes.tolist()) if c not in known], dtype=np.int64)
        for position, most in zip(new, most_profit(self._raw(block[one[new]]), toll), strict=True):
            known[int(codes[position])] = float(most)
        best = np.array([known[c] for c in codes.tolist()])[place]
        profit[block] = np.minimum(profit[block], best)
        return block[best > enough]

    def _largest(self, profit: Floats) -> float:
        """The sum of the `limit` largest, if above 0."""
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
        """(R', K') values of the items at these places; -inf where somebody may not be asked."""
        worth = self._raw(at)
        worth[~self.availability.mask_rows(self.rows[at])] = -math.inf
        worth[:, self.capacity <= 0] = -math.inf
        return worth

    def _assignment(self, person: Rows, most: float) -> Assignment:
        asked = np.flatnonzero(person >= 0)
        value = self.worth[asked, person[asked]]
        place = self.inside[asked]
        best = np.lexsort((place, -value))
        pairs = zip(self.rows[place[best]].tolist(), person[asked[best]].tolist(), value[best].tolist(), strict=True)
        return Assignment(tuple(Pair(*pair) for pair in pairs), most, self.looked_at)
