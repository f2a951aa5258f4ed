"""Decide whether a project is done, and say why (the rules are in `rules`)."""

from __future__ import annotations

from hitl.active.acquisition import value_of_information
from hitl.active.pool_state import PoolState
from hitl.active.stopping.rules import reached
from hitl.crew import Budget, Crew
from hitl.formatting import percent


def project_stop(pool: PoolState, crew: Crew, budget: Budget) -> str | None:
    """Explain why the project is done, or return None while it is not."""
    if not pool.open_rows.size:
        return "every item is done"
    target = budget.target_accuracy
    if target is not None and reached(pool.expected, target):
        expected = pool.expected
        told = f", and {expected.wrong:.0f} of {expected.checked} gold items are wrong" if expected.checked else ""
        return f"{expected} of the labels are believed to be right{told} (target: {percent(target)})"
    if budget.answers is not None and pool.answered >= budget.answers:
        return f"{pool.answered:,} answers were given, and the budget was {budget.answers:,} (budget.answers)"
    if budget.value_per_label is not None:
        gain, cost = value_of_information.best_next(pool, pool.open_rows, crew, budget)
        if budget.value_per_label * gain < 1:
            worth, right = budget.value_per_label, gain * cost
            return (
                f"the best next label costs {cost:g} and is expected to be worth {worth * right:.2g}: {right:.2g} more "
                f"right labels at {worth:g} each"
            )
    return None


def target_reached(pool: PoolState, budget: Budget) -> bool:
    """Return True if there is a target accuracy, and the labels have reached it."""
    return budget.target_accuracy is not None and reached(pool.expected, budget.target_accuracy)
