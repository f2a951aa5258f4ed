"""What the policy is told of people who answer late: their capacity, and what they still have to answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.policy import ExpectedGain, Policy
from hitl.active.replay.baselines import Evenly, Randomly
from hitl.active.replay.replay import Replay
from hitl.active.replay.response_model import AnswerQueue, ResponseModel
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.plan import Plan


def test_what_is_outstanding_counts_once() -> None:
    """Of ten that ann may have at a time, four wait: six are left, not two."""
    queue = AnswerQueue(ResponseModel(delay=1e9), Crew(("ann", "bob"), {"ann": 10}), np.random.default_rng(0))
    queue.hand_out([(item, "ann") for item in range(4)], 0)
    crew = queue.crew(1)
    assert crew.capacity_of("ann") == 10
    assert crew.asked == tuple(("ann", item) for item in range(4))
    nothing = Annotations.from_matrix(np.full((20, 0), -1), classes=(0, 1))
    assert Eligibility.of(crew, [nothing]).capacity[0] == 6


@dataclass(frozen=True)
class Watched:
    """A policy, and how many questions each person had at a time at most, by their capacity."""

    policy: Policy
    most: Counter[object] = field(default_factory=Counter)

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The plan."""
        plan = self.policy.plan(questions, crew, budget)
        waiting = Counter(who for who, _ in crew.asked)
        for name in crew.names:
            has = waiting[name] + len(plan.asks_of(name))
            assert has <= crew.capacity_of(name)
            self.most[name] = max(self.most[name], has)
        assert not {item for _, item in crew.asked} & {ask.item for ask in plan.asks}
        return plan


@pytest.mark.parametrize("policy", [ExpectedGain(), Evenly(), Randomly()], ids=["gain", "evenly", "randomly"])
def test_late_answers_leave_nobody_idle_and_nobody_overloaded(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    recorded = Evidence(Annotations.from_matrix(rng.integers(2, size=(60, 3))), truth=np.zeros(60, int))
    watched = Watched(policy)
    budget = Budget(open_questions=30, target_confidence=1.0, max_labels=3)
    replay = Replay(MajorityVote(), watched, budget, crew=Crew(default_capacity=7), responses=ResponseModel(delay=2.0))
    replay.run(recorded, np.random.default_rng(2))
    assert set(watched.most.values()) == {7}
