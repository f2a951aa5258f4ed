"""The first policy: the item whose answer tells most, to the annotator most likely to be right.

    item       arg max  expected information gain of one more answer by the crew
    annotator  arg max  p(right)                                   (Rodrigues 2014, eq. 12), within capacity
    done       confidence >= target, or the label limit            (`stopping`)

With several questions an item (multi-label), the gains add up and an item is done when all its questions are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hitl.active import scores, stopping
from hitl.active.assign import Availability, most_likely_right
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.models.calibration import shared_errors
from hitl.plan import Ask, Done, Plan

Judged = tuple[Evidence, Consensus]
CHUNK = 4096


class Policy(Protocol):
    """Decides what to ask next, and whom."""

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions and the finished items."""
        ...


@dataclass(frozen=True, slots=True)
class InformationGain:
    """Expected information gain for the item, eq. 12 for the annotator."""

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions and the finished items of a project with one question an item."""
        return self.plan_questions([(evidence, consensus)], crew, budget)

    def plan_questions(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The same for several questions about the same items. Raises BadInput when the items differ."""
        items = questions[0][0].annotations.items
        if any(evidence.annotations.items != items or consensus.items != items for evidence, consensus in questions):
            raise BadInput("plan: evidence and consensus list different items; expected the same, in the same order")
        states = np.stack([stopping.item_states(*question, budget) for question in questions])
        open_rows = np.flatnonzero((states == stopping.OPEN).any(axis=0))
        gain = np.zeros(len(open_rows))
        for (evidence, consensus), state in zip(questions, states, strict=True):
            typical = typical_confusion(consensus, crew, budget.labels)
            more = scores.expected_information_gain(_for_gain(evidence, consensus)[open_rows], typical)
            gain += np.where(state[open_rows] == stopping.OPEN, more, 0.0)
        fewest = questions[0][0].annotations.labels_per_item[open_rows]
        best = np.lexsort((open_rows, fewest, -np.round(gain, 9)))  # the last bits vary from run to run
        asks = _asks(questions, crew, budget, open_rows[best], gain[best])
        return Plan(asks, _finished(questions, states), len(open_rows))


def _for_gain(evidence: Evidence, consensus: Consensus) -> Floats:
    """(N, J) beliefs that take each answer as worth what a confusion matrix says, as the gain takes the next one.

    Beside models confidence is corrected for errors in common, the more the more labels an item has: by these beliefs
    the same few items would be asked about again and again (CIFAR-10H: 99 % not reached with 11,000 labels, with the
    others from 7,400).
    """
    if consensus.correction is None or not consensus.temperatures:
        return consensus.probabilities
    caution = shared_errors.caution_of(consensus)
    return shared_errors.independent(evidence, consensus.probabilities, consensus.correction.strength, caution)


def crew_confusion_matrices(consensus: Consensus, crew: Crew) -> Floats:
    """(K', J, L) confusion matrices of the crew; people not met yet are like the average of those met."""
    learned = consensus.annotators
    place = {name: k for k, name in enumerate(learned.names)}
    newcomer = _average(consensus)
    return np.stack([learned.confusion[place[name]] if name in place else newcomer for name in crew.names])


def typical_confusion(consensus: Consensus, crew: Crew, labels: int) -> Floats:
    """(J, L) confusion matrix of whoever answers next: the crew's average, or that of all who have answered.

    Everybody counts with what they can take of the plan's `labels`.
    """
    if not crew.names:
        return _average(consensus)
    capacity = np.array([min(crew.capacity_of(name), labels) for name in crew.names], dtype=np.float64)
    if not capacity.any():
        return _average(consensus)
    return scores.crew_confusion(crew_confusion_matrices(consensus, crew), capacity)


def _average(consensus: Consensus) -> Floats:
    learned = consensus.annotators
    if not learned.names:
        n_classes, n_options = len(learned.classes), len(learned.options)
        guess = np.full((n_classes, n_options), 0.25 / max(n_options - 1, 1))
        np.fill_diagonal(guess, 0.75)
        return guess
    return scores.crew_confusion(learned.confusion, learned.labels.astype(np.float64) + 1)


def _asks(
    questions: Sequence[Judged], crew: Crew, budget: Budget, order: npt.NDArray[np.intp], gain: Floats
) -> tuple[Ask, ...]:
    items = questions[0][0].annotations.items
    if not crew.names:
        top = order[: budget.labels]
        right = _chance_right(questions, top, lambda consensus: _average(consensus)[None])[:, 0]
        return tuple(
            Ask(items[item], None, float(g), float(r), _why(questions, int(item)))
            for item, g, r in zip(top, gain, right, strict=False)
        )
    availability = Availability.of(crew, [evidence.annotations for evidence, _ in questions])
    gain_of = dict(zip(order.tolist(), gain.tolist(), strict=True))
    pairs = most_likely_right(_with_chances(questions, crew, order), availability, budget.labels)
    return tuple(
        Ask(items[item], crew.names[person], gain_of[item], right, _why(questions, item))
        for item, person, right in pairs
    )


def _with_chances(questions: Sequence[Judged], crew: Crew, order: npt.NDArray[np.intp]) -> Iterator[tuple[int, Floats]]:
    """Item codes in order, each with the crew's chances of a right answer; computed in chunks as they are used."""
    for start in range(0, len(order), CHUNK):
        rows = order[start : start + CHUNK]
        right_nk = _chance_right(questions, rows, lambda consensus: crew_confusion_matrices(consensus, crew))
        yield from zip(rows.tolist(), right_nk, strict=True)


def _chance_right(
    questions: Sequence[Judged], rows: npt.NDArray[np.intp], confusion: Callable[[Consensus], Floats]
) -> Floats:
    """(rows, K') chance of a right answer, averaged over the questions."""
    chances = [scores.chance_right(consensus.probabilities[rows], confusion(consensus)) for _, consensus in questions]
    mean: Floats = np.mean(chances, axis=0)
    return mean


def _why(questions: Sequence[Judged], item: int) -> str:
    """In words: where the item stands."""
    evidence, consensus = questions[0]
    labels = int(evidence.annotations.labels_per_item[item])
    said = f"{labels} label{'' if labels == 1 else 's'}"
    if len(questions) > 1:
        unsure = min(float(consensus.confidence[item]) for _, consensus in questions)
        return f"least sure of its questions {unsure:.0%} after {said}"
    label = consensus.classes[consensus.labels[item]]
    return f"{label} at {consensus.confidence[item]:.0%} after {said}"


def _finished(questions: Sequence[Judged], states: npt.NDArray[np.int8]) -> tuple[Done, ...]:
    items = questions[0][0].annotations.items
    rows = np.flatnonzero((states != stopping.OPEN).all(axis=0))
    confidence = np.min([consensus.confidence for _, consensus in questions], axis=0)
    reason = states.max(axis=0)
    return tuple(
        Done(
            items[row],
            tuple(consensus.classes[consensus.labels[row]] for _, consensus in questions),
            float(confidence[row]),
            stopping.REASONS[int(reason[row])],
        )
        for row in rows
    )
