"""Find out who is away, and how long annotators take to answer.

    last active  time of the first plan that saw the annotator's latest answers or skips
    away         if a question asked after that has expired, or the annotator had questions for `expire` seconds and
                 answered none, even if others answered them, or their items were done, before they could expire
    back         as soon as they answer or skip anything

Questions whose items are done leave the plan. So the time of the first one that the annotator had left unanswered is
stored in `Activity.unanswered`. It is cleared when the annotator answers or skips anything, and when no questions are
left, because then they owe no answer.

The expected time per answer is the median of the annotator's durations if there are at least FEWEST, else the median of
all durations. It is a median because a task that stays open over lunch takes an hour.
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
"""Minimum number of durations from an annotator for their own median to be used.

The median of five durations lies between the quartiles of the annotator's times with probability 0.79 (binomial), the
median of three only with probability 0.69.
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
    """Return the activity of the crew, without annotators who were never active and owe no answer.

    `expired`: questions that expired just now. `settled`: questions of the last plan whose items are done without the
    annotator's answer.
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
    """Clear `unanswered` for annotators without questions in the plan, and drop annotators without any activity."""
    asked = {ask.annotator for ask in plan.asks}
    people = [person if person.annotator in asked else replace(person, unanswered=0.0) for person in plan.people]
    active = [person for person in people if person.answers or person.away or person.unanswered]
    return replace(plan, people=tuple(active))


def _answers_and_skips(answered: Sequence[Annotations], crew: Crew) -> Counter[Name]:
    """Count answers and skips per annotator. Their times are not used, because they may come from a recording."""
    count = Counter(name for name, _ in crew.never)
    for given in answered:
        count.update(dict(zip(given.annotators, given.labels_per_annotator.tolist(), strict=True)))
    return count


def seconds_per_answer(annotations: Annotations) -> tuple[float, Mapping[Name, float]]:
    """Return the median seconds per answer (0 if none is known), and those of each annotator with enough durations."""
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
    """Set the expected time per answer of each question in the plan."""
    average, own = seconds_per_answer(annotations)
    if not average and not any(ask.seconds for ask in plan.asks):
        return plan
    asks = [
        replace(ask, seconds=average if ask.annotator is None else own.get(ask.annotator, average)) for ask in plan.asks
    ]
    return replace(plan, asks=tuple(asks))
