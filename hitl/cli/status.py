"""Describe `hitl status` in words."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hitl import errors
from hitl.formatting import counted, percent

if TYPE_CHECKING:
    from hitl.platform import Pages
    from hitl.status import Queue, Status
    from hitl.store import CycleSummary

MOST = 20
"""Maximum number of annotators that are listed."""
THINGS = 10
"""Maximum number of problems and errors that are listed, as in `hitl run`."""
WAITING = {"labels_wanted": "numbers of labels", "add_items": "new items", "gold": "ground truth"}
"""Kind of operation -> readable name."""


def words(status: Status) -> list[str]:
    """Describe the state of a project: stored rows, the last run, believed accuracy, questions, pending operations."""
    from hitl.metrics import outlook
    from hitl.status import stored_in_words

    last, now = status.last, status.now
    summary = status.summary()
    lines = [f"{status.project}: {stored_in_words(status.stored)}", *summary.state]
    lines.append(f"Next: {summary.advice[:1].lower()}{summary.advice[1:]}")
    if status.running is not None:
        lines.append(f"Running now: {status.running}")
    lines += _failed(status)
    if status.missed is not None:
        due, schedule = _when(status.missed.due, now), status.missed.schedule
        lines.append(
            f"A run was due {due} ([schedule]: {schedule}) and did not start. Is `hitl schedule` running? Start it, or "
            "use `hitl run`."
        )
    if last is not None:
        lines.append(_cycle(last, now))
        if status.due is not None and status.missed is None:
            lines.append(f"The next run is due at {status.due.astimezone(UTC):%Y-%m-%d %H:%M} UTC.")
        if status.changed_since:
            lines.append("Annotations or items have changed since; the next run includes them.")
        elif status.looked_at is not None and status.looked_at > last.recorded_at:
            lines.append(f"Nothing has changed since; checked {_when(status.looked_at, now)}.")
        lines += [*outlook(last.metrics), *asked(status.queues)]
        waiting = [queue.annotator for queue in status.queues if queue.questions and queue.annotator is not None]
        lines += where_to_answer(waiting, status.pages)
    if status.problems:
        head = f"The last pull found {counted(len(status.problems), 'problem')}. Fix them at their source; the next run"
        lines += _listed(f"{head} reads them again:", status.problems)
    if status.left_out:
        lines += _listed("Notes from the last run:", status.left_out)
    if status.pending:
        first = "" if status.failure is None else "; fix the failure first"
        operations = f"{counted(sum(status.pending.values()), 'operation')} ({_kinds(status.pending)})"
        lines.append(f"Not sent yet: {operations}. `hitl push` or the next run sends them{first}.")
    elif last is not None:
        lines.append("The platform is up to date with the plan.")
    return lines


def _failed(status: Status) -> list[str]:
    """Describe a push that was cut short, or what the summary does not say of the errors of the last run."""
    failure = status.failure
    if failure is None:
        cut = "The last push was interrupted. The next run checks everything it sent, and repairs it."
        return [cut] if status.unfinished else []
    several = len(failure.messages) > 1
    lines = _listed(f"{len(failure.messages)} failures:", failure.messages) if several else []
    kind = getattr(errors, failure.error, getattr(builtins, failure.error, None))
    if not (isinstance(kind, type) and issubclass(kind, errors.HitlError | OSError)):  # their messages say what to do
        lines.append(
            f"  This error is unexpected ({failure.error}). The output of `hitl run` or `hitl schedule` at that time "
            "says more."
        )
    return lines


def _listed(head: str, things: Sequence[str]) -> list[str]:
    lines = [head, *(f"  {thing}" for thing in things[:THINGS])]
    return lines if len(things) <= THINGS else [*lines, f"  and {len(things) - THINGS:,} more; --json has all"]


def _kinds(pending: Mapping[str, int]) -> str:
    questions = f"questions of {counted(pending.get('assign', 0), 'annotator')}"
    return ", ".join({**WAITING, "assign": questions}.get(kind, kind) for kind in pending)


def asked(queues: Sequence[Queue]) -> list[str]:
    """Return a line per annotator with the number of waiting questions and the time they take. Name who is away."""
    lines = []
    waiting = [queue for queue in queues if queue.questions]
    if waiting:
        named = sum(queue.annotator is not None for queue in waiting)
        whom = f" for {named:,} annotators" if named > 1 else ""
        lines.append(f"Waiting for answers: {_questions(waiting, whom)}")
        lines += [f"  {_of_one(queue)}" for queue in waiting[:MOST]]
        rest = waiting[MOST:]
        lines += [f"  and {len(rest)} more: {_questions(rest)}; --json has all"] if rest else []
    if any(queue.overdue for queue in waiting):
        lines.append("The next run gives overdue questions to another annotator.")
    away = [str(queue.annotator) for queue in queues if queue.away]
    if away:
        more = f" and {len(away) - MOST} more" if len(away) > MOST else ""
        lines.append(f"Seem to be away (one question each until they answer): {', '.join(away[:MOST])}{more}")
    return lines


def where_to_answer(annotators: Iterable[str], pages: Pages | None) -> list[str]:
    """Return a line per annotator with the page where they answer, if the platform has such pages.

    `pages` is None if no run has recorded them.
    """
    names = list(annotators)
    if pages is None:
        return ["Where they answer: not known until the next `hitl run`."] if names else []
    asked_of = [name for name in names if name in pages.links]
    lines = [f"  {name}: {pages.links[name]}" for name in asked_of[:MOST]]
    lines += [f"  and {len(asked_of) - MOST} more; `hitl report` has all"] if len(asked_of) > MOST else []
    lines += [f"  {pages.advice}"] if lines and pages.advice else []
    return ["Where they answer:", *lines] if lines else []


def _of_one(queue: Queue) -> str:
    oldest = f"oldest {_age(queue.oldest_hours)}" if queue.oldest_hours * 60 >= 1 else ""
    since = ", ".join(filter(None, (oldest, f"{queue.overdue:,} overdue" if queue.overdue else "")))
    return f"{queue.annotator or 'anyone'}: {_questions([queue])}{f' ({since})' if since else ''}"


def _questions(queues: Sequence[Queue], whom: str = "") -> str:
    """Describe the number of questions and the time they take."""
    count = counted(sum(queue.questions for queue in queues), "question") + whom
    seconds = math.fsum(queue.seconds for queue in queues)
    if not seconds:
        return count
    if seconds < 5400:
        return f"{count}, about {max(round(seconds / 60), 1)} min"
    return f"{count}, about {seconds / 3600:.1f} h" if seconds < 36_000 else f"{count}, about {seconds / 3600:,.0f} h"


def _cycle(last: CycleSummary, now: float) -> str:
    metrics, reasons = last.metrics, last.metrics.get("reasons", {})
    several = len(reasons) > 1
    why = "; ".join(f"{reason}: {count:,}" if several else reason for reason, count in reasons.items())
    done = f"{metrics['done']:,} of {metrics['items']:,} items done{f' ({why})' if why else ''}"
    agreement = metrics["agreement"]
    agree = "" if agreement is None else f", {percent(agreement)} of answers agree with the consensus"
    return f"Run {last.number}, {_when(last.recorded_at, now)}: {done}{agree}."


def _when(time: datetime, now: float) -> str:
    hours = (now - time.timestamp()) / 3600
    ago = "just now" if hours * 60 < 1 else f"{_age(hours)} ago"
    return f"{ago} ({time.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"


def _age(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
