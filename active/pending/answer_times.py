"""How long answers take: for whoever wants to know how much work a plan is.

    pace_k = median of annotator k's durations, where there are FEWEST or more;  else the median of all durations

Medians, because a task that somebody left open over lunch took an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Name
from hitl.plan import Plan

FEWEST = 5
"""Durations of one person below which everybody's stand in."""


def seconds_per_answer(annotations: Annotations) -> tuple[float, Mapping[Name, float]]:
    """(seconds of anybody, seconds of those who have answered often enough); 0 where no duration is known."""
    if annotations.duration is None:
        return 0.0, {}
    known = np.isfinite(annotations.duration) & (annotations.duration > 0)
    seconds, person = annotations.duration[known], annotations.annotator[known]
    if not len(seconds):
        return 0.0, {}
    order = np.argsort(person, kind="stable")
    codes, first = np.unique(person[order], return_index=True)
    each = zip(codes.tolist(), np.split(seconds[order], first[1:]), strict=True)
    own = {annotations.annotators[k]: float(np.median(taken)) for k, taken in each if len(taken) >= FEWEST}
    return float(np.median(seconds)), own


def paced(plan: Plan, annotations: Annotations) -> Plan:
    """The plan with how long each answer is expected to take."""
    anybody, own = seconds_per_answer(annotations)
    asks = plan.asks
    if anybody or any(ask.seconds for ask in asks):
        asks = tuple(
            replace(ask, seconds=anybody if ask.annotator is None else own.get(ask.annotator, anybody)) for ask in asks
        )
    return plan if asks is plan.asks else replace(plan, asks=asks)
