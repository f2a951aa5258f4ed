"""Find the answer that counts where an annotator answered about an item more than once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadAnnotations, ConflictingLabels
from hitl.formatting import counted
from hitl.tables.encode import Floats, Ints


def latest_answers(
    item: Ints, annotator: Ints, label: Ints, anonymous: int | None, seconds: Floats | None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows to keep, by item and annotator, and the rows that contradict them.

    One row per pair is kept, and all of the anonymous pool. Of a pair the latest answer is kept, or the last row if
    times are equal or unknown. A row contradicts it if it has another label and no time tells which is later.
    """
    pair = item.astype(np.int64)
    pair *= int(annotator.max(initial=0)) + 1
    pair += annotator
    order = np.argsort(pair, kind="stable")
    same = repeats(pair[order])
    if anonymous is not None:
        same &= annotator[order][1:] != anonymous
    if not same.any():
        return order, np.empty(0, np.intp)
    if seconds is not None:
        if np.isnan(seconds).any():  # if one time of a pair is unknown, fall back to row order
            seconds = np.where(np.isin(pair, pair[np.isnan(seconds)]), 0.0, seconds)
        order = np.lexsort((seconds, pair))
    ends = np.flatnonzero(np.append(~same, True))
    last = order[np.repeat(ends, np.diff(ends, prepend=-1))]  # for each sorted row, the row to keep
    contradicted = label[order] != label[last]
    if seconds is not None:  # a later time settles it; equal or unknown times do not
        contradicted &= seconds[order] == seconds[last]
    return np.asarray(order[ends]), order[contradicted]


def report_conflicts(number: int, first: str, strict: bool, stacklevel: int = 3) -> None:
    """Warn of contradicting labels, the first of them at `first`. Raises BadAnnotations if `strict`."""
    message = (
        f"{counted(number, 'label')} contradict{'s' if number == 1 else ''} another answer of the same "
        f"annotator to the same item, and no time tells which is the later (first at {first})"
    )
    if strict:
        raise BadAnnotations(f"{message}; expected one answer each, or a time column")
    warnings.warn(f"{message}; the last row of each wins", ConflictingLabels, stacklevel=stacklevel)


def repeats(codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return (size - 1,) True where an entry equals the one before."""
    return np.asarray(codes[1:] == codes[:-1])
