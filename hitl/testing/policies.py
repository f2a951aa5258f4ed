"""Contract of a policy: questions, crew and budget in, a plan out.

`check_policy` checks all facts. FACTS lists them one by one, for one test each:

    @pytest.mark.parametrize("fact", FACTS)
    def test_contract(fact):
        FACTS[fact](MyPolicy())

The projects are small and random: one or two questions per item, some ground truth, annotators with their own
capacities, costs, skills and items, pending answers, and crews without names. The rules on what a policy may ask are
reimplemented here, pair by pair, to be independent of `hitl.active.assignment.eligibility`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from hitl.active.policy import Policy
from hitl.active.replay.experiments import reordered
from hitl.active.stopping.rules import Judged
from hitl.annotations import ANONYMOUS, Annotations, Name
from hitl.crew import CENT, Budget, Crew
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.plan import Plan
from hitl.testing.contract import Fact, add_to, check

ITEMS, ANNOTATORS, SEEDS = 14, 5, 12

FACTS: dict[str, Fact[Policy]] = {}
"""Fact in words -> a function that checks a policy."""

fact = add_to(FACTS)


def check_policy(policy: Policy, exempt: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError if this policy breaks the contract. The message names the first fact that does not hold.

    `exempt`: fact to leave out -> reason why it does not hold for this policy.

    Example:
        >>> from hitl.active import Evenly
        >>> from hitl.testing import check_policy
        >>> check_policy(Evenly(), {"the order of items and annotators does not matter": "draws among equals"})
    """
    check(FACTS, policy, exempt or {})


@dataclass(frozen=True)
class Project:
    """A small project: questions about the same items, a crew and a budget."""

    questions: tuple[Judged, ...]
    crew: Crew
    budget: Budget

    def plan(self, policy: Policy) -> Plan:
        """Plan with this policy."""
        return policy.plan(self.questions, self.crew, self.budget)

    @property
    def items(self) -> tuple[Name, ...]:
        """Names of the items."""
        return self.questions[0][0].annotations.items

    def answered(self) -> set[tuple[Name, Name]]:
        """Return the (annotator, item) pairs that have an answer to any question."""
        pairs = set()
        for evidence, _ in self.questions:
            annotations = evidence.annotations
            codes = zip(annotations.annotator.tolist(), annotations.item.tolist(), strict=True)
            pairs |= {(annotations.annotators[k], annotations.items[n]) for k, n in codes}
        return pairs

    def is_open(self, item: int) -> bool:
        """Return True if a question about the item needs more labels.

        None does if one of them has `max_labels` labels. Else those need none that have ground truth, or that are
        confident with at least `min_labels`.
        """
        budget = self.budget
        if max(evidence.annotations.labels_per_item[item] for evidence, _ in self.questions) >= budget.max_labels:
            return False
        for evidence, consensus in self.questions:
            labels = evidence.annotations.labels_per_item[item]
            sure = consensus.confidence[item] >= budget.target_confidence and labels >= budget.min_labels
            if not (evidence.known[item] or sure):
                return True
        return False

    def may_answer(self, annotator: Name, item: Name) -> bool:
        """Return True if the annotator may be asked about the item.

        They must not have answered it or be barred from it. It must be on their list of items, if they have one, and
        require no skill that they lack.
        """
        crew = self.crew
        has = crew.skills.get(annotator, frozenset())
        return (
            (annotator, item) not in self.answered() | crew.never
            and item in crew.only.get(annotator, {item})
            and crew.needs.get(item, has) <= has
        )


@cache
def project(seed: int, names: bool = True) -> Project:
    """Simulate a project. Without `names`, the crew is anonymous and anyone may answer."""
    rng = np.random.default_rng(seed)
    items, people = tuple(f"item {n}" for n in range(ITEMS)), tuple(f"person {k}" for k in range(ANNOTATORS))
    truth = np.where(np.arange(ITEMS) < rng.integers(0, 4), 0, -1).astype(np.int32)
    questions = tuple(_judged(rng, items, people, truth) for _ in range(1 + seed % 2))
    budget = Budget(
        open_questions=int(rng.integers(1, 12)),
        target_confidence=float(rng.choice([0.8, 0.95, 1.0])),
        max_labels=int(rng.integers(2, 6)),
        cost=float(rng.choice([2.5, 6.0, math.inf])),
    )
    anyone = Crew(default_cost=float(rng.choice([0.5, 2.0])), never=frozenset({(ANONYMOUS, items[5])}))
    crew = anyone if not names else _crew(rng, items, (*people, "newcomer"))
    return Project(questions, crew, budget)


def _judged(rng: np.random.Generator, items: Sequence[Name], people: Sequence[Name], truth: np.ndarray) -> Judged:  # type: ignore[type-arg]
    said = np.where(rng.random((len(items), len(people))) < 0.3, rng.integers(0, 3, (len(items), len(people))), -1)
    item, annotator = (code.astype(np.int32) for code in np.nonzero(said >= 0))
    label = said[said >= 0].astype(np.int32)
    classes = ("cat", "dog", "owl")
    evidence = Evidence(Annotations(item, annotator, label, tuple(items), tuple(people), classes, classes), truth=truth)
    return evidence, DawidSkene().fit(evidence)


def _crew(rng: np.random.Generator, items: Sequence[Name], people: tuple[Name, ...]) -> Crew:
    def pairs(most: int) -> set[tuple[Name, Name]]:
        return {(people[int(rng.integers(len(people)))], items[int(rng.integers(len(items)))]) for _ in range(most)}

    asked = {item: who for who, item in pairs(int(rng.integers(0, 4)))}
    return Crew(
        people,
        {people[0]: 1, people[1]: int(rng.integers(0, 3))},
        default_capacity=int(rng.integers(1, 5)),
        never=frozenset(pairs(6)),
        only={people[2]: frozenset(items[:6])},
        cost={people[3]: 2.0, people[4]: 0.5},
        skills={people[1]: frozenset({"de"}), people[3]: frozenset({"de", "fr"})},
        needs={items[7]: frozenset({"de"}), items[8]: frozenset({"de", "fr"}), items[9]: frozenset({"it"})},
        asked=tuple((who, item) for item, who in sorted(asked.items())),
    )


def projects() -> list[Project]:
    """Return the simulated projects: first with named annotators, then without."""
    return [project(seed) for seed in range(SEEDS)] + [project(seed, names=False) for seed in range(SEEDS // 3)]


# -- the facts -------------------------------------------------------------------------------------------------


@fact
def it_keeps_to_the_budget(policy: Policy) -> None:
    for one in projects():
        asks = one.plan(policy).asks
        assert len(asks) <= one.budget.open_questions
        assert sum(one.crew.cost_of(ask.annotator) for ask in asks) <= one.budget.cost + CENT


@fact
def it_keeps_to_the_capacities(policy: Policy) -> None:
    for one in projects():
        if one.crew.names:
            expected = Counter(who for who, item in one.crew.asked if one.may_answer(who, item))
            for who, number in Counter(ask.annotator for ask in one.plan(policy).asks).items():
                assert who is not None
                assert number <= one.crew.capacity_of(who) - expected[who]


@fact
def it_asks_only_who_may_be_asked(policy: Policy) -> None:
    """Check that only crew members are asked, and only about items that they may answer (`Project.may_answer`).

    Without names, anyone may be asked.
    """
    for one in projects():
        for ask in one.plan(policy).asks:
            assert ask.item in one.items
            if one.crew.names:
                assert ask.annotator in one.crew.names
                assert one.may_answer(ask.annotator, ask.item)
            else:
                assert ask.annotator is None
                assert (ANONYMOUS, ask.item) not in one.crew.never


@fact
def it_asks_nothing_twice(policy: Policy) -> None:
    for one in projects():
        pairs = [(ask.annotator, ask.item) for ask in one.plan(policy).asks]
        assert len(set(pairs)) == len(pairs)
        assert not {item for _, item in pairs} & {item for _, item in one.crew.asked}


@fact
def it_leaves_done_items_alone(policy: Policy) -> None:
    for one in projects():
        place = {name: n for n, name in enumerate(one.items)}
        for ask in one.plan(policy).asks:
            known = all(evidence.known[place[ask.item]] for evidence, _ in one.questions)
            assert known if ask.check else (one.is_open(place[ask.item]) or (ask.audit and not known))


@fact
def it_says_how_probable_each_question_was(policy: Policy) -> None:
    for one in projects():
        for ask in one.plan(policy).asks:
            assert ask.probability is None or 0 < ask.probability <= 1
            assert not (ask.audit and (ask.probability is None or ask.check))


@fact
def it_lists_the_finished_items_with_their_labels(policy: Policy) -> None:
    for one in projects():
        plan = one.plan(policy)
        finished = {done.item: done.labels for done in plan.done}
        assert len(finished) == len(plan.done)
        assert plan.open_items == sum(one.is_open(n) for n in range(ITEMS))
        for n, item in enumerate(one.items):
            labels = tuple(consensus.classes[consensus.codes[n]] for _, consensus in one.questions)
            assert finished.get(item) == (None if one.is_open(n) else labels)


@fact
def it_asks_nothing_where_nothing_may_be_asked(policy: Policy) -> None:
    for one in projects():
        full = one.plan(policy)
        for nothing in (
            replace(one, budget=replace(one.budget, open_questions=0)),
            replace(one, budget=replace(one.budget, cost=0.0)),
            *([replace(one, crew=replace(one.crew, capacity={}, default_capacity=0))] if one.crew.names else []),
        ):
            plan = nothing.plan(policy)
            assert plan.asks == ()
            assert (plan.done, plan.open_items) == (full.done, full.open_items)


@fact
def it_asks_where_it_can(policy: Policy) -> None:
    for seed in range(SEEDS):
        one = project(seed)
        free = replace(
            one, crew=Crew(("a", "b")), budget=Budget(open_questions=5, target_confidence=1.0, max_labels=99)
        )
        still = sum(free.is_open(n) for n in range(ITEMS))
        assert len(free.plan(policy).asks) == min(5, still)
        assert len(replace(free, budget=replace(free.budget, open_questions=100)).plan(policy).asks) >= still


@fact
def it_asks_the_same_again(policy: Policy) -> None:
    for one in projects():
        assert one.plan(policy) == one.plan(policy)


@fact
def the_order_of_items_and_annotators_does_not_matter(policy: Policy) -> None:
    for seed in range(SEEDS):
        one = project(seed)
        mixed = [reordered(evidence, np.random.default_rng(seed)) for evidence, _ in one.questions]
        names = tuple(reversed(one.crew.names))
        questions = tuple((evidence, DawidSkene().fit(evidence)) for evidence in mixed)
        other = replace(one, questions=questions, crew=replace(one.crew, names=names))
        here, there = one.plan(policy), other.plan(policy)
        assert len(here.asks) == len(there.asks)
        total = [math.fsum(ask.gain for ask in plan.asks) for plan in (here, there)]
        assert math.isclose(*total, rel_tol=0.02, abs_tol=1e-9)
        assert {done.item for done in here.done} == {done.item for done in there.done}
