"""Unanswered questions: they wait, they expire, and they return to the pool.

    waiting    asked of an annotator by name, not answered, not skipped, not expired; the item exists and is not done
    expired    not answered within `expire` seconds; another annotator is asked, the same one only if no other can
    ended      every annotator of the crew, present or away, who has the skills has answered or skipped what is open:
               the project is done, until another one can. If an open item needs skills that no annotator has
               (`missing_skills`), the project only has nothing to ask: that is a setting, and anything closed for it
               would have to be reopened
    away       was asked and neither answered nor skipped anything until their questions expired, or would have
               (`annotator_activity`): they get one question, until they answer something, and none if the limit then
               leaves none for an annotator who is present

Waiting questions stay at the front of that annotator's queue, in the same order, and count against their capacity and
the budget; their items get no second question meanwhile. If that leaves nothing for an annotator without any question,
the last ones of the longest queues make room, down to an even share of the budget. The past is known from the last plan
alone. A late answer, after its question expired or its item was done, counts like any other: it is in the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.missing_skills import lacking
from hitl.active.pending.annotator_activity import activity_now, still_asked
from hitl.active.pending.answer_times import with_answer_times
from hitl.active.policy import Policy
from hitl.active.stopping import rules
from hitl.active.stopping.pool_state import PoolState
from hitl.active.stopping.rules import Judged
from hitl.annotations import Name, places_of
from hitl.crew import CENT, UNLIMITED, Budget, Crew
from hitl.plan import Activity, Ask, Expired, Plan

Pair = tuple[Name, Name]
"""(annotator, item)"""

HOUR = 3600.0


@dataclass(frozen=True)
class Waiting:
    """Questions that still wait, and the state of the annotators.

    Attributes:
        asks: questions that wait for their answer, in serving order.
        expired: expired questions, whose items are still open and which their annotators may still answer.
        people: when the crew was last active.
        unwanted: (annotator, item) pairs that expired and that another annotator can answer.
    """

    asks: tuple[Ask, ...] = ()
    expired: tuple[Expired, ...] = ()
    people: tuple[Activity, ...] = ()
    unwanted: frozenset[Pair] = frozenset()

    @property
    def away(self) -> frozenset[Name]:
        """Annotators who seem to be away."""
        return frozenset(person.annotator for person in self.people if person.away)

    def without(self, asks: Sequence[Ask]) -> Waiting:
        """Return these questions to the pool."""
        returned = set(asks)
        return replace(self, asks=tuple(ask for ask in self.asks if ask not in returned))

    def crew_now(self, crew: Crew) -> Crew:
        """Return the crew for a policy: waiting questions are in `asked` and count against the capacities."""
        asked = tuple((ask.annotator, ask.item) for ask in self.asks if ask.annotator is not None)
        never = crew.never | (self.unwanted - set(asked))  # asked again when no other annotator could
        return replace(crew, capacity=_capacities(crew, self.away), never=never, asked=asked)

    def budget_left(self, budget: Budget, crew: Crew) -> Budget:
        """Return the budget less the waiting questions."""
        spent = sum(crew.cost_of(ask.annotator) for ask in self.asks if ask.annotator is not None)
        room = max(budget.open_questions - len(self.asks), 0)
        return replace(budget, open_questions=room, cost=max(budget.cost - spent, 0.0))


def next_plan(
    policy: Policy,
    questions: Sequence[Judged],
    crew: Crew,
    budget: Budget,
    previous: Plan | None = None,
    now: float = 0.0,
    expire: float = math.inf,
) -> Plan:
    """Return the plan after `previous` at time `now`: what waits, what a policy adds, or that the project is done.

    `questions` are (evidence, consensus) pairs about the same items, or their `PoolState`; `now` is in seconds since
    the epoch, `expire` how many seconds a question may wait.

    Example:
        >>> from hitl import Budget, Crew, Evidence
        >>> from hitl.active import ExpectedGain, next_plan
        >>> from hitl.models import MajorityVote
        >>> said = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> questions, crew = [(said, MajorityVote().fit(said))], Crew(("al", "bob"))
        >>> plan = next_plan(ExpectedGain(), questions, crew, Budget(open_questions=1), now=100.0)
        >>> later = next_plan(ExpectedGain(), questions, crew, Budget(open_questions=1), plan, now=160.0, expire=3600.0)
        >>> [(ask.item, ask.annotator, ask.since) for ask in later.asks]
        [(2, 'bob', 100.0)]
    """
    pool, previous = PoolState.of(questions, budget), previous or Plan()
    held = waiting(previous, pool, crew, budget, now, expire)
    why = rules.project_stop(pool, crew, budget)
    if why is not None:
        plan = policy.plan(pool, replace(crew, asked=()), replace(budget, open_questions=0))
        return still_asked(replace(plan, asks=(), stop=why, expired=held.expired, people=held.people))
    plan = _filled(policy, pool, held, previous, crew, budget, now)
    plan = with_answer_times(plan, pool.annotations[0])
    if plan.asks or not crew.names:
        return plan
    if lacking(pool.open_items(), crew):
        return replace(plan, stop=None)
    if not open_to_crew(pool, crew, budget):
        why = f"no annotator of the crew can answer any of the {plan.open_items} items that are open"
        return replace(plan, stop=why)
    return plan


def _filled(
    policy: Policy, pool: PoolState, held: Waiting, previous: Plan, crew: Crew, budget: Budget, now: float
) -> Plan:
    """Add the policy's questions to those that wait; withdraw some of these for annotators without any.

    Each reassignment gives an annotator their first question, and leaves at least one to everyone else who is present.
    """
    reassignment, waits = _Reassignment(policy, pool, crew, budget, held), len(held.asks)
    for _ in range(1 + len(crew.names)):
        more = policy.plan(pool, held.crew_now(crew), held.budget_left(budget, crew))
        plan = merged(more, held, previous, crew, budget, now)
        moved = reassignment.step(replace(held, asks=plan.asks), for_new=len(plan.asks) <= waits)
        if moved is None:
            break
        fewer, asks = moved
        held = replace(fewer, asks=merged(replace(more, asks=asks), fewer, previous, crew, budget, now).asks)
    return plan


@dataclass(eq=False)
class _Reassignment:
    """Withdraw waiting questions for annotators without any, if the limits of labels or cost are reached.

    An annotator without any label gets an even share, once the policy has nothing to add, because what it has just
    chosen is to be answered first. An annotator with labels gets what the policy gives them when it chooses all
    questions again: having nothing to do is no reason to be asked. The questions of annotators who are away are
    withdrawn first.
    """

    policy: Policy
    pool: PoolState
    crew: Crew
    budget: Budget
    waits: Waiting

    @cached_property
    def present(self) -> list[Name]:
        """Annotators who are not away and have capacity."""
        return [name for name in self.crew.names if name not in self.waits.away and self.crew.capacity_of(name) > 0]

    @cached_property
    def known(self) -> set[Name]:
        """Annotators who have labels."""
        return {a.annotators[k] for a in self.pool.annotations for k in np.flatnonzero(a.labels_per_annotator)}

    @cached_property
    def anew(self) -> list[Ask]:
        return self._asks(self.waits.without(self.waits.asks), self.present)

    def step(self, held: Waiting, for_new: bool) -> tuple[Waiting, tuple[Ask, ...]] | None:
        """Return what still waits, and the replacement questions; None if no annotator gets any.

        `for_new`: annotators without any label may get some.
        """
        busy = {ask.annotator for ask in held.asks}
        idle = [name for name in self.present if name not in busy]
        left = held.budget_left(self.budget, self.crew)
        if not idle or (left.open_questions and left.cost + CENT >= min(map(self.crew.cost_of, idle))):
            return None
        share = max(len(held.asks) // len(self.present), 1)
        spare = _beyond(held.asks, share, held.away)
        new = [name for name in idle if name not in self.known]
        asks = self._asks(held.without(spare[: len(new) * share]), new) if new and spare and for_new else []
        if spare and not asks and len(new) < len(idle):
            stays = {ask.item for ask in held.without(spare).asks}
            asks = [ask for ask in self.anew if ask.annotator in idle and ask.item not in stays]
        return self._instead(held, spare, asks)

    def _asks(self, held: Waiting, among: Sequence[Name]) -> list[Ask]:
        """Ask the policy for questions to these annotators only."""
        asked = held.crew_now(self.crew)
        asked = replace(asked, capacity={n: asked.capacity_of(n) if n in among else 0 for n in asked.names})
        plan = self.policy.plan(self.pool, asked, held.budget_left(self.budget, self.crew))
        return [ask for ask in plan.asks if ask.annotator in among]

    def _instead(
        self, held: Waiting, spare: Sequence[Ask], asks: Sequence[Ask]
    ) -> tuple[Waiting, tuple[Ask, ...]] | None:
        """Withdraw as many `spare` questions as the first of `asks` need, in number and in cost.

        An item that `asks` give to another annotator is withdrawn first.
        """
        reassigned = {ask.item for ask in asks}
        first = sorted(spare, key=lambda ask: ask.item not in reassigned)
        least = sum(ask.item in reassigned for ask in first)
        price, paid = (np.cumsum([self.crew.cost_of(ask.annotator) for ask in part]) for part in (asks, first))
        money = held.budget_left(self.budget, self.crew).cost + CENT + paid
        for many in range(min(len(asks), len(spare)), 0, -1):
            gone = max(many, least, int(np.searchsorted(money, price[many - 1])) + 1)
            if gone <= len(first):
                return held.without(first[:gone]), tuple(asks[:many])
        return None


def _beyond(asks: Sequence[Ask], share: int, away: frozenset[Name]) -> list[Ask]:
    """Return questions of absent annotators, and those after the first `share` of each other one, last ones first."""
    count: dict[Name | None, int] = {}
    gone, behind = [], []
    for ask in asks:
        count[ask.annotator] = count.get(ask.annotator, 0) + 1
        if ask.annotator in away:
            gone.append(ask)
        elif count[ask.annotator] > share:
            behind.append((count[ask.annotator], ask))
    return [*gone, *(ask for _, ask in sorted(behind, key=itemgetter(0), reverse=True))]


def waiting(previous: Plan, pool: PoolState, crew: Crew, budget: Budget, now: float, expire: float) -> Waiting:
    """Select the questions of the last plan that are still expected.

    A question of an annotator who has left the crew, or may not answer it any more, returns to the pool at once. So
    does one whose item is done, unless it is a check or an audit, which are asked about done items.
    """
    free = Eligibility.of(replace(crew, asked=()), pool.annotations)
    named = [(ask.annotator, ask) for ask in previous.asks if ask.annotator is not None]
    pairs = [*((who, ask.item) for who, ask in named), *((e.annotator, e.item) for e in previous.expired)]
    row = places_of(pool.items, (item for _, item in pairs))
    kept_open = {ask.item for ask in previous.asks if ask.check or ask.audit}
    done = {item for item, n in row.items() if not pool.open[n]} - kept_open
    may_answer = {pair for pair, may in zip(pairs, free.may_be_asked(pairs), strict=True) if may}
    asks, fresh = [], []
    for who, ask in named:
        if (who, ask.item) not in may_answer or ask.item in done:
            continue
        since = ask.since or now  # older plans have no times
        if now - since >= expire:
            fresh.append(Expired(ask.item, who, since))
        else:
            asks.append(replace(ask, since=since))
    gone = {(e.annotator, e.item): e for e in (*previous.expired, *fresh)}
    expired = tuple(e for pair, e in gone.items() if pair in may_answer and e.item not in done)
    settled = [ask for who, ask in named if ask.item in done and (who, ask.item) in may_answer]
    people = activity_now(previous, pool.annotations, crew, fresh, settled, now, expire)
    away = frozenset(person.annotator for person in people if person.away)
    held = _within(asks, crew, budget, away)
    return Waiting(held, expired, people, _unwanted(expired, free, away))


def merged(plan: Plan, held: Waiting, previous: Plan, crew: Crew, budget: Budget, now: float) -> Plan:
    """Append the policy's plan to what waits.

    Questions about waiting items, beyond the capacities or beyond the budget, are left out.
    """
    before = {ask.item: ask.since for ask in previous.asks if ask.annotator is None}  # to anyone: does not expire
    items = {ask.item for ask in held.asks}
    fresh = [
        replace(ask, since=(before.get(ask.item) or now) if ask.annotator is None else now)
        for ask in plan.asks
        if ask.annotator is None or ask.item not in items
    ]
    asks = _within((*held.asks, *fresh), crew, budget, held.away)
    return still_asked(replace(plan, asks=asks, expired=held.expired, people=held.people))


def open_to_crew(questions: Sequence[Judged], crew: Crew, budget: Budget) -> bool:
    """Return True if anyone in the crew, away or at capacity, may still be asked about an open item."""
    pool = PoolState.of(questions, budget)
    return Eligibility.of(replace(crew, asked=()), pool.annotations).any_of(pool.open_rows)


def _within(asks: Sequence[Ask], crew: Crew, budget: Budget, away: frozenset[Name]) -> tuple[Ask, ...]:
    """Return the first of these questions that current capacities and budget allow."""
    room = _capacities(crew, away)
    within: list[Ask] = []
    cost = 0.0
    for ask in asks:
        price = crew.cost_of(ask.annotator)
        if len(within) >= budget.open_questions or cost + price > budget.cost + CENT:
            continue
        if ask.annotator is not None:
            if room.get(ask.annotator, 0) <= 0:
                continue
            room[ask.annotator] -= 1
        within.append(ask)
        cost += price
    return tuple(within)


def _unwanted(expired: Sequence[Expired], free: Eligibility, away: frozenset[Name]) -> frozenset[Pair]:
    """Return the expired pairs whose items another annotator, who is present and has capacity, can answer."""
    place = {name: position for position, name in enumerate(free.crew.names)}
    row = places_of(free.items, (e.item for e in expired))
    item, person = np.array([(row[e.item], place[e.annotator]) for e in expired], dtype=np.int64).reshape(-1, 2).T
    there = [position for name, position in place.items() if name not in away and free.crew.capacity_of(name) > 0]
    others_can = np.any(free.without(item, person).mask_rows(item)[:, there], axis=1)
    return frozenset((e.annotator, e.item) for e, others in zip(expired, others_can.tolist(), strict=True) if others)


def _capacities(crew: Crew, away: frozenset[Name]) -> dict[Name, int]:
    """Return the number of questions each may have at a time: at most one for annotators who are away."""
    return {name: min(crew.capacity_of(name), 1 if name in away else UNLIMITED) for name in crew.names}
