"""What Label Studio holds otherwise than the store, although no stamp says so.

A pass over changes (`pull`) sees what is stamped later than all that the pass before could see. It does not see a row
that became visible after its stamp was passed, a change that was stamped by a clock that had gone back, and a deleted
task. So each pull ends with a comparison of what was not changed since it began:

    numbers      of tasks and of annotations, and of tasks with late stamps; a few small requests, always
    the window   stamp and annotations of each task that is stamped within the overlap before `since`, while the last
                 change that was seen is no older than the overlap: an edit moves no number
    all tasks    the same of each, where the numbers differ still, or differ otherwise than when all tasks were equal

A task that differs is read again; one that is gone is told. Label Studio takes 0.5 ms a task to list, whichever of its
fields are asked for (it reads the annotations in any case), and some 0.05 s to count: hence the numbers first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.pull import ID_PAGE, Reader, State, above, listed, stamp, up_to
from hitl.platform import Cursor, Held, HeldItem, Page

TRIES = 3
"""How often the numbers are looked at where they differ: annotators may go on in between."""
SHOWN = 500
"""Characters after which Label Studio cuts a list of annotations off."""
_LISTED = ("id", "updated_at", "annotations_ids", "total_annotations", "cancelled_annotations")


def pages(reader: Reader, cursor: Cursor, held: Held, overlap: timedelta) -> Iterator[Page]:
    """What differs, read again. Nothing where a pull has not come to its end.

    `overlap`: how far the server's clock may go back, and how late a row may become visible.
    """
    state = State.load(cursor)
    if state.phase != "changes" or state.after:
        return
    comparison = _Comparison(reader, state, held, overlap)
    before = state.save()
    if comparison.may_have_gone_back():
        yield from comparison.fix(comparison.in_window())
    state.whole = False
    if not comparison.counts_agree():
        differing = comparison.everywhere()
        state.drift = [0, 0] if differing else comparison.drift
        yield from comparison.fix(differing)
    if state.save() != before:
        yield Page(cursor=state.save())


class _Comparison:
    """One comparison. Tasks that changed after the pass began are left to the next one."""

    def __init__(self, reader: Reader, state: State, held: Held, overlap: timedelta) -> None:
        self.reader = reader
        self.client = reader.client
        self.project = reader.project
        self.state = state
        self.held = held
        self.overlap = overlap
        self.drift = list(state.drift)

    def may_have_gone_back(self) -> bool:
        """Whether the last change is so new that a clock which went back could stamp the next one before it."""
        since_then = time.time() - self.state.moved
        return not self.state.whole and since_then <= self.overlap.total_seconds()

    def fix(self, differing: _Differing) -> Iterator[Page]:
        """The tasks that differ as they are now, and without those that are gone."""
        if differing.tasks:
            self.state.moved = time.time()
            yield self.reader.people(self.state)
            yield from self.reader.again(self.state, differing.tasks)
        if differing.gone:
            self.state.moved = time.time()
            live = frozenset(self.held.stored()) - differing.gone
            yield Page(cursor=self.state.save(), live=live)

    def in_window(self) -> _Differing:
        """The tasks that differ among those stamped within the overlap."""
        since = datetime.fromisoformat(self.state.since)
        tasks = self._tasks([above(stamp(since - self.overlap)), up_to(self.state.since)])
        return _Differing.among(tasks, self.held.stored([str(task["id"]) for task in tasks]))

    def everywhere(self) -> _Differing:
        """The tasks that differ, and those that are gone, in the whole project."""
        tasks = self._tasks([])
        stored = self.held.stored()
        since = datetime.fromisoformat(self.state.since)
        old = [task for task in tasks if datetime.fromisoformat(task["updated_at"]) <= since]
        gone = stored.keys() - {str(task["id"]) for task in tasks}
        return _Differing.among(old, stored, gone)

    def counts_agree(self) -> bool:
        """Whether tasks, annotations and late stamps are as many here as there."""
        return any(self._agree() for _ in range(TRIES))

    def _agree(self) -> bool:
        since = self.state.since
        fresh = self._tasks([above(since)])
        new = [str(task["id"]) for task in fresh]
        skips = self._skips() - sum(int(task["cancelled_annotations"]) for task in fresh)
        tasks, annotations = self._numbers([up_to(since)])
        stored, answers = self.held.count(without=new)
        # Label Studio keeps its counts beside the rows, and they can go wrong.
        self.drift = [tasks - stored, annotations + skips - answers]
        if self.drift != self.state.drift:
            return False
        # A clock that was far ahead once leaves a `since` that hides all that is stamped right afterwards.
        front = self.held.latest(stamp(datetime.fromisoformat(since) - self.overlap))
        if front is None:
            return True
        late, _ = self._numbers([above(front), up_to(since)])
        before, _ = self.held.count(front, new)
        return late == stored - before

    def _numbers(self, filters: Sequence[Mapping[str, object]]) -> tuple[int, int]:
        """How many tasks pass the filters, and their annotations that are no skips."""
        found = listed(self.client, self.project, filters)
        return int(found["total"]), int(found["total_annotations"])

    def _skips(self) -> int:
        found = self.client.get(f"/api/projects/{self.project}/", replies.SKIPS)
        return int(found["skipped_annotations_number"])

    def _tasks(self, filters: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
        return list(self.client.tasks(self.project, _LISTED, filters=filters, page_size=ID_PAGE))


class _Differing:
    """Numbers of tasks to be read again, and keys of those that are gone."""

    def __init__(self, tasks: set[int], gone: frozenset[str] = frozenset()) -> None:
        self.tasks = tasks
        self.gone = gone

    def __bool__(self) -> bool:
        return bool(self.tasks or self.gone)

    @classmethod
    def among(
        cls, seen: Sequence[Mapping[str, Any]], stored: Mapping[str, HeldItem], gone: set[str] | None = None
    ) -> _Differing:
        """Those of the listed tasks that are not as they are stored."""
        tasks = {int(task["id"]) for task in seen if _differs(task, stored.get(str(task["id"])))}
        return cls(tasks, frozenset(gone or ()))


def _differs(task: Mapping[str, Any], stored: HeldItem | None) -> bool:
    """Whether stamp or annotations differ; times are compared, not how they are written."""
    if stored is None or datetime.fromisoformat(task["updated_at"]) != datetime.fromisoformat(stored.version):
        return True
    names = str(task["annotations_ids"])
    if len(names) < SHOWN:
        return {name.strip() for name in names.split(",") if name.strip()} != stored.annotations
    return int(task["total_annotations"]) + int(task["cancelled_annotations"]) != len(stored.annotations)
