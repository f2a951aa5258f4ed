"""Find what Label Studio holds otherwise than the store, although no stamp says so.

A pass over changes (`pull`) sees what is stamped later than all that the pass before could see. It misses a row that
became visible after its stamp was passed, a change stamped by a clock that had gone back, and a deleted task. So each
pull ends with a comparison of what has not changed since it began:

    numbers      of tasks and of annotations, and of tasks with late stamps; a few small requests, always
    the window   stamp and annotations of each task that is stamped within the overlap before `since`, while the last
                 change that was seen is no older than the overlap: an edit moves no number
    all tasks    the same of each, where the numbers differ still, or differ otherwise than when all tasks were equal

A task that differs is read again; one that is gone is reported. Label Studio takes 0.5 ms a task to list, whichever of
its fields are asked for (it reads the annotations in any case), and some 0.05 s to count: hence the numbers first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.pull import ID_PAGE, Reader, State, above, first_listed, stamp, up_to
from hitl.platform import Cursor, Held, HeldItem, Page

TRIES = 3
"""Counts that differ are taken again so often: annotators may go on in between."""
SHOWN = 500
"""Label Studio cuts a list of annotations off after so many characters."""
_LISTED = ("id", "updated_at", "annotations_ids", "total_annotations", "cancelled_annotations")


def pages(reader: Reader, cursor: Cursor, held: Held, overlap: timedelta) -> Iterator[Page]:
    """Read what differs again. Nothing where a pull has not come to its end.

    `overlap`: how far the server's clock may go back, and how late a row may become visible.
    """
    state = State.load(cursor)
    before = state.save()
    if state.phase != "changes" or state.after:
        return
    comparison = _Comparison(reader, state, held, overlap)
    if not state.whole and time.time() - state.moved <= overlap.total_seconds():
        yield from comparison.fix(comparison.differing_in_window())
    state.whole = False
    if not any(comparison.counts_agree() for _ in range(TRIES)):
        differing, gone = comparison.differing_anywhere()
        state.drift = [0, 0] if differing or gone else comparison.drift
        yield from comparison.fix(differing, gone)
    if state.save() != before:
        yield Page(cursor=state.save())


class _Comparison:
    """One comparison. Tasks that changed after the pass began are left to the next one."""

    def __init__(self, reader: Reader, state: State, held: Held, overlap: timedelta) -> None:
        self.reader = reader
        self.state = state
        self.held = held
        self.since = datetime.fromisoformat(state.since)
        self.window = stamp(self.since - overlap)
        self.drift = list(state.drift)

    def fix(self, differing: set[int], gone: frozenset[str] = frozenset()) -> Iterator[Page]:
        """Read the tasks that differ, and report those that are gone."""
        if differing or gone:
            self.state.moved = time.time()
        if differing:
            yield self.reader.people(self.state)
            yield from self.reader.again(self.state, differing)
        if gone:
            yield Page(cursor=self.state.save(), live=frozenset(self.held.stored()) - gone)

    def differing_in_window(self) -> set[int]:
        """Return the tasks that differ among those stamped within the overlap."""
        tasks = self._tasks([above(self.window), up_to(self.state.since)])
        return _differing(tasks, self.held.stored([str(task["id"]) for task in tasks]))

    def differing_anywhere(self) -> tuple[set[int], frozenset[str]]:
        """Return the tasks of the whole project that differ, and the keys of those that are gone."""
        tasks, stored = self._tasks([]), self.held.stored()
        old = (task for task in tasks if datetime.fromisoformat(task["updated_at"]) <= self.since)
        return _differing(old, stored), frozenset(stored.keys() - {str(task["id"]) for task in tasks})

    def counts_agree(self) -> bool:
        """Return True if tasks, annotations and late stamps are as many on the platform as in the store."""
        since = self.state.since
        fresh = self._tasks([above(since)])
        new = [str(task["id"]) for task in fresh]
        settings = self.reader.client.get(f"/api/projects/{self.reader.project}/", replies.SKIPS)
        skips = settings["skipped_annotations_number"] - sum(task["cancelled_annotations"] for task in fresh)
        tasks, annotations = self._count([up_to(since)])
        stored, answers = self.held.count(without=new)
        # Label Studio keeps its counts beside the rows, and they can go wrong.
        self.drift = [tasks - stored, annotations + skips - answers]
        if self.drift != self.state.drift:
            return False
        # A clock that was far ahead once leaves a `since` that hides all that is stamped right afterwards.
        front = self.held.latest(self.window)
        if front is None:
            return True
        late, _ = self._count([above(front), up_to(since)])
        before, _ = self.held.count(front, new)
        return late == stored - before

    def _count(self, filters: Sequence[Mapping[str, object]]) -> tuple[int, int]:
        """Count the tasks that pass the filters, and their annotations that are no skips."""
        listed = first_listed(self.reader.client, self.reader.project, filters)
        return int(listed["total"]), int(listed["total_annotations"])

    def _tasks(self, filters: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
        return list(self.reader.client.tasks(self.reader.project, _LISTED, filters=filters, page_size=ID_PAGE))


def _differing(tasks: Iterable[Mapping[str, Any]], stored: Mapping[str, HeldItem]) -> set[int]:
    return {int(task["id"]) for task in tasks if _differs(task, stored.get(str(task["id"])))}


def _differs(task: Mapping[str, Any], stored: HeldItem | None) -> bool:
    """Compare stamp and annotations; times as times, however they are written."""
    if stored is None or datetime.fromisoformat(task["updated_at"]) != datetime.fromisoformat(stored.version):
        return True
    names = str(task["annotations_ids"])
    if len(names) < SHOWN:
        return {name.strip() for name in names.split(",") if name.strip()} != stored.annotations
    return int(task["total_annotations"]) + int(task["cancelled_annotations"]) != len(stored.annotations)
