"""Track the push in progress, so that a push that was cut short is verified afterwards.

    begin_push   before anything is sent: record that a push is in progress
    confirmed    record finished operations in small groups
    end_push     everything was answered

A process that is killed or overtaken during a push leaves its note. The next holder of the lease then verifies every
operation, including confirmed ones. A request may still be in flight, so the first push that begins one lease duration
later verifies again. A process that wakes up after being overtaken records this itself (`doubt`).
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
"""Seconds after which finished operations are confirmed while others are still being sent."""


class Pushes(Leased):
    """The note on the push in progress, in the project's row: epoch (None: no push), and until when to verify."""

    def in_doubt(self, lease: Lease) -> bool:
        """Return True if an earlier push may have been cut short, so that everything must be verified."""
        note = self._push(lease.project)
        return note["until"] is not None or note["epoch"] not in (None, lease.epoch)

    def push_unfinished(self, project: str) -> bool:
        """Return True if a push is in progress, or one that was cut short is not verified yet."""
        note = self._push(project)
        return note["epoch"] is not None or note["until"] is not None

    def begin_push(self, lease: Lease) -> None:
        """Record that a push begins. Raises LeaseLost."""
        with self._fenced(lease) as connection:
            note = _read(connection, lease.project)
            if note["epoch"] not in (None, lease.epoch):
                note["until"] = time.time() + lease.seconds
            _write(connection, lease.project, {**note, "epoch": lease.epoch, "began": time.time()})

    def end_push(self, lease: Lease, *, verified: bool) -> None:
        """Record that everything sent has been answered; `verified`: confirmed operations were checked too."""
        with self._fenced(lease) as connection:
            note = _read(connection, lease.project)
            over = verified and note["until"] is not None and note["began"] >= note["until"]
            _write(connection, lease.project, {**note, "epoch": None, "until": None if over else note["until"]})

    def doubt(self, lease: Lease) -> None:
        """Make the next pushes verify everything.

        Works without the lease, because a request may have arrived after its loss.
        """
        with self.database.write() as connection:
            note = _read(connection, lease.project)
            _write(connection, lease.project, {**note, "until": time.time() + lease.seconds})

    def _push(self, project: str) -> dict[str, Any]:
        with self.database.read() as connection:
            return _read(connection, project)


def confirmed(
    lease: Lease, store: Results, receipts: Iterable[Receipt], progress: Progress, before: int, total: int
) -> Iterator[Receipt]:
    """Yield the receipts once they are confirmed, counting progress from `before` to `total`.

    Slow operations are confirmed at once. Operations finished before an error or interruption are confirmed too, unless
    the lease is lost. Operations that a killed process did not confirm are sent again, which changes nothing. A process
    that was paused for long learns with the next receipt if it has been overtaken.
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
