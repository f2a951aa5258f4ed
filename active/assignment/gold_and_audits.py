"""Gold questions, about items of known truth, and audits, about items drawn at random.

An answer on a known item says more about its annotator than one on an item that only the others' labels determine. With
a share c of checks, the question after a answers is a check when floor(c (a + 1)) > floor(c a): over many plans the
share is exact, even if a plan has few questions. Audits estimate the quality of the labels without bias.

    F    items that may be asked about: truth unknown, no answer expected, one of the crew may be asked and is paid for
    n    number of drawn items: as many as are due for the share `audit_share`, or all of F
    p    = n / |F|, the probability of each item of F, open or done, however sure its label is

An item that was drawn stands for 1 / p items (Horvitz & Thompson 1952; `hitl.models.analysis.audited_agreement`).
Items are drawn by a digest of their names and of the numbers of given and expected answers: the same state of a
project draws the same items, and another state draws others. If the annotators of an item have no time or money left,
it is left out without a substitute, because a substitute would be more likely to be an item that many may answer. A
crew without names gets no audit questions, because anyone who comes may have answered the item before.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from hitl.active.assignment.eligibility import Eligibility, Mask, Rows
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Floats, Name
from hitl.crew import CENT

CHECK = "to know the annotator: its truth is known"
"""Reason for a gold question, in words for annotators; programs use `Ask.check`."""

AUDIT = "to know the labels: drawn at random"
"""Reason for an audit question, in words for annotators; programs use `Ask.audit`."""

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


def draw(pool: PoolState, free: Eligibility, wanted: int, money: float = math.inf) -> tuple[Rows, float]:
    """Return codes of at most `wanted` items, each of F with the same probability, and this probability (1 if F is
    empty)."""
    if wanted <= 0 or not free.crew.names:
        return np.zeros(0, np.int64), 1.0
    able = (free.capacity > 0) & _payable(free, money)
    rows = np.flatnonzero(~pool.known & ~free.closed)
    might = [mask[:, able].any(axis=1) for _, mask in free.blocks(rows)]
    rows = rows[np.concatenate([np.zeros(0, bool), *might])]
    drawn = pool.drawn(rows, f"{pool.answered} {len(free.crew.asked)} ")[:wanted]
    return drawn, len(drawn) / max(len(rows), 1)


def audits(rows: Rows, right: Floats, free: Eligibility, money: float = math.inf) -> list[tuple[int, int]]:
    """Return (item code, crew position) of the questions about these items, as far as there is time and `money`.

    `right`: (R, K') the chance that each annotator's answer about each of the items is right. Ties go to the annotator
    with fewest of these questions.
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
