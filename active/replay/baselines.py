"""What a policy is measured against: policies that look at no belief.

    even      an item with the fewest labels, drawn among equals, to anybody who may have it
    random    any item, to anybody who may have it

Both keep within everybody's capacity, ask nobody twice, and leave items that wait for an answer, whose truth is known,
or with the most labels that the budget allows an item. Confidence stops neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Availability
from hitl.annotations import ANONYMOUS
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.plan import Ask, Plan

WHY = "by turns"
"""What a baseline says of a question; its gain and its chance of being right are not estimated (0)."""


@dataclass(frozen=True, slots=True)
class Evenly:
    """Labels spread evenly over the items, each from whoever may give it. `seed` >= 0 draws among equals."""

    seed: int = 0

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions, the items with fewest labels first."""
        rng = _generator(self.seed, evidence, crew)
        order = rng.permutation(_open(evidence, crew, budget))
        fewest = np.argsort(evidence.annotations.labels_per_item[order], kind="stable")
        return _dealt(order[fewest], evidence, crew, budget, rng)


@dataclass(frozen=True, slots=True)
class Randomly:
    """Any item to whoever may have it. `seed` >= 0 draws."""

    seed: int = 0

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions, in no order."""
        rng = _generator(self.seed, evidence, crew)
        return _dealt(rng.permutation(_open(evidence, crew, budget)), evidence, crew, budget, rng)


def _generator(seed: int, evidence: Evidence, crew: Crew) -> np.random.Generator:
    """Other draws in each round, the same when asked again."""
    return np.random.default_rng([seed, len(evidence.annotations), len(crew.asked)])


def _open(evidence: Evidence, crew: Crew, budget: Budget) -> npt.NDArray[np.intp]:
    """Rows of the items that may be asked about; of a pool without names those it has answers left for."""
    out = {item for _, item in crew.asked} if crew.names else {item for who, item in crew.never if who == ANONYMOUS}
    free = (evidence.annotations.labels_per_item < budget.max_labels) & ~evidence.known
    if out:
        free &= np.array([item not in out for item in evidence.annotations.items])
    return np.flatnonzero(free)


def _dealt(
    order: npt.NDArray[np.intp], evidence: Evidence, crew: Crew, budget: Budget, rng: np.random.Generator
) -> Plan:
    """Each item in order to somebody drawn among those who may have it; one question an item and plan."""
    items = evidence.annotations.items
    if not crew.names:
        asks = [Ask(items[row], None, 0.0, 0.0, WHY) for row in order[: budget.labels].tolist()]
        return Plan(tuple(asks), (), len(order))
    availability = Availability.of(crew, [evidence.annotations])
    left = availability.capacity.copy()  # less what is outstanding
    price = np.array([crew.cost_of(name) for name in crew.names])
    asks, money = [], budget.cost
    for row in order.tolist():
        if len(asks) >= budget.labels:
            break
        free = np.flatnonzero(availability.mask(row) & (left > 0) & (price <= money))
        if free.size:
            person = int(rng.choice(free))
            left[person] -= 1
            money -= price[person]
            asks.append(Ask(items[row], crew.names[person], 0.0, 0.0, WHY))
    return Plan(tuple(asks), (), len(order))
