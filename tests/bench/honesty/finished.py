"""Labels until every item is done: the default beside VB-IBCC, who believes that annotators err independently.

Annotators err independently and can answer anything (`simulated_annotators`), in the cells of `crowds`: J classes,
N items, accuracies Beta-spread about the cell's. Both combiners meet the same annotators, with the default policy and
budget; a plan asks about a tenth of the items. A replay ends when every item is done.

    equal accuracy    the lower of the two accuracies at the end
    labels to it      after which a combiner's labels are never less accurate again
    asked on          VB-IBCC that calls no item done until it has been given as many labels as the default
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hitl.active.replay.replay import Replay, Track
from hitl.active.replay.simulated_annotators import SimulatedAnswers, SimulatedCrew
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner
from hitl.models.combiner import Combiner

SHARED, PLAIN = "VB-IBCC", "plain VB-IBCC"
"""As it comes, with one prior that annotators share, learned from the labels; and with pseudo-counts 2 / 1."""
THEIRS = (SHARED, PLAIN)
BATCH = 10
"""A plan asks about one item in so many."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Annotators who err independently; plain values, for it travels to other processes."""

    classes: int
    items: int
    accuracy: float
    seed: int

    def __str__(self) -> str:
        return f"J={self.classes} N={self.items} accuracy={self.accuracy}"

    def annotators(self, rng: np.random.Generator) -> SimulatedCrew:
        """As many as `bench_accuracy.independent` has, as good, their errors spread evenly."""
        people = max(20, self.items // 20)
        right_k = rng.beta(10 * self.accuracy, 10 * (1 - self.accuracy), size=people)
        confusion = np.repeat(((1 - right_k) / (self.classes - 1))[:, None, None], self.classes, axis=1)
        confusion = np.repeat(confusion, self.classes, axis=2)
        confusion[:, np.arange(self.classes), np.arange(self.classes)] = right_k[:, None]
        return SimulatedCrew(tuple(range(people)), confusion)


def finished(cell: Cell, theirs: str) -> Row:
    """What `compared` says of the default and one of THEIRS in this cell."""
    budget = Budget(open_questions=cell.items // BATCH)
    other = VBIBCC(shared=theirs == SHARED)
    ours, end = (_replayed(cell, judge, budget) for judge in (DefaultCombiner(), other))
    on = _replayed(cell, other, replace(budget, target_confidence=1.0), int(ours.labels[-1]))
    return {"theirs": theirs, "cell": str(cell), "seed": cell.seed} | compared(ours, end, on)


def compared(ours: Track, theirs: Track, on: Track) -> Row:
    """Labels and true accuracy of both at the end, and to equal accuracy; `on` is the second, asked on.

    asked on    labels of `on` to the accuracy that ours has at the end; None where it does not get there
    """
    final = float(ours.accuracy[-1])
    equal = min(final, float(theirs.accuracy[-1]))
    row: Row = {"equal accuracy": equal, "asked on": _labels_to(on, final)}
    for whose, track in (("our", ours), ("their", theirs)):
        row[f"{whose} labels"], row[f"{whose} accuracy"] = int(track.labels[-1]), float(track.accuracy[-1])
        row[f"{whose} to equal"] = _labels_to(track, equal)
    return row


def _labels_to(track: Track, accuracy: float) -> int | None:
    found = track.to_reach(accuracy)
    return None if found is None else found[0]


def _replayed(cell: Cell, judge: Combiner, budget: Budget, most: int | None = None) -> Track:
    rng = np.random.default_rng([cell.seed, zlib.crc32(str(cell).encode())])
    names = tuple(range(cell.classes))
    truth = rng.integers(cell.classes, size=cell.items).astype(np.int32)
    answers = SimulatedAnswers(cell.annotators(rng), truth, tuple(range(cell.items)), names, int(rng.integers(2**63)))
    known = Evidence(answers.revealed(), truth=truth)
    return Replay(judge, budget=budget, most_labels=most).run_with(answers, known, rng)
