"""Replay audits with auditors who know the truth: how many audits a certificate takes, and how often it is false."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.active.guarantees.audit import OPEN, PROVEN, Audit, Promise
from hitl.certificates.certificate import Labels
from hitl.errors import BadTable
from hitl.formatting import percent


@dataclass(frozen=True)
class Replayed:
    """Result of several replayed audits of the same labels.

    Attributes:
        labels: number of labels whose truth is known; only these are audited.
        true_error: share of these that are wrong, in [0, 1].
        runs, proven, refuted: number of audits, and how many ended so; the others spent the budget.
        false: number of audits that proved what was not true: more wrong labels were left than promised.
        audits: smallest, median and largest number of audited labels.
    """

    labels: int
    true_error: float
    runs: int
    proven: int
    refuted: int
    false: int
    audits: tuple[int, int, int]


def replayed(
    labels: Labels, truth: Mapping[str, str], promise: Promise, runs: int, batch: int, budget: int | None = None
) -> Replayed:
    """Audit the labels whose truth is known `runs` times, with other draws each time. Raises BadTable without any."""
    known = [n for n, item in enumerate(labels.items) if item in truth]
    if not known:
        raise BadTable("none of the labels is of an item whose truth is known; expected the same names of items")
    wrong = np.array([labels.labels[n] != truth[labels.items[n]] for n in known])
    doubt = np.array(labels.doubt)[known]
    groups = [labels.groups[n] for n in known] if labels.groups else None
    audits = [Audit(doubt, promise, f"replay {run}", groups) for run in range(runs)]
    for audit in audits:
        audit.replay(wrong, len(known) if budget is None else budget, batch)
    proven = [audit for audit in audits if audit.state == PROVEN]
    spent = sorted(len(audit.wrong) for audit in audits)
    return Replayed(
        labels=len(known),
        true_error=float(wrong.mean()),
        runs=runs,
        proven=len(proven),
        refuted=sum(audit.state not in (OPEN, PROVEN) for audit in audits),
        false=sum(_is_false(audit, wrong, groups) for audit in proven),
        audits=(spent[0], spent[len(spent) // 2], spent[-1]),
    )


def _is_false(audit: Audit, wrong: npt.NDArray[np.bool_], groups: list[str] | None) -> bool:
    """Return True if a claim that was proven is not true."""
    for claim in audit.claims:
        own = np.array([not claim.name or group == claim.name for group in groups or [""] * len(wrong)])
        left = int(wrong[own].sum()) - (claim.wrong if claim.mended else 0)
        if claim.state == PROVEN and left > audit.promise.error * claim.size:
            return True
    return False


def in_words(result: Replayed, promise: Promise) -> list[str]:
    """Return the lines that say it."""
    least, middle, most = result.audits
    return [
        f"{percent(result.true_error, 2)} of {result.labels:,} labels with known truth are wrong; promise: at most "
        f"{100 * promise.error:g} %{' after corrections' if promise.mended else ''}",
        f"{result.proven:,} of {result.runs:,} audits proved it, {result.refuted:,} refuted it; audited labels: "
        f"{middle:,} (median; {least:,} to {most:,})",
        f"{result.false:,} of them proved what was not true; {100 * (1 - promise.confidence):.3g} % may",
    ]
