"""Annotators of a replay: the interface `Answers`, `RecordedAnswers` from a recording, and delays and skips.

An answer that was not recorded is not available. An anonymous pool answers each item with its recorded labels in random
order, each label once.

Time is counted in rounds, each from one plan to the next. A question asked in round t is answered at time t + delay
(exponentially distributed), and the first plan after that sees the answer. Until then the question is outstanding: it
is in `Crew.asked` and counts against the annotator's capacity, the maximum number of questions at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from hitl.annotations import ANONYMOUS, Annotations, Name
from hitl.crew import Crew
from hitl.errors import BadEvidence, BadSettings

Pair = tuple[Name, Name | None]
"""(item, annotator), or (item, None) for anyone."""


class Answers(Protocol):
    """Recorded or simulated annotators who answer when they are asked."""

    @property
    def spent(self) -> int:
        """Number of answers given."""
        ...

    def revealed(self) -> Annotations:
        """Return the answers so far. Items without answers are listed too."""
        ...

    def crew(self, limits: Crew) -> Crew:
        """Return the crew of these annotators, within `limits`."""
        ...

    def reveal(self, asks: Sequence[Pair]) -> int:
        """Answer these questions. Return the number of new answers. A named annotator answers an item only once."""
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
        """Return the crew of the recording, in which annotators can answer only the items that they labeled.

        `limits` may name some of the annotators. All its limits apply, and its `only` restricts items further. If any
        label is anonymous, the crew is `limits`. Raises BadEvidence for annotators who are not recorded.
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
        """Return the answers so far. Items without answers are listed too."""
        return self._all.select(self._revealed)

    def reveal(self, asks: Sequence[Pair]) -> int:
        """Reveal the recorded answers to these questions. Return the number of new answers."""
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
    """Return the cost of these answers in the unit of `Crew.cost`. Anonymous answers cost `Crew.default_cost`."""
    price = [crew.default_cost if name == ANONYMOUS else crew.cost_of(name) for name in answered.annotators]
    return float(answered.labels_per_annotator @ np.array(price, dtype=np.float64)) if price else 0.0


@dataclass(frozen=True)
class ResponseModel:
    """Delays and skips of answers, and arrivals of annotators. By default, every answer comes before the next plan.

    Attributes:
        delay: mean number of rounds until an answer, >= 0; 0: every answer comes before the next plan.
        skip: chance that a question is skipped, in [0, 1). A skipped item is not shown to this annotator again.
        joins: annotator -> round in which they join; others take part from the start.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Replay, ResponseModel
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> recorded, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> slow = Replay(MajorityVote(), responses=ResponseModel(delay=2.0, skip=0.05))
        >>> int(slow.run(recorded).rounds[-1])
        19
    """

    delay: float = 0.0
    skip: float = 0.0
    joins: Mapping[Name, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.delay) and self.delay >= 0):
            raise BadSettings(f"responses.delay is {self.delay}; expected 0 rounds or more")
        if not 0 <= self.skip < 1:
            raise BadSettings(f"responses.skip is {self.skip}; expected a chance in [0, 1)")


@dataclass(frozen=True)
class _Handed:
    """Question that was asked, the time when its answer is due, and True if it will be skipped instead."""

    pair: Pair
    due: float
    skipped: bool


class AnswerQueue:
    """Outstanding questions with their annotators. This is the only clock of a replay."""

    def __init__(self, responses: ResponseModel, crew: Crew, rng: np.random.Generator) -> None:
        self._responses, self._crew, self._rng = responses, crew, rng
        self._outstanding: list[_Handed] = []  # in the order in which they were asked
        self._never: set[tuple[Name, Name]] = set()
        self._exhausted: set[Pair] = set()
        self.settled = 0
        """Number of questions that came back: answered or skipped."""

    @property
    def outstanding(self) -> int:
        """Number of outstanding questions."""
        return len(self._outstanding)

    def crew(self, round_: int) -> Crew | None:
        """Return the annotators who have joined, with their skipped and outstanding questions, or None if none has."""
        crew = self._crew
        names = tuple(name for name in crew.names if self._responses.joins.get(name, 0) <= round_)
        if crew.names and not names:
            return None
        if names == crew.names and not self._outstanding and not self._never:
            return crew
        waiting = tuple((_name(handed.pair[1]), handed.pair[0]) for handed in self._outstanding)
        return replace(crew, names=names, never=crew.never | self._never, asked=crew.asked + waiting)

    def hand_out(self, pairs: Sequence[Pair], round_: int) -> None:
        """Ask these questions, except those that are known to have no answer."""
        delay, skip = self._responses.delay, self._responses.skip
        for pair in pairs:
            if pair not in self._exhausted:
                due = round_ + (float(self._rng.exponential(delay)) if delay else 0.0)
                skipped = skip > 0 and bool(self._rng.random() < skip)
                self._outstanding.append(_Handed(pair, due, skipped))

    def arrived(self, round_: int) -> list[Pair]:
        """Return the questions answered before the next plan, in order of arrival, and record those skipped."""
        end = round_ + 1
        back = sorted((handed for handed in self._outstanding if handed.due < end), key=lambda handed: handed.due)
        self._outstanding = [handed for handed in self._outstanding if handed.due >= end]
        self.settled += len(back)
        skipped = (handed.pair for handed in back if handed.skipped)
        self._never |= {(who, item) for item, who in skipped if who is not None}
        return [handed.pair for handed in back if not handed.skipped]

    def unavailable(self, pair: Pair) -> None:
        """Record that there is no answer to this question, so that it is not asked again."""
        item, who = pair
        self._exhausted.add(pair)
        self._never.add((_name(who), item))

    def awaits(self, round_: int) -> bool:
        """Return True if an answer or a new annotator is still to come."""
        return bool(self._outstanding) or any(round_ < first for first in self._responses.joins.values())


def _name(who: Name | None) -> Name:
    return ANONYMOUS if who is None else who
