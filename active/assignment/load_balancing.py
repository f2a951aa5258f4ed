"""How many questions each annotator may have before others come first: so many even shares, or a handful.

    r_k     questions that annotator k can have: those expected of them, and those they can still be given
    s       an even share, the level at which          sum_k min(r_k, s) = what is asked of all together
    m_k     max(times x s, HANDFUL), rounded up

Annotators who can have less than s (a small capacity, few items that they may see, away) leave the rest to the others,
whose share is larger. Beyond m_k an answer counts half of its value (`assign`): no annotator is given more than m_k
while another one, who is half as good about the item, has time. A spammer is not, and gets nothing for being idle.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Eligibility, Rows
from hitl.annotations import ANONYMOUS
from hitl.crew import UNLIMITED

HANDFUL = 20
"""Questions that are never too many for one annotator, however many annotators there are.

Chosen on five public crowds, 8 seeds (docs/decisions.md, 2026-11-20), by the labels needed until first within half a
point of all labels, or in the mean, in percent of all: 10: 30.2 / 41.2; 20: 27.6 / 30.9; 40: 26.9 / 30.1; no shares:
28.8 / 31.5. With 10 the best annotator may not have a tenth of a small batch."""

LOOKS = 2**22
"""Pairs looked at to know how many items each may be asked about; beyond, evenly spaced items stand for all."""


def shares(free: Eligibility, rows: Rows, many: int, times: float) -> Rows:
    """(K',) m_k less what is expected of each: questions they may be given, of `many` about these items (codes).

    `times` in [1, inf]; with inf there is no such limit, nor for a pool without names among the crew, which is many.
    """
    names = free.crew.names
    pool = np.array([name == ANONYMOUS for name in names], dtype=bool)
    if math.isinf(times) or not len(rows):
        return np.full(len(names), UNLIMITED)
    able = free.load + np.minimum(free.capacity, _answerable(free, rows))
    level = even_share(able[~pool], many + int(free.load[~pool].sum()))
    most = max(times * level, HANDFUL)
    limit = UNLIMITED if most >= UNLIMITED else math.ceil(most - 1e-9)
    return np.where(pool, UNLIMITED, np.maximum(limit - free.load, 0))


def even_share(able: npt.NDArray[np.integer], total: int) -> float:
    """s, >= 0, where annotators who can have so many questions each (K',) have `total`; inf where they cannot."""
    most = np.sort(able)
    if total > most.sum():
        return math.inf
    below = np.append(0, np.cumsum(most))  # what those have who can have less
    levels = (total - below[:-1]) / np.arange(len(most), 0, -1)
    return float(levels[np.argmax(levels <= most)]) if len(most) else 0.0


def _answerable(free: Eligibility, rows: Rows) -> Rows:
    """(K',) about how many of these items each may be asked; exact where they are few enough to look at all."""
    many = max(LOOKS // max(len(free.crew.names), 1), 1)
    seen = rows if len(rows) <= many else rows[np.linspace(0, len(rows) - 1, many).astype(np.int64)]
    return np.asarray(np.ceil(free.mask_rows(seen).sum(axis=0) * (len(rows) / len(seen))), dtype=np.int64)
