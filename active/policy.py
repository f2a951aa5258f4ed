"""The policy: the questions that together are expected to make the most labels right.

    v_nk  =  ( A_nk + INFORMATION x I_nk ) (1 + explore / sqrt(1 + labels of k))                                 (1)

A_nk is by how much annotator k's answer about item n raises the chance that its label is right, I_nk the information
of the answer in nats (`pairs`). A alone sees one answer ahead: an item whose label two answers would change, but not
one, is worth nothing to it; information says that the second answer becomes worth asking for. The last factor lets
annotators of whom little is known be tried before equally good ones that are known.

    plan     pairs (n, k) of largest total value, within capacity, skills and cost            (`assign`)
    whom     anyone, where the crew has no names: the items of largest value for a typical annotator
    check    a share `calibrate` of the questions is about items of known truth, to whoever was checked least
    done     confidence >= target, or the label limit                                         (`stopping`)

With several questions an item (multi-label) the gains add up, and an item is done when all its questions are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hitl.active import scores, stopping
from hitl.active.assign import assign
from hitl.active.availability import Availability
from hitl.active.checking import checks
from hitl.active.crew_value import CrewValue, Exploration, beliefs_for_gain, typical_confusion
from hitl.active.pairs import accuracy_gain, information_gain
from hitl.active.stopping import Judged
from hitl.active.worth import crew_confusion
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.plan import Ask, Done, Plan

Rows = npt.NDArray[np.int64]


class Policy(Protocol):
    """Decides what to ask next, and whom."""

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions and the finished items."""
        ...


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """Expected gain in right labels, jointly over items and annotators.

    Attributes:
        information: what a nat of information is worth, in right labels, >= 0.
        explore: how much more an unknown annotator's answer counts than a known one's, >= 0; 0: no exploration.
        exploration: "bonus" as in (1), or "thompson": each plan takes every annotator's confusion matrix as drawn from
            its posterior (`explore` and `seed` then say how widely, 1 as the posterior, and which draw).
        calibrate: share of a plan's questions asked about items of known truth, in [0, 1).
        seed: of the draws.
    """

    information: float = 0.1
    explore: float = 1.0
    exploration: Exploration = "bonus"
    calibrate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("information", "explore"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise BadSettings(f"policy.options.{name} is {value!r}; expected a number, 0 or more")
        if not (isinstance(self.calibrate, int | float) and 0 <= self.calibrate < 1):
            raise BadSettings(f"policy.options.calibrate is {self.calibrate!r}; expected a share in [0, 1)")
        if self.exploration not in ("bonus", "thompson"):
            raise BadSettings(f"policy.options.exploration is {self.exploration!r}; expected 'bonus' or 'thompson'")

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions and the finished items of a project with one question an item."""
        return self.plan_questions([(evidence, consensus)], crew, budget)

    def plan_questions(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The same for several questions about the same items. Raises BadInput when the items differ."""
        items = questions[0][0].annotations.items
        if any(evidence.annotations.items != items or consensus.items != items for evidence, consensus in questions):
            raise BadInput("plan: evidence and consensus list different items; expected the same, in the same order")
        states = np.stack([stopping.item_states(*question, budget) for question in questions])
        rows = np.flatnonzero((states == stopping.OPEN).any(axis=0))
        ask = self._named if crew.names else self._anyone
        return Plan(ask(questions, states, rows, crew, budget), _finished(questions, states), len(rows))

    def _anyone(
        self, questions: Sequence[Judged], states: npt.NDArray[np.int8], rows: Rows, crew: Crew, budget: Budget
    ) -> tuple[Ask, ...]:
        """The items worth most to ask a typical annotator about, those with fewer labels first among equals."""
        value, right = np.zeros(len(rows)), np.zeros(len(rows))
        for (evidence, consensus), state in zip(questions, states, strict=True):
            pi_kjl = typical_confusion(consensus, crew, budget.labels)[None]
            q_nj = beliefs_for_gain(evidence, consensus)[rows]
            more = accuracy_gain(q_nj, pi_kjl)[:, 0] + self.information * information_gain(q_nj, pi_kjl)[:, 0]
            value += np.where(state[rows] == stopping.OPEN, more, 0.0)
            right += scores.chance_right(consensus.probabilities[rows], pi_kjl)[:, 0] / len(questions)
        fewest = questions[0][0].annotations.labels_per_item[rows]
        best = np.lexsort((rows, fewest, -np.round(value, 9)))[: budget.labels]  # the last bits vary from run to run
        items = questions[0][0].annotations.items
        return tuple(
            Ask(items[rows[r]], None, float(value[r]), float(right[r]), _why(questions, int(rows[r]))) for r in best
        )

    def _named(
        self, questions: Sequence[Judged], states: npt.NDArray[np.int8], rows: Rows, crew: Crew, budget: Budget
    ) -> tuple[Ask, ...]:
        """The pairs worth most together; items that wait for an answer get no second question meanwhile."""
        annotations = questions[0][0].annotations
        free = Availability.of(crew, [evidence.annotations for evidence, _ in questions])
        checked = checks(questions, crew, free, round(self.calibrate * budget.labels))
        free = free.after(np.array([item for item, _ in checked]), np.array([person for _, person in checked]))
        rows = rows[np.isin(rows, _waiting(annotations, crew), invert=True)]
        rows = rows[np.argsort(annotations.labels_per_item[rows], kind="stable")]
        worth = CrewValue.of(questions, states, crew, self.information, self.explore, self.exploration, self.seed)
        spent = sum(crew.cost_of(crew.names[person]) for _, person in checked)
        pairs = assign(
            rows,
            worth.bound(rows),
            worth.values,
            free,
            budget.labels - len(checked),
            cost=max(budget.cost - spent, 0.0),
            alike=worth.alike,
        ).pairs
        asked = [(*check, 0.0, "to know the annotator: its truth is known") for check in checked]
        asked += [(pair.item, pair.person, pair.value, _why(questions, pair.item)) for pair in pairs]
        asked = _mixed(asked, len(checked))
        return tuple(
            Ask(annotations.items[item], crew.names[person], value, right, why)
            for (item, person, value, why), right in zip(asked, _chance_right(questions, crew, asked), strict=True)
        )


def _mixed(asked: list[tuple[int, int, float, str]], checked: int) -> list[tuple[int, int, float, str]]:
    """The first `checked` questions spread evenly among the others, so that they do not stand out."""
    place = [(n + 0.5) / max(checked, 1) for n in range(checked)]
    others = len(asked) - checked
    place += [(n + 0.5) / max(others, 1) for n in range(others)]
    return [asked[n] for n in np.argsort(place, kind="stable")]


def _waiting(annotations: Annotations, crew: Crew) -> Rows:
    """Codes of the items somebody has been asked about and not answered yet."""
    asked = {item for _, item in crew.asked}
    return np.array([code for code, name in enumerate(annotations.items) if name in asked] if asked else [], np.int64)


def _chance_right(questions: Sequence[Judged], crew: Crew, asked: Sequence[tuple[int, int, float, str]]) -> list[float]:
    """Chance of a right answer of each (Rodrigues 2014, eq. 12), averaged over the questions."""
    if not asked:
        return []
    item, person = (np.array([one[part] for one in asked], dtype=np.int64) for part in (0, 1))
    right = np.zeros(len(asked))
    for _, consensus in questions:
        pi_kjl = crew_confusion(consensus, crew)
        j = np.arange(pi_kjl.shape[1])
        right += np.sum(consensus.probabilities[item] * pi_kjl[person][:, j, j], axis=1) / len(questions)
    return [float(one) for one in right]


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
