"""The outbox: the desired state of the platform, and what the platform has confirmed.

    queue    operations entered by hand: new items, ground truth
    pending  operations still to be pushed; after a crash, unconfirmed ones are pushed again (harmless, because
             repeating an operation changes nothing)
    confirm  record that the platform matches the operations

The outbox has one row per operation (kind, key). If a run repeats a confirmed operation, nothing is sent. If a run
changes it, it becomes pending. If a run omits it, a confirmed operation stays and a pending one is dropped, because it
only applied to the older run. Operations queued by hand are pushed before those of runs. No run drops them. They are
deleted once confirmed, because they are to be done once and not maintained.

A process that is killed or overtaken during a push leaves a note that one is in progress. The next holder of the lease
then verifies every operation, including confirmed ones. A request may still be in flight, so the first push that begins
one lease duration later verifies again. A process that wakes up after being overtaken requests this itself (`doubt`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from operator import or_
from typing import Any

import sqlalchemy as sa

from hitl.platform import Operation, Receipt
from hitl.store.database import Database
from hitl.store.lease import Lease, Leased
from hitl.store.schema import operation
from hitl.store.schema import project as projects
from hitl.tables.table_operation import as_bytes, from_bytes

PENDING, CONFIRMED = "pending", "confirmed"

BY_HAND = 0
"""Run number of operations queued by hand; runs count from 1."""

IDENTITY = ("kind", "key", "digest")


class Outbox(Leased):
    """Operations to push, and the push in progress."""

    def queue(self, lease: Lease, operations: Iterable[Operation]) -> None:
        """Queue operations entered by hand: new items, ground truth. Each is sent until it is confirmed.

        They are sent after those queued earlier. An operation replaces a waiting one with the same kind and key.
        """
        mine = sa.and_(operation.c.project == lease.project, operation.c.number == BY_HAND)
        with self._fenced(lease) as connection:
            last = connection.execute(sa.select(sa.func.max(operation.c.position)).where(mine)).scalar()
            write(self.database, connection, lease.project, BY_HAND, [*operations], 1 + (last or 0))

    def queued(self, project: str) -> list[Operation]:
        """Return the operations queued by hand that are still to be pushed, in order; a subset of `pending`."""
        return [each for each, _ in self._outbox(project, operation.c.state == PENDING, operation.c.number == BY_HAND)]

    def withdraw(self, lease: Lease, this: Operation) -> bool:
        """Drop an operation queued by hand. Return True if it was queued. Operations of runs stay."""
        same = [operation.c[name] == getattr(this, name) for name in IDENTITY]
        queued = sa.and_(operation.c.project == lease.project, operation.c.number == BY_HAND, *same)
        with self._fenced(lease) as connection:
            return connection.execute(sa.delete(operation).where(queued)).rowcount > 0

    def pending(self, project: str) -> list[Operation]:
        """Return the operations still to be pushed, in order."""
        return [each for each, _ in self._outbox(project, operation.c.state == PENDING)]

    def count_pending(self, project: str) -> dict[str, int]:
        """Count the operations still to be pushed per kind, without reading their payloads."""
        query = sa.select(operation.c.kind, sa.func.count()).group_by(operation.c.kind).order_by(operation.c.kind)
        rows = self.database.rows(query.where(operation.c.project == project, operation.c.state == PENDING))
        return {kind: int(count) for kind, count in rows}

    def operations(self, project: str, kind: str | None = None) -> list[tuple[Operation, str]]:
        """Return all operations, or those of one kind, each with its state: "pending" or "confirmed"."""
        return self._outbox(project, *([] if kind is None else [operation.c.kind == kind]))

    def confirm(self, lease: Lease, *receipts: Receipt) -> None:
        """Mark these operations as confirmed, all or none, so that they are not pushed again.

        An operation whose payload has changed in the outbox since then is left alone.
        """
        if not receipts:
            return
        these = [{f"its_{name}": getattr(receipt.operation, name) for name in IDENTITY} for receipt in receipts]
        results = [{"its_changed": receipt.changed, "its_detail": receipt.detail} for receipt in receipts]
        mine = sa.and_(operation.c.project == lease.project, *(operation.c[name] == _its(name) for name in IDENTITY))
        values: Any = {"state": CONFIRMED, "changed": _its("changed"), "detail": _its("detail")}
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(operation).where(mine, operation.c.number == BY_HAND), these)
            connection.execute(sa.update(operation).where(mine).values(values), list(map(or_, these, results)))

    def _outbox(self, project: str, *wanted: sa.ColumnElement[bool]) -> list[tuple[Operation, str]]:
        """Return the selected operations with their states, oldest run first, each run in its order."""
        columns = (operation.c.kind, operation.c.key, operation.c.payload, operation.c.digest, operation.c.state)
        query = sa.select(*columns).where(operation.c.project == project, *wanted)
        rows = self.database.rows(query.order_by(operation.c.number, operation.c.position))
        return [(from_bytes(kind, key, bytes(payload), digest), state) for kind, key, payload, digest, state in rows]

    # -- the push in progress: its epoch (None: no push), and until when to verify -------------------------

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
        """Record that the platform has answered all requests; `verified`: confirmed operations were checked too."""
        with self._fenced(lease) as connection:
            note = _read(connection, lease.project)
            over = verified and note["until"] is not None and note["began"] >= note["until"]
            _write(connection, lease.project, {**note, "epoch": None, "until": None if over else note["until"]})

    def doubt(self, lease: Lease) -> None:
        """Make pushes verify everything, up to one that begins a lease duration from now or later.

        Works without the lease, because a request may have reached the platform after the lease was lost.
        """
        with self.database.write() as connection:
            note = _read(connection, lease.project)
            _write(connection, lease.project, {**note, "until": time.time() + lease.seconds})

    def _push(self, project: str) -> dict[str, Any]:
        with self.database.read() as connection:
            return _read(connection, project)


CUT_SHORT = json.dumps({"epoch": 0})
"""Note of a push that was cut short."""


def _read(connection: sa.Connection, project: str) -> dict[str, Any]:
    text = connection.execute(sa.select(projects.c.pushing).where(projects.c.project == project)).scalar()
    return {"epoch": None, "until": None, "began": 0.0, **(json.loads(text) if text else {})}


def _write(connection: sa.Connection, project: str, note: Mapping[str, Any]) -> None:
    text = None if note["epoch"] is None and note["until"] is None else json.dumps(note)
    connection.execute(sa.update(projects).where(projects.c.project == project).values(pushing=text))


def _its(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(f"its_{name}")


def replace_pending(
    database: Database,
    connection: sa.Connection,
    project: str,
    number: int,
    operations: Iterable[Operation],
    again: Iterable[tuple[str, str]],
) -> None:
    """Write the operations of a run, and drop pending ones of older runs.

    If several operations have the same kind and key, only the last is written. `again`: kind and key of operations to
    send even if they equal confirmed ones.
    """
    last: dict[tuple[str, str], Operation] = {}
    for each in operations:
        last.pop((each.kind, each.key), None)
        last[each.kind, each.key] = each
    write(database, connection, project, number, [*last.values()])
    for kind, key in again:
        this = sa.and_(operation.c.project == project, operation.c.kind == kind, operation.c.key == key)
        connection.execute(sa.update(operation).where(this).values(state=PENDING))
    older = sa.and_(operation.c.project == project, operation.c.number.between(BY_HAND + 1, number - 1))
    connection.execute(sa.delete(operation).where(older, operation.c.state == PENDING))


def write(
    database: Database,
    connection: sa.Connection,
    project: str,
    number: int,
    operations: Sequence[Operation],
    first: int = 0,
) -> None:
    """Write operations, with positions from `first` on.

    Those already stored with the same payload keep their state and receipt; others are pending.
    """
    query = sa.select(operation.c.kind, operation.c.key, operation.c.digest).where(operation.c.project == project)
    stored = {(kind, key): digest for kind, key, digest in connection.execute(query)}
    for position, each in enumerate(operations, start=first):
        row = {"project": project, "kind": each.kind, "key": each.key, "number": number, "position": position}
        if stored.get((each.kind, each.key)) == each.digest:
            this = sa.and_(*(operation.c[name] == row[name] for name in ("project", "kind", "key")))
            connection.execute(sa.update(operation).where(this).values(number=number, position=position))
        else:
            row |= {"digest": each.digest, "payload": as_bytes(each), "state": PENDING, "changed": None, "detail": None}
            database.upsert(connection, operation, [row])
