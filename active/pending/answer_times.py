"""Estimate how long answers take, so that a plan shows how much work it is.

    time of k  =  median of annotator k's durations, if there are at least FEWEST;  else the median of all durations

Medians, because a task that was left open over lunch took an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Name
from hitl.plan import Plan

FEWEST = 5
"""Number of durations of one annotator below which the median of all is used.

The median of five lies between the quartiles of the annotator's times four times out of five (binomial), that of three
only twice out of three.
"""


def seconds_per_answer(annotations: Annotations) -> tuple[float, Mapping[Name, float]]:
    """Return the seconds of an average answer (0 if no duration is known), and of annotators with enough answers."""
    if annotations.duration is None:
        return 0.0, {}
    timed = np.isfinite(annotations.duration) & (annotations.duration > 0)
    seconds, person = annotations.duration[timed], annotations.annotator[timed]
    if not len(seconds):
        return 0.0, {}
    order = np.argsort(person, kind="stable")
    codes, first = np.unique(person[order], return_index=True)
    each = zip(codes.tolist(), np.split(seconds[order], first[1:]), strict=True)
    own = {annotations.annotators[k]: float(np.median(taken)) for k, taken in each if len(taken) >= FEWEST}
    return float(np.median(seconds)), own


def with_answer_times(plan: Plan, annotations: Annotations) -> Plan:
    """Add to the plan how long each answer is expected to take."""
    average, own = seconds_per_answer(annotations)
    if not average and not any(ask.seconds for ask in plan.asks):
        return plan
    asks = [
        replace(ask, seconds=average if ask.annotator is None else own.get(ask.annotator, average)) for ask in plan.asks
    ]
    return replace(plan, asks=tuple(asks))
