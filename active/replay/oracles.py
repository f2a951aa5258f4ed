"""Annotators of a replay: `Answers` is the contract, `RecordedAnswers` returns recorded labels.

An answer that was not recorded is not available. An anonymous pool answers each item with its recorded labels in a
random order, none used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from hitl.annotations import ANONYMOUS, Annotations, Name
from hitl.crew import Crew
from hitl.errors import BadEvidence

Pair = tuple[Name, Name | None]
"""(item, annotator), or (item, None): anyone."""


class Answers(Protocol):
    """Recorded or simulated annotators who answer when they are asked."""

    @property
    def spent(self) -> int:
        """Number of answers given."""
        ...

    def revealed(self) -> Annotations:
        """Return the answers so far; all items stay in the pool."""
        ...

    def crew(self, limits: Crew) -> Crew:
        """Return who can be asked what, within `limits`."""
        ...

    def reveal(self, asks: Sequence[Pair]) -> int:
        """Answer these asks; return how many answers there were. Asking twice gives nothing new."""
        ...


class RecordedAnswers:
    """Recorded annotations that are revealed as they are asked for."""

    def __init__(self, annotations: Annotations, rng: np.random.Generator) -> None:
        self._all = annotations
        self._place = {name: code for code, name in enumerate(annotations.items)}
        self._revealed = np.zeros(len(annotations), dtype=bool)
        self._spent = 0
        pairs = zip(annotations.item.tolist(), annotations.annotator.tolist(), strict=True)
        self._of_pair = {pair: row for row, pair in enumerate(pairs)}
        order = rng.permutation(len(annotations))
        order = order[np.argsort(annotations.item[order], kind="stable")]
        self._queue = [part.tolist() for part in np.split(order, annotations.item_start[1:-1])]
        self._person = {name: code for code, name in enumerate(annotations.annotators)}

    @property
    def spent(self) -> int:
        """Number of answers revealed."""
        return self._spent

    def crew(self, limits: Crew) -> Crew:
        """Return the crew of the recording: named annotators for the items they labeled, or anyone if one is anonymous.

        `limits` may name some of the annotators; all its limits apply, and its `only` restricts further. Raises
        BadEvidence for annotators who are not recorded.
        """
        annotations = self._all
        if annotations.anonymous is not None:
            return limits
        only: dict[Name, frozenset[Name]] = {}
        start, rows = annotations.by_annotator
        for k, name in enumerate(annotations.annotators):
            codes = annotations.item[rows[start[k] : start[k + 1]]]
            recorded = frozenset(annotations.items[code] for code in codes.tolist())
            only[name] = recorded & limits.only.get(name, recorded)
        unknown = set(limits.names) - set(annotations.annotators)
        if unknown:
            raise BadEvidence(f"replay: {min(map(str, unknown))!r} of the crew is not among the recorded annotators")
        return replace(limits, names=limits.names or annotations.annotators, only=only)

    def revealed(self) -> Annotations:
        """Return the answers so far; all items stay in the pool."""
        return self._all.select(self._revealed)

    def reveal(self, asks: Sequence[Pair]) -> int:
        """Reveal the answers to these (item, annotator or None for anyone) asks; return how many there were."""
        before = self._spent
        for item_name, person in asks:
            item = self._place[item_name]
            row = self._next(item) if person is None else self._of_pair.get((item, self._person[person]))
            if row is not None and not self._revealed[row]:
                self._revealed[row] = True
                self._spent += 1
        return self._spent - before

    def _next(self, item: int) -> int | None:
        waiting = self._queue[item]
        while waiting and self._revealed[waiting[0]]:
            waiting.pop(0)
        return waiting[0] if waiting else None


def cost_of(answered: Annotations, crew: Crew) -> float:
    """Return the cost of these answers in the unit of `Crew.cost`; anonymous ones cost the default."""
    price = [crew.default_cost if name == ANONYMOUS else crew.cost_of(name) for name in answered.annotators]
    return float(answered.labels_per_annotator @ np.array(price, dtype=np.float64)) if price else 0.0
