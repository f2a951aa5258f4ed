"""Choose pairs of items and annotators with the largest total value.

    maximize    sum over pairs (n, k) of v_nk
    subject to  at most one pair per item, capacity_k pairs with annotator k, `limit` pairs in total,
                and only pairs that may be asked

Only few items matter, so they are evaluated in falling order of a bound U_n >= max_k v_nk. The best pairs among the
first items (`transport`) determine the price lambda_k >= 0 of annotator k's time, and the gain t of the last pair. By
weak duality, another item improves the choice only if max_k (v_nk - lambda_k) > t, so the search ends when
U_n - min_k lambda_k <= t. Items are evaluated block by block. Those that improve the choice join, and the pairs are
chosen again. Once `limit` pairs are found, the search also ends after a block without improvement and a sample of all
remaining items without improvement. The sample is needed because bounds ignore who may be asked, so later items may be
better.

Spread: after m_k questions to annotator k (their share), further answers count with the fraction BEYOND of their value.
In `transport` the annotator then has two columns, with the capacities m_k and capacity_k - m_k.

Values are rounded to steps of the tolerance. Among equally good annotators, the one with the fewest questions is
chosen, starting with the most valuable item. This spreads both the load and the most valuable items evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Eligibility, Rows
from hitl.active.assignment.transport import MOST, NOT_ALLOWED, best_pairs
from hitl.annotations import Floats

BLOCK = 1024
"""Number of items whose values are computed at a time."""

BEYOND = 0.5
"""Fraction of its value that an answer counts beyond the annotator's share, so that others half as good are asked.

1 would spread nothing. 0 would be a hard cap, which gives the remaining questions to annotators who guess. Only 0.5, in
the middle, was measured, on five public crowds and simulated ones (docs/decisions.md, 2026-11-20).
"""

EFFORT = 2**25
"""Number of computed values after which the search ends (the first items do not count)."""

AHEAD = 256
"""Minimum number of items evaluated first in addition to `limit`, and of items that join before the next choice."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One question: item code, position of the annotator in the crew, value, and the fraction of it that counts."""

    item: int
    person: int
    value: float
    counts: float = 1.0


def assign(
    rows: npt.NDArray[np.integer],
    bound: Floats,
    values: Callable[[Rows], Floats],
    eligible: Eligibility,
    limit: int,
    *,
    share: npt.NDArray[np.integer] | None = None,
    tolerance: float = 0.004,
) -> tuple[Pair, ...]:
    """Choose at most `limit` pairs with the largest total value, each item at most once. The most valuable comes first.

    `rows` (R,) are the codes of the candidate items; ties go to the first. `bound` (R,) are upper bounds on the value
    of each item with any annotator. `values(rows)` returns (R', K') the value with each annotator of the crew. Pairs
    with a negative value are not chosen. After `share` (K',) questions, an annotator's answers count with the fraction
    BEYOND of their value; None: all count in full. Values are rounded to about `tolerance` times the mean of the best.

    Example:
        >>> import numpy as np
        >>> from hitl import Crew, Evidence
        >>> from hitl.active import Eligibility, assign
        >>> said = Evidence.from_tables({"item": [0, 1, 2], "annotator": ["cy"] * 3, "label": ["x", "y", "x"]})
        >>> free = Eligibility.of(Crew(("ann", "bob"), default_capacity=2), [said.annotations])
        >>> value = np.array([[0.3, 0.2], [0.1, 0.4], [0.2, 0.1]])
        >>> [(pair.item, pair.person) for pair in assign(np.arange(3), value.max(axis=1), value.__getitem__, free, 2)]
        [(1, 1), (0, 0)]
    """
    capacity = np.minimum(eligible.capacity, len(rows))
    limit = min(limit, int(capacity.sum()), len(rows))
    if limit <= 0:
        return ()
    within = capacity if share is None else np.clip(share, 0, capacity).astype(np.int64)
    more = np.flatnonzero(within < capacity)  # a second column for annotators who can have more than their share
    room, load = np.append(within, (capacity - within)[more]), np.append(eligible.load, (eligible.load + within)[more])
    order = np.argsort(-np.round(bound, 9), kind="stable")
    codes, bound, people = np.asarray(rows, np.int64)[order], bound[order], len(capacity)

    def counted(block: Rows) -> Floats:
        """Return (R', C) the values that count, by column; -inf where an annotator may not be asked."""
        value = values(codes[block])
        value = np.where(eligible.mask_rows(codes[block]) & (capacity > 0), value, -np.inf)
        return np.concatenate([value, BEYOND * value[:, more]], axis=1)

    inside, rest = np.split(np.arange(len(codes)), [limit + max(limit // 8, AHEAD)])
    value_rc, effort, barren = counted(inside), max(EFFORT // people, 2 * limit), False
    while True:
        best = np.sort(np.maximum(value_rc.max(axis=1), 0.0))[-limit:]
        step = max(tolerance * float(best.mean()), float(best[-1]) / MOST * 1.001, 1e-300)
        steps_rc = np.where(value_rc >= 0, value_rc / step + 0.5, NOT_ALLOWED).astype(np.int32)
        column, price, last = best_pairs(steps_rc, room, load, limit)
        full, toll = bool((column >= 0).sum() == limit), price * step
        enough = (last + 1) * step if full else -1e-300
        fresh: list[tuple[Rows, Floats]] = [(inside, value_rc)]
        wanted = len(inside) + max(limit // 4, AHEAD)
        while len(rest) and effort > 0 and sum(len(part) for part, _ in fresh) < wanted:
            most = bound[rest[0]]
            if max(most - toll[:people].min(), BEYOND * most - toll[people:].min(initial=np.inf)) <= enough:
                break
            # bounds ignore who may be asked, so later items may be better: sample all others before giving up
            at = rest[:BLOCK] if not barren else rest[np.linspace(0, len(rest) - 1, min(BLOCK, len(rest))).astype(int)]
            value, rest, effort = counted(at), np.setdiff1d(rest, at, assume_unique=True), effort - len(at)
            good = (value - toll).max(axis=1) > enough
            fresh.append((at[good], value[good]))
            if full and not good.any():
                if barren:
                    break
                barren = True
        if sum(len(part) for part, _ in fresh) == len(inside):
            break
        inside, value_rc = (np.concatenate(parts) for parts in zip(*fresh, strict=True))
    asked = np.flatnonzero(column >= 0)
    person, place = np.append(np.arange(people), more)[column[asked]], inside[asked]
    gain = value_rc[asked, person]
    first = np.lexsort((place, -np.round(gain, 9)))  # the last bits vary from machine to machine
    counts = np.where(_rank(person[first]) < within[person[first]], 1.0, BEYOND)  # the best answers count in full
    parts = codes[place][first], person[first], gain[first], counts
    return tuple(Pair(*pair) for pair in zip(*(part.tolist() for part in parts), strict=True))


def _rank(person: Rows) -> Rows:
    """Return (P,) for each entry the number of earlier entries of the same person."""
    together = np.argsort(person, kind="stable")
    rank = np.empty(len(person), np.int64)
    rank[together] = np.arange(len(person)) - np.searchsorted(person[together], person[together])
    return rank
