"""Why nothing is asked although items are open, or for whom the project waits: in words, for whoever wonders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hitl.active.assignment.eligibility import Availability
from hitl.active.stopping.rules import Judged, open_rows
from hitl.crew import Budget, Crew
from hitl.plan import Plan

BLOCK = 4096
"""Open items that are looked at a time."""

SHOWN = 5
"""How many people are named."""


def why_nothing_is_asked(plan: Plan, crew: Crew, budget: Budget) -> str | None:
    """The setting or the want of people that keeps questions from being asked; None where some are, or all is done.

    Where nobody may answer what is open, the plan has stopped and says so itself (`outstanding`).
    """
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
    return "who may be asked has no capacity left, or no question is worth its cost"


def waits_for_away(questions: Sequence[Judged], plan: Plan, crew: Crew, budget: Budget) -> str | None:
    """Which open items only people can answer who seem to be away: the project waits for them.

    None where nobody is missed, or where there is enough to ask all the same. It goes on by itself when one of them
    answers or skips anything; until then each of them has one question (`outstanding`).
    """
    missed = {person.annotator for person in plan.people if person.away}
    away = np.array([name in missed and crew.capacity_of(name) > 0 for name in crew.names], dtype=bool)
    there = np.array([name not in missed and crew.capacity_of(name) > 0 for name in crew.names], dtype=bool)
    if plan.stop or not away.any() or len(plan.asks) >= budget.labels:
        return None
    free = Availability.of(replace(crew, asked=()), [evidence.annotations for evidence, _ in questions])
    rows = open_rows(questions, budget)
    waiting, whom = 0, np.zeros(len(crew.names), dtype=bool)
    for start in range(0, len(rows), BLOCK):
        may = free.mask_rows(rows[start : start + BLOCK])
        only_away = may[:, away].any(axis=1) & ~may[:, there].any(axis=1)
        waiting += int(only_away.sum())
        whom |= may[only_away].any(axis=0) & away
    if not waiting:
        return None
    names = [str(name) for name, waited in zip(crew.names, whom.tolist(), strict=True) if waited]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    seem = "seems" if len(names) == 1 else "seem"
    items = f"{waiting:,} open item{' waits' if waiting == 1 else 's wait'}"
    return f"{items} for {', '.join(names[:SHOWN])}{more}, who {seem} to be away: nobody else of the crew can answer"
