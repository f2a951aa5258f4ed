"""Active labeling: choose the next questions and annotators, decide when to stop, and measure both in replays.

Classes load on first use:

from hitl.active import Replay, ExpectedGain, Recording, run_trials
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.active.assignment.assign import assign as assign
    from hitl.active.assignment.eligibility import Eligibility as Eligibility
    from hitl.active.pending.outstanding import next_plan as next_plan
    from hitl.active.policy import ExpectedGain as ExpectedGain
    from hitl.active.policy import Policy as Policy
    from hitl.active.pool_state import PoolState as PoolState
    from hitl.active.replay.answers import ResponseModel as ResponseModel
    from hitl.active.replay.baselines import Evenly as Evenly
    from hitl.active.replay.baselines import Randomly as Randomly
    from hitl.active.replay.baselines import Uncertain as Uncertain
    from hitl.active.replay.experiments import Recording as Recording
    from hitl.active.replay.experiments import Simulation as Simulation
    from hitl.active.replay.experiments import run_trials as run_trials
    from hitl.active.replay.experiments import spent_to_reach as spent_to_reach
    from hitl.active.replay.replay import Replay as Replay
    from hitl.active.replay.replay import ReplayResult as ReplayResult
    from hitl.active.replay.replay import StopRule as StopRule
    from hitl.active.replay.simulated_annotators import Group as Group
    from hitl.active.stopping.rules import expected_accuracy as expected_accuracy
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
