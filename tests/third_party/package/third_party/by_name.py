"""A policy: what the expected gain would ask, in the order of the items' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hitl.active.policy import ExpectedGain
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.plan import Plan


@dataclass(frozen=True, slots=True)
class ByName:
    """`exploration_weight` as for the expected gain."""

    exploration_weight: float = 1.0

    def plan(self, questions: Sequence[tuple[Evidence, Consensus]], crew: Crew, budget: Budget) -> Plan:
        """The next questions, by item, and the finished items."""
        plan = ExpectedGain(exploration_weight=self.exploration_weight).plan(questions, crew, budget)
        return replace(plan, asks=tuple(sorted(plan.asks, key=lambda ask: str(ask.item))))
