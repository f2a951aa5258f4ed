"""Limit the questions of one annotator while others have time: a few even shares, or a handful.

    r_k     questions that annotator k can have: those expected of them, and those they can still be given
    s       an even share, the level at which          sum_k min(r_k, s) = all questions together
    m_k     max(times x s, min(HANDFUL, FIRST + answers of k so far)), rounded up

Annotators who can have less than s (a small capacity, few items that they may see, away) leave the rest to the others,
whose share is larger. Beyond m_k an answer counts half of its value (`assign`): no annotator is given more than m_k
while another one, who is half as good about the item, has time. A spammer is not half as good, and gets nothing for
being idle. New annotators get few questions at first: those with few answers get about as many again.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Eligibility, Rows
from hitl.annotations import ANONYMOUS, Floats
from hitl.crew import UNLIMITED

HANDFUL = 20
"""Minimum limit for one annotator, however many annotators there are.

Chosen on five public crowds, 8 seeds (docs/decisions.md, 2026-11-20), by the labels needed until first within half a
point of all labels, or in the mean, in percent of all: 10: 30.2 / 41.2; 20: 27.6 / 30.9; 40: 26.9 / 30.1; no shares:
28.8 / 31.5. With 10 the best annotator may not have a tenth of a small batch.
"""

FIRST = 3
"""Questions allowed beyond the number that an annotator has answered.

Chosen of 1, 2, 3 and 5 on twelve public and simulated crowds, 4 to 6 seeds (docs/decisions.md, 2026-11-23).
"""

LOOKS = 2**22
"""Pairs checked to count the items each may be asked about; beyond, evenly spaced items stand for all."""


def shares(free: Eligibility, rows: Rows, many: int, times: float, given_k: Floats | None = None) -> Rows:
    """Return (K',) m_k less what is expected of each: their limit for `many` questions about these items (codes).

    `times` in [1, inf]; inf means no limit. A pool without names has no limit either, because it is many people.
    `given_k` (K',): answers so far; None: no limit for newcomers.
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
    """Return s >= 0 at which annotators who can have so many questions each (K',) have `total`; inf if they cannot."""
    most = np.sort(able)
    if total > most.sum():
        return math.inf
    below = np.append(0, np.cumsum(most))  # total of those who can have less
    levels = (total - below[:-1]) / np.arange(len(most), 0, -1)
    return float(levels[np.argmax(levels <= most)]) if len(most) else 0.0


def answerable(free: Eligibility, rows: Rows) -> Rows:
    """Return (K',) about how many of these items each may be asked; exact if there are few enough to check all."""
    many = max(LOOKS // max(len(free.crew.names), 1), 1)
    seen = rows if len(rows) <= many else rows[np.linspace(0, len(rows) - 1, many).astype(np.int64)]
    return np.asarray(np.ceil(free.mask_rows(seen).sum(axis=0) * (len(rows) / len(seen))), dtype=np.int64)
