"""Audit questions, about items drawn at random: their answers estimate the quality of the labels without bias.

    F    items that may be asked about: truth unknown, no answer expected, one of the crew may be asked and is paid for
    n    number of drawn items: as many as are due for the share `audit_share`, or all of F
    p    = n / |F|, the probability of each item of F, open or done, however sure its label is

Answers about items that were chosen because their labels are unsure say nothing about the labels that are sure. An item
that was drawn stands for 1 / p items (Horvitz & Thompson 1952; `hitl.models.analysis.audited_agreement`).

Items are drawn by a digest of their names and of the numbers of given and expected answers: the same state of a
project draws the same items, and another state draws others. Each is asked of the annotator most likely to be
right among those who have not answered it. If its annotators have no time or money left, the item is left out without
a substitute, because a substitute would be more likely to be an item that many may answer.

A crew without names gets no audit questions, because anyone who comes may have answered the item before.
"""

from __future__ import annotations

import math

import numpy as np

from hitl.active.assignment.eligibility import Eligibility, Mask, Rows
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Floats
from hitl.crew import CENT

AUDIT = "to know the labels: drawn at random"
"""Reason for an audit question, in words for annotators; programs use `Ask.audit`."""


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
