"""Why nothing is asked although items are open: in words, for whoever wonders."""

from __future__ import annotations

from hitl.crew import Budget, Crew
from hitl.plan import Plan


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
