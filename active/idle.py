"""Why nothing is asked although items are open: in words, for whoever wonders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active import stopping
from hitl.active.availability import Availability
from hitl.active.stopping import Judged
from hitl.crew import Budget, Crew
from hitl.plan import Plan

LOOKED_AT = 10_000
"""Open items that are looked at, at most."""


def why_nothing_is_asked(plan: Plan, questions: Sequence[Judged], crew: Crew, budget: Budget) -> str | None:
    """The setting or the want of people that keeps questions from being asked; None where some are, or all is done."""
    if plan.asks or plan.stop or not plan.open_items:
        return None
    if budget.labels == 0:
        return "budget.labels is 0"
    least = min((crew.cost_of(name) for name in crew.names), default=crew.default_cost)
    if budget.cost < least:
        return f"budget.cost is {budget.cost:g}, and a label costs {least:g} at least"
    if not crew.names:
        return "no answer is expected to change anything"
    if not any(crew.capacity_of(name) for name in crew.names):
        return "nobody of the crew has any capacity (crew.capacity, crew.capacities)"
    rows = stopping.open_rows(questions, budget)[:LOOKED_AT]
    free = Availability.of(crew, [evidence.annotations for evidence, _ in questions])
    if not free.mask_rows(np.asarray(rows)).any():
        return (
            "nobody of the crew may be asked about what is open: they have answered or skipped it, "
            "or lack what it needs (crew.skills, crew.needs)"
        )
    return "who may be asked has no capacity left, or no question is worth its cost"
