"""Find where Label Studio differs from the store although no timestamp shows it.

A pass over changes (`pull`) reads tasks with a later timestamp than any in the previous pass. It misses rows that
became visible late, with an earlier timestamp, changes stamped by a clock that had gone back, and deleted tasks. Each
pull therefore ends with a comparison of the tasks that have not changed since it began:

    window       compare the timestamp and annotations of each task stamped within the overlap before `since`, because
                 an edit changes no count. This is done until once everything late must have become visible. A window
                 of many tasks, such as an import, is compared once per overlap, a smaller one by each pull
    counts       compare the numbers of tasks, annotations and late timestamps, always, with a few small requests
    all tasks    compare every task as in the window, if the counts differ in another way than they did when all tasks
                 matched

A task that differs is read again, and deleted tasks are reported. Counts are compared before all tasks because Label
Studio takes only about 0.05 s to count, but 0.5 ms per task to list, whichever fields are requested (it always reads
the annotations).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.pull import ID_PAGE, Reader, State, above, first_listed, stamp, up_to
from hitl.platform import Cursor, Held, HeldItem, Page

FEW = 1_000
"""Number of tasks in a window up to which each pull compares it, which takes the server half a second."""
TRIES = 3
"""Number of times to count until the counts agree, because annotators may be working meanwhile."""
SHOWN = 500
"""Number of characters after which Label Studio truncates a list of annotations."""
_LISTED = ("id", "updated_at", "annotations_ids", "total_annotations", "cancelled_annotations")


def pages(reader: Reader, cursor: Cursor, held: Held, overlap: timedelta) -> Iterator[Page]:
    """Yield pages with the tasks that differ from the store. Yield nothing if the pull has not finished.

    `overlap`: how far the server's clock may go back, and how late a row may become visible.
    """
    state = State.load(cursor)
    before = state.save()
    if state.phase != "changes" or state.after:
        return
    comparison = _Comparison(reader, state, held, overlap)
    if state.whole:
        comparison.done()
    elif comparison.is_due():
        tasks = comparison.tasks(above(comparison.window), up_to(state.since))
        comparison.done()
        yield from comparison.fix(_differing(tasks, held.stored([str(task["id"]) for task in tasks])))
    state.whole = False
    if not comparison.is_as_listed() and not any(comparison.counts_agree() for _ in range(TRIES)):
        tasks, stored = comparison.tasks(), held.stored()
        old = (task for task in tasks if datetime.fromisoformat(task["updated_at"]) <= comparison.since)
        differing, gone = _differing(old, stored), frozenset(stored.keys() - {str(task["id"]) for task in tasks})
        state.drift = [0, 0] if differing or gone else comparison.drift
        yield from comparison.fix(differing, gone)
    if state.save() != before:
        yield Page(cursor=state.save())


class _Comparison:
    """One comparison. Tasks that changed after the pull began are left to the next pull."""

    def __init__(self, reader: Reader, state: State, held: Held, overlap: timedelta) -> None:
        self.reader = reader
        self.state = state
        self.held = held
        self.now = time.time()
        self.overlap = overlap
        self.since = datetime.fromisoformat(state.since)
        before = self.since - overlap
        self.window = stamp(min(before, datetime.fromisoformat(state.floor)) if state.floor else before)
        self.drift = list(state.drift)

    def is_due(self) -> bool:
        """Return True if the window has to be compared now."""
        overlap, state = self.overlap.total_seconds(), self.state
        if state.moved + overlap < state.compared <= self.now:  # all that came late was visible then
            return False
        size = self.held.count(state.since)[0] - self.held.count(self.window)[0]
        return size <= FEW or not 0 <= self.now - state.compared <= overlap

    def done(self) -> None:
        """Record that the window has been compared. The server's clock has gone on since the last change was seen."""
        passed = timedelta(seconds=max(self.now - self.state.moved, 0.0))
        self.state.compared, self.state.floor = self.now, stamp(self.since + passed - self.overlap)

    def is_as_listed(self) -> bool:
        """Return True if nothing has a later time, and the counts were equal when the pull began."""
        listed = self.reader.listed
        return listed is not None and self._agrees(listed, [], 0)

    def fix(self, differing: set[int], gone: frozenset[str] = frozenset()) -> Iterator[Page]:
        """Yield pages with the tasks that differ, and without those that are gone."""
        if differing or gone:
            self.state.moved = time.time()
        if differing:
            yield self.reader.people(self.state)
            yield from self.reader.again(self.state, differing)
        if gone:
            yield Page(cursor=self.state.save(), live=frozenset(self.held.stored()) - gone)

    def counts_agree(self) -> bool:
        """Return True if platform and store have equal numbers of tasks, annotations and late timestamps.

        Differences that remained when all tasks matched (`State.drift`) do not count.
        """
        since = self.state.since
        fresh = self.tasks(above(since))
        listed = first_listed(self.reader.client, self.reader.project, [up_to(since)])
        new = [str(task["id"]) for task in fresh]
        return self._agrees(listed, new, sum(task["cancelled_annotations"] for task in fresh))

    def _agrees(self, listed: Mapping[str, Any], new: list[str], new_skips: int) -> bool:
        since = self.state.since
        settings = self.reader.client.get(f"/api/projects/{self.reader.project}/", replies.SKIPS)
        skips = settings["skipped_annotations_number"] - new_skips
        stored, answers = self.held.count(without=new)
        # Label Studio stores its counts separately from the rows, and they can be wrong.
        self.drift = [listed["total"] - stored, listed["total_annotations"] + skips - answers]
        if self.drift != self.state.drift:
            return False
        # If a clock was once far ahead, `since` hides changes stamped soon afterwards.
        front = self.held.latest(self.window)
        if front is None:
            return True
        late = first_listed(self.reader.client, self.reader.project, [above(front), up_to(since)])["total"]
        return bool(late == stored - self.held.count(front, new)[0])

    def tasks(self, *filters: Mapping[str, object]) -> list[dict[str, Any]]:
        """List the tasks that pass the filters, with few fields."""
        return list(self.reader.client.tasks(self.reader.project, _LISTED, filters=filters, page_size=ID_PAGE))


def _differing(tasks: Iterable[Mapping[str, Any]], stored: Mapping[str, HeldItem]) -> set[int]:
    return {int(task["id"]) for task in tasks if _differs(task, stored.get(str(task["id"])))}


def _differs(task: Mapping[str, Any], stored: HeldItem | None) -> bool:
    """Return True if timestamp or annotations differ. Times are compared by value, whatever their format."""
    if stored is None or datetime.fromisoformat(task["updated_at"]) != datetime.fromisoformat(stored.version):
        return True
    names = str(task["annotations_ids"])
    if len(names) < SHOWN:
        return {name.strip() for name in names.split(",") if name.strip()} != stored.annotations
    return int(task["total_annotations"]) + int(task["cancelled_annotations"]) != len(stored.annotations)
