"""Build the events of a run, or of its failure.

    items.decided       once per run, for all items that are newly done or done with another label
    annotator.drifted   once per annotator and change (`newly_drifted`)
    target.reached      once per question, and once for the project; again if it was clearly lost in between
    items.left_out      once per thing that could not be understood
    plan.waits          a plan was made that nobody has sent yet
    cycle.failed        the first of consecutive failures; cycle.recovered: the first run after them

The drift test runs every time, and near its limit its result flips. An announced change therefore stays announced until
the evidence for it has clearly gone (`OVER`). It is announced again only if a new change began after the last labels
seen at the time.

The announcements are stored with the events, in the transaction of the run. A run never fails because its events could
not be built.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.active.stopping.rules import reached
from hitl.errors import StoreError
from hitl.events.bodies import body_of, page_of, sentence
from hitl.metrics import expected_accuracy
from hitl.models.analysis import drift
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

ITEMS = 20
"""Maximum items that one event names. Its count covers all of them."""

PROBLEMS = 20
"""Maximum left-out items that one event names."""

LOST = 0.1
"""Share of the allowed error by which accuracy must fall below the target before the target counts as lost."""

OVER = 0.25
"""An announced change is over once its p-value over all looks exceeds this."""

DRIFTED = 20
"""Maximum annotators announced at once per question, the clearest first. The rest follow in the next run."""

_log = logging.getLogger(__name__)


def of_cycle(settings: Settings, store: Store, judgement: Judgement, *, waits: bool = False) -> Announcement:
    """Build the events of a run that is about to be recorded. `waits`: its plan needs approval before it is sent."""
    if not settings.events:
        return Announcement()
    try:
        with one_fit:
            return _Telling(settings, store, judgement, store.told(settings.name)).announcement(waits)
    except StoreError:
        raise  # the run cannot be recorded either, and will be repeated
    except Exception as error:
        _log.warning("events: what this cycle has to tell could not be made: %s: %s", type(error).__name__, error)
        return Announcement()


def of_failure(settings: Settings, store: Store, error: Exception | None) -> Announcement:
    """Build the event for a failed run, or for the first success after failures (`error` is None)."""
    before = store.failure(settings.name) if settings.events else None
    base, now = settings.serve.url, time.time()
    data: dict[str, Any] = {"project": settings.name, "url": page_of(base, settings.name, "runs")}
    if error is None and before is not None:
        since = before.at.isoformat(timespec="seconds").replace("+00:00", "Z")
        return Announcement(tuple(_told(settings, "cycle.recovered", now, data | {"failed_since": since})))
    if error is None or before is not None:
        return Announcement()
    said = {"error": type(error).__name__, "message": sentence(str(error), settings)}
    return Announcement(tuple(_told(settings, "cycle.failed", now, data | said)))


def _told(settings: Settings, kind: str, at: float, data: Mapping[str, Any]) -> Iterable[Event]:
    """Yield the event if an address subscribes to it."""
    to = tuple(one.name for one in settings.events if kind in one.kinds)
    if to:
        yield Event(kind, at, body_of(kind, at, data), to)


@dataclass
class _Telling:
    """Events of one run, given what was announced `before`."""

    settings: Settings
    store: Store
    judgement: Judgement
    before: Mapping[str, Any]
    at: float = field(default_factory=time.time)
    events: list[Event] = field(default_factory=list)

    def announcement(self, waits: bool) -> Announcement:
        """Build all events."""
        told = {
            "drifted": self.drifts(),
            "reached": self.targets(),
            "left_out": self.left_out(),
        }
        self.decided()
        if waits:
            asks = len(self.judgement.plan.asks)
            self.tell("plan.waits", {"questions": asks, "url": self.page("plan")})
        return Announcement(tuple(self.events), told)

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        last = self.store.last_cycle(self.settings.name)
        around = {"project": self.settings.name, "cycle": 1 if last is None else last.number + 1}
        self.events += _told(self.settings, kind, self.at, {**around, **data})

    def wanted(self, kind: str) -> bool:
        return any(kind in one.kinds for one in self.settings.events)

    def page(self, *parts: object) -> str | None:
        return page_of(self.settings.serve.url, self.settings.name, *parts)

    def decided(self) -> None:
        """Announce items that are newly done, or done with another label."""
        if not self.wanted("items.decided"):
            return
        now = DoneItems.of(self.judgement.plan.done)
        fresh, changed, reopened = differences(self.store.done(self.settings.name), now)
        if not fresh and not changed:
            return
        names = item_names(self.settings, self.store)
        self.tell(
            "items.decided",
            {
                "decided": len(fresh),
                "changed": len(changed),
                "reopened": reopened,
                "done": len(now),
                "of": self.judgement.metrics.get("items", len(now) + self.judgement.plan.open_items),
                "items": [self.item(now, n, names) for n in islice((*fresh, *changed), ITEMS)],
                "url": self.page("items"),
            },
        )

    def item(self, done: DoneItems, place: int, names: Mapping[str, str]) -> dict[str, Any]:
        one = done[place]
        name = names.get(str(one.item), str(one.item))
        labels = dict(zip(self.judgement.results, map(str, one.labels), strict=False))
        said = {"item": name, "labels": labels, "confidence": round(float(one.confidence), 6), "why": one.why}
        return said | {"url": self.page("items", name)}

    def drifts(self) -> dict[str, Any]:
        """Announce annotators who have changed. Return everything announced so far, by question."""
        told: Mapping[str, Any] = self.before.get("drifted", {})
        if not self.wanted("annotator.drifted"):
            return dict(told)
        now = {}
        several = len(self.judgement.results) > 1
        for question, evidence in self.judgement.evidence.items():
            fresh, now[question] = newly_drifted(evidence, self.judgement.results[question], told.get(question, {}))
            for one in fresh:
                change = one.change
                said = {
                    "annotator": one.annotator,
                    "question": question if several else None,
                    "before": round(change.before, 4),
                    "after": round(change.after, 4),
                    "since": _moment(change.when),
                    "url": self.page("annotators", one.annotator),
                }
                self.tell("annotator.drifted", said)
        return {question: said for question, said in now.items() if said}

    def targets(self) -> list[str]:
        """Announce reached targets. Return the questions that have reached theirs; "" is the whole project."""
        told: Sequence[str] = self.before.get("reached", ())
        whole, target = self.judgement.plan.stop, self.settings.budget.target_accuracy
        now = []
        for question, why in self.reached_questions(target, told):
            now.append(question)
            if question not in told:
                self.tell("target.reached", {"question": question, "why": why, "url": self.page()})
        if whole is None and "" in told and target is not None:
            sure = self.judgement.metrics.get("expected", {}).get("sure", 0.0)
            whole = "it was" if sure >= _lost(target) else None
        if whole is not None:
            now.append("")
            if "" not in told:
                self.tell("target.reached", {"question": None, "why": whole, "url": self.page()})
        return now

    def reached_questions(self, target: float | None, told: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Yield questions that have reached the target, or reached it earlier and have not lost it. Needs several
        questions.
        """
        if target is None or len(self.judgement.results) < 2:
            return
        for question, result in self.judgement.results.items():
            expected = expected_accuracy((self.judgement.evidence[question], result))
            if reached(expected, target) or (question in told and expected.sure >= _lost(target)):
                yield question, f"the accuracy expected is {expected}, the target {target:.1%}"

    def left_out(self) -> list[str]:
        """Announce what could not be understood. Return digests of everything that is left out now."""
        lines = [*self.store.problems(self.settings.name), *map(str, self.judgement.metrics.get("problems", ()))]
        known = {hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]: text for text in lines}
        fresh = [text for digest, text in known.items() if digest not in self.before.get("left_out", ())]
        if fresh:
            said = [sentence(text, self.settings) for text in fresh[:PROBLEMS]]
            self.tell("items.left_out", {"count": len(fresh), "problems": said, "url": self.page("runs")})
        return list(known)


def differences(before: pa.Table | None, now: DoneItems) -> tuple[list[int], list[int], int]:
    """Return indices of newly done items, indices of items with changed labels, and the number of reopened items.

    Works on columns because there may be a million rows.
    """
    if before is None:
        return list(range(len(now))), [], 0
    names = pa.array(map(str, now.items), pa.string(), size=len(now))
    place = pc.index_in(names, value_set=before.column("item").cast(pa.string()).combine_chunks())
    labels = pa.array((SEPARATOR.join(map(str, each)) for each in now.labels), pa.string(), size=len(now))
    same = pc.equal(labels, _joined(before.column("labels")).take(place))
    fresh, changed = pc.indices_nonzero(pc.is_null(place)), pc.indices_nonzero(pc.invert(same))
    return fresh.to_pylist(), changed.to_pylist(), before.num_rows - (len(now) - len(fresh))


SEPARATOR = "\x1f"
"""Separates the labels of several questions."""


def _joined(labels: pa.ChunkedArray) -> pa.Array:
    """Join each list of labels into one text."""
    texts = labels.combine_chunks().cast(pa.list_(pa.string()))
    return pc.binary_join(texts, SEPARATOR)


def _lost(target: float) -> float:
    """Return the accuracy below which the target is lost."""
    return target - LOST * (1.0 - target)


def _moment(seconds: float) -> str | None:
    """Format a time for JSON, or return None if it is not a valid time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class Drifted:
    """An annotator who has changed, and the change."""

    annotator: str
    change: Change


def changes(evidence: Evidence, consensus: Consensus) -> tuple[list[Change | None], list[bool]]:
    """Return each annotator's most likely change and whether it is significant, as `AnnotatorProfiler` does."""
    others = Others(evidence, consensus)
    ways = compare_ways(evidence.annotations, others, consensus.annotators.shares)
    found = drift.find_changes(evidence.annotations, others, ways.confusion)
    return found, drift.alarms(found).tolist()


def newly_drifted(
    evidence: Evidence, consensus: Consensus, told: Mapping[str, Any]
) -> tuple[list[Drifted], dict[str, Any]]:
    """Return annotators to announce, and all announced so far: annotator -> time of the latest label seen then.

    Return nothing if answers have no times, or are not about whole items.
    """
    annotations = evidence.annotations
    if annotations.time is None or evidence.parts is not None or not len(annotations):
        return [], {}
    found, alarms = changes(evidence, consensus)
    now: dict[str, Any] = {}
    fresh: list[Drifted] = []
    seen = float(np.nanmax(annotations.time))
    for code, name in enumerate(map(str, annotations.annotators)):
        change, before = found[code], told.get(name)
        if change is None or code == annotations.anonymous:
            continue
        again = before is not None and change.when > before
        if alarms[code] and (before is None or again):
            fresh.append(Drifted(name, change))
        if before is not None and change.p_any_look <= OVER:
            now[name] = before
    fresh = sorted(fresh, key=lambda one: (one.change.p_value, one.annotator))[:DRIFTED]
    return fresh, now | {one.annotator: seen for one in fresh}
