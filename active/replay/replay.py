"""Replay: run a policy with recorded or simulated annotators, and measure accuracy by number of labels and cost.

    until no more answers can come:   consensus <- combiner(answers so far)
                                      asks      <- policy(consensus, current crew)
                                      answers   <- the annotators asked, at once or later

Each question gets its recorded answer. If none was recorded, no answer is available. Answers may come late, out of
order or not at all (`ResponseModel`). The policy sees outstanding questions in `Crew.asked`.

A stop rule records where a project with a target accuracy would have ended, and the replay continues after it:

    condition    the labels are believed to reach the target (`stopping.rules.reached`)
    believed     accuracy that the consensus believes
    proven       whether an audit of the labels then proves the target
    accuracy     true accuracy of the labels by the recorded truth; items with ground truth count as right
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl import score
from hitl.active.guarantees.audit import PROVEN, Audit, Promise
from hitl.active.policy import ExpectedGain, Policy
from hitl.active.pool_state import PoolState
from hitl.active.replay.answers import AnswerQueue, Answers, RecordedAnswers, ResponseModel, cost_of
from hitl.active.stopping import rules
from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted
from hitl.models.combine import fit
from hitl.models.combiner import Combiner, seen_by
from hitl.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


GOLD_LABELS = 3
"""Number of labels that each gold item gets before the replay starts."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """State of the project when the stop rule would have ended it.

    Attributes:
        labels: number of labels spent, including those of gold items.
        believed: believed accuracy.
        accuracy: true accuracy.
        audited: number of labels that were audited then.
        proven: True if the audit proved the target accuracy.
        corrected: true accuracy after the errors that the audit found are corrected.
    """

    labels: int
    believed: float
    accuracy: float
    audited: int = 0
    proven: bool = False
    corrected: float = 0.0


@dataclass(frozen=True, slots=True)
class StopRule:
    """Rule that ends a project at a `target` accuracy, in (0, 1), with `gold` items of known truth from the beginning.

    Labels that are believed to reach the target are then audited: at most `audits` of them, at 95 % confidence, by an
    auditor who knows the truth.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Recording, Replay, StopRule, run_trials
        >>> from hitl.models import DefaultCombiner
        >>> from hitl.testing import crowd
        >>> recorded, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> tracks = run_trials(Recording(recorded), {"gain": Replay(DefaultCombiner(), stop=StopRule(0.99))}, seeds=1)
        >>> print(tracks["gain"][0].stopped)
        None
    """

    target: float
    gold: int = 0
    audits: int = 0

    def draw_gold(self, recorded: Evidence, rng: np.random.Generator) -> Ints | None:
        """Draw `gold` items with recorded truth. Return (N,) their truth and -1 elsewhere, or None if `gold` is 0.

        Raise BadEvidence unless more items than that have a recorded truth, because some must be left to score by.
        """
        if not self.gold:
            return None
        assert recorded.truth is not None
        candidates = np.flatnonzero(recorded.known)
        if candidates.size <= self.gold:
            raise BadEvidence(
                f"replay: {self.gold} gold items asked for, and {candidates.size} items have ground truth; "
                "expected fewer, so that others are left to score by"
            )
        gold_truth: npt.NDArray[np.int32] = np.full(len(recorded.truth), -1, dtype=np.int32)
        chosen = rng.choice(candidates, self.gold, replace=False)
        gold_truth[chosen] = recorded.truth[chosen]
        return gold_truth

    def label_gold(self, gold_truth: Ints | None, answers: Answers, crew: Crew, rng: np.random.Generator) -> None:
        """Reveal answers to each gold item by GOLD_LABELS random annotators, or fewer if no more are available."""
        if gold_truth is None:
            return
        items = answers.revealed().items
        for row in np.flatnonzero(gold_truth >= 0):
            people = [crew.names[k] for k in rng.permutation(len(crew.names))] or [None] * GOLD_LABELS
            missing = GOLD_LABELS
            for who in people:
                missing -= answers.reveal([(items[row], who)])
                if not missing:
                    break

    def stopped(self, pool: PoolState, recorded: Evidence, spent: int) -> Stopped | None:
        """Return the state of the project if it would end now, else None. `recorded` has the truth that scores it."""
        (evidence, consensus), expected = pool[0], pool.expected
        if not rules.reached(expected, self.target):
            return None
        assert recorded.truth is not None
        scored = recorded.known & ~evidence.known
        right = score.accuracy(consensus.probabilities[scored], recorded.truth[scored])
        known_share = float(evidence.known.mean())
        accuracy = known_share + (1 - known_share) * right
        wrong = (consensus.codes != recorded.truth)[recorded.known]
        audit = Audit(1 - consensus.confidence[recorded.known], Promise(1 - self.target), f"replay {spent}")
        audit.replay(wrong, self.audits)
        corrected = 1.0 - float(wrong.sum() - sum(audit.wrong)) / wrong.size
        return Stopped(spent, expected.accuracy, accuracy, len(audit.wrong), audit.state == PROVEN, corrected)


@dataclass(frozen=True, eq=False, repr=False)
class Track(OneLineRepr):
    """Steps of a replay: one before the first plan, and one for each later plan that has seen new answers.

    Attributes:
        labels: (S,) number of human labels spent at each step, rising.
        cost: (S,) cost of those labels, in the unit of `Crew.cost`.
        accuracy: (S,) accuracy on the items that are scored, in [0, 1]; k tied classes count 1/k.
        done: (S,) number of items done.
        stopped: where the stop rule would have ended the project; None if it would not have, or there is no rule.
    """

    labels: npt.NDArray[np.int64]
    cost: Floats
    accuracy: Floats
    done: npt.NDArray[np.int64]
    stopped: Stopped | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        end = f"{counted(int(self.labels[-1]), 'label')}, accuracy {self.accuracy[-1]:.3f}"
        return f"{counted(len(self.labels), 'step')}; at the end {end}, {self.done[-1]:,} items done"

    def frame(self) -> pd.DataFrame:
        """Return one row per step: labels, cost, accuracy, done."""
        import pandas as pd

        names = ("labels", "cost", "accuracy", "done")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def to_reach(self, accuracy: float) -> tuple[int, float] | None:
        """Return (labels, cost) of the first step from which on the accuracy is at least this, or None."""
        below = np.flatnonzero(self.accuracy < accuracy - 1e-12)
        first = below[-1] + 1 if below.size else 0
        return (int(self.labels[first]), float(self.cost[first])) if first < len(self.accuracy) else None


@dataclass(frozen=True, eq=False, repr=False)
class ReplayResult(Track):
    """Track of a replay, and its final state.

    Attributes:
        consensus, evidence: state at the end.
        rounds: (S,) number of plans made before each step.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Replay
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> recorded, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> result = Replay(MajorityVote()).run(recorded)
        >>> int(result.labels[-1]), len(recorded.annotations), result.to_reach(1.01)
        (54, 54, None)
    """

    consensus: Consensus
    evidence: Evidence
    rounds: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Replay:
    """A replay: combiner, policy and limits.

    Attributes:
        combiner, policy: how labels are combined, and how questions are chosen.
        budget: `open_questions` is the size of a batch; the item limits and the target apply as in a real project.
        most_labels: maximum number of labels, or None for all available.
        crew: limits of the crew (capacity per batch, cost). Recorded annotators can answer only the items they labeled.
        responses: how annotators respond; by default, every answer arrives before the next plan.
        most_rounds: maximum number of plans, or None.
        stop: rule that records where the project would have ended, or None.

    Example:
        >>> from hitl import Budget, Evidence
        >>> from hitl.active import Replay
        >>> from hitl.models import MajorityVote
        >>> said = {"item": [1, 1, 2, 2], "annotator": ["ann", "bob"] * 2, "label": ["x", "x", "y", "y"]}
        >>> recorded = Evidence.from_tables(said, truth={"item": [1, 2], "label": ["x", "y"]})
        >>> result = Replay(MajorityVote(), budget=Budget(open_questions=1)).run(recorded)
        >>> result.to_reach(0.9)  # labels, cost
        (2, 2.0)
    """

    combiner: Combiner
    policy: Policy = field(default_factory=ExpectedGain)
    budget: Budget = field(default_factory=Budget)
    most_labels: int | None = None
    crew: Crew = field(default_factory=Crew)
    responses: ResponseModel = field(default_factory=ResponseModel)
    most_rounds: int | None = None
    stop: StopRule | None = None

    def run(
        self,
        recorded: Evidence,
        rng: np.random.Generator | int = 0,
        on_step: Callable[[int, float], None] | None = None,
    ) -> ReplayResult:
        """Replay recorded annotations. `rng` may be a seed.

        The truth is used only for scoring and for the gold items of `stop`. `on_step(labels, accuracy)` is called at
        each step.
        """
        rng = np.random.default_rng(rng)
        return self.run_with(RecordedAnswers(recorded.annotations, rng), recorded, rng, on_step)

    def run_with(
        self,
        answers: Answers,
        known: Evidence,
        rng: np.random.Generator,
        on_step: Callable[[int, float], None] | None = None,
    ) -> ReplayResult:
        """Replay with any annotators. `known` is the evidence that their answers are added to.

        Its truth is used only for scoring and for the gold items of `stop`. `rng` draws gold items, delays and skips.
        Raise BadEvidence if no item has ground truth.
        """
        crew = answers.crew(self.crew)
        queue = AnswerQueue(self.responses, crew, rng)
        steps: list[tuple[int, float, float, int]] = []
        done: list[int] = []
        stopped: Stopped | None = None
        gold_truth, scored = self.stop.draw_gold(known, rng) if self.stop else None, known
        if gold_truth is not None:  # truth given to the fits is not scored
            assert known.truth is not None
            scored = replace(known, truth=np.where(gold_truth >= 0, -1, known.truth).astype(np.int32))
        if self.stop:
            self.stop.label_gold(gold_truth, answers, crew, rng)
        for round_ in count():
            if not steps or answers.spent > steps[-1][0]:
                evidence = replace(known, annotations=answers.revealed(), truth=gold_truth)
                # Without a warm start, as in a run: a warm start keeps early mistakes.
                consensus = fit(self.combiner, seen_by(self.combiner, evidence))
                pool = PoolState.of([(evidence, consensus)], self.budget)
                accuracy = accuracy_of(consensus, scored)
                steps.append((answers.spent, accuracy, cost_of(evidence.annotations, crew), round_))
                done.append(0)
                if self.stop and stopped is None:
                    stopped = self.stop.stopped(pool, known, answers.spent)
                if on_step:
                    on_step(answers.spent, accuracy)
            plan = self._plan(pool, queue, round_)
            done[-1] = len(plan.done)
            if round_ == self.most_rounds:
                break
            queue.hand_out([(ask.item, ask.annotator) for ask in plan.asks], round_)
            if not _answer(answers, queue, round_) and not queue.awaits(round_):
                break
        labels, right, cost, rounds = (np.array(column) for column in zip(*steps, strict=True))
        return ReplayResult(labels, cost, right, np.array(done), consensus, evidence, rounds, stopped=stopped)

    def _plan(self, pool: PoolState, queue: AnswerQueue, round_: int) -> Plan:
        crew = queue.crew(round_)
        if crew is None:
            return Plan()
        batch = self.budget.open_questions
        if self.most_labels is not None:
            batch = min(batch, max(self.most_labels - pool.answered - queue.outstanding, 0))
        target = self.stop.target if self.stop else self.budget.target_accuracy
        budget = replace(self.budget, open_questions=batch, target_accuracy=target)
        return self.policy.plan(pool, crew, budget)


def _answer(answers: Answers, queue: AnswerQueue, round_: int) -> bool:
    """Reveal the answers that are due. Return True if any question came back, answered or skipped."""
    before = queue.settled
    for pair in queue.arrived(round_):
        if not answers.reveal([pair]):
            queue.unavailable(pair)
    return queue.settled > before


def spread_evenly(recorded: Evidence, combiner: Combiner, budgets: Sequence[int], rng: np.random.Generator) -> Floats:
    """Return the accuracy with each number of labels in `budgets`, drawn at random and spread evenly over the items."""
    annotations = recorded.annotations
    order = rng.permutation(len(annotations))
    by_item = order[np.argsort(annotations.item[order], kind="stable")]
    turn = np.arange(len(annotations)) - np.repeat(annotations.item_start[:-1], annotations.labels_per_item)
    shuffled_item = rng.permutation(annotations.n_items)[annotations.item[by_item]]
    queue = by_item[np.lexsort((shuffled_item, turn))]
    accuracy = []
    for budget in budgets:
        chosen = np.zeros(len(annotations), dtype=bool)
        chosen[queue[:budget]] = True
        evidence = replace(recorded, annotations=annotations.select(chosen), truth=None)
        accuracy.append(accuracy_of(fit(combiner, seen_by(combiner, evidence)), recorded))
    return np.array(accuracy)


def accuracy_of(consensus: Consensus, recorded: Evidence) -> float:
    """Return the accuracy on the items with recorded truth; k tied classes count 1/k. Raise BadEvidence without any."""
    known = recorded.known
    if not known.any():
        raise BadEvidence("replay: no item has ground truth; expected some to score against")
    assert recorded.truth is not None
    return score.accuracy(consensus.probabilities[known], recorded.truth[known])
