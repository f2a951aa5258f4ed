"""The policy: the questions that together are expected to make the most labels right.

    v_nk  =  ( A_nk + information x I_nk ) (1 + explore / sqrt(1 + labels of k))                                 (1)

A_nk is by how much annotator k's answer about item n raises the chance that its label is right, I_nk the information
of the answer in nats (`pairs`). A alone sees one answer ahead: an item whose label two answers would change, but not
one, is worth nothing to it; information says that the second answer becomes worth asking for. The last factor lets
annotators of whom little is known be tried before equally good ones that are known.

    plan     pairs (n, k) of largest total value, within capacity, skills and cost            (`assign`, `batch`)
    spread   beyond `even_shares` even shares of the questions others come first              (`even_shares`)
    whom     anyone, where the crew has no names: the items of largest value for an average annotator
    check    a share `calibrate` of the questions is about items of known truth               (`checking`)
    done     confidence >= target, or the label limit                                         (`stopping`)
    worth    where a right label has a price, nothing is asked that is not expected to bring its cost  (`worth`)

With several questions an item (multi-label) the gains add up, and an item is done when all its questions are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import numpy as np

from hitl.active.acquisition.utility import CrewValue, bonus, drawn_confusion
from hitl.active.acquisition.value_of_information import crew_confusion, err_evenly, pays
from hitl.active.assignment.assign import Pair
from hitl.active.assignment.batch import Anyone, ByName, Diverse, Limited, that_pay
from hitl.active.assignment.eligibility import Availability
from hitl.active.assignment.gold_questions import CHECK, checks, checks_due
from hitl.active.by_others import confusion_by_others
from hitl.active.stopping.pool_state import Situation
from hitl.active.stopping.rules import Judged
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.plan import Ask, Plan

Exploration = Literal["bonus", "thompson"]
Judges = Literal["all", "others"]

NOT_WORTH = "no question that can be asked is worth its cost"

CENT = 1e-9
"""Sums of costs that differ by less are equal."""

Places = list[tuple[int, int]]
"""(item code, crew position) of questions; position 0 where the crew has no names."""


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
        calibrate: share of the questions asked about items of known truth, in [0, 1).
        judged_by: whose labels say how good an annotator is: "all", as the combiner has it, or "others": nobody's own.
        diverse: the batch is a core set of so many times as many of the best items, by their features, >= 1; 1, or
            where there are no features: the best items, alike or not. Helps small batches while there are few labels.
        even_shares: nobody is given more than so many even shares of the open questions while somebody else, whose
            answer would bring at least half as much, has time; >= 1, inf: no such limit.
        seed: of the draws, >= 0.
    """

    information: float = 0.5
    explore: float = 1.0
    exploration: Exploration = "bonus"
    calibrate: float = 0.0
    judged_by: Judges = "all"
    diverse: float = 1.0
    seed: int = 0
    even_shares: float = 1.5

    def __post_init__(self) -> None:
        for name, least in (("information", 0), ("explore", 0), ("diverse", 1)):
            value = getattr(self, name)
            if not (_is_number(value) and math.isfinite(value) and value >= least):
                raise BadSettings(f"policy.options.{name} is {value!r}; expected a number, {least} or more")
        if not (_is_number(self.even_shares) and self.even_shares >= 1):
            raise BadSettings(f"policy.options.even_shares is {self.even_shares!r}; expected a number of 1 or more")
        if not (_is_number(self.calibrate) and 0 <= self.calibrate < 1):
            raise BadSettings(f"policy.options.calibrate is {self.calibrate!r}; expected a share in [0, 1)")
        for name, words in (("exploration", get_args(Exploration)), ("judged_by", get_args(Judges))):
            if getattr(self, name) not in words:
                expected = " or ".join(map(repr, words))
                raise BadSettings(f"policy.options.{name} is {getattr(self, name)!r}; expected {expected}")
        if not (isinstance(self.seed, int) and not isinstance(self.seed, bool) and self.seed >= 0):
            raise BadSettings(f"policy.options.seed is {self.seed!r}; expected a whole number, 0 or more")

    def plan(self, evidence: Evidence, consensus: Consensus, crew: Crew, budget: Budget) -> Plan:
        """The next questions and the finished items of a project with one question an item."""
        return self.plan_questions([(evidence, consensus)], crew, budget)

    def plan_questions(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The same for several questions about the same items. Raises BadInput when the items differ."""
        items = questions[0][0].annotations.items
        if any(evidence.annotations.items != items or consensus.items != items for evidence, consensus in questions):
            raise BadInput("plan: evidence and consensus list different items; expected the same, in the same order")
        now = Situation(questions, crew, budget)
        plan = Plan((), now.finished(), len(now.open_rows))
        return self._asking(plan, now) if plan.open_items and budget.labels else plan

    def _asking(self, plan: Plan, now: Situation) -> Plan:
        """The plan with its questions, or with the reason why there are none."""
        matrices = [self._confusion(*question, now.crew) for question in now.questions]
        value = CrewValue.of(now.questions, now.states, matrices, self.information)
        checked, choice = (self._named if now.crew.names else self._anyone)(now, value)
        limit = now.budget.labels - len(checked)
        pairs = _best(now, choice, limit)
        if limit and not pairs and now.budget.worth is not None and not now.crew.asked and choice.best(now.rows, 1):
            return replace(plan, stop=NOT_WORTH)
        places = _mixed(checked, [(pair.item, pair.person) for pair in pairs])
        return replace(plan, asks=_asks(now, places, value, matrices))

    def _confusion(self, evidence: Evidence, consensus: Consensus, crew: Crew) -> Floats:
        """(K', J, L) of the crew, or of the average person where it has no names.

        Beside models a pool's pattern of errors is that of the items it was asked about, where the models hesitate
        between two classes: it would hide the next such items. So there the average person errs evenly (`untold`).
        """
        if self.judged_by == "others":
            return confusion_by_others(evidence, consensus, crew)
        pi_kjl = crew_confusion(consensus, crew)
        return err_evenly(pi_kjl[0])[None] if evidence.probabilities and not crew.names else pi_kjl

    def _named(self, now: Situation, value: CrewValue) -> tuple[Places, Limited]:
        """The checks, and the choice among all pairs of items and people."""
        crew = now.crew
        free = Availability.of(crew, [evidence.annotations for evidence, _ in now.questions])
        checked = checks(now, free, self._due(now), now.budget.cost)
        free = free.after(*np.array(checked, dtype=np.int64).reshape(-1, 2).T)
        money = now.budget.cost - math.fsum(crew.cost_of(crew.names[person]) for _, person in checked)
        choice = ByName(self._explored(now, value), free, max(money, 0.0), self.even_shares)
        return checked, self._diverse(now, choice)

    def _explored(self, now: Situation, value: CrewValue) -> CrewValue:
        """Values that let little known annotators be tried."""
        if self.exploration == "bonus":
            return value.times(bonus(now.questions, now.crew, self.explore))
        rng = np.random.default_rng([self.seed, now.answered])
        known = zip(now.questions, value.gains.questions, strict=True)
        return value.by(
            [drawn_confusion(one, now.crew, old.confusion_kjl, self.explore, rng) for (_, one), old in known]
        )

    def _anyone(self, now: Situation, value: CrewValue) -> tuple[Places, Limited]:
        """The checks, and the choice among all items; whoever comes is the average person."""
        affordable = min(now.budget.cost / now.crew.default_cost + CENT, now.budget.labels)
        checked = [(int(item), 0) for item in now.known_rows[: int(min(self._due(now), affordable))]]
        return checked, self._diverse(now, Anyone(value, affordable - len(checked)))

    def _due(self, now: Situation) -> int:
        return checks_due(self.calibrate, now.answered, now.budget.labels)

    def _diverse(self, now: Situation, choice: Limited) -> Limited:
        features = now.questions[0][0].features
        if features is None or self.diverse == 1:
            return choice
        return Diverse(choice, features, np.flatnonzero(now.out), self.diverse)


def _best(now: Situation, choice: Limited, limit: int) -> Sequence[Pair]:
    """The best pairs; those that pay, where a right label has a price."""
    crew, budget, rows = now.crew, now.budget, now.rows
    if budget.worth is None:
        return choice.best(rows, limit)
    error = 1 - np.mean([consensus.confidence[rows] for _, consensus in now.questions], axis=0)
    cheapest = min((crew.cost_of(name) for name in crew.names), default=crew.default_cost)
    might = rows[budget.worth * error >= cheapest]  # answers bring no more than the error there is
    return that_pay(choice, might, limit, lambda item, person: pays(now.questions, item, person, crew, budget))


def _mixed(checked: Places, others: Places) -> Places:
    """The checks spread evenly among the other questions, so that they do not stand out."""
    place = [(n + 0.5) / len(part) for part in (checked, others) for n in range(len(part))]
    both = checked + others
    return [both[n] for n in np.argsort(place, kind="stable")]


def _asks(now: Situation, places: Places, value: CrewValue, matrices: Sequence[Floats]) -> tuple[Ask, ...]:
    """The questions: what each is expected to bring in right labels, and the chance that the answer is right."""
    if not places:
        return ()
    item, person = np.array(places, dtype=np.int64).T
    gain = value.values(item)[np.arange(len(item)), person]
    right = np.zeros(len(item))
    for (_, consensus), pi_kjl in zip(now.questions, matrices, strict=True):
        j = np.arange(pi_kjl.shape[1])  # Rodrigues 2014, eq. 12
        right += np.sum(consensus.probabilities[item] * pi_kjl[person][:, j, j], axis=1) / len(now.questions)
    items, names = now.questions[0][0].annotations.items, now.crew.names or (None,)
    return tuple(
        Ask(items[n], names[k], float(g), float(r), CHECK if now.known[n] else now.why(n), check=bool(now.known[n]))
        for n, k, g, r in zip(item.tolist(), person.tolist(), gain, right, strict=True)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
