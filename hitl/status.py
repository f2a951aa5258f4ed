"""The state of a project, as recorded by the last run. Nothing is fitted, and the platform is not contacted."""

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
    from hitl.metrics import Summary
    from hitl.platform import Pages
    from hitl.settings import Settings
    from hitl.settings.schedule import ScheduleSettings
    from hitl.store import CycleSummary, Store
    from hitl.store.store import Failure


SLACK = 60.0
"""Seconds by which a run may start late without being missed: the scheduler's polling interval."""


@dataclass(frozen=True)
class Queue:
    """Questions waiting for one annotator (None: for anyone).

    Attributes:
        annotator: name of the annotator.
        questions: number of questions.
        oldest_hours: age of the oldest question, in hours.
        overdue: number of questions that have expired.
        away: True if the annotator seems to be away.
        seconds: expected time to answer all questions, in seconds; 0 if unknown.
    """

    annotator: str | None
    questions: int
    oldest_hours: float
    overdue: int
    away: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Missed:
    """A missed run: when it was due, and the schedule in words."""

    due: datetime
    schedule: str


@dataclass(frozen=True)
class Status:
    """The state of a project at one moment.

    Attributes:
        project: name of the project.
        now: the moment, in seconds since the epoch.
        stored: kind of row -> number stored (`Store.counts`).
        last: the last run, or None before the first.
        pending: kind -> number of operations that are not confirmed yet.
        running: who is writing to the project now, in words, or None.
        failure: why the last run failed, or None.
        problems: rows that the last pull could not read or found doubtful, in words.
        queues: waiting questions per annotator, longest wait first.
        pages: pages where annotators answer, as of the last run; None if no run has recorded them.
        looked_at: when a run last found no changes, or None.
        missed: the run that should have started since the last one, or None.
        unfinished: True if a push was cut short and no process is writing now.
        changed_since: True if a pull has changed stored data since the last run.
        due: when the next run is due by `[schedule]`, or None if there is no schedule or no last run.
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
    due: datetime | None = None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Data that the last run left out or ignored, in words."""
        return () if self.last is None else tuple(map(str, self.last.metrics.get("problems") or ()))

    def summary(self) -> Summary:
        """Return the state in sentences, and what to do next."""
        from hitl.metrics import summary_of

        failure = self.failure
        told = None if failure is None else (failure.error, failure.message, failure.at)
        return summary_of(None if self.last is None else self.last.metrics, told, items=self.stored["items"] > 0)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, as printed by `hitl status --json`."""
        last, failure, missed = self.last, self.failure, self.missed
        return {
            "project": self.project,
            "summary": asdict(self.summary()),
            "stored": self.stored,
            "cycles": 0 if last is None else last.number,
            "recorded_at": None if last is None else last.recorded_at.isoformat(timespec="seconds"),
            "looked_at": None if self.looked_at is None else self.looked_at.isoformat(timespec="seconds"),
            "pending": sum(self.pending.values()),
            "pending_kinds": dict(self.pending),
            "running": self.running,
            "failed": None if failure is None else {**asdict(failure), "at": failure.at.isoformat(timespec="seconds")},
            "due": self.due and self.due.isoformat(timespec="seconds"),
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
    """Collect counts, the last run, waiting questions and pending operations.

    Pass `stored` if the counts are already known, because counting reads all stored data.
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
        store.changed_since_run(name),
        due_after(settings.schedule, times, now),
    )


def as_of(store: Store, project: str, now: float | None = None) -> str:
    """Say how old the stored data are: "as of 2026-11-28 03:10 UTC, the last run"."""
    last = store.last_cycle(project)
    if last is None:
        return "as last pulled; no run yet"
    at = last_of([last.recorded_at, store.looked_at(project)], time.time() if now is None else now) or last.recorded_at
    pulled = "with what was pulled since " if store.changed_since_run(project) else "as of "
    return f"{pulled}{at:%Y-%m-%d %H:%M} UTC, the last run"


def last_of(times: Iterable[datetime | None], now: float) -> datetime | None:
    """Return the latest of these times, or None. Times in the future are ignored, because a clock was ahead."""
    return max((each for each in times if each is not None and each.timestamp() <= now + SLACK), default=None)


def due_after(schedule: ScheduleSettings, times: Iterable[datetime | None], now: float) -> datetime | None:
    """Return when the run after the last of these times is due, or None."""
    last = last_of(times, now)
    return None if last is None else schedule.next_after(last)


def missed_by(schedule: ScheduleSettings, times: Iterable[datetime | None], now: float) -> Missed | None:
    """Return the run that should have started since the last of these times, or None."""
    due = due_after(schedule, times, now)
    if due is None or now <= due.timestamp() + SLACK:
        return None
    every = schedule.every
    said = f"cron {schedule.cron!r} ({schedule.timezone})" if every is None else f"every {spelled(every)}"
    return Missed(due, said)


def stored_in_words(counts: Mapping[str, int]) -> str:
    """Describe `Store.counts` in words. An answer is by one annotator, to one question about one item.

    Skips, ground truth and model predictions are not answers and are listed separately.

    Example:
        >>> stored_in_words({"items": 9, "labels": 27, "annotators_with_labels": 3, "skips": 1, "gold": 0})
        '9 items, 27 answers by 3 annotators, 1 skip'
    """
    if not any(counts.values()):
        return "nothing pulled yet"
    active = counts.get("annotators_with_labels", 0)
    said = [counted(counts["items"], "item"), counted(counts["labels"], "answer")]
    said[1] += f" by {counted(active, 'annotator')}" if active else ""
    said += [counted(counts[key], word) for key, word in (("skips", "skip"),) if counts.get(key)]
    said += [counted(counts["gold"], "gold item")] if counts.get("gold") else []
    said += [f"{counted(counts['predictions'], 'prediction')} by models"] if counts.get("predictions") else []
    return ", ".join(said)


def queues_of(plan: Plan, expire_hours: float, now: float) -> tuple[Queue, ...]:
    """Return the waiting questions per annotator, longest wait first. Annotators who seem to be away are included."""
    away = {person.annotator for person in plan.people if person.away}
    asks: dict[Name | None, list[Ask]] = {}
    for ask in plan.asks:
        asks.setdefault(ask.annotator, []).append(ask)
    queues = []
    for name in dict.fromkeys([*asks, *sorted(away, key=str)]):
        theirs = asks.get(name, [])
        ages = [(now - ask.since) / 3600 if ask.since else 0.0 for ask in theirs]
        passing = [age for age, ask in zip(ages, theirs, strict=True) if not ask.sent_back]  # these never expire
        overdue = 0 if name is None else sum(age >= expire_hours for age in passing)
        shown = None if name is None else str(name)
        seconds = round(math.fsum(ask.seconds for ask in theirs), 1)
        queues.append(Queue(shown, len(ages), round(max(ages, default=0.0), 2), overdue, name in away, seconds))
    return tuple(sorted(queues, key=lambda queue: -queue.oldest_hours))
