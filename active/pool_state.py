"""State of a pool of items: which are open or done, and how good the labels are. Computed once per run.

A `PoolState` is the sequence of its questions, (evidence, consensus) pairs about the same N items, and can be passed
wherever such pairs are expected. Functions that receive the same `PoolState` share its cached results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from hitl.active.stopping import rules
from hitl.active.stopping.known_items import Checked, as_if_unknown, checked
from hitl.active.stopping.rules import Expected, Judged
from hitl.annotations import Annotations, Floats, Name, Names
from hitl.crew import Budget
from hitl.errors import BadInput
from hitl.formatting import percent
from hitl.plan import DoneItems

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class PoolState(tuple[Judged, ...]):
    """Q questions about the same N items, and their state by the budget's rules for items.

    Attributes:
        budget: rules for items (`target_confidence`, `min_labels`, `max_labels`, `accepted`).

    Example:
        >>> from hitl import Budget, Evidence
        >>> from hitl.active import PoolState
        >>> from hitl.models import MajorityVote
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> pool = PoolState.of([(data, MajorityVote().fit(data))], Budget(max_labels=2, target_confidence=1.0))
        >>> list(pool.open_items()), [done.item for done in pool.done]
        ([2], [1])
    """

    budget: Budget

    @classmethod
    def of(cls, questions: Sequence[Judged], budget: Budget) -> PoolState:
        """Build the state of these questions, or return it if they are a `PoolState` with the same rules for items.

        Raise BadInput if the questions list different items.
        """
        if isinstance(questions, PoolState) and _rules(questions.budget) == _rules(budget):
            return questions
        items = questions[0][0].annotations.items
        if any(evidence.annotations.items != items or consensus.items != items for evidence, consensus in questions):
            raise BadInput("plan: evidence and consensus list different items; expected the same, in the same order")
        pool = cls(questions)
        pool.budget = budget
        return pool

    # -- items ------------------------------------------------------------------------------------------

    @property
    def items(self) -> Names:
        """Item names."""
        return self[0][0].annotations.items

    @property
    def annotations(self) -> list[Annotations]:
        """Answers to each question."""
        return [evidence.annotations for evidence, _ in self]

    @cached_property
    def states(self) -> npt.NDArray[np.int8]:
        """(Q, N) state of each question about each item: OPEN, or why it is done (`rules`).

        The limit counts the answers to the question with the most, because others may have been hidden.
        """
        states = np.stack([rules.item_states(*question, self.budget) for question in self])
        states[(states == rules.OPEN) & (self.labels >= self.budget.max_labels)] = rules.LIMIT
        return states

    @cached_property
    def open(self) -> Mask:
        """(N,) True for items with an open question."""
        return np.asarray((self.states == rules.OPEN).any(axis=0))

    @cached_property
    def open_rows(self) -> Rows:
        """Codes of the items that have an open question."""
        return np.flatnonzero(self.open)

    def open_items(self) -> Iterator[Name]:
        """Yield the names of the items that have an open question."""
        return (self.items[row] for row in self.open_rows.tolist())

    @property
    def below(self) -> Mask:
        """(N,) True for items below the target in some question: open, or at the label limit."""
        return np.asarray(((self.states == rules.OPEN) | (self.states == rules.LIMIT)).any(axis=0))

    @cached_property
    def done(self) -> DoneItems:
        """Items without an open question, with their labels, lowest confidence over questions, and the reason."""
        rows = np.flatnonzero(~self.open)
        confidence = self.confidence.min(axis=0)[rows].tolist()
        why = [rules.REASONS.get(state, "") for state in self.states.max(axis=0)[rows].tolist()]
        items = list(map(self.items.__getitem__, rows.tolist()))
        return DoneItems(items, self._labels(rows), confidence, why, rows)

    def _labels(self, rows: Rows) -> Sequence[tuple[Name, ...]]:
        """Return a tuple of labels for each of these items, "" for a hidden question.

        With one question, items with the same label share the tuple.
        """
        named = []
        for evidence, consensus in self:
            hidden = False if evidence.hidden is None else evidence.hidden[rows]
            code = np.where(hidden, len(consensus.classes), consensus.codes[rows])
            named.append(((*consensus.classes, ""), code.tolist()))
        if len(self) == 1:
            ((names, codes),) = named
            return list(map([(name,) for name in names].__getitem__, codes))
        return list(zip(*(map(names.__getitem__, codes) for names, codes in named), strict=True))

    @cached_property
    def known(self) -> Mask:
        """(N,) True where the truth is known for every question."""
        return np.asarray(np.all([evidence.known for evidence, _ in self], axis=0))

    def part(self, places: Sequence[int]) -> PoolState:
        """Return the state of the items by some of the questions. `places` are their positions."""
        if len(places) == len(self):
            return self
        part = PoolState.of([self[place] for place in places], self.budget)
        part.states = self.states[list(places)]
        part.checks = [self.checks[place] for place in places]  # a fit each, which the part would repeat
        return part

    # -- labels -----------------------------------------------------------------------------------------

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """(N,) number of labels so far, for the question with the most."""
        return np.asarray(np.max([given.labels_per_item for given in self.annotations], axis=0))

    @cached_property
    def answered(self) -> int:
        """Number of answers so far, for the question with the most."""
        return max(len(given) for given in self.annotations)

    def fewest_first(self, rows: Rows) -> Rows:
        """Sort these codes by number of labels, fewest first."""
        return np.asarray(rows[np.argsort(self.labels[rows], kind="stable")])

    def drawn(self, rows: Rows, seed: str = "") -> Rows:
        """Shuffle these codes. The order depends only on `seed` and the names of the items, not on their codes."""
        names = [sha256(f"{seed}{self.annotations[0].items[row]}".encode()).digest() for row in rows]
        return np.asarray(rows[sorted(range(len(rows)), key=names.__getitem__)])

    # -- how good the labels are ------------------------------------------------------------------------

    @cached_property
    def expected(self) -> Expected:
        """Believed accuracy of the labels."""
        return rules.expected_accuracy(self, self.checks)

    @cached_property
    def checks(self) -> list[Checked]:
        """Checks of the confidence by known items, one per question."""
        return [checked(*question) for question in self]

    @cached_property
    def as_if_unknown(self) -> PoolState:
        """State that hides the truth of known items that check the confidence, so that they may be asked about."""
        if not any(evidence.known.any() for evidence, _ in self):
            return self
        blind = map(as_if_unknown, *zip(*self, strict=True), self.checks)
        return PoolState.of(list(blind), self.budget)

    @cached_property
    def confidence(self) -> Floats:
        """(Q, N) confidence of each question's label; 1 where the question is hidden."""
        return np.stack(
            [np.where(False if given.hidden is None else given.hidden, 1.0, own.confidence) for given, own in self]
        )

    @cached_property
    def error(self) -> Floats:
        """(N,) 1 - confidence, averaged over the questions."""
        return np.asarray(1 - self.confidence.mean(axis=0))

    def standing(self, item: int) -> str:
        """Describe the label, confidence and number of labels of the item with this code."""
        labels = int(self.labels[item])
        count = f"{labels} answer{'' if labels == 1 else 's'}"
        if len(self) > 1:
            unsure = float(self.confidence[:, item].min())
            return f"its least sure question at {percent(unsure, 0)} after {count}"
        consensus = self[0][1]
        return f"{consensus.classes[consensus.codes[item]]} at {percent(consensus.confidence[item], 0)} after {count}"


def _rules(budget: Budget) -> tuple[object, ...]:
    return budget.target_confidence, budget.min_labels, budget.max_labels, budget.accepted
