"""Responses of annotators in a replay: late and out of order, with skips; some join later, some leave.

Time is counted in rounds: one plan and the answers before the next. A question handed out in round t is answered
at t + delay, delay ~ Exponential(mean `delay` / speed of the annotator), and is seen by the first plan after that.
Until then it is outstanding: it is in `Crew.asked`, and the policy counts it against the capacity, the maximum an
annotator can have at a time. Some questions are never answered, nor are those of annotators who have left by then;
after `expire` rounds they return to the pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hitl.active.replay.oracles import Pair
from hitl.annotations import ANONYMOUS, Name
from hitl.crew import Crew
from hitl.errors import BadSettings


@dataclass(frozen=True)
class ResponseModel:
    """Responses of annotators; by default every answer arrives before the next plan.

    Attributes:
        delay: mean rounds until an answer, >= 0; 0: every answer arrives before the next plan.
        skip: chance that a question is skipped, in [0, 1): its item is not shown to this annotator again.
        unanswered: chance that a question is never answered, in [0, 1).
        expire: rounds after which an unanswered question is withdrawn and may be asked again, > 0; by default
            never, so an item whose question is never answered waits forever.
        speed: how fast each works, > 0; a missing name has 1.
        joins, leaves: the first round of each, and the first without them; missing names are present from start
            to end.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Replay, ResponseModel
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> recorded, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> slow = Replay(MajorityVote(), responses=ResponseModel(delay=2.0, skip=0.05, expire=10))
        >>> int(slow.run(recorded).rounds[-1])
        19
    """

    delay: float = 0.0
    skip: float = 0.0
    unanswered: float = 0.0
    expire: float = math.inf
    speed: Mapping[Name, float] = field(default_factory=dict)
    joins: Mapping[Name, float] = field(default_factory=dict)
    leaves: Mapping[Name, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.delay) and self.delay >= 0):
            raise BadSettings(f"responses.delay is {self.delay}; expected 0 rounds or more")
        for key in ("skip", "unanswered"):
            if not 0 <= getattr(self, key) < 1:
                raise BadSettings(f"responses.{key} is {getattr(self, key)}; expected a chance in [0, 1)")
        if not self.expire > 0:
            raise BadSettings(f"responses.expire is {self.expire}; expected a number of rounds above 0")
        for name, value in self.speed.items():
            if not (math.isfinite(value) and value > 0):
                raise BadSettings(f"responses.speed of {name!r} is {value}; expected a number above 0")

    def present(self, name: Name, time: float) -> bool:
        """Return True if this annotator is there at this time."""
        return self.joins.get(name, 0) <= time < self.leaves.get(name, math.inf)


@dataclass(frozen=True)
class _Handed:
    """Question handed out in round `at`, and when it is answered (inf: never)."""

    pair: Pair
    at: int
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
        """Number of questions that came back: answered, skipped or expired."""

    @property
    def outstanding(self) -> int:
        """Number of answers still to come."""
        return sum(math.isfinite(handed.due) for handed in self._outstanding)

    def crew(self, round_: int) -> Crew:
        """Return the crew for the policy: who is present, and what they skipped and still have to answer."""
        responses, crew = self._responses, self._crew
        names = crew.names
        if responses.joins or responses.leaves:
            names = tuple(name for name in names if responses.present(name, round_))
        if names == crew.names and not self._outstanding and not self._never:
            return crew
        return replace(
            crew,
            names=names,
            never=crew.never | self._never,
            asked=crew.asked + tuple((_name(who), item) for item, who in (handed.pair for handed in self._outstanding)),
        )

    def staffed(self, round_: int) -> bool:
        """Return True if anyone can be asked in this round; a crew without names is always there."""
        return not self._crew.names or any(self._responses.present(name, round_) for name in self._crew.names)

    def hand_out(self, pairs: Sequence[Pair], round_: int) -> None:
        """Ask these questions."""
        responses = self._responses
        for pair in pairs:
            if pair in self._exhausted:
                continue
            who = pair[1]
            mean = responses.delay / responses.speed.get(_name(who), 1.0)
            due = round_ + (float(self._rng.exponential(mean)) if mean else 0.0)
            skipped, never = self._happens(responses.skip), self._happens(responses.unanswered)
            if never or (who is not None and due >= responses.leaves.get(who, math.inf)):
                due = math.inf
            self._outstanding.append(_Handed(pair, round_, due, skipped))

    def _happens(self, chance: float) -> bool:
        return chance > 0 and bool(self._rng.random() < chance)

    def arrived(self, round_: int) -> list[Pair]:
        """Return the answers due before the next plan, in order of arrival; set skips and expired questions aside."""
        end, before = round_ + 1, self._outstanding
        back = sorted((handed for handed in before if handed.due < end), key=lambda handed: handed.due)
        self._outstanding = [h for h in before if h.due >= end and end - h.at < self._responses.expire]
        self.settled += len(before) - len(self._outstanding)
        skipped = (handed.pair for handed in back if handed.skipped)
        self._never |= {(who, item) for item, who in skipped if who is not None}
        return [handed.pair for handed in back if not handed.skipped]

    def unavailable(self, pair: Pair) -> None:
        """Record that nobody has this answer, so that it is not asked again."""
        item, who = pair
        self._exhausted.add(pair)
        self._never.add((_name(who), item))

    def awaits(self, round_: int) -> bool:
        """Return True if waiting can still change something: an answer, an expiry, an annotator who joins."""
        coming = any(round_ < first < math.inf for first in self._responses.joins.values())
        expiring = math.isfinite(self._responses.expire)
        return coming or any(expiring or math.isfinite(handed.due) for handed in self._outstanding)


def _name(who: Name | None) -> Name:
    return ANONYMOUS if who is None else who
