"""Why nothing is asked: each reason by its own setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active.idle import why_nothing_is_asked
from hitl.active.outstanding import next_plan
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
    ],
)
def test_the_reason_is_the_setting_that_keeps_questions_from_being_asked(crew: Crew, budget: Budget, said: str) -> None:
    known = question()
    plan = ExpectedGain().plan(*known, crew, budget)
    assert not plan.asks
    told = why_nothing_is_asked(plan, crew, budget)
    assert told is not None
    assert said in told


@pytest.mark.parametrize(
    "crew", [Crew(NAMES, never=ALL), Crew(NAMES, needs={item: frozenset({"de"}) for item in range(4)})]
)
def test_where_nobody_may_answer_the_plan_itself_says_so(crew: Crew) -> None:
    plan = next_plan(ExpectedGain().plan_questions, [question()], crew, OPEN)
    assert plan.stop is not None
    assert plan.stop.startswith("nobody of the crew can answer any of the 4 items")
    assert why_nothing_is_asked(plan, crew, OPEN) is None


def test_there_is_nothing_to_say_while_questions_are_asked_or_all_is_done() -> None:
    known = question()
    crew = Crew(NAMES)
    plan = ExpectedGain().plan(*known, crew, OPEN)
    assert plan.asks
    assert why_nothing_is_asked(plan, crew, OPEN) is None
    done = replace(plan, asks=(), stop="every item is done")
    assert why_nothing_is_asked(done, crew, OPEN) is None
    assert str(replace(plan, asks=())).startswith("no questions; ")
