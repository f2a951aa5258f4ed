"""Build the events of a run, or of its failure.

    items.decided       at most once per run and question, for items newly done, or done with another label than before
    annotator.drifted   once per annotator and change (`newly_drifted`)
    target.reached      once per question, and once for the project; again if the target was clearly lost in between
    project.stopped     once, when nothing more is asked although labels are below their target; again if it went on
    items.left_out      once for each row or file that could not be used
    plan.waits          a new plan is not pushed until a user does so
    run.failed        the first of consecutive failed runs
    run.recovered     the first successful run after them

The transaction of the run stores the events, and what has been announced so far. A run never fails because its events
could not be built.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.active.stopping.rules import Expected, reached
from hitl.errors import StoreError, public_name
from hitl.events.bodies import body_of, page_of, sentence
from hitl.formatting import percent
from hitl.kinds.kind import by_control
from hitl.metrics import expected_accuracy, is_over, summary_of
from hitl.models.analysis import drift
from hitl.models.analysis.copied_accounts import count_copies_once
from hitl.models.analysis.drift import Change
from hitl.models.analysis.spammers import compare_ways
from hitl.models.annotators.leave_one_out import Others
from hitl.plan import DoneItems
from hitl.project import item_names, one_fit
from hitl.store.events import Announcement, Event

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.operations import Judgement
    from hitl.settings import Settings
    from hitl.store import Store

ITEMS = PROBLEMS = 20
"""Maximum number of items, or of problems, that one event lists. Its count includes all."""
LOST = 0.1  # a target t counts as lost if the accuracy falls below t - LOST (1 - t)
OVER = 0.25
"""An announced change is over once its p-value over all looks exceeds this.

This is far above the level of significance, because near it the test result may flip from run to run.
"""
DRIFTED = 20
"""Maximum number of annotators announced per run and question, clearest changes first. Others follow in later runs."""
PROGRESS = ("items", "done", "below", "stuck")
"""Figures of a question in an event."""
SEPARATOR = "\x1f"  # separates the labels of several questions

_log = logging.getLogger(__name__)


def of_cycle(settings: Settings, store: Store, judgement: Judgement, *, waits: bool = False) -> Announcement:
    """Build the events of a run that is about to be recorded. `waits`: its plan is not pushed until a user does so."""
    if not settings.events:
        return Announcement()
    try:
        with one_fit:
            return _RunEvents(settings, store, judgement, store.told(settings.name)).announcement(waits)
    except StoreError:
        raise  # the run cannot be recorded either, and will be repeated
    except Exception as error:
        _log.warning("events: the events of this run could not be built: %s: %s", type(error).__name__, error)
        return Announcement()


def of_failure(settings: Settings, store: Store, error: Exception | None) -> Announcement:
    """Build the event for the first failed run, or for the first success after failures (`error` is None).

    Return no event if the last run had the same outcome.
    """
    before = store.failure(settings.name) if settings.events else None
    data: dict[str, Any] = {"project": settings.name, "url": page_of(settings.serve.url, settings.name, "runs")}
    if (error is None) == (before is None):
        return Announcement()
    if error is None:
        assert before is not None
        kind, said = "run.recovered", {"failed_since": _moment(before.at.timestamp())}
    else:
        kind, said = "run.failed", {"error": public_name(error), "message": sentence(str(error))}
    return Announcement(tuple(_wanted_event(settings, kind, time.time(), data | said)))


def _wanted_event(settings: Settings, kind: str, at: float, data: Mapping[str, Any]) -> Iterable[Event]:
    """Yield the event if an address receives this kind."""
    to = tuple(one.name for one in settings.events if kind in one.kinds)
    if to:
        yield Event(kind, at, body_of(kind, at, data), to)


@dataclass
class _RunEvents:
    """Events of one run. `before`: what earlier runs announced (`Store.told`)."""

    settings: Settings
    store: Store
    judgement: Judgement
    before: Mapping[str, Any]
    at: float = field(default_factory=time.time)
    events: list[Event] = field(default_factory=list)

    def announcement(self, waits: bool) -> Announcement:
        told = {"drifted": self.drifts(), "reached": self.targets(), "left_out": self.left_out()}
        told |= {"stopped": self.stopped()}
        judgement = self.judgement
        for question, done in judgement.done.items() or [(None, DoneItems.of(judgement.plan.done))]:
            self.decided(question, done)
        if waits:
            self.tell("plan.waits", {"questions": len(self.judgement.plan.asks), "url": self.page("plan")})
        return Announcement(tuple(self.events), told)

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        last = self.store.last_cycle(self.settings.name)
        around = {"project": self.settings.name, "cycle": 1 if last is None else last.number + 1}
        self.events += _wanted_event(self.settings, kind, self.at, {**around, **data})

    def wanted(self, kind: str) -> bool:
        return any(kind in one.kinds for one in self.settings.events)

    def page(self, *parts: object) -> str | None:
        return page_of(self.settings.serve.url, self.settings.name, *parts)

    def decided(self, question: str | None, now: DoneItems) -> None:
        """Announce items that are newly done, or done with another label. `question`: None if there is only one."""
        if not self.wanted("items.decided"):
            return
        fresh, changed, reopened = differences(self.store.done(self.settings.name, question or ""), now)
        if not fresh and not changed:
            return
        names, items = item_names(self.settings, self.store), []
        for one in (now[n] for n in islice((*fresh, *changed), ITEMS)):
            name = names.get(str(one.item), str(one.item))
            named = zip(self.labeled(question), map(str, one.labels), strict=False)
            labels = {name: label for name, label in named if label}  # without those of hidden questions
            said = {"item": name, "labels": labels, "confidence": round(float(one.confidence), 6), "why": one.why}
            items.append(said | {"url": self.page("items", name)})
        data = {
            "question": question,
            "decided": len(fresh),
            "changed": len(changed),
            "reopened": reopened,
            "done": len(now),
            "of": self.judgement.metrics.get("items", len(now) + self.judgement.plan.open_items),
        }
        self.tell("items.decided", {**data, "items": items, "url": self.page("items")})

    def labeled(self, question: str | None) -> list[str]:
        """Return the names of the labels of a question that annotators answer; None: of the only one."""
        results = self.judgement.results
        controls = by_control(self.judgement.evidence, results) if question is not None else {}
        return [one.question for one in controls[question]] if question in controls else list(results)

    def drifts(self) -> dict[str, Any]:
        """Announce annotators who have changed. Return question -> changes announced so far (see `newly_drifted`)."""
        before: Mapping[str, Any] = self.before.get("drifted", {})
        if not self.wanted("annotator.drifted"):
            return dict(before)
        now = {}
        several = len(self.judgement.results) > 1
        for question, evidence in self.judgement.evidence.items():
            fresh, now[question] = newly_drifted(evidence, self.judgement.results[question], before.get(question, {}))
            for annotator, change in fresh:
                shares = {"before": round(change.before, 4), "after": round(change.after, 4)}
                said = {"annotator": annotator, "question": question if several else None, **shares}
                url = self.page("annotators", annotator)
                self.tell("annotator.drifted", {**said, "since": _moment(change.when), "url": url})
        return {question: said for question, said in now.items() if said}

    def targets(self) -> list[str]:
        """Announce newly reached targets. Return all questions whose target is reached; "" stands for the project."""
        before: Sequence[str] = self.before.get("reached", ())
        target, results, metrics = self.settings.budget.target_accuracy, self.judgement.results, self.judgement.metrics
        why: dict[str, str] = {}
        for question, progress in metrics.get("questions", {}).items() if self.judgement.done else ():
            if not progress["below"]:
                why[question] = f"all {progress['items']:,} items are done"
        for question, result in results.items() if target is not None and len(results) > 1 else ():
            expected = expected_accuracy((self.judgement.evidence[question], result))
            assert target is not None
            if reached(expected, target) or (question in before and reached(expected, _lost(target))):
                why[question] = f"{expected} of the labels are believed to be right, the target is {percent(target)}"
        whole = Expected(**metrics["expected"]) if metrics.get("expected") else None
        if self.judgement.plan.stop is not None and metrics.get("reached", True):
            why[""] = self.judgement.plan.stop
        elif "" in before and target is not None and whole is not None and reached(whole, _lost(target)):
            why[""] = "it was"
        for question in why.keys() - before:
            data = {"question": question or None, "why": why[question], "url": self.page()}
            self.tell("target.reached", data)
        return list(why)

    def stopped(self) -> list[str]:
        """Announce that the project has stopped below its target. Return why; empty if it has not."""
        metrics = self.judgement.metrics
        if not is_over(metrics) or metrics.get("reached", True):
            return []
        stop = self.judgement.plan.stop or "everyone has answered all open items"
        if not self.before.get("stopped"):
            summary = summary_of(metrics)
            questions = {name: {key: of[key] for key in PROGRESS} for name, of in metrics["questions"].items()}
            data = {"why": stop, "state": summary.state, "advice": summary.advice, "questions": questions}
            self.tell("project.stopped", {**data, "url": self.page()})
        return [stop]

    def left_out(self) -> list[str]:
        """Announce new problems with rows or files. Return digests of all current problems."""
        lines = [*self.store.problems(self.settings.name), *map(str, self.judgement.metrics.get("problems", ()))]
        digests = {hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]: text for text in lines}
        fresh = [text for digest, text in digests.items() if digest not in self.before.get("left_out", ())]
        if fresh:
            said = [sentence(text) for text in fresh[:PROBLEMS]]
            self.tell("items.left_out", {"count": len(fresh), "problems": said, "url": self.page("runs")})
        return list(digests)


def differences(before: pa.Table | None, now: DoneItems) -> tuple[list[int], list[int], int]:
    """Compare the done items of two runs. `before`: `Store.done`.

    Return indices into `now` of items that are newly done, indices of items with other labels, and the number of items
    that are no longer done.
    """
    if before is None:
        return list(range(len(now))), [], 0
    names = pa.array(map(str, now.items), pa.string(), size=len(now))
    place = pc.index_in(names, value_set=before.column("item").cast(pa.string()).combine_chunks())
    labels = pa.array((SEPARATOR.join(map(str, each)) for each in now.labels), pa.string(), size=len(now))
    old = before.column("labels").combine_chunks().cast(pa.list_(pa.string()))
    same = pc.equal(labels, pc.binary_join(old, SEPARATOR).take(place))
    fresh, changed = pc.indices_nonzero(pc.is_null(place)), pc.indices_nonzero(pc.invert(same))
    return fresh.to_pylist(), changed.to_pylist(), before.num_rows - (len(now) - len(fresh))


def _lost(target: float) -> float:
    """Return the accuracy below which the target is lost."""
    return target - LOST * (1.0 - target)


def _moment(seconds: float) -> str | None:
    """Format a time for JSON, or return None if it is not a valid time."""
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return None


def changes(evidence: Evidence, consensus: Consensus) -> tuple[list[Change | None], list[bool]]:
    """Return two lists with an entry per annotator: their most likely change, or None, and whether it is an alarm.

    The same as in the profiles of `AnnotatorProfiler`.
    """
    evidence = count_copies_once(evidence)
    others = Others(evidence, consensus)
    ways = compare_ways(evidence.annotations, others, consensus.annotators.shares)
    found = drift.find_changes(evidence.annotations, others, ways.confusion)
    return found, drift.alarms(found).tolist()


def newly_drifted(
    evidence: Evidence, consensus: Consensus, told: Mapping[str, Any]
) -> tuple[list[tuple[str, Change]], dict[str, Any]]:
    """Return changes to announce, as pairs of annotator and change, and all changes announced so far.

    The latter maps an annotator to the time of the latest label when the change was announced. It is input as `told`
    in the next run, so that only a change after this time is announced again. An annotator is removed once the change
    is over (`OVER`). Both results are empty if answers have no times, or if annotators mark parts of items.
    """
    annotations = evidence.annotations
    if annotations.time is None or evidence.parts is not None or not len(annotations):
        return [], {}
    likely, alarms = changes(evidence, consensus)
    now: dict[str, Any] = {}
    fresh: list[tuple[str, Change]] = []
    for code, name in enumerate(map(str, annotations.annotators)):
        change, before = likely[code], told.get(name)
        if change is None or code == annotations.anonymous:
            continue
        if alarms[code] and (before is None or change.when > before):
            fresh.append((name, change))
        if before is not None and change.p_any_look <= OVER:
            now[name] = before
    fresh = sorted(fresh, key=lambda one: (one[1].p_value, one[0]))[:DRIFTED]
    return fresh, now | dict.fromkeys((name for name, _ in fresh), float(np.nanmax(annotations.time)))
