"""Replay: run a policy against recorded annotations and see accuracy against labels spent.

The policy asks, the recorded answer comes back; an answer that was not recorded is not available. An anonymous
pool answers each item with its recorded labels in a random order, none used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hitl import score
from hitl.active.policy import InformationGain, Policy
from hitl.annotations import Annotations, Floats, Name
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """Accuracy on the items with known truth after each batch.

    Attributes:
        labels: (S,) human labels spent at each step, rising; the first step is before any label.
        accuracy: (S,) accuracy then, in [0, 1], ties shared.
        done: (S,) items done then.
        consensus, evidence: at the end.
    """

    labels: npt.NDArray[np.int64]
    accuracy: Floats
    done: npt.NDArray[np.int64]
    consensus: Consensus
    evidence: Evidence

    def labels_to_reach(self, accuracy: float) -> int | None:
        """Labels after which the accuracy is reached and not lost again, or None."""
        below = np.flatnonzero(self.accuracy < accuracy)
        first = 0 if not below.size else int(below[-1]) + 1
        return int(self.labels[first]) if first < len(self.labels) else None


@dataclass(frozen=True)
class Replay:
    """Settings of a replay.

    Attributes:
        combiner, policy: what judges and what chooses.
        budget: `labels` is the size of a batch; the item limits and the target apply as in real life.
        most_labels: labels after which to stop at the latest, or None for all that are recorded.
        crew: limits of the crew (capacity a batch); who can answer what follows from the recording.
    """

    combiner: Combiner
    policy: Policy = field(default_factory=InformationGain)
    budget: Budget = field(default_factory=Budget)
    most_labels: int | None = None
    crew: Crew = field(default_factory=Crew)

    def run(
        self,
        recorded: Evidence,
        rng: np.random.Generator,
        on_step: Callable[[int, float], None] | None = None,
    ) -> ReplayResult:
        """Replay all recorded annotations; the truth is used for scoring only. `on_step(labels, accuracy)`."""
        answers = RecordedAnswers(recorded.annotations, rng)
        crew = answers.crew(self.crew)
        labels: list[int] = []
        accuracy: list[float] = []
        done: list[int] = []
        while True:
            evidence = replace(recorded, annotations=answers.revealed(), truth=None)
            consensus = self.combiner.fit(evidence)  # cold, as in a cycle: a warm start keeps early mistakes
            labels.append(answers.spent)
            accuracy.append(accuracy_of(consensus, recorded))
            left = None if self.most_labels is None else self.most_labels - answers.spent
            plan = self.policy.plan(evidence, consensus, crew, _batch(self.budget, left))
            done.append(len(plan.done))
            if on_step:
                on_step(labels[-1], accuracy[-1])
            if not answers.reveal([(ask.item, ask.annotator) for ask in plan.asks]):
                break
        return ReplayResult(np.array(labels), np.array(accuracy), np.array(done), consensus, evidence)


class RecordedAnswers:
    """Recorded annotations that are revealed as they are asked for."""

    def __init__(self, annotations: Annotations, rng: np.random.Generator) -> None:
        self._all = annotations
        self._place = {name: code for code, name in enumerate(annotations.items)}
        self._revealed = np.zeros(len(annotations), dtype=bool)
        self._of_pair = {
            (int(item), int(annotator)): row
            for row, (item, annotator) in enumerate(zip(annotations.item, annotations.annotator, strict=True))
        }
        order = rng.permutation(len(annotations))
        order = order[np.argsort(annotations.item[order], kind="stable")]
        self._queue = [list(part) for part in np.split(order, annotations.item_start[1:-1])]
        self._person = {name: code for code, name in enumerate(annotations.annotators)}

    @property
    def spent(self) -> int:
        """How many answers were revealed."""
        return int(self._revealed.sum())

    def crew(self, limits: Crew) -> Crew:
        """The crew of the recording: named people for the items they labeled, or anyone if somebody is anonymous.

        `limits` may name some of the people; its capacity and `never` hold, its `only` cuts further.
        """
        annotations = self._all
        if annotations.anonymous is not None:
            return limits
        only: dict[Name, frozenset[Name]] = {}
        start, rows = annotations.by_annotator
        for k, name in enumerate(annotations.annotators):
            codes = annotations.item[rows[start[k] : start[k + 1]]]
            known = frozenset(annotations.items[code] for code in codes)
            only[name] = known & limits.only.get(name, known)
        strangers = set(limits.names) - set(annotations.annotators)
        if strangers:
            raise BadEvidence(f"replay: {min(map(str, strangers))!r} of the crew is not among the recorded annotators")
        return Crew(
            limits.names or annotations.annotators, limits.capacity, limits.default_capacity, limits.never, only
        )

    def revealed(self) -> Annotations:
        """What was answered so far; all items stay in the pool."""
        return self._all.select(self._revealed)

    def reveal(self, asks: Sequence[tuple[Name, Name | None]]) -> int:
        """Reveal the answers to these (item, annotator or None for anyone) asks; returns how many there were."""
        before = self.spent
        for item_name, person in asks:
            item = self._place[item_name]
            if person is None:
                waiting = self._queue[item]
                while waiting and self._revealed[waiting[0]]:
                    waiting.pop(0)
                row = waiting[0] if waiting else None
            else:
                row = self._of_pair.get((item, self._person[person]))
            if row is not None:
                self._revealed[row] = True
        return self.spent - before


def spread_evenly(recorded: Evidence, combiner: Combiner, budgets: Sequence[int], rng: np.random.Generator) -> Floats:
    """(len(budgets),) accuracy when the same number of labels is spread evenly over the items, at random."""
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
        accuracy.append(accuracy_of(combiner.fit(evidence), recorded))
    return np.array(accuracy)


def accuracy_of(consensus: Consensus, recorded: Evidence) -> float:
    """Accuracy on the items whose truth is recorded, ties shared. Raises BadEvidence if there are none."""
    known = recorded.known
    if not known.any():
        raise BadEvidence("replay: no item has a known truth; expected some to score against")
    assert recorded.truth is not None
    return score.accuracy(consensus.probabilities[known], recorded.truth[known])


def _batch(budget: Budget, left: int | None) -> Budget:
    if left is None or left >= budget.labels:
        return budget
    return replace(budget, labels=max(left, 0))
