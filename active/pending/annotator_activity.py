"""Who has left without a word: who was asked, and for `expire` seconds gave no sign of life.

    heard        when a plan first saw that somebody had answered or skipped more than before
    silent       a question asked since then expired; or they had questions all the time for as long as that, though
                 each was done by others, or settled by the fit, before it could expire
    away         silent once, until they are heard of

The second needs a memory, for what is done is not asked any more: `Presence.unanswered`, the time of the first such
question. It is forgotten when they are heard of, and when nothing is asked of them: who has nothing to do owes no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Name
from hitl.crew import Crew
from hitl.plan import Ask, Expired, Plan, Presence


def people_now(
    previous: Plan,
    answered: Sequence[Annotations],
    crew: Crew,
    expired: Sequence[Expired],
    settled: Sequence[Ask],
    now: float,
    expire: float,
) -> tuple[Presence, ...]:
    """When the crew was last heard of, and who is away; whoever was never heard of nor missed is left out.

    `expired` are the questions given up just now, `settled` those of the last plan that were done without their answer.
    """
    count = _signs_of_life(answered, crew)
    before = {person.annotator: person for person in previous.people}
    people = []
    for name in crew.names:
        old = before.get(name, Presence(name, 0, 0.0))
        number = count.get(name, 0)
        if number > old.answers:
            people.append(Presence(name, number, now))
            continue
        since = [ask.since or now for ask in settled if ask.annotator == name]
        since = [time for time in since if time >= old.heard] + ([old.unanswered] if old.unanswered else [])
        unanswered = min(since, default=0.0)
        silent = any(e.annotator == name and e.since >= old.heard for e in expired)
        silent = silent or bool(since and now - unanswered >= expire)
        if number or silent or old.away or unanswered:
            people.append(Presence(name, number, old.heard, old.away or silent, unanswered))
    return tuple(people)


def still_asked(plan: Plan) -> Plan:
    """The plan, where nobody owes a word who is asked nothing in it."""
    asked = {ask.annotator for ask in plan.asks}
    people = [person if person.annotator in asked else replace(person, unanswered=0.0) for person in plan.people]
    told = [person for person in people if person.answers or person.away or person.unanswered]
    return replace(plan, people=tuple(told))


def _signs_of_life(answered: Sequence[Annotations], crew: Crew) -> dict[Name, int]:
    """How many answers and skips there are of each. Counted, not dated: times may be those of a recording."""
    count: dict[Name, int] = {}
    for given in answered:
        labels = np.asarray(given.labels_per_annotator).tolist()
        for name, number in zip(given.annotators, labels, strict=True):
            count[name] = count.get(name, 0) + number
    for name, _ in crew.never:
        count[name] = count.get(name, 0) + 1
    return count
