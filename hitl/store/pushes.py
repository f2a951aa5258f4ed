"""Which push is under way: what may have been sent by a process that did not come to its end is looked at again.

    begin_push   before anything is sent: whether what is confirmed has to be looked at too
    confirmed    what was done is noted, each thing with those that follow it soon
    end_push     all was answered

A process that is killed, or overtaken, in the middle of a push leaves its note. The next holder of the lease then
verifies every operation, the confirmed ones too; and as a request may still be on its way, so does the first push that
begins a lease's time later. A process that wakes after it was overtaken says so itself (`doubt`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from hitl.errors import BadInput, BadSettings, HitlError, PlatformError
from hitl.platform import Progress, Receipt
from hitl.store.lease import Lease, Leased
from hitl.store.results import Results
from hitl.store.schema import project as projects

EVERY = 1.0
"""Seconds after which what was done is confirmed, while more is being done."""


class Pushes(Leased):
    """The note on the push that is under way, in the project's row: epoch (None: none), doubt and until when."""

    def in_doubt(self, lease: Lease) -> bool:
        """Whether an earlier push may have been cut short, so that all has to be verified."""
        note = self._push(lease.project)
        return note["until"] is not None or note["epoch"] not in (None, lease.epoch)

    def push_unfinished(self, project: str) -> bool:
        """Whether a push is under way, or one that did not come to its end is still to be verified."""
        note = self._push(project)
        return note["epoch"] is not None or note["until"] is not None

    def begin_push(self, lease: Lease) -> None:
        """Note that from now on something may be sent. Raises LeaseLost."""
        with self._fenced(lease) as connection:
            note = _read(connection, lease.project)
            if note["epoch"] not in (None, lease.epoch):
                note["until"] = time.time() + lease.seconds
            _write(connection, lease.project, {**note, "epoch": lease.epoch, "began": time.time()})

    def end_push(self, lease: Lease, *, verified: bool) -> None:
        """Note that all that was sent has been answered; `verified`: the confirmed operations were looked at too."""
        with self._fenced(lease) as connection:
            note = _read(connection, lease.project)
            over = verified and note["until"] is not None and note["began"] >= note["until"]
            _write(connection, lease.project, {**note, "epoch": None, "until": None if over else note["until"]})

    def doubt(self, lease: Lease) -> None:
        """Have the next pushes verify all, although the lease is lost: a request may have come through since."""
        with self.database.write() as connection:
            note = _read(connection, lease.project)
            _write(connection, lease.project, {**note, "until": time.time() + lease.seconds})

    def _push(self, project: str) -> dict[str, Any]:
        with self.database.read() as connection:
            return _read(connection, project)


def confirmed(
    lease: Lease, store: Results, receipts: Iterable[Receipt], progress: Progress, before: int, total: int
) -> Iterator[Receipt]:
    """The receipts, once they are confirmed; so many of `total` were `before`.

    What takes a platform long is confirmed at once. What was done before something failed, or this was cut short, is
    confirmed too, unless the lease is lost; what a process that is killed did not confirm is sent again, which changes
    nothing. One that was stopped for long finds out with the next receipt whether it has been overtaken.
    """
    done, began = list[Receipt](), time.monotonic()

    def noted() -> Iterator[Receipt]:
        nonlocal done, before, began
        these, done, began = done, [], time.monotonic()
        store.confirm(lease, *these)
        for receipt in these:
            before += 1
            progress("push", before, total)
            yield receipt

    try:
        for receipt in receipts:
            progress("pushed", before + len(done) + 1, total)
            done.append(receipt)
            if time.monotonic() - began >= EVERY:
                yield from noted()
        yield from noted()
    except (PlatformError, BadInput, BadSettings):
        yield from noted()
        raise
    except BaseException:
        with suppress(HitlError):
            store.confirm(lease, *done)
        raise


def _read(connection: sa.Connection, project: str) -> dict[str, Any]:
    text = connection.execute(sa.select(projects.c.pushing).where(projects.c.project == project)).scalar()
    return {"epoch": None, "until": None, "began": 0.0, **(json.loads(text) if text else {})}


def _write(connection: sa.Connection, project: str, note: dict[str, Any]) -> None:
    kept = None if note["epoch"] is None and note["until"] is None else json.dumps(note)
    connection.execute(sa.update(projects).where(projects.c.project == project).values(pushing=kept))
