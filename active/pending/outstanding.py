"""Make the next plan from the outstanding questions of the last one: keep, expire or withdraw them, and add new ones.

    waiting    a question to a named annotator that is not answered, skipped or expired, and whose item is still open
               (gold and audit questions may be about done items)
    expired    a question not answered within `expire` seconds. Another annotator is asked; the same one again only if
               no other can answer
    ended      no annotator in the crew, present or away, may answer any open item. The project is done until someone
               can. It does not end if an open item needs skills that no annotator has (`blockers`), because that is a
               setting to fix, and closed items would have to be reopened
    away       an annotator who lets questions expire (`annotators`) gets at most one question until they answer or
               skip something, and none if it takes the last one from an annotator who is present

Waiting questions stay at the front of their annotator's queue, in the same order. They count against the annotator's
capacity and the budget, and no other annotator is asked about their items. If they leave nothing for an annotator whom
the policy would otherwise ask, the last questions of the longest queues are withdrawn, down to an even share. All that
is known of the past is the last plan. An answer that comes late, after its question expired or its item was done,
counts like any other, because it is in the evidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pending.annotators import activity_now, still_asked, with_answer_times
from hitl.active.pending.blockers import missing_skills
from hitl.active.policy import Policy
from hitl.active.pool_state import PoolState
from hitl.active.stopping.project_stop import project_stop
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
        people: last activity of the annotators.
        unwanted: (annotator, item) pairs of expired questions that another annotator can answer.
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
        """Return this state after these questions are withdrawn."""
        returned = set(asks)
        return replace(self, asks=tuple(ask for ask in self.asks if ask not in returned))

    def crew_now(self, crew: Crew) -> Crew:
        """Return the crew for a policy: waiting questions are in `asked` and count against the capacities."""
        asked = tuple((ask.annotator, ask.item) for ask in self.asks if ask.annotator is not None)
        never = crew.never | (self.unwanted - set(asked))  # `asked` may have expired pairs that no other can answer
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
    """Return the plan after `previous`: the waiting questions, those that the policy adds, or why the project is done.

    `questions` are (evidence, consensus) pairs about the same items, or their `PoolState`. `now`: seconds since the
    epoch. `expire`: number of seconds that a question may wait.

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
    if budget.answers is not None:
        budget = replace(budget, open_questions=min(budget.open_questions, max(budget.answers - pool.answered, 0)))
    held = waiting(previous, pool, crew, budget, now, expire)
    why = project_stop(pool, crew, budget)
    if why is not None:
        plan = policy.plan(pool, replace(crew, asked=()), replace(budget, open_questions=0))
        return still_asked(replace(plan, asks=(), stop=why, expired=held.expired, people=held.people))
    plan = _filled(policy, pool, held, previous, crew, budget, now)
    plan = with_answer_times(plan, pool.annotations[0])
    if plan.asks or not crew.names:
        return plan
    if missing_skills(pool.open_items(), crew):
        return replace(plan, stop=None)
    if not open_to_crew(pool, crew, budget):
        why = f"no annotator of the crew can answer any of the {plan.open_items} items that are open"
        return replace(plan, stop=why)
    return plan


def _filled(
    policy: Policy, pool: PoolState, held: Waiting, previous: Plan, crew: Crew, budget: Budget, now: float
) -> Plan:
    """Add the policy's questions to those that wait, and make room for annotators without any."""
    more = policy.plan(pool, held.crew_now(crew), held.budget_left(budget, crew))
    plan = merged(more, held, previous, crew, budget, now)
    waits, nothing_new = replace(held, asks=plan.asks), len(plan.asks) <= len(held.asks)
    withdrawn, asks = _make_room(policy, pool, waits, crew, budget, nothing_new)
    if not asks:
        return plan
    return merged(replace(more, asks=tuple(asks)), waits.without(withdrawn), previous, crew, budget, now)


def _make_room(
    policy: Policy, pool: PoolState, held: Waiting, crew: Crew, budget: Budget, nothing_new: bool
) -> tuple[Sequence[Ask], Sequence[Ask]]:
    """Return questions to withdraw, and new ones for annotators without any.

    Both are empty while the budget has room for another open item.

    A newcomer gets at most an even share, and nothing if the policy has just added questions, which should be answered
    first. Other annotators get at most as many questions as the policy would give them if it chose all questions again,
    because being idle is no reason to be asked. Questions to absent annotators are withdrawn first, then the last ones
    of the longest queues, down to an even share: as many as the new ones need, in number and in cost. A question is
    always withdrawn if its item goes to another annotator.
    """
    present = [name for name in crew.names if name not in held.away and crew.capacity_of(name) > 0]
    busy, left = {ask.annotator for ask in held.asks}, held.budget_left(budget, crew)
    idle = [name for name in present if name not in busy]
    share = max(len(held.asks) // max(len(present), 1), 1)
    spare = _beyond(held.asks, share, held.away)
    if not (idle and spare):
        return (), ()
    asked_n = pool.open[list(places_of(pool.items, {ask.item for ask in held.asks}).values())]
    unasked = len(pool.open_rows) - int(asked_n.sum())
    if unasked and left.open_questions and left.cost + CENT >= min(map(crew.cost_of, idle)):
        return (), ()

    def chosen(waits: Waiting, most: Mapping[Name, int]) -> list[Ask]:
        asked = waits.crew_now(crew)
        asked = replace(asked, capacity={n: min(asked.capacity_of(n), most.get(n, 0)) for n in asked.names})
        plan = policy.plan(pool, asked, waits.budget_left(budget, crew))
        return [ask for ask in plan.asks if ask.annotator in idle]

    given = Counter(ask.annotator for ask in chosen(held.without(held.asks), dict.fromkeys(present, UNLIMITED)))
    known = {a.annotators[k] for a in pool.annotations for k in np.flatnonzero(a.labels_per_annotator)}
    most = {name: given[name] if name in known else share * nothing_new for name in idle}
    asks = chosen(held.without(spare), most) if any(most.values()) else []
    reassigned = {ask.item for ask in asks}
    first = sorted(spare, key=lambda ask: ask.item not in reassigned)
    least = sum(ask.item in reassigned for ask in first)
    price, paid = (np.cumsum([crew.cost_of(ask.annotator) for ask in part]) for part in (asks, first))
    for many in range(min(len(asks), len(spare)), 0, -1):
        gone = max(many, least, int(np.searchsorted(left.cost + CENT + paid, price[many - 1])) + 1)
        if gone <= len(first):
            return first[:gone], asks[:many]
    return (), ()


def _beyond(asks: Sequence[Ask], share: int, away: frozenset[Name]) -> list[Ask]:
    """Return the questions to absent annotators, then those beyond the first `share` of each other, last ones first."""
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
    """Select the questions of the last plan that still wait, and find out who is away.

    A question is withdrawn at once if its annotator has left the crew or may no longer answer it. The same holds if its
    item is done, except for gold and audit questions, which may be about done items.
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
    """Append the policy's questions to those that wait.

    Leave out questions about items with a waiting question, and those that exceed the capacities or the budget.
    """
    before = {ask.item: ask.since for ask in previous.asks if ask.annotator is None}  # questions to anyone never expire
    items = {ask.item for ask in held.asks}
    fresh = [
        replace(ask, since=(before.get(ask.item) or now) if ask.annotator is None else now)
        for ask in plan.asks
        if ask.annotator is None or ask.item not in items
    ]
    asks = _within((*held.asks, *fresh), crew, budget, held.away)
    return still_asked(replace(plan, asks=asks, expired=held.expired, people=held.people))


def open_to_crew(questions: Sequence[Judged], crew: Crew, budget: Budget) -> bool:
    """Return True if any annotator of the crew, even one who is away or at capacity, may answer an open item."""
    pool = PoolState.of(questions, budget)
    return Eligibility.of(replace(crew, asked=()), pool.annotations).any_of(pool.open_rows)


def _within(asks: Sequence[Ask], crew: Crew, budget: Budget, away: frozenset[Name]) -> tuple[Ask, ...]:
    """Return these questions without those that exceed the current capacities or the budget. Earlier ones win."""
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
    """Return the expired pairs whose items can be answered by another annotator who is present and has capacity."""
    place = {name: position for position, name in enumerate(free.crew.names)}
    row = places_of(free.items, (e.item for e in expired))
    item, person = np.array([(row[e.item], place[e.annotator]) for e in expired], dtype=np.int64).reshape(-1, 2).T
    there = [position for name, position in place.items() if name not in away and free.crew.capacity_of(name) > 0]
    others_can = np.any(free.without(item, person).mask_rows(item)[:, there], axis=1)
    return frozenset((e.annotator, e.item) for e, others in zip(expired, others_can.tolist(), strict=True) if others)


def _capacities(crew: Crew, away: frozenset[Name]) -> dict[Name, int]:
    """Return annotator -> maximum number of questions at a time; at most one for annotators who are away."""
    return {name: min(crew.capacity_of(name), 1 if name in away else UNLIMITED) for name in crew.names}
