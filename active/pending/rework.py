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

    A deleted item is left out.
    """
    waiting = [back for back in sent_back if not back.answered]
    if not waiting or not evidence:
        return plan
    items, asks = set(next(iter(evidence.values())).annotations.items), []
    for back in waiting:
        if back.item not in items:
            continue
        why = f"sent back by {back.by}" + (f": {back.note}" if back.note else "")
        right = _right(results, back.annotator)
        asks.append(Ask(back.item, back.annotator, 0.0, right, why, since=back.since, sent_back=True))
    taken = {(ask.item, ask.annotator) for ask in asks}
    others = tuple(ask for ask in plan.asks if (ask.item, ask.annotator) not in taken)
    return replace(plan, asks=(*asks, *others)) if asks else plan


def _right(results: Mapping[str, Consensus], annotator: Name) -> float:
    """Return the chance that the annotator answers all questions right; newcomers get the mean of the crowd."""
    chances = [1.0]
    for result in results.values():
        report = result.annotators
        own = report.names.index(annotator) if annotator in report.names else None
        chances.append(float(report.accuracy[own] if own is not None else np.mean(report.accuracy)))
    return float(np.prod(chances))
