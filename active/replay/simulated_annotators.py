"""Simulated annotators: each answers by a confusion matrix, always the same per item, and tends to err where others do.

    z_nk = sqrt(c) t_n + sqrt(1 - c) e_nk         t_n, e_nk ~ N(0, 1), independent, fixed by the seed
    u_nk = Phi(z_nk)                              uniform on (0, 1)
    l_nk = the option whose interval contains u_nk. The options divide (0, 1) into intervals of lengths
           pi_k[truth_n], the true class first and the others in a random order that is fixed per item

Over items of a class, the answers of annotator k are distributed exactly as row pi_k[class], whatever the correlation c
in [0, 1). With c > 0, an item with a large t_n is hard for everyone, and those who err tend to err alike.

An answer is drawn on request. It depends only on the seed, the item and the annotator, so the order of asking does not
matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtr

from hitl.active.replay.answers import Pair
from hitl.annotations import Annotations, Floats, Ints, Name, Names
from hitl.crew import Crew
from hitl.errors import BadEvidence, BadSettings

Kind = Literal["good", "random", "constant", "adversary", "expert"]
KINDS: tuple[Kind, ...] = get_args(Kind)

HARDNESS, LIKENESS, PERSON = 0, 1, 2
"""Streams of random numbers per item: t_n, the order of its options, and e_nk (stream PERSON + k)."""


@dataclass(frozen=True)
class Group:
    """Annotators of one kind.

        good        right with probability `accuracy`, errors spread evenly over the other classes
        random      every option equally likely, whatever the item
        constant    always the same option
        adversary   wrong with probability `accuracy`, errors spread evenly over the other classes
        expert      like "good" for one class, like "random" for the others; the class differs between experts

    Attributes:
        kind: one of the above.
        people: number of annotators, >= 1.
        accuracy: (lowest, highest), in [0, 1]; each annotator's accuracy is drawn between them. Ignored by "random" and
            "constant".
        cost: cost per label, > 0.
        joins: round in which they join.

    Example:
        >>> from hitl.active import Group
        >>> crowd = (Group("good", 20, accuracy=(0.6, 0.9)), Group("random", 6), Group("expert", 3, cost=5.0, joins=10))
        >>> sum(group.people for group in crowd)
        29
    """

    kind: Kind
    people: int
    accuracy: tuple[float, float] = (0.7, 0.95)
    cost: float = 1.0
    joins: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadSettings(f"group.kind is {self.kind!r}; expected one of {', '.join(KINDS)}")
        if self.people < 1:
            raise BadSettings(f"group.people is {self.people}; expected 1 or more")
        low, high = self.accuracy
        if not 0 <= low <= high <= 1:
            raise BadSettings(f"group.accuracy is {self.accuracy}; expected 0 <= lowest <= highest <= 1")


@dataclass(frozen=True, eq=False)
class SimulatedCrew:
    """Simulated annotators.

    Attributes:
        names: K names.
        confusion: (K, J, L) chance that annotator k answers option l about an item of class j; rows sum to 1.
        correlation: c, how strongly annotators agree on which items are hard, in [0, 1).
        crew: their costs (`Crew.cost`).
        joins: annotator -> round in which they join, if later than the start.
    """

    names: Names
    confusion: Floats
    correlation: float = 0.0
    crew: Crew = field(default_factory=Crew)
    joins: Mapping[Name, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.correlation < 1:
            raise BadSettings(f"simulated crew: correlation is {self.correlation}; expected a value in [0, 1)")

    @classmethod
    def draw(
        cls, groups: Sequence[Group], n_classes: int, rng: np.random.Generator, correlation: float = 0.0
    ) -> SimulatedCrew:
        """Draw annotators of these groups, for `n_classes` classes, which are also the options. See `names_of`."""
        names = names_of(groups)
        members = [(group, rank) for group in groups for rank in range(group.people)]
        matrices = [
            confusion_matrix(group.kind, float(rng.uniform(*group.accuracy)), n_classes, rank)
            for group, rank in members
        ]
        cost = {name: group.cost for name, (group, _) in zip(names, members, strict=True) if group.cost != 1}
        joins = {name: group.joins for name, (group, _) in zip(names, members, strict=True) if group.joins > 0}
        return cls(names, np.stack(matrices), correlation, Crew(names, cost=cost), joins)


def names_of(groups: Sequence[Group]) -> Names:
    """Return the names of all members: their kind, and a number that counts through all groups ("good-0")."""
    kinds = [group.kind for group in groups for _ in range(group.people)]
    return tuple(f"{kind}-{number}" for number, kind in enumerate(kinds))


def confusion_matrix(kind: Kind, accuracy: float, n_classes: int, rank: int) -> Floats:
    """Return (J, J) the confusion matrix of member `rank` of a group, which sets the class of constants and experts."""
    j = n_classes
    guess = np.full((j, j), 1 / j)
    able = np.full((j, j), (1 - accuracy) / (j - 1))
    np.fill_diagonal(able, accuracy)
    if kind == "good":
        return able
    if kind == "adversary":
        return np.asarray((1 - np.eye(j)) * accuracy / (j - 1) + np.eye(j) * (1 - accuracy))
    if kind == "constant":
        return np.tile(np.eye(j)[rank % j], (j, 1))
    if kind == "expert":
        guess[rank % j] = able[rank % j]
    return guess


class SimulatedAnswers:
    """Answers of simulated annotators, drawn on request; every pair can be asked."""

    def __init__(self, people: SimulatedCrew, truth: Ints, items: Names, classes: Names, seed: int) -> None:
        """Set the annotators and items. `truth`: (N,) class codes, all known. `classes`: J names. `seed` >= 0."""
        self._people, self._truth, self._items, self._classes, self._seed = people, truth, items, classes, seed
        self._place = {name: code for code, name in enumerate(items)}
        self._person = {name: code for code, name in enumerate(people.names)}
        self._said: dict[tuple[int, int], int] = {}
        self._order: dict[int, Ints] = {}

    @property
    def spent(self) -> int:
        """Number of answers given."""
        return len(self._said)

    def crew(self, limits: Crew) -> Crew:
        """Return all simulated annotators, or those that `limits` names, with their costs and all its limits."""
        unknown = set(limits.names) - set(self._person)
        if unknown:
            raise BadEvidence(
                f"simulation: {min(map(str, unknown))!r} of the crew is not among the simulated annotators"
            )
        cost: Mapping[Name, float] = {**self._people.crew.cost, **limits.cost}
        return replace(limits, names=limits.names or self._people.names, cost=cost)

    def revealed(self) -> Annotations:
        """Return the answers so far; all items and annotators are listed."""
        answers = self._said
        item, person = (np.array([pair[side] for pair in answers], dtype=np.int32) for side in (0, 1))
        label = np.array(list(answers.values()), dtype=np.int32)
        return Annotations(item, person, label, self._items, self._people.names, self._classes, self._classes)

    def reveal(self, asks: Sequence[Pair]) -> int:
        """Answer these questions. Return the number of new answers; repeated pairs and (item, None) give none."""
        before = len(self._said)
        for item, who in asks:
            if who is not None:
                pair = self._place[item], self._person[who]
                if pair not in self._said:
                    self._said[pair] = self.answer(*pair)
        return len(self._said) - before

    def answer(self, item: int, annotator: int) -> int:
        """Return the option code that the annotator with this code gives to this item, always the same."""
        c = self._people.correlation
        own = self._normal(item, PERSON + annotator)
        z = math.sqrt(c) * self._normal(item, HARDNESS) + math.sqrt(1 - c) * own if c else own
        truth = int(self._truth[item])
        order = self._options(item, truth)
        ends = np.cumsum(self._people.confusion[annotator, truth, order])
        return int(order[min(int(np.searchsorted(ends, ndtr(z), side="right")), len(order) - 1)])

    def _options(self, item: int, truth: int) -> Ints:
        """Return the options in the order of this item: its true class first, then the others in random order."""
        if item not in self._order:
            others = np.delete(np.arange(len(self._classes), dtype=np.int32), truth)
            shuffled = self._generator(item, LIKENESS).permutation(others)
            self._order[item] = np.concatenate(([truth], shuffled)).astype(np.int32)
        return self._order[item]

    def _normal(self, item: int, stream: int) -> float:
        return float(self._generator(item, stream).standard_normal())

    def _generator(self, item: int, stream: int) -> np.random.Generator:
        """Return a generator that depends only on seed, item and stream. Streams are disjoint blocks of a counter."""
        return np.random.Generator(np.random.Philox(key=self._seed, counter=[0, 0, item, stream]))
