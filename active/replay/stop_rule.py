"""Stop rule in a replay: where a project with a target accuracy would have ended, its claim there, and the truth.

    reached when   the accuracy is surely at the target (`stopping.rules.reached`)
    claimed        the expected accuracy, and its 95 % interval, from the labels and the items of known truth
    true           the accuracy of the labels by the recorded truth; items of known truth are right

The replay continues after it, so that curves stay comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl import score
from hitl.active.replay.answers import Answers
from hitl.active.stopping import rules
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Ints
from hitl.crew import Crew
from hitl.errors import BadEvidence
from hitl.evidence import Evidence

GOLD_LABELS = 3
"""Labels of each item of known truth: the minimum with which other items are finished."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """End of the project by the rule.

    Attributes:
        labels: labels spent then, including those of the items of known truth.
        expected, low, high: the accuracy it expected, and its 95 % interval.
        accuracy: the true accuracy then.
    """

    labels: int
    expected: float
    low: float
    high: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class StopRule:
    """Target accuracy, in (0, 1), and number of items of known truth at the beginning.

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

    def draw_gold(self, recorded: Evidence, rng: np.random.Generator) -> Ints | None:
        """Return (N,) truth of `gold` items drawn from those with recorded truth, -1 elsewhere; None without any.

        Raise BadEvidence if fewer than that, or none to score by, would be left.
        """
        if not self.gold:
            return None
        assert recorded.truth is not None
        candidates = np.flatnonzero(recorded.known)
        if candidates.size <= self.gold:
            raise BadEvidence(
                f"replay: {self.gold} items of known truth asked for, and {candidates.size} have one; expected fewer, "
                "so that others are left to score by"
            )
        gold_truth: npt.NDArray[np.int32] = np.full(len(recorded.truth), -1, dtype=np.int32)
        chosen = rng.choice(candidates, self.gold, replace=False)
        gold_truth[chosen] = recorded.truth[chosen]
        return gold_truth

    def label_gold(self, gold_truth: Ints | None, answers: Answers, crew: Crew, rng: np.random.Generator) -> None:
        """Have each item of known truth answered `GOLD_LABELS` times, by annotators drawn at random."""
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
        """Return the end if the project would end here. `pool` is what it sees, `recorded` has the whole truth."""
        (evidence, consensus), expected = pool[0], pool.expected
        if not rules.reached(expected, self.target):
            return None
        assert recorded.truth is not None
        scored = recorded.known & ~evidence.known
        right = score.accuracy(consensus.probabilities[scored], recorded.truth[scored])
        known_share = float(evidence.known.mean())
        return Stopped(spent, expected.accuracy, expected.low, expected.high, known_share + (1 - known_share) * right)
