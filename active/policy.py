"""The default policy: ask the questions that together are expected to make the most labels right.

    v_nk  =  ( A_nk + information x I_nk ) (1 + w sqrt(r_k / (1 + labels of k)))                           (1)

A_nk is the expected gain, from annotator k's answer, in the chance that item n's label is right. I_nk is the
information expected from the answer, in nats. A looks only one answer ahead: it is 0 if two more answers could change
the label, but one cannot. I > 0 then makes the first of the two worth asking for. The last factor prefers little-known
annotators to equally good known ones. r_k in [0, 1] is the part of the work that they can do
(`acquisition.expected_gain`).

    plan     pairs (n, k) with the largest total value, within capacity, skills, cost  (`assignment.assign`, `batch`)
    spread   beyond `max_load_ratio` even shares of the questions others come first    (`assignment.batch`)
    anyone   if the crew has no names: the most valuable items for an average annotator
    check    a share `gold_share` of the questions is about items with ground truth       (`assignment.gold_and_audits`)
    audit    a share `audit_share` of the questions is about items drawn at random     (`assignment.gold_and_audits`)
    done     an item is done if confidence >= target, or at the label limit            (`pool_state`)
    worth    if a right label has a price, ask only what is worth its cost             (`value_of_information`)

With several questions per item (multi-label) the gains add up, and an item is done when all its questions are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from hitl.active.acquisition.expected_gain import Gains, exploration, labels_of, utility
from hitl.active.acquisition.value_of_information import crew_confusion, err_evenly, pays
from hitl.active.assignment.assign import Pair
from hitl.active.assignment.batch import Choice, answerable, that_pay
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.gold_and_audits import AUDIT, CHECK, audits, checks, checks_due, draw
from hitl.active.pool_state import PoolState, Rows
from hitl.active.stopping.rules import Judged
from hitl.annotations import ANONYMOUS, Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.plan import Ask, Plan
from hitl.tables.shared_errors import diagonals

NOT_WORTH = "no question that can be asked is worth its cost"

Places = list[tuple[int, int]]
"""Questions as (item code, crew position); position 0 if the crew has no names."""


class Policy(Protocol):
    """Decide what to ask next, and whom. Any object with this method is a policy.

    `hitl.testing.policies.check_policy` checks a policy of yours against the rules that every policy must follow.

    >>> class FirstItems:
    ...     def plan(self, questions, crew, budget):
    ...         pool = PoolState.of(questions, budget)
    ...         asks = [Ask(item, None, gain=0.0, right=0.0, why="next") for item in pool.open_items()]
    ...         return Plan(tuple(asks[: budget.open_questions]), pool.done, len(pool.open_rows))
    """

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Return the next questions, and the finished items with their labels.

        `questions` are one or several (evidence, consensus) pairs about the same items. In a run they are a
        `PoolState`, which knows what is open and done. A plan stays within `budget.open_questions`, `budget.cost` and
        the crew's capacities, and asks only what `assignment.eligibility` allows.
        """
        ...


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """Expected gain in right labels, jointly over items and annotators.

    Attributes:
        information: value of a nat of information, in right labels, >= 0.
        exploration_weight: w, how strongly little-known annotators are preferred, >= 0; 0: not at all.
        gold_share: share of the questions asked about items with ground truth (gold questions), in [0, 1).
        diverse: number of candidates per question, >= 1, from which a diverse batch is chosen (a core set by the items'
            features). With 1, or without features, the best items are asked about, alike or not. Larger values help
            small batches while there are few labels.
        max_load_ratio: no annotator gets more than this many times an equal share of the questions while someone
            else, whose answer would gain at least half as much, has time; >= 1, inf: no limit. A few questions are
            always allowed.
        audit_share: share of the questions asked about items drawn at random, open or done, in [0, 1); `gold_share` +
            `audit_share` < 1. Their answers estimate the quality of the labels (`Ask.probability`). A crew without
            names gets no such questions.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import ExpectedGain
        >>> from hitl.models import MajorityVote
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions = [(data, MajorityVote().fit(data))]
        >>> plan = ExpectedGain().plan(questions, Crew(("al", "bob")), Budget(open_questions=1))
        >>> [(ask.item, ask.annotator) for ask in plan.asks]
        [(2, 'bob')]
    """

    information: float = 0.5
    exploration_weight: float = 1.0
    gold_share: float = 0.0
    diverse: float = 1.0
    max_load_ratio: float = 1.5
    audit_share: float = 0.0

    def __post_init__(self) -> None:
        for name, least, below in (
            ("information", 0, math.inf),
            ("exploration_weight", 0, math.inf),
            ("diverse", 1, math.inf),
            ("max_load_ratio", 1, None),
            ("gold_share", 0, 1),
            ("audit_share", 0, 1),
        ):
            value: Any = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and value >= least and (below is None or value < below)):
                end = f" and below {below}" if below == 1 else ""
                raise BadSettings(f"policy.options.{name} is {value!r}; expected a number, {least} or more{end}")
        if self.gold_share + self.audit_share >= 1:
            raise BadSettings(
                f"policy.options: gold_share {self.gold_share:g} and audit_share {self.audit_share:g} leave no other "
                "questions; expected less than 1 together"
            )

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """Return the next questions and the finished items. Raise BadInput if the questions' items differ."""
        pool = PoolState.of(questions, budget)
        plan = Plan((), pool.done, len(pool.open_rows))
        if not (plan.open_items and budget.open_questions):
            return plan
        asked = pool if budget.target_accuracy is None else pool.as_if_unknown
        matrices = [_confusion(evidence, consensus, crew) for evidence, consensus in pool]
        gains = utility(asked, matrices, self.information)
        free = Eligibility.of(crew, pool.annotations)
        rows = asked.fewest_first(asked.open_rows[~free.closed[asked.open_rows]])
        drawn = not pool.answered and any(evidence.features is not None for evidence, _ in pool)
        if drawn:
            rows = pool.drawn(rows)  # all items are alike, and a model should learn from a random sample
        chosen = self._found(pool, asked, free, rows, matrices, gains, budget)
        if chosen is None:
            return replace(plan, stop=NOT_WORTH)
        others = [(pair.item, pair.person) for pair in chosen.pairs]
        chance: dict[int, float | None] = dict.fromkeys((item for item, _ in chosen.audited), chosen.probability)
        if drawn and others:
            alike = self.diverse == 1 and _interchangeable(chosen.rows, gains, free)
            chance |= dict.fromkeys((item for item, _ in others), len(others) / len(chosen.rows) if alike else None)
        places, audited = _mixed(chosen.checked, chosen.audited, others), {item for item, _ in chosen.audited}
        return replace(plan, asks=_asks(pool, crew, places, gains, matrices, chance, audited))

    def _found(
        self,
        pool: PoolState,
        asked: PoolState,
        free: Eligibility,
        rows: Rows,
        matrices: Sequence[Floats],
        gains: Gains,
        budget: Budget,
    ) -> _Found | None:
        """Choose checks, audits, and the best pairs about `rows`. Return None if no such pair is worth its cost.

        Checks and audits are shares of the questions asked, not of the maximum. If too few other questions are found,
        fewer checks and audits are chosen, and the money saved buys other questions.
        """
        wanted = budget.open_questions
        while True:
            few = replace(budget, open_questions=wanted)
            due = checks_due(self.gold_share, pool.answered + len(free.crew.asked), wanted)
            checked = checks(pool, free, due, budget.cost)
            audited, probability = self._audits(pool, free, checked, matrices, few)
            beside = checked + audited
            choice, limit = self._choice(asked, free, beside, gains, budget), budget.open_questions - len(beside)
            others = rows[~np.isin(rows, [item for item, _ in beside])]
            pairs = _best(asked, choice, free.crew, budget, others, limit)
            priced = budget.value_per_label is not None and not free.crew.asked
            if priced and limit and not pairs and choice.best(others, 1):
                return None
            if not beside or len(beside) + len(pairs) >= wanted:
                return _Found(checked, audited, probability, pairs, others)
            wanted = len(beside) + len(pairs)

    def _audits(
        self, pool: PoolState, free: Eligibility, checked: Places, matrices: Sequence[Floats], budget: Budget
    ) -> tuple[Places, float]:
        """Return audit questions, within what the checks leave, and the probability with which items were drawn."""
        due = checks_due(self.audit_share, pool.answered + len(free.crew.asked), budget.open_questions)
        if not due:
            return [], 1.0
        left, money = _left(free, checked, budget)
        rows, probability = draw(pool, left, min(due, budget.open_questions - len(checked)), money)
        return audits(rows, _right(pool, matrices, rows), left, money), probability

    def _choice(self, pool: PoolState, free: Eligibility, beside: Places, gains: Gains, budget: Budget) -> Choice:
        """Return the candidates for other questions, with the capacities and money that these questions leave."""
        (left, money), names = _left(free, beside, budget), free.crew.names
        features = pool[0][0].features if self.diverse > 1 else None
        if not names:
            return Choice(gains, left, money, self.max_load_ratio, features, self.diverse)
        given_k, anybody_k = labels_of(pool, free.crew), np.array([name == ANONYMOUS for name in names])
        able_k = np.where(anybody_k, np.inf, answerable(free, pool.open_rows))
        tried = gains.times(exploration(given_k, able_k, self.exploration_weight))
        return Choice(tried, left, money, self.max_load_ratio, features, self.diverse, given_k)


@dataclass(frozen=True, slots=True)
class _Found:
    """Questions of a plan: checks, audits (drawn with `probability`), and the best pairs about the items `rows`."""

    checked: Places
    audited: Places
    probability: float
    pairs: Sequence[Pair]
    rows: Rows


def _left(free: Eligibility, places: Places, budget: Budget) -> tuple[Eligibility, float]:
    """Return the eligibility and the money that remain after these questions."""
    item, person = np.array(places, dtype=np.int64).reshape(-1, 2).T
    money = max(budget.cost - math.fsum(free.crew.prices[k] for _, k in places), 0.0)
    return free.after(item, person), money


def _interchangeable(rows: Rows, gains: Gains, free: Eligibility) -> bool:
    """Return True if these items have equal gains and the same eligible annotators, and differ only in their names."""
    masks = (mask for _, mask in free.blocks(rows))
    first = free.mask_rows(rows[:1])
    return gains.interchangeable(rows) and all(bool((mask == first).all()) for mask in masks)


def _confusion(evidence: Evidence, consensus: Consensus, crew: Crew) -> Floats:
    """Return (K', J, L) confusion matrices of the crew, or of the average annotator if it has no names.

    With models, errors of the average annotator are spread evenly. The observed errors are those on items that were
    asked about because models hesitate between two classes, and would make further such items look less valuable.
    """
    pi_kjl = crew_confusion(consensus, crew)
    return err_evenly(pi_kjl[0])[None] if evidence.probabilities and not crew.names else pi_kjl


def _best(pool: PoolState, choice: Choice, crew: Crew, budget: Budget, rows: Rows, limit: int) -> Sequence[Pair]:
    """Return the best pairs about these items; if a right label has a price, only those that are worth their cost."""
    if budget.value_per_label is None:
        return choice.best(rows, limit)
    error = pool.error[rows]  # answers cannot gain more than the error
    might = rows[budget.value_per_label * error >= min(crew.prices)]
    return that_pay(choice, might, limit, lambda item, person: pays(pool, item, person, crew, budget))


def _mixed(*parts: Places) -> Places:
    """Interleave checks and audits evenly with the other questions, so that they do not stand out."""
    place = [(n + 0.5) / len(part) for part in parts for n in range(len(part))]
    together = [one for part in parts for one in part]
    return [together[n] for n in np.argsort(place, kind="stable")]


def _asks(
    pool: PoolState,
    crew: Crew,
    places: Places,
    gains: Gains,
    matrices: Sequence[Floats],
    chance: Mapping[int, float | None],
    audited: set[int],
) -> tuple[Ask, ...]:
    """Build the questions, with their expected gain and the chance of a right answer.

    `chance`: item code -> probability that the item was drawn, None if unknown; only for drawn items. `audited`: codes
    of the items drawn for an audit.
    """
    if not places:
        return ()
    item, person = np.array(places, dtype=np.int64).T
    gain = gains.values(item)[np.arange(len(item)), person]
    right = np.zeros(len(item))
    for (_, consensus), pi_kjl in zip(pool, matrices, strict=True):
        right_kj = diagonals(pi_kjl)  # Rodrigues 2014, eq. 12
        right += np.sum(consensus.probabilities[item] * right_kj[person], axis=1) / len(pool)
    return tuple(
        Ask(
            pool.items[n],
            crew.members[k],
            float(g),
            float(r),
            CHECK if pool.known[n] else AUDIT if n in audited else pool.standing(n),
            check=bool(pool.known[n]),
            probability=chance.get(n, 1.0),
            audit=n in audited,
        )
        for n, k, g, r in zip(item.tolist(), person.tolist(), gain, right, strict=True)
    )


def _right(pool: PoolState, matrices: Sequence[Floats], rows: Rows) -> Floats:
    """Return (R, K') chances that each annotator's answer about each item is right, averaged over the questions."""
    right = np.zeros((len(rows), len(matrices[0])))
    for (_, consensus), pi_kjl in zip(pool, matrices, strict=True):
        right += consensus.probabilities[rows] @ diagonals(pi_kjl).T / len(pool)
    return right
