"""Choose gold questions (checks), about items with ground truth, and audit questions, about items drawn at random.

An answer about an item of known truth says more about its annotator than one about an item whose truth is inferred from
other labels. With a share c of checks, the question after a answers is a check if floor(c (a + 1)) > floor(c a). So the
share is exact over many plans, even if each plan has few questions. Audits give unbiased estimates of label quality.

    F    items that can be audited: truth unknown, no question outstanding, and an annotator may be asked and paid
    n    number of drawn items: the number due for `audit_share`, at most |F|
    p    = n / |F|, the probability that an item of F is drawn, whether open or done, and whatever its confidence

A drawn item represents 1 / p items (Horvitz & Thompson 1952; `hitl.models.analysis.audited_agreement`). Items are drawn
by a digest of their names and of the numbers of answers and outstanding questions, so the same state of a project
always draws the same items. If no annotator who may answer an item has capacity left, or money has run out, the item
is dropped without a substitute, because substitutes would favor items that many annotators may answer. A crew without
names gets no audit questions, because the next person to answer may have answered the item before.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from hitl.active.assignment.eligibility import Eligibility, Mask, Rows
from hitl.active.pool_state import PoolState
from hitl.annotations import Floats, Name
from hitl.crew import CENT

CHECK = "gold item, to check the annotator"
"""Reason for a gold question, as shown to annotators; programs use `Ask.check`."""

AUDIT = "to know the labels: drawn at random"
"""Reason for an audit question, as shown to annotators; programs use `Ask.audit`."""

HAIR = 1e-9
"""Tolerance for treating a product as a whole number."""


def checks_due(share: float, answered: int, wanted: int) -> int:
    """Return how many of the next `wanted` questions are checks, after `answered` answered or outstanding ones."""
    return math.floor(share * (answered + wanted) + HAIR) - math.floor(share * answered + HAIR)


def checks(pool: PoolState, free: Eligibility, wanted: int, money: float = math.inf) -> list[tuple[int, int]]:
    """Return (item code, crew position) of at most `wanted` gold questions, which together cost at most `money`.

    Annotators take turns, starting with the one with the fewest answers and outstanding questions about known items.
    Each gets the known item with the fewest labels among those they may be asked about. An item is known if the truth
    is known for all its questions.
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
    """Return (K',) the number of known items that each annotator has answered or is being asked about."""
    annotations = pool[0][0].annotations
    number = np.bincount(annotations.annotator[pool.known[annotations.item]], minlength=annotations.n_annotators)
    count: Counter[Name | None] = Counter(dict(zip(annotations.annotators, number.tolist(), strict=True)))
    expected = {pool.items[row] for row in np.flatnonzero(pool.known & free.closed)}
    count.update(who for who, item in free.crew.asked if item in expected)
    return np.array([count[name] for name in free.crew.members], dtype=np.float64)


def draw(pool: PoolState, free: Eligibility, wanted: int, money: float = math.inf) -> tuple[Rows, float]:
    """Draw at most `wanted` items of F. Return their codes, and the probability that an item of F is drawn.

    The probability is 1 if nothing is wanted or the crew has no names.
    """
    if wanted <= 0 or not free.crew.names:
        return np.zeros(0, np.int64), 1.0
    able = (free.capacity > 0) & _payable(free, money)
    rows = np.flatnonzero(~pool.known & ~free.closed)
    might = [mask[:, able].any(axis=1) for _, mask in free.blocks(rows)]
    rows = rows[np.concatenate([np.zeros(0, bool), *might])]
    drawn = pool.drawn(rows, f"{pool.answered} {len(free.crew.asked)} ")[:wanted]
    return drawn, len(drawn) / max(len(rows), 1)


def audits(rows: Rows, right: Floats, free: Eligibility, money: float = math.inf) -> list[tuple[int, int]]:
    """Return (item code, crew position) of audit questions about these items, as far as capacities and `money` allow.

    Each item goes to the annotator with the largest `right`, the (R, K') chances of a right answer. Ties go to the
    annotator with the fewest of these questions.
    """
    price, capacity = np.array(free.crew.prices), free.capacity.copy()
    assigned = np.zeros(len(price), np.int64)
    pairs: list[tuple[int, int]] = []
    for row, may, right_k in zip(rows.tolist(), free.mask_rows(rows), np.round(right, 9), strict=True):
        able = np.flatnonzero(may & (capacity > assigned) & _payable(free, money))
        if able.size:
            person = int(able[np.lexsort((assigned[able], -right_k[able]))[0]])
            pairs.append((row, person))
            assigned[person] += 1
            money -= price[person]
    return pairs


def _payable(free: Eligibility, money: float) -> Mask:
    return np.array(free.crew.prices) <= money + CENT
