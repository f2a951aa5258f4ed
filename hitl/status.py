"""Where a project stands, as data, from what the last cycle recorded; nothing is fitted, no platform is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hitl.plan import Ask, Plan
from hitl.shown import counted

if TYPE_CHECKING:
    from hitl.annotations import Name
    from hitl.exchange import Pages
    from hitl.settings import Settings
    from hitl.store import CycleSummary, Store
    from hitl.store.store import Failure


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
class Status:
    """Where a project stands at one moment.

    Attributes:
        now: that moment, in seconds since the epoch.
        stored: `Store.counts`.
        last: the last cycle, or None before the first.
        pending: operations that the platform has not confirmed.
        running: who writes to the project now, in words, or None; failure: why the last cycle failed, or None.
        problems: what the last pull did not understand.
        queues: who has questions waiting, the longest wait first.
        pages: where annotators answer, as the last cycle saw it; None where none has noted it.
        looked_at: when a cycle last found nothing new; None: none has.
    """

    project: str
    now: float
    stored: Mapping[str, int]
    last: CycleSummary | None
    pending: int
    running: str | None
    failure: Failure | None
    problems: tuple[str, ...]
    queues: tuple[Queue, ...]
    pages: Pages | None = None
    looked_at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values, as `hitl status --json` prints them."""
        last, failure = self.last, self.failure
        return {
            "project": self.project,
            "stored": self.stored,
            "cycles": 0 if last is None else last.number,
            "recorded_at": None if last is None else last.recorded_at.isoformat(timespec="seconds"),
            "looked_at": None if self.looked_at is None else self.looked_at.isoformat(timespec="seconds"),
            "pending": self.pending,
            "running": self.running,
            "failed": None if failure is None else {**asdict(failure), "at": failure.at.isoformat(timespec="seconds")},
            "problems": list(self.problems),
            "last": None if last is None else dict(last.metrics),
            "outstanding": [asdict(queue) for queue in self.queues],
            "links": {} if self.pages is None else dict(self.pages.links),
        }


def status_of(settings: Settings, store: Store, now: float | None = None) -> Status:
    """Counts, the last cycle, what was asked, and what is not pushed yet."""
    name, now = settings.name, time.time() if now is None else now
    plan = store.plan(name)
    return Status(
        name,
        now,
        store.counts(name),
        store.last_cycle(name),
        store.count_pending(name),
        store.holder(name),
        store.failure(name),
        tuple(store.problems(name)),
        () if plan is None else queues_of(plan, settings.crew.expire_hours, now),
        store.workplaces(name),
        store.looked_at(name),
    )


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
        overdue = 0 if name is None else sum(age >= expire_hours for age in ages)
        shown = None if name is None else str(name)
        seconds = round(math.fsum(ask.seconds for ask in theirs), 1)
        queues.append(Queue(shown, len(ages), round(max(ages, default=0.0), 2), overdue, name in away, seconds))
    return tuple(sorted(queues, key=lambda queue: -queue.oldest_hours))
