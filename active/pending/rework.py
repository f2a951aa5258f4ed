"""Put items that were sent back first in the plan, until they are answered again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hitl.annotations import Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.plan import Ask, Plan, Rework


def without_rework(plan: Plan | None) -> Plan | None:
    """Drop the questions about items that were sent back. `with_rework` adds those that are still due."""
    return plan and replace(plan, asks=tuple(ask for ask in plan.asks if not ask.sent_back))


def with_rework(
    plan: Plan, sent_back: Sequence[Rework], evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]
) -> Plan:
    """Add a question for each sent-back item that has not been answered since, before all others.

    A deleted item is left out. Answers without a time cannot be distinguished from older ones, so the question stays
    until it is withdrawn.
    """
    if not sent_back or not evidence:
        return plan
    place = {item: n for n, item in enumerate(next(iter(evidence.values())).annotations.items)}
    asks = []
    for back in sent_back:
        n = place.get(back.item)
        if n is None or is_answered(back, n, evidence):
            continue
        why = f"sent back by {back.by}" + (f": {back.note}" if back.note else "")
        right = _right(results, back.annotator)
        asks.append(Ask(back.item, back.annotator, 0.0, right, why, since=back.since, sent_back=True))
    taken = {(ask.item, ask.annotator) for ask in asks}
    others = tuple(ask for ask in plan.asks if (ask.item, ask.annotator) not in taken)
    return replace(plan, asks=(*asks, *others)) if asks else plan


def is_answered(back: Rework, n: int, evidence: Mapping[str, Evidence]) -> bool:
    """Return True if the annotator has labeled item `n` of the evidence since it was sent back."""
    times = [_answered(known, n, back.annotator) for known in evidence.values()]
    return any(time is not None and time > back.since for time in times)


def _answered(evidence: Evidence, n: int, annotator: Name) -> float | None:
    """Return when the annotator last labeled item `n`: None for never, -inf for an unknown time."""
    annotations = evidence.annotations
    if annotator not in annotations.annotators:
        return None
    k = annotations.annotators.index(annotator)
    rows = np.arange(annotations.item_start[n], annotations.item_start[n + 1])
    rows = rows[annotations.annotator[rows] == k]
    if not len(rows):
        return None
    times = np.full(1, -np.inf) if annotations.time is None else annotations.time[rows]
    return float(np.nan_to_num(times, nan=-np.inf, neginf=-np.inf).max())


def _right(results: Mapping[str, Consensus], annotator: Name) -> float:
    """Return the chance that the annotator answers all questions right; newcomers get the mean of the crowd."""
    chances = [1.0]
    for result in results.values():
        report = result.annotators
        own = report.names.index(annotator) if annotator in report.names else None
        chances.append(float(report.accuracy[own] if own is not None else np.mean(report.accuracy)))
    return float(np.prod(chances))
