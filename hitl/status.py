"""Where a project stands, as data, from what the last cycle recorded; nothing is fitted, no platform is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hitl.formatting import counted
from hitl.plan import Ask, Plan
from hitl.settings.times import spelled

if TYPE_CHECKING:
    from hitl.annotations import Name
    from hitl.platform import Pages
    from hitl.settings import ScheduleSettings, Settings
    from hitl.store import CycleSummary, Store
    from hitl.store.store import Failure


SLACK = 60.0
"""Seconds after which a cycle that is due should run: the scheduler looks at the clock as often."""


@dataclass(frozen=True)
class Queue:
    """Questions that wait for one annotator (None: for anyone).

    Attributes:
        questions: how many; oldest_hours: since when the oldest waits; overdue: how many have waited too long.
        away: whether the annotator seems to be away.
        seconds: how long answering them all is expected to take; 0 where that is not known.
    """

    annotator: str | None
    questions: int
    oldest_hours: float
    overdue: int
    away: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Missed:
    """A cycle that has not come: when it was `due` at the latest, and what [schedule] says, in words."""

    due: datetime
    schedule: str


@dataclass(frozen=True)
class Status:
    """Where a project stands at one moment.

    Attributes:
        now: that moment, in seconds since the epoch.
        stored: `Store.counts`.
        last: the last cycle, or None before the first.
        pending: kind -> operations that the platform has not confirmed.
        running: who writes to the project now, in words, or None; failure: why the last cycle failed, or None.
        problems: what the last pull did not understand, or doubted; left_out: what the last cycle left out or ignored.
        queues: who has questions waiting, the longest wait first.
        pages: where annotators answer, as the last cycle saw it; None where none has noted it.
        looked_at: when a cycle last found nothing new; None: none has.
        missed: the cycle that should have come since; None where none should.
        unfinished: a push that nothing goes on with did not come to its end.
        changed_since: a pull has changed what is stored since the last cycle.
    """

    project: str
    now: float
    stored: Mapping[str, int]
    last: CycleSummary | None
    pending: Mapping[str, int]
    running: str | None
    failure: Failure | None
    problems: tuple[str, ...]
    queues: tuple[Queue, ...]
    pages: Pages | None = None
    looked_at: datetime | None = None
    missed: Missed | None = None
    unfinished: bool = False
    changed_since: bool = False

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the last cycle left out or ignored, in words."""
        return () if self.last is None else tuple(map(str, self.last.metrics.get("problems") or ()))

    def as_json(self) -> dict[str, Any]:
        """JSON values, as `hitl status --json` prints them."""
        last, failure, missed = self.last, self.failure, self.missed
        return {
            "project": self.project,
            "stored": self.stored,
            "cycles": 0 if last is None else last.number,
            "recorded_at": None if last is None else last.recorded_at.isoformat(timespec="seconds"),
            "looked_at": None if self.looked_at is None else self.looked_at.isoformat(timespec="seconds"),
            "pending": sum(self.pending.values()),
            "pending_kinds": dict(self.pending),
            "running": self.running,
            "failed": None if failure is None else {**asdict(failure), "at": failure.at.isoformat(timespec="seconds")},
            "missed": missed and {"due": missed.due.isoformat(timespec="seconds"), "schedule": missed.schedule},
            "unfinished_push": self.unfinished,
            "changed_since": self.changed_since,
            "problems": list(self.problems),
            "left_out": list(self.left_out),
            "last": None if last is None else dict(last.metrics),
            "outstanding": [asdict(queue) for queue in self.queues],
            "links": {} if self.pages is None else dict(self.pages.links),
        }


def status_of(
    settings: Settings, store: Store, now: float | None = None, *, stored: Mapping[str, int] | None = None
) -> Status:
    """Counts, the last cycle, what was asked, and what is not pushed yet.

    `stored` are counts that are known already: counting goes through all that is stored.
    """
    name, now = settings.name, time.time() if now is None else now
    plan, last, looked_at = store.plan(name), store.last_cycle(name), store.looked_at(name)
    running, failure = store.holder(name), store.failure(name)
    times = [None if last is None else last.recorded_at, looked_at, None if failure is None else failure.at]
    return Status(
        name,
        now,
        store.counts(name) if stored is None else stored,
        last,
        store.count_pending(name),
        running,
        failure,
        tuple(store.problems(name)),
        () if plan is None else queues_of(plan, settings.crew.expire_hours, now),
        store.workplaces(name),
        looked_at,
        missed_by(settings.schedule, times, now) if running is None else None,
        running is None and store.push_unfinished(name),
        last is not None and last.revision not in (None, store.revision(name)),
    )


def last_of(times: Iterable[datetime | None], now: float) -> datetime | None:
    """The last of these times, without those that are yet to come, as the clock was ahead; None where none is left."""
    return max((each for each in times if each is not None and each.timestamp() <= now + SLACK), default=None)


def missed_by(schedule: ScheduleSettings, times: Iterable[datetime | None], now: float) -> Missed | None:
    """The cycle that should have come since the last of these times; None without any, and without times of its own."""
    last = last_of(times, now)
    due = None if last is None else schedule.next_after(last)
    if due is None or now <= due.timestamp() + SLACK:
        return None
    every = schedule.every
    said = f"cron {schedule.cron!r} ({schedule.timezone})" if every is None else f"every {spelled(every)}"
    return Missed(due, said)


def stored_in_words(counts: Mapping[str, int]) -> str:
    """What `Store.counts` counts, in words. A label is one answer of one annotator about one item and question.

    Skips, known truth and what models predict are no labels, and stand apart.

    Example:
        >>> stored_in_words({"items": 9, "labels": 27, "annotators_with_labels": 3, "skips": 1, "gold": 0})
        '9 items, 27 labels of 3 annotators, 1 skip'
    """
    if not any(counts.values()):
        return "nothing pulled yet"
    active = counts.get("annotators_with_labels", 0)
    said = [counted(counts["items"], "item"), counted(counts["labels"], "label")]
    said[1] += f" of {counted(active, 'annotator')}" if active else ""
    said += [counted(counts[key], word) for key, word in (("skips", "skip"),) if counts.get(key)]
    said += [f"known truth of {counted(counts['gold'], 'item')}"] if counts.get("gold") else []
    said += [f"{counted(counts['predictions'], 'prediction')} of models"] if counts.get("predictions") else []
    return ", ".join(said)


def queues_of(plan: Plan, expire_hours: float, now: float) -> tuple[Queue, ...]:
    """Who has questions waiting, the longest wait first; and who seems to be away, questions or not."""
    away = {person.annotator for person in plan.people if person.away}
    asks: dict[Name | None, list[Ask]] = {}
    for ask in plan.asks:
        asks.setdefault(ask.annotator, []).append(ask)
    queues = []
    for name in dict.fromkeys([*asks, *sorted(away, key=str)]):
        theirs = asks.get(name, [])
        ages = [(now - ask.since) / 3600 if ask.since else 0.0 for ask in theirs]
        passing = [age for age, ask in zip(ages, theirs, strict=True) if not ask.sent_back]  # the others stay
        overdue = 0 if name is None else sum(age >= expire_hours for age in passing)
        shown = None if name is None else str(name)
        seconds = round(math.fsum(ask.seconds for ask in theirs), 1)
        queues.append(Queue(shown, len(ages), round(max(ages, default=0.0), 2), overdue, name in away, seconds))
    return tuple(sorted(queues, key=lambda queue: -queue.oldest_hours))
