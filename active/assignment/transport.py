"""Find pairs of rows and columns with the largest total value.

    maximize    sum of value[r, k] over the pairs          value: whole numbers >= 0, or NOT_ALLOWED
    subject to  at most one pair per row, capacity[k] pairs with column k, and `limit` pairs in total

Successive augmentation (the Hungarian method for a transportation problem; Ahuja, Magnanti & Orlin, Network Flows,
1993, 9.7 and 12.4) adds one pair at a time, by the path with the largest gain:

    a free row joins column k;  if k is full, one of its rows moves to k', ...;  the last column has room

So the pairs after t steps are the best set of t pairs. Dijkstra's algorithm over columns finds the path. Prices
price[k] >= 0 ensure that no move of a paired row gains: value[r, k] - price[k] is largest at the column it is in. Only
full columns on the path are searched, and each search raises their price by at least 1. If values span a few hundred
steps, the work is therefore bounded, whatever the number of pairs.

Ties go to the column with the least load, then to the first column, and to the first row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.models.numerics.compiled import compiled

NOT_ALLOWED = -(2**30)
"""Value of a forbidden pair."""

MOST = 50_000
"""Maximum value. Columns are sorted as 16-bit numbers."""

Steps = npt.NDArray[np.int32]
Levels = npt.NDArray[np.uint16]
Whole = npt.NDArray[np.int64]


def best_pairs(steps_rk: Steps, capacity: Whole, load: Whole, limit: int) -> tuple[Whole, Whole, int]:
    """Find the pairs with the largest total of `steps_rk` (R, K). `load` (K,): present load of each column, for ties.

    Return three results: (R,) the column of each row, or -1; (K,) the price of each column, >= 0, which is the gain
    from one more unit of its capacity; and the gain of the last pair, 0 if fewer than `limit` pairs are possible. A
    further row would change the pairs only if its value minus the column's price exceeded this gain.
    """
    n_rows, n_columns = steps_rk.shape
    column, price = np.full(n_rows, -1, np.int64), np.zeros(n_columns, np.int64)
    if not steps_rk.size or limit <= 0:
        return column, price, 0
    if steps_rk.max() > MOST:
        raise ValueError(f"the largest value is {steps_rk.max()}; expected {MOST} at most")
    below = np.where(steps_rk < 0, 2**16 - 1, MOST - steps_rk).astype(np.uint16).T.copy()
    order = np.argsort(below, axis=1, kind="stable").astype(np.int32)  # a radix sort; ties stay in order
    level = MOST - np.minimum(np.take_along_axis(below, order, axis=1), MOST)  # faster than looking values up by row
    count, room, busy = (steps_rk >= 0).sum(axis=0), capacity.astype(np.int64), load.astype(np.int64)
    return column, price, int(_augment(steps_rk, order, level, count, room, busy, limit, column, price))


@compiled
def _augment(
    steps_rk: Steps,
    order: Steps,
    level: Levels,
    count: Whole,
    room: Whole,
    load: Whole,
    limit: int,
    column: Whole,
    price: Whole,
) -> int:
    """Fill `column` and `price`, update `room` and `load`, and return the gain of the last pair (`best_pairs`).

    `order` and `level` (K, R): the rows of each column by falling value, and their values. `count` (K,): how many of
    these rows are allowed.
    """
    n_rows, n_columns = steps_rk.shape
    pointer = np.zeros(n_columns, np.int64)
    entry = np.full(n_columns, -1, np.int64)  # the free row with the largest value in each column, -1: none
    steps = np.full(n_columns, NOT_ALLOWED, np.int64)  # and its value
    for k in range(n_columns):
        if count[k] > 0:
            entry[k] = order[k, 0]
            steps[k] = level[k, 0]
    head = np.full(n_columns, -1, np.int64)  # rows of a column, as a doubly linked list
    after, before = np.full(n_rows, -1, np.int64), np.full(n_rows, -1, np.int64)
    key = np.empty(n_columns, np.int64)
    through, source = np.empty(n_columns, np.int64), np.empty(n_columns, np.int64)
    settled = np.empty(n_columns, np.bool_)
    move = np.empty((n_columns, n_columns), np.int32)  # best change of value if a row of a full column moves
    mover = np.empty((n_columns, n_columns), np.int32)  # and this row; both are valid only where `cached`
    cached = np.zeros(n_columns, np.bool_)
    gain = 0
    for _ in range(limit):
        for k in range(n_columns):
            settled[k] = False
            source[k] = -1
            while entry[k] >= 0 and column[entry[k]] >= 0:
                pointer[k] += 1
                entry[k], steps[k] = -1, NOT_ALLOWED
                if pointer[k] < count[k]:
                    entry[k], steps[k] = order[k, pointer[k]], level[k, pointer[k]]
            through[k] = entry[k]
            key[k] = steps[k] - price[k]
        best = _next(key, settled, room, load)
        while best >= 0 and room[best] == 0:
            settled[best] = True
            if not cached[best]:
                cached[best] = True
                move[best, :], mover[best, :] = NOT_ALLOWED, -1
                row = head[best]
                while row >= 0:
                    _learn(steps_rk, best, row, move[best], mover[best])
                    row = after[row]
            _relax(best, move[best], mover[best], price, settled, key, through, source)
            best = _next(key, settled, room, load)
        gain = key[best] if best >= 0 else 0
        for k in range(n_columns):
            if settled[k]:
                price[k] += key[k] - gain
        if best < 0:
            return 0
        room[best] -= 1
        load[best] += 1
        _pass_on(best, through, source, steps_rk, column, head, after, before, cached, move, mover)
    return gain


@compiled
def _next(key: Whole, settled: npt.NDArray[np.bool_], room: Whole, load: Whole) -> int:
    """Return the unsettled column with the largest key >= 0, or -1. Ties: columns with room first, then least load."""
    best = -1
    for k in range(len(key)):
        if settled[k] or key[k] < 0 or (best >= 0 and key[k] < key[best]):
            continue
        better = best < 0 or key[k] > key[best]
        if better or (room[k] > 0 and (room[best] == 0 or load[k] < load[best])):
            best = k
    return best


@compiled
def _relax(
    full: int,
    move: Steps,
    mover: Steps,
    price: Whole,
    settled: npt.NDArray[np.bool_],
    key: Whole,
    through: Whole,
    source: Whole,
) -> None:
    """Extend paths by moving a row from a full column to others, where that gains more than the best path so far."""
    spare = key[full] + price[full]
    for k in range(len(key)):
        if not settled[k] and mover[k] >= 0:
            reached = spare + move[k] - price[k]
            if reached > key[k]:
                key[k], through[k], source[k] = reached, mover[k], full


@compiled
def _pass_on(
    last: int,
    through: Whole,
    source: Whole,
    steps_rk: Steps,
    column: Whole,
    head: Whole,
    after: Whole,
    before: Whole,
    cached: npt.NDArray[np.bool_],
    move: Steps,
    mover: Steps,
) -> None:
    """Move every row on the path to the last column, and update the cached moves of these columns."""
    k = last
    while k >= 0:
        row, origin = through[k], source[k]
        if origin >= 0:
            if before[row] >= 0:
                after[before[row]] = after[row]
            else:
                head[origin] = after[row]
            if after[row] >= 0:
                before[after[row]] = before[row]
            if cached[origin]:
                _forget(steps_rk, origin, row, head[origin], after, move[origin], mover[origin])
        before[row], after[row] = -1, head[k]
        if head[k] >= 0:
            before[head[k]] = row
        head[k] = row
        column[row] = k
        if cached[k]:
            _learn(steps_rk, k, row, move[k], mover[k])
        k = origin


@compiled
def _learn(steps_rk: Steps, full: int, row: int, move: Steps, mover: Steps) -> None:
    """Update the moves from a column that has gained a row."""
    now = steps_rk[row, full]
    for k in range(len(move)):
        if steps_rk[row, k] >= 0 and steps_rk[row, k] - now > move[k]:
            move[k] = steps_rk[row, k] - now
            mover[k] = row


@compiled
def _forget(steps_rk: Steps, full: int, gone: int, head: int, after: Whole, move: Steps, mover: Steps) -> None:
    """Update the moves from a column that has lost a row."""
    for k in range(len(move)):
        if mover[k] == gone:
            move[k], mover[k] = NOT_ALLOWED, -1
            row = head
            while row >= 0:
                if steps_rk[row, k] >= 0 and steps_rk[row, k] - steps_rk[row, full] > move[k]:
                    move[k] = steps_rk[row, k] - steps_rk[row, full]
                    mover[k] = row
                row = after[row]
