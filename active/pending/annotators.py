"""Find out who is away, and how long an annotator takes to answer, from the plans made before.

    active       when a plan first saw that an annotator had answered or skipped more than before
    away         when a question asked since then expired; or after having questions for `expire` seconds, even if each
                 was answered by others, or settled by the fit, before it could expire
    back         as soon as they answer or skip anything

The second rule needs a memory, because finished questions are no longer asked: `Activity.unanswered`, the time of the
first such question. It is cleared when they are active, and when nothing is asked of them, because then they owe no
answer.

An answer takes the median of the annotator's durations, if there are at least FEWEST, else the median of all: a task
that was left open over lunch took an hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Name
from hitl.crew import Crew
from hitl.plan import Activity, Ask, Expired, Plan

FEWEST = 5
"""Number of durations of one annotator below which the median of all is used.

The median of five lies between the quartiles of the annotator's times four times out of five (binomial), that of three
only twice out of three.
"""


def activity_now(
    previous: Plan,
    answered: Sequence[Annotations],
    crew: Crew,
    expired: Sequence[Expired],
    settled: Sequence[Ask],
    now: float,
    expire: float,
) -> tuple[Activity, ...]:
    """Return when each was last active and who is away; annotators never active nor missed are left out.

    `expired` are the questions given up just now, `settled` those of the last plan that were finished without their
    answer.
    """
    count = _answers_and_skips(answered, crew)
    before = {person.annotator: person for person in previous.people}
    people = []
    for name in crew.names:
        old = before.get(name, Activity(name, 0, 0.0))
        number = count[name]
        if number > old.answers:
            people.append(Activity(name, number, now))
            continue
        since = [ask.since or now for ask in settled if ask.annotator == name]
        since = [time for time in since if time >= old.last_active] + ([old.unanswered] if old.unanswered else [])
        unanswered = min(since, default=0.0)
        missed = any(e.annotator == name and e.since >= old.last_active for e in expired)
        missed = missed or bool(since and now - unanswered >= expire)
        if number or missed or old.away or unanswered:
            people.append(Activity(name, number, old.last_active, old.away or missed, unanswered))
    return tuple(people)


def still_asked(plan: Plan) -> Plan:
    """Return the plan with `unanswered` cleared for annotators who are asked nothing in it."""
    asked = {ask.annotator for ask in plan.asks}
    people = [person if person.annotator in asked else replace(person, unanswered=0.0) for person in plan.people]
    active = [person for person in people if person.answers or person.away or person.unanswered]
    return replace(plan, people=tuple(active))


def _answers_and_skips(answered: Sequence[Annotations], crew: Crew) -> Counter[Name]:
    """Count answers and skips, without dates, because times may be those of a recording."""
    count = Counter(name for name, _ in crew.never)
    for given in answered:
        count.update(dict(zip(given.annotators, given.labels_per_annotator.tolist(), strict=True)))
    return count


def seconds_per_answer(annotations: Annotations) -> tuple[float, Mapping[Name, float]]:
    """Return the seconds of an average answer (0 if no duration is known), and of annotators with enough answers."""
    if annotations.duration is None:
        return 0.0, {}
    timed = np.isfinite(annotations.duration) & (annotations.duration > 0)
    seconds, person = annotations.duration[timed], annotations.annotator[timed]
    if not len(seconds):
        return 0.0, {}
    order = np.argsort(person, kind="stable")
    codes, first = np.unique(person[order], return_index=True)
    each = zip(codes.tolist(), np.split(seconds[order], first[1:]), strict=True)
    own = {annotations.annotators[k]: float(np.median(taken)) for k, taken in each if len(taken) >= FEWEST}
    return float(np.median(seconds)), own


def with_answer_times(plan: Plan, annotations: Annotations) -> Plan:
    """Add to the plan how long each answer is expected to take."""
    average, own = seconds_per_answer(annotations)
    if not average and not any(ask.seconds for ask in plan.asks):
        return plan
    asks = [
        replace(ask, seconds=average if ask.annotator is None else own.get(ask.annotator, average)) for ask in plan.asks
    ]
    return replace(plan, asks=tuple(asks))
