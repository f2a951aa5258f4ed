"""Gold questions, about items of known truth, to learn about the annotators: the least checked come first.

An answer on a known item says more about its annotator than one on an item that only the others' labels determine.
With a share c of checks, the question after a answers is a check when floor(c (a + 1)) > floor(c a). Over many plans
the share is exact, even if a plan has few questions, and it follows from the number of answers alone.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Floats, Name
from hitl.crew import CENT

CHECK = "to know the annotator: its truth is known"
"""Reason for a gold question, in words for annotators; programs use `Ask.check`."""

HAIR = 1e-9
"""Tolerance for treating a product as a whole number."""


def checks_due(share: float, answered: int, wanted: int) -> int:
    """Count the checks among the next `wanted` questions, after `answered` answered or expected ones."""
    return math.floor(share * (answered + wanted) + HAIR) - math.floor(share * answered + HAIR)


def checks(pool: PoolState, free: Eligibility, wanted: int, money: float = math.inf) -> list[tuple[int, int]]:
    """Return (item code, crew position) of at most `wanted` questions about items whose truth is known to every
    question.

    Annotators take turns, those with the fewest answers on known items first, expected ones included. Each gets the
    known item with the fewest answers among those they may be asked about. Together they cost at most `money`.
    """
    items = pool.fewest_first(np.flatnonzero(pool.known & ~free.closed)) if wanted > 0 else np.zeros(0, np.int64)
    allowed = free.mask_rows(items)
    items_left = allowed.sum(axis=0)
    capacity = free.capacity.copy()
    price = np.array(free.crew.prices)
    checked = _checked(pool, free)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < wanted:
        able = (capacity > 0) & (items_left > 0) & (price <= money + CENT)
        if not able.any():
            break
        person = int(np.argmin(np.where(able, checked, np.inf)))
        row = int(np.argmax(allowed[:, person]))  # the first allowed has the fewest answers
        pairs.append((int(items[row]), person))
        items_left -= allowed[row]
        allowed[row] = False  # each item once per plan
        checked[person] += 1
        capacity[person] -= 1
        money -= price[person]
    return pairs


def _checked(pool: PoolState, free: Eligibility) -> Floats:
    """Return (K',) how many known items each of the crew has answered or was asked about."""
    annotations = pool[0][0].annotations
    number = np.bincount(annotations.annotator[pool.known[annotations.item]], minlength=annotations.n_annotators)
    count: Counter[Name | None] = Counter(dict(zip(annotations.annotators, number.tolist(), strict=True)))
    expected = {pool.items[row] for row in np.flatnonzero(pool.known & free.closed)}
    count.update(who for who, item in free.crew.asked if item in expected)
    return np.array([count[name] for name in free.crew.members], dtype=np.float64)
