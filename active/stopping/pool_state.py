"""What is known when a plan is made: which items may be asked about, and what to say of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hitl.active.stopping import rules
from hitl.active.stopping.rules import Judged
from hitl.annotations import ANONYMOUS
from hitl.crew import Budget, Crew
from hitl.plan import Done

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Situation:
    """Questions about the same N items, who can be asked, and how much.

    Attributes:
        questions: evidence and consensus of each of Q questions.
        crew: who can be asked.
        budget: how much may be asked, and when an item is done.
    """

    questions: Sequence[Judged]
    crew: Crew
    budget: Budget

    @cached_property
    def states(self) -> npt.NDArray[np.int8]:
        """(Q, N) of each question whether it is open, or why not (`stopping`)."""
        return np.stack([rules.item_states(*question, self.budget) for question in self.questions])

    @cached_property
    def open_rows(self) -> Rows:
        """Codes of the items of which a question is open."""
        return np.flatnonzero((self.states == rules.OPEN).any(axis=0))

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """(N,) labels so far, of the question that has most."""
        most: npt.NDArray[np.int64] = np.max(
            [evidence.annotations.labels_per_item for evidence, _ in self.questions], axis=0
        )
        return most

    @property
    def answered(self) -> int:
        """How many answers there are or are expected."""
        return max(len(evidence.annotations) for evidence, _ in self.questions) + len(self.crew.asked)

    @cached_property
    def out(self) -> npt.NDArray[np.bool_]:
        """(N,) what is not asked about now: an answer is expected, or a pool without names has no more of them."""
        names = {item for _, item in self.crew.asked}
        if not self.crew.names:
            names |= {item for who, item in self.crew.never if who == ANONYMOUS}
        items = self.questions[0][0].annotations.items
        return np.array([name in names for name in items]) if names else np.zeros(len(items), dtype=bool)

    @cached_property
    def rows(self) -> Rows:
        """Codes of the items that may be asked about, those with fewer labels first."""
        return self._fewest_first(self.open_rows[~self.out[self.open_rows]])

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """(N,) where the truth is known to every question."""
        return np.asarray(np.all([evidence.known for evidence, _ in self.questions], axis=0))

    @cached_property
    def known_rows(self) -> Rows:
        """Codes of the items of known truth that may be asked about, those with fewer labels first."""
        return self._fewest_first(np.flatnonzero(self.known & ~self.out))

    def why(self, item: int) -> str:
        """In words: where this item (its code) stands."""
        labels = int(self.labels[item])
        said = f"{labels} label{'' if labels == 1 else 's'}"
        if len(self.questions) > 1:
            unsure = min(float(consensus.confidence[item]) for _, consensus in self.questions)
            return f"least sure of its questions {unsure:.0%} after {said}"
        consensus = self.questions[0][1]
        return f"{consensus.classes[consensus.labels[item]]} at {consensus.confidence[item]:.0%} after {said}"

    def finished(self) -> tuple[Done, ...]:
        """The items all of whose questions are done."""
        items = self.questions[0][0].annotations.items
        rows = np.flatnonzero((self.states != rules.OPEN).all(axis=0))
        confidence = np.min([consensus.confidence for _, consensus in self.questions], axis=0)[rows].tolist()
        reason = self.states.max(axis=0)[rows].tolist()
        labels = [[consensus.classes[j] for j in consensus.labels[rows].tolist()] for _, consensus in self.questions]
        return tuple(
            Done(items[row], names, sure, rules.REASONS[why])
            for row, names, sure, why in zip(rows.tolist(), zip(*labels, strict=True), confidence, reason, strict=True)
        )

    def _fewest_first(self, rows: Rows) -> Rows:
        fewest: Rows = rows[np.argsort(self.labels[rows], kind="stable")]
        return fewest
