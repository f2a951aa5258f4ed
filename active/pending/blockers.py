"""Explain why nothing is asked although items are open, which skills are missing, and for whom the project waits.

Missing skills are a setting to fix, not a reason to end the project: hitl.toml may lack a skill, a colleague may have
yet to join, or the item's data may contain a typo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pool_state import PoolState
from hitl.active.stopping.rules import Judged
from hitl.annotations import Name, places_of
from hitl.crew import Budget, Crew
from hitl.plan import Plan

SHOWN = 5
"""Maximum number of annotators or skills named in a message."""


def why_nothing_is_asked(plan: Plan, crew: Crew, budget: Budget) -> str | None:
    """Explain why nothing is asked although items are open.

    Return None if something is asked, if no item is open, or if the plan has stopped (`plan.stop` says why). It has
    stopped, for instance, if no annotator may answer the open items.
    """
    if plan.asks or plan.stop or not plan.open_items:
        return None
    if budget.open_questions == 0:
        return "`budget.open_questions` is 0"
    least = min(crew.prices)
    if budget.cost < least:
        return f"`budget.cost` is {budget.cost:g}, but a label costs at least {least:g}"
    if not crew.names:
        return "no answer is expected to change anything"
    if not any(crew.capacity_of(name) for name in crew.names):
        return "no annotator has any capacity (`crew.capacity`, `crew.capacities`)"
    return "the annotators who may be asked have no capacity left, or no question is worth its cost"


def why_not_asked(questions: Sequence[Judged], plan: Plan, crew: Crew, budget: Budget) -> dict[Name, str]:
    """Return annotator -> reason for all without a question. Empty if no one has a question or the plan has stopped."""
    asked = set(plan.annotators)
    left = [name for name in crew.names if name not in asked]
    if plan.stop or not plan.asks or not left:
        return {}
    pool = PoolState.of(questions, budget)
    may = _may_answer_some(pool, replace(crew, asked=()))
    may_by_skill = _may_answer_some(pool, replace(crew, asked=(), skills={}, needs={}))
    full = len(plan.asks) >= budget.open_questions
    limit = f"`budget.open_questions` allows {budget.open_questions:,} at a time, and " if full else ""
    reasons: dict[Name, str] = {}
    for name in left:
        if not crew.capacity_of(name):
            reasons[name] = "no capacity (`crew.capacity`, `crew.capacities`)"
        elif not may[name] and may_by_skill[name]:
            reasons[name] = "no open item matches their skills (`crew.skills`)"
        elif not may[name]:
            reasons[name] = "they have answered or skipped every open item"
        else:
            reasons[name] = f"{limit}answers by others help more"
    return reasons


def _may_answer_some(pool: PoolState, crew: Crew) -> dict[Name, bool]:
    """Return annotator -> True if they may answer any open item, ignoring capacity."""
    able = np.zeros(len(crew.names), dtype=bool)
    for _, may in Eligibility.of(crew, pool.annotations).blocks(pool.open_rows):
        able |= may.any(axis=0)
    return dict(zip(crew.names, able.tolist(), strict=True))


def no_annotator_left(pool: PoolState, crew: Crew) -> npt.NDArray[np.bool_]:
    """Return (N,) True for open items that no one in the crew may answer, because of earlier answers, skips or skills.

    If the crew has no names, these are the items that everyone who has labeled anything has answered or skipped.
    """
    rows, left = pool.open_rows, np.zeros(len(pool.items), dtype=bool)
    active = {given.annotators[k] for given in pool.annotations for k in np.flatnonzero(given.labels_per_annotator)}
    answered_n = np.sum([given.labels_per_item for given in pool.annotations], axis=0) if crew.names else +pool.labels
    row = places_of(pool.items, (item for _, item in crew.never))
    np.add.at(answered_n, [row[item] for _, item in crew.never if item in row], 1)
    if not crew.names:
        left[rows] = bool(active) & (answered_n[rows] >= len(active))
        return left
    if not (crew.needs or crew.only):  # then items with few answers and skips still have annotators left
        rows = rows[answered_n[rows] >= len(crew.names)]
    for block, may in Eligibility.of(replace(crew, asked=()), pool.annotations).blocks(rows):
        left[block] = ~may.any(axis=1)
    return left


def waiting_for_absent(questions: Sequence[Judged], plan: Plan, crew: Crew, budget: Budget) -> str | None:
    """Say how many open items can be answered only by annotators who seem to be away, and name these annotators.

    Return None if there are no such items, if the plan has stopped, or if it has `budget.open_questions` questions. The
    project continues by itself as soon as one of these annotators answers or skips anything. Until then each has at
    most one question (`outstanding`).
    """
    pool = PoolState.of(questions, budget)
    absent = {person.annotator for person in plan.people if person.away}
    able = np.array([crew.capacity_of(name) > 0 for name in crew.names], dtype=bool)
    away = np.array([name in absent for name in crew.names], dtype=bool) & able
    there = able & ~away
    if plan.stop or not away.any() or len(plan.asks) >= budget.open_questions:
        return None
    free = Eligibility.of(replace(crew, asked=()), pool.annotations)
    waiting, needed = 0, np.zeros(len(crew.names), dtype=bool)
    for _, may in free.blocks(pool.open_rows):
        only_away = may[:, away].any(axis=1) & ~may[:, there].any(axis=1)
        waiting += int(only_away.sum())
        needed |= may[only_away].any(axis=0) & away
    if not waiting:
        return None
    names = [str(name) for name, wanted in zip(crew.names, needed.tolist(), strict=True) if wanted]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    seem = "seems" if len(names) == 1 else "seem"
    items = f"{waiting:,} open item{' waits' if waiting == 1 else 's wait'}"
    people = f"{', '.join(names[:SHOWN])}{more}"
    return f"{items} for {people}, who {seem} to be away: no one else in the crew can answer"


def missing_skills(items: Iterable[Name], crew: Crew) -> Counter[tuple[str, ...]]:
    """Count the items that no annotator of the crew has the skills for, by the skills that are missing.

    A skill is missing if no annotator has it. If every skill is covered but no single annotator has them all, the whole
    set counts as missing.
    """
    if not (crew.needs and crew.names):
        return Counter()
    people = [crew.skills.get(name, frozenset()) for name in crew.names]
    had = frozenset().union(*people)
    missing: Counter[tuple[str, ...]] = Counter()
    for need, count in Counter(need for item in items if (need := crew.needs.get(item))).items():
        if not any(need <= skills for skills in people):
            missing[tuple(sorted(need - had or need))] += count
    return missing


def missing_in_words(missing: Counter[tuple[str, ...]], crew: Crew) -> str:
    """Describe which skills are missing, and which the crew has."""
    total, ranked = missing.total(), sorted(missing.items(), key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{' and '.join(map(repr, skills))} ({count:,})" for skills, count in ranked[:SHOWN])
    more = f", and {len(ranked) - SHOWN} more" if len(ranked) > SHOWN else ""
    had = sorted(frozenset().union(*(crew.skills.get(name, frozenset()) for name in crew.names)))
    has = f"the crew has {', '.join(map(repr, had[:SHOWN]))}{', ...' if len(had) > SHOWN else ''}"
    sentence = f"no annotator has the skills that {total:,} item{' needs' if total == 1 else 's need'}: {named}{more}"
    return f"{sentence} ({has if had else 'the crew has no skills'}; `crew.skills`)"
