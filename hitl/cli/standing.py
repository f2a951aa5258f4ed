"""`hitl status`: where a project stands, from what the last cycle recorded; nothing is fitted, no platform is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hitl.cli import show

if TYPE_CHECKING:
    from hitl.plan import Plan
    from hitl.settings import Settings
    from hitl.store import Store
    from hitl.store.cycles import CycleSummary

PEOPLE = 20
"""How many people have a line of their own."""


@dataclass(frozen=True)
class Queue:
    """Questions that wait for one annotator (None: for anyone): how many, since how long, and who seems away.

    `seconds`: how long answering them all is expected to take; 0 where nobody knows.
    """

    annotator: str | None
    questions: int
    oldest_hours: float
    overdue: int
    away: bool
    seconds: float = 0.0


def status(settings: Settings, store: Store, as_json: bool, now: float | None = None) -> None:
    """Counts, the last cycle, what is expected and still to come, who was asked what, and what is not pushed yet."""
    from hitl.metrics import outlook

    name, now = settings.name, time.time() if now is None else now
    counts, last, pending = store.counts(name), store.last_cycle(name), store.count_pending(name)
    plan, holder, problems, failure = store.plan(name), store.holder(name), store.problems(name), store.failure(name)
    queues = [] if plan is None else queues_of(plan, settings.crew.expire_hours, now)
    if as_json:
        show.as_json(
            {
                "project": name,
                "stored": counts,
                "cycles": 0 if last is None else last.number,
                "recorded_at": None if last is None else last.recorded_at.isoformat(timespec="seconds"),
                "pending": pending,
                "running": holder,
                "failed": None
                if failure is None
                else {**asdict(failure), "at": failure.at.isoformat(timespec="seconds")},
                "problems": problems,
                "last": None if last is None else dict(last.metrics),
                "outstanding": [asdict(queue) for queue in queues],
            }
        )
        return
    show.line(f"{name}: {_stored(counts)}" + ("; no cycle yet: `hitl run`" if last is None else ""))
    if holder is not None:
        show.line(f"a cycle, or another command that writes, is running now: {holder}")
    if failure is not None:
        show.line(f"the last cycle failed {_when(failure.at, now)}: {failure.error}: {failure.message}")
    if last is not None:
        for line in (_cycle(last, now), *outlook(last.metrics), *asked(queues)):
            show.line(line)
    if problems:
        show.line(
            f"the last pull left out {show.counted(len(problems), 'thing')} that it did not understand: {problems[0]}"
        )
    if pending:
        show.line(
            f"not on the platform yet: {show.counted(pending, 'operation')}; `hitl push`, or the next cycle, sends them"
        )
    elif last is not None:
        show.line("the platform is as planned")


def queues_of(plan: Plan, expire_hours: float, now: float) -> list[Queue]:
    """Who has questions waiting, the longest wait first; and who seems to be away, questions or not."""
    away = {person.annotator for person in plan.people if person.away}
    asks: dict[Any, list[Any]] = {}
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
    return sorted(queues, key=lambda queue: -queue.oldest_hours)


def asked(queues: Sequence[Queue]) -> list[str]:
    """Who was asked how much and how long that takes, a line each."""
    lines = []
    waiting = [queue for queue in queues if queue.questions]
    if waiting:
        total, people = sum(queue.questions for queue in waiting), [q for q in waiting if q.annotator is not None]
        whom = f" for {len(people):,} people" if len(people) > 1 else ""
        lines.append(f"outstanding: {show.counted(total, 'question')}{whom}{_takes(waiting)}")
        lines += [f"  {_of_one(queue)}" for queue in waiting[:PEOPLE]]
        if len(waiting) > PEOPLE:
            rest = waiting[PEOPLE:]
            questions = show.counted(sum(queue.questions for queue in rest), "question")
            lines.append(f"  and {len(rest)} more: {questions}{_takes(rest)}; --json has all")
    if any(queue.overdue for queue in waiting):
        lines.append("overdue questions go to somebody else in the next cycle")
    away = [str(queue.annotator) for queue in queues if queue.away]
    if away:
        more = f" and {len(away) - PEOPLE} more" if len(away) > PEOPLE else ""
        lines.append(f"seem to be away (one question each until they answer): {', '.join(away[:PEOPLE])}{more}")
    return lines


def _of_one(queue: Queue) -> str:
    oldest = f"oldest {_age(queue.oldest_hours)}" if queue.oldest_hours * 60 >= 1 else ""
    overdue = f"{queue.overdue:,} overdue" if queue.overdue else ""
    since = ", ".join(filter(None, (oldest, overdue)))
    head = f"{queue.annotator or 'anyone'}: {show.counted(queue.questions, 'question')}{_takes([queue])}"
    return f"{head} ({since})" if since else head


def _takes(queues: Sequence[Queue]) -> str:
    """How long these take together, where that is known."""
    seconds = math.fsum(queue.seconds for queue in queues)
    if not seconds:
        return ""
    if seconds < 5400:
        return f", about {max(round(seconds / 60), 1)} min"
    return f", about {seconds / 3600:.1f} h" if seconds < 36_000 else f", about {seconds / 3600:,.0f} h"


def _stored(counts: Mapping[str, int]) -> str:
    if not any(counts.values()):
        return "nothing pulled yet"
    said = [show.counted(counts["items"], "item"), show.counted(counts["annotations"], "annotation")]
    for key, word in (("annotators", "annotator"), ("skips", "skip")):
        if counts[key]:
            said.append(show.counted(counts[key], word))
    if counts["gold"]:
        said.append(f"{show.counted(counts['gold'], 'item')} of known truth")
    return ", ".join(said)


def _cycle(last: CycleSummary, now: float) -> str:
    m, reasons = last.metrics, last.metrics.get("reasons", {})
    why = (
        "; ".join(f"{reason}: {count:,}" for reason, count in reasons.items()) if len(reasons) > 1 else "".join(reasons)
    )
    said = f"cycle {last.number}, {_when(last.recorded_at, now)}: {m['done']:,} of {m['items']:,} items done"
    said += f" ({why})" if why else ""
    if not m.get("expected"):  # of an older version
        said += f", mean confidence {m['confidence']:.1%}"
    return said if m["agreement"] is None else f"{said}, {m['agreement']:.1%} of labels agree with the consensus"


def _when(time: datetime, now: float) -> str:
    hours = (now - time.timestamp()) / 3600
    ago = "just now" if hours * 60 < 1 else f"{_age(hours)} ago"
    return f"{ago} ({time.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"


def _age(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
