"""`hitl status`: where a project stands, from what the last cycle recorded; nothing is fitted."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hitl.cli import show

if TYPE_CHECKING:
    from hitl.plan import Plan
    from hitl.settings import Settings
    from hitl.store import Store
    from hitl.store.cycles import CycleSummary


@dataclass(frozen=True)
class Queue:
    """Questions that wait for one annotator (None: for anyone): how many, since how long, and who seems away."""

    annotator: str | None
    questions: int
    oldest_hours: float
    overdue: int
    away: bool


def status(settings: Settings, store: Store, as_json: bool, now: float | None = None) -> None:
    """Counts, the last cycle, what is expected and still to come, who was asked what, and what is not pushed yet."""
    from hitl.cycle import outlook

    counts = store.counts(settings.name)
    cycles = store.cycles(settings.name)
    pending = store.pending(settings.name)
    last = cycles[-1] if cycles else None
    plan = store.plan(settings.name)
    queues = [] if plan is None else queues_of(plan, settings.crew.expire_hours, time.time() if now is None else now)
    if as_json:
        data = {"project": settings.name, "stored": counts, "cycles": len(cycles), "pending": len(pending)}
        outstanding = [asdict(queue) for queue in queues]
        show.as_json({**data, "last": None if last is None else dict(last.metrics), "outstanding": outstanding})
        return
    show.line(f"{settings.name}: {', '.join(f'{value:,} {key}' for key, value in counts.items())}")
    if last is None:
        show.line("no cycle yet: `hitl run`")
        return
    for line in (_cycle(last), *outlook(last.metrics), *_outstanding(queues)):
        show.line(line)
    show.line(f"{len(pending)} operations wait for `hitl push`" if pending else "the platform is as planned")


def queues_of(plan: Plan, expire_hours: float, now: float) -> list[Queue]:
    """Who has questions waiting, the longest wait first; and who seems to be away, questions or not."""
    away = {person.annotator for person in plan.people if person.away}
    people = dict.fromkeys([ask.annotator for ask in plan.asks] + sorted(away, key=str))
    queues = []
    for name in people:
        ages = [(now - ask.since) / 3600 if ask.since else 0.0 for ask in plan.asks_of(name)]
        overdue = 0 if name is None else sum(age >= expire_hours for age in ages)
        shown = None if name is None else str(name)
        queues.append(Queue(shown, len(ages), round(max(ages, default=0.0), 2), overdue, name in away))
    return sorted(queues, key=lambda queue: -queue.oldest_hours)


def _cycle(last: CycleSummary) -> str:
    m = last.metrics
    agreement = "-" if m["agreement"] is None else f"{m['agreement']:.1%}"
    reasons = ", ".join(f"{why}: {count:,}" for why, count in m.get("reasons", {}).items())
    return (
        f"cycle {last.number} at {last.recorded_at}: {m['done']:,} of {m['items']:,} items done"
        + (f" ({reasons})" if reasons else "")
        + f", mean confidence {m['confidence']:.1%}, labels that agree with the consensus {agreement}"
    )


def _outstanding(queues: list[Queue]) -> list[str]:
    lines = []
    waiting = [queue for queue in queues if queue.questions]
    if waiting:
        total = sum(queue.questions for queue in waiting)
        each = ", ".join(
            f"{queue.annotator or 'anyone'} {queue.questions} (oldest {_age(queue.oldest_hours)}"
            + (f", {queue.overdue} overdue)" if queue.overdue else ")")
            for queue in waiting
        )
        lines.append(f"outstanding: {total:,} questions: {each}")
    away = [str(queue.annotator) for queue in queues if queue.away]
    if away:
        lines.append(f"seem to be away (one question each until they answer): {', '.join(away)}")
    return lines


def _age(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
