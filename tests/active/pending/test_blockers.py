"""Why nothing is asked: each reason by its own setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active.pending.blockers import no_annotator_left, waiting_for_absent, why_not_asked, why_nothing_is_asked
from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.metrics import metrics_of, outlook
from hitl.models import DefaultCombiner
from hitl.plan import Activity, Ask, Plan

NAMES = (0, 1)
"""What a matrix calls its annotators."""
OPEN = Budget(open_questions=5, target_confidence=0.999)


def question() -> tuple[Evidence, Consensus]:
    matrix = np.array([[0, -1], [1, -1], [0, -1], [-1, -1]])
    annotations = Annotations.from_matrix(matrix, classes=("cat", "dog"))
    evidence = Evidence(annotations)
    return evidence, DefaultCombiner().fit(evidence)


ALL = frozenset((name, item) for name in NAMES for item in range(4))


@pytest.mark.parametrize(
    ("crew", "budget", "said"),
    [
        (Crew(NAMES), replace(OPEN, open_questions=0), "`budget.open_questions` is 0"),
        (Crew(NAMES, default_cost=2.0), replace(OPEN, cost=1.5), "`budget.cost` is 1.5, but a label costs at least 2"),
        (Crew(NAMES, default_capacity=0), OPEN, "capacity"),
    ],
)
def test_the_reason_is_the_setting_that_keeps_questions_from_being_asked(crew: Crew, budget: Budget, said: str) -> None:
    known = question()
    plan = ExpectedGain().plan([known], crew, budget)
    assert not plan.asks
    told = why_nothing_is_asked(plan, crew, budget)
    assert told is not None
    assert said in told


def test_where_nobody_may_answer_the_plan_itself_says_so() -> None:
    """Where they have skipped everything; a skill that nobody has is another matter (tests/test_skills.py)."""
    crew = Crew(NAMES, never=ALL)
    plan = next_plan(ExpectedGain(), [question()], crew, OPEN)
    assert plan.stop is not None
    assert plan.stop.startswith("no annotator of the crew can answer any of the 4 items")
    assert why_nothing_is_asked(plan, crew, OPEN) is None


def test_there_is_nothing_to_say_while_questions_are_asked_or_all_is_done() -> None:
    known = question()
    crew = Crew(NAMES)
    plan = ExpectedGain().plan([known], crew, OPEN)
    assert plan.asks
    assert why_nothing_is_asked(plan, crew, OPEN) is None
    done = replace(plan, asks=(), stop="every item is done")
    assert why_nothing_is_asked(done, crew, OPEN) is None
    assert str(replace(plan, asks=())).startswith("no questions; ")


# -- for whom the project waits -------------------------------------------------------------------------------


def waiting_for(crew: Crew, away: tuple[object, ...], budget: Budget = OPEN) -> str | None:
    """What the figures of a cycle say after a plan that knows who is away; of four items 0 has answered three."""
    known = question()
    before = Plan(people=tuple(Activity(name, 9, 1.0, away=True) for name in away))  # type: ignore[arg-type]
    plan = next_plan(ExpectedGain(), [known], crew, budget, before, 2.0)
    assert {person.annotator for person in plan.people if person.away} == set(away)
    said = waiting_for_absent([known], plan, crew, budget)
    metrics = metrics_of([known], plan, crew, budget)
    assert metrics["waits"] == said
    assert (f"Waiting: {said}." in outlook(metrics)) == (said is not None)
    return said


def test_items_that_only_people_who_are_away_can_answer_are_told_with_whom() -> None:
    said = "4 open items wait for 1, who seems to be away: no one else in the crew can answer"
    assert waiting_for(Crew(NAMES, never=frozenset({(0, 3)})), (1,)) == said
    assert waiting_for(Crew((*NAMES, 2), never=frozenset({(0, 3)}), only={2: frozenset()}), (1,)) == said
    assert waiting_for(Crew((*NAMES, 2), {2: 0}, never=frozenset({(0, 3)})), (1,)) == said
    one = Crew((*NAMES, 2, 3), only={2: frozenset({0, 1, 2}), 0: frozenset(), 3: frozenset()})
    told = waiting_for(one, (1, 3))
    assert told == "1 open item waits for 1, who seems to be away: no one else in the crew can answer"
    both = waiting_for(Crew(NAMES), (0, 1))
    assert both == "4 open items wait for 0, 1, who seem to be away: no one else in the crew can answer"


def test_nobody_is_waited_for_who_is_there_or_not_needed() -> None:
    assert waiting_for(Crew(NAMES), ()) is None
    assert waiting_for(Crew((*NAMES, 2)), (1,)) is None  # 2 can answer all
    assert waiting_for(Crew((*NAMES, 2), {2: 1}), (1,)) is None  # 2 is busy, and will
    assert waiting_for(Crew(NAMES, {1: 0}, never=frozenset({(0, 3)})), (1,)) is None  # has no capacity: a setting
    assert (
        waiting_for(Crew(NAMES, never=frozenset({(0, 3)})), (1,), replace(OPEN, open_questions=1)) is None
    )  # enough to ask


def test_annotators_without_questions_are_named_with_the_reason() -> None:
    names = (0, 1, 2, 3, 4)
    crew = Crew(
        names,
        {2: 0},
        never=frozenset((3, item) for item in range(4)),
        skills={0: frozenset({"de"}), 1: frozenset({"de"})},
        needs=dict.fromkeys(range(4), frozenset({"de"})),
    )
    known = question()
    plan = Plan((Ask(3, 1, gain=0.3, right=0.8, why="least sure"),), (), 4)
    why = why_not_asked([known], plan, crew, replace(OPEN, open_questions=1))
    assert set(why) == {0, 2, 3, 4}
    assert why[0] == "`budget.open_questions` allows 1 at a time, and answers by others help more"
    assert "crew.capacities" in why[2]
    assert "answered or skipped" in why[3]
    assert "crew.skills" in why[4]
    assert why_not_asked([known], plan, crew, OPEN)[0] == "answers by others help more"
    assert why_not_asked([known], Plan((), (), 4), crew, OPEN) == {}
    lines = outlook(metrics_of([known], plan, crew, OPEN))
    assert any(line.startswith("No questions for 2: no capacity") for line in lines)


def test_a_crew_without_names_is_stuck_on_what_everyone_has_answered() -> None:
    """Items 0 and 2 have answers of both annotators; a third may still join, so the others can be asked."""
    annotations = Annotations.from_matrix(np.array([[0, 1], [1, -1], [1, 0], [-1, -1]]), classes=("cat", "dog"))
    evidence = Evidence(annotations)
    pool = PoolState.of([(evidence, DefaultCombiner().fit(evidence))], OPEN)
    assert no_annotator_left(pool, Crew()).tolist() == [True, False, True, False]
    assert no_annotator_left(pool, Crew(never=frozenset({(1, 3)}))).tolist() == [True, False, True, False]
    assert no_annotator_left(pool, Crew(never=frozenset({(1, 1)}))).tolist() == [True, True, True, False]
