"""Why nothing is asked: each reason by its own setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active.idle import why_nothing_is_asked
from hitl.active.policy import ExpectedGain
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner

NAMES = (0, 1)
"""What a matrix calls its annotators."""
OPEN = Budget(labels=5, target_confidence=0.999)


def question() -> tuple[Evidence, Consensus]:
    matrix = np.array([[0, -1], [1, -1], [0, -1], [-1, -1]])
    annotations = Annotations.from_matrix(matrix, classes=("cat", "dog"))
    evidence = Evidence(annotations)
    return evidence, DefaultCombiner().fit(evidence)


ALL = frozenset((name, item) for name in NAMES for item in range(4))


@pytest.mark.parametrize(
    ("crew", "budget", "said"),
    [
        (Crew(NAMES), replace(OPEN, labels=0), "budget.labels is 0"),
        (Crew(NAMES, default_cost=2.0), replace(OPEN, cost=1.5), "budget.cost is 1.5, and a label costs 2 at least"),
        (Crew(NAMES, default_capacity=0), OPEN, "capacity"),
        (Crew(NAMES, never=ALL), OPEN, "nobody of the crew may be asked"),
        (Crew(NAMES, needs={item: frozenset({"de"}) for item in range(4)}), OPEN, "crew.skills"),
    ],
)
def test_the_reason_is_the_setting_that_keeps_questions_from_being_asked(crew: Crew, budget: Budget, said: str) -> None:
    known = question()
    plan = ExpectedGain().plan(*known, crew, budget)
    assert not plan.asks
    told = why_nothing_is_asked(plan, [known], crew, budget)
    assert told is not None
    assert said in told


def test_there_is_nothing_to_say_while_questions_are_asked_or_all_is_done() -> None:
    known = question()
    crew = Crew(NAMES)
    plan = ExpectedGain().plan(*known, crew, OPEN)
    assert plan.asks
    assert why_nothing_is_asked(plan, [known], crew, OPEN) is None
    done = replace(plan, asks=(), stop="every item is done")
    assert why_nothing_is_asked(done, [known], crew, OPEN) is None
    assert str(replace(plan, asks=())).startswith("no questions; ")
