"""Questions that were asked and not answered yet: they wait, they expire, and they return to the pool.

    waiting    asked of somebody by name, not answered, not skipped, not expired; the item is there and not done
    expired    not answered within `expire` seconds; somebody else is asked, the same person only if nobody else can
    ended      everybody of the crew, present or away, who has the skills has answered or skipped what is open: the
               project is done, until somebody else can. While an open item needs skills that nobody has (`skills`), it
               only has nothing to ask: that is a setting, and what is closed for it would have to be opened again
    away       who was asked and gave no sign of life until their questions expired, or would have (`presence`): one
               question, until they answer something

What waits stays at the front of that person's queue, in the same order, and counts against their capacity and the
budget; its item gets no second question meanwhile. The past is known from the last plan alone. An answer that comes
late, after its question expired or its item was done, is an answer like any other: it is in the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hitl.active.assignment.eligibility import Availability
from hitl.active.assignment.missing_skills import lacking
from hitl.active.pending.annotator_activity import people_now, still_asked
from hitl.active.pending.answer_times import paced
from hitl.active.stopping import rules
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations, Name
from hitl.crew import UNLIMITED, Budget, Crew
from hitl.plan import Ask, Expired, Plan, Presence

Planner = Callable[[Sequence[Judged], Crew, Budget], Plan]
"""What a policy does for several questions about the same items."""

Pair = tuple[Name, Name]
"""(annotator, item)"""

HOUR = 3600.0

CENT = 1e-9
"""Sums of costs that differ by less are equal: they are added up in different orders."""

BLOCK = 4096
"""Open items that are looked at a time."""


@dataclass(frozen=True)
class Waiting:
    """What is still expected, and of whom.

    Attributes:
        asks: questions that wait for their answer, in serving order.
        expired: questions given up, whose items are still open and whom the person has not answered.
        people: when the crew was last heard of.
        unwanted: (annotator, item) pairs that expired and that somebody else can answer.
    """

    asks: tuple[Ask, ...] = ()
    expired: tuple[Expired, ...] = ()
    people: tuple[Presence, ...] = ()
    unwanted: frozenset[Pair] = frozenset()

    @property
    def away(self) -> frozenset[Name]:
        """Who seems to have left."""
        return frozenset(person.annotator for person in self.people if person.away)

    def crew_now(self, crew: Crew) -> Crew:
        """The crew as a policy should see it: what waits is in `asked` and counts against the capacities."""
        asked = tuple((ask.annotator, ask.item) for ask in self.asks if ask.annotator is not None)
        never = crew.never | (self.unwanted - set(asked))  # asked again when nobody else could
        return replace(crew, capacity=_capacities(crew, self.away), never=never, asked=asked)

    def budget_left(self, budget: Budget, crew: Crew) -> Budget:
        """The budget less what waits."""
        spent = sum(crew.cost_of(ask.annotator) for ask in self.asks if ask.annotator is not None)
        return replace(budget, labels=max(budget.labels - len(self.asks), 0), cost=max(budget.cost - spent, 0.0))


def next_plan(
    planner: Planner,
    questions: Sequence[Judged],
    crew: Crew,
    budget: Budget,
    previous: Plan | None = None,
    now: float = 0.0,
    expire: float = math.inf,
) -> Plan:
    """The plan that follows `previous` at time `now`: what waits, what a policy adds, or that the project is done.

    `planner` is a policy's `plan_questions`; `now` seconds since the epoch, `expire` seconds a question may wait.
    """
    checked = {ask.item for ask in (previous or Plan()).asks if ask.check}  # done, and asked all the same
    done = rules.done_items(questions, budget) - checked
    answered = [evidence.annotations for evidence, _ in questions]
    held = waiting(previous or Plan(), answered, done, crew, budget, now, expire)
    why = rules.project_stop(questions, crew, budget)
    if why is not None:
        plan = planner(questions, replace(crew, asked=()), replace(budget, labels=0))
        return still_asked(replace(plan, asks=(), stop=why, expired=held.expired, people=held.people))
    plan = planner(questions, held.crew_now(crew), held.budget_left(budget, crew))
    plan = paced(merged(plan, held, previous or Plan(), crew, budget, now), questions[0][0].annotations)
    if plan.asks or not crew.names:
        return plan
    if lacking(rules.open_items(questions, budget), crew):
        return replace(plan, stop=None)
    if not somebody_can(questions, crew, budget):
        return replace(plan, stop=f"nobody of the crew can answer any of the {plan.open_items} items that are open")
    return plan


def waiting(
    previous: Plan,
    answered: Sequence[Annotations],
    done: Collection[Name],
    crew: Crew,
    budget: Budget,
    now: float,
    expire: float,
) -> Waiting:
    """What of the last plan is still expected now.

    `answered` are the annotations of each question, `done` the names of the items that need no more labels. A question
    of somebody who has left the crew, or may not answer it any more, returns to the pool at once.
    """
    given = _given(answered, {ask.item for ask in previous.asks} | {gone.item for gone in previous.expired})
    there = set(answered[0].items) - set(done)
    crew_names = set(crew.names)

    def expected(annotator: Name | None, item: Name) -> bool:
        known = annotator is not None and annotator in crew_names and item in there
        return known and (annotator, item) not in given

    asks, fresh = [], []
    for ask in previous.asks:
        if ask.annotator is None or not expected(ask.annotator, ask.item):
            continue
        if not crew.may_answer(ask.annotator, ask.item):
            continue
        since = ask.since or now  # plans made before times were kept
        if now - since >= expire:
            fresh.append(Expired(ask.item, ask.annotator, since))
        else:
            asks.append(replace(ask, since=since))
    expired = tuple(
        {(e.annotator, e.item): e for e in (*previous.expired, *fresh) if expected(e.annotator, e.item)}.values()
    )
    settled = [ask for ask in previous.asks if ask.item in done and (ask.annotator, ask.item) not in given]
    people = people_now(previous, answered, crew, fresh, settled, now, expire)
    away = frozenset(person.annotator for person in people if person.away)
    kept = _within(asks, crew, budget, away)
    return Waiting(kept, expired, people, _unwanted(expired, given, crew, away))


def merged(plan: Plan, held: Waiting, previous: Plan, crew: Crew, budget: Budget, now: float) -> Plan:
    """The policy's plan behind what waits.

    What it asks of items that wait, beyond capacity or beyond what a plan may cost, is left out.
    """
    money = held.budget_left(budget, crew).cost
    items = {ask.item for ask in held.asks}
    room = _capacities(crew, held.away)
    for ask in held.asks:
        assert ask.annotator is not None
        room[ask.annotator] -= 1
    before = {ask.item: ask.since for ask in previous.asks if ask.annotator is None}  # anyone's questions do not expire
    new = []
    for ask in plan.asks:
        price = crew.default_cost if ask.annotator is None else crew.cost_of(ask.annotator)
        if price > money + CENT:
            continue
        if ask.annotator is None:
            money -= price
            new.append(replace(ask, since=before.get(ask.item) or now))
        elif ask.item not in items and room.get(ask.annotator, 0) > 0:
            room[ask.annotator] -= 1
            money -= price
            new.append(replace(ask, since=now))
    return still_asked(replace(plan, asks=(*held.asks, *new), expired=held.expired, people=held.people))


def somebody_can(questions: Sequence[Judged], crew: Crew, budget: Budget) -> bool:
    """Whether anybody of the crew, away or at their capacity, has yet to answer an open item and may."""
    answered = [evidence.annotations for evidence, _ in questions]
    free = Availability.of(replace(crew, asked=()), answered)
    rows = rules.open_rows(questions, budget)
    return any(free.mask_rows(rows[start : start + BLOCK]).any() for start in range(0, len(rows), BLOCK))


def _given(answered: Sequence[Annotations], items: Collection[Name]) -> set[Pair]:
    """Who has answered which of these items, in any of the questions."""
    concerned = np.array([name in items for name in answered[0].items], dtype=bool)
    given: set[Pair] = set()
    for one in answered:
        rows = np.flatnonzero(concerned[one.item])
        pairs = zip(one.annotator[rows].tolist(), one.item[rows].tolist(), strict=True)
        given |= {(one.annotators[k], one.items[n]) for k, n in pairs}
    return given


def _within(asks: Sequence[Ask], crew: Crew, budget: Budget, away: frozenset[Name]) -> tuple[Ask, ...]:
    """The first of these questions that capacities and budget of today allow."""
    room = _capacities(crew, away)
    kept: list[Ask] = []
    cost = 0.0
    for ask in asks:
        assert ask.annotator is not None
        price = crew.cost_of(ask.annotator)
        if len(kept) >= budget.labels or cost + price > budget.cost + CENT:
            continue
        if room[ask.annotator] > 0:
            room[ask.annotator] -= 1
            kept.append(ask)
            cost += price
    return tuple(kept)


def _unwanted(expired: Sequence[Expired], given: set[Pair], crew: Crew, away: frozenset[Name]) -> frozenset[Pair]:
    """The expired pairs whose items somebody else of the crew can answer."""
    gone = {(e.annotator, e.item) for e in expired}
    able = [name for name in crew.names if name not in away and crew.capacity_of(name) > 0]

    def others_can(item: Name) -> bool:
        return any((k, item) not in gone and (k, item) not in given and crew.may_answer(k, item) for k in able)

    by_item = {item: others_can(item) for item in {e.item for e in expired}}
    return frozenset(pair for pair in gone if by_item[pair[1]])


def _capacities(crew: Crew, away: frozenset[Name]) -> dict[Name, int]:
    """How many questions each may have at a time: one at most for who is away."""
    return {name: min(crew.capacity_of(name), 1 if name in away else UNLIMITED) for name in crew.names}
