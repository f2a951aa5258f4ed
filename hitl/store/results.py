"""Results of runs, and the outbox: the desired state of the platform, and what the platform has confirmed.

    record   consensus, plan, questions, metrics and operations of one run, in one transaction
    queue    operations entered by hand: new items, ground truth
    pending  operations still to be pushed; after a crash, unconfirmed ones are pushed again (harmless, because
             repeating an operation changes nothing)
    confirm  record that the platform matches the operations

The outbox has one row per operation (kind, key). If a run repeats a confirmed operation, nothing is sent. If a run
changes it, it becomes pending. If a run omits it, a confirmed operation stays and a pending one is dropped, because it
only applied to the older run. Operations queued by hand take precedence over those of runs. No run drops them, and they
are deleted once confirmed, because they are to be done once and not maintained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from hitl.consensus import Consensus
from hitl.plan import Done, DoneItems, Plan
from hitl.platform import Operation, Receipt
from hitl.store import question_log, retention
from hitl.store.database import Database
from hitl.store.events import Announcement, announce
from hitl.store.lease import Lease, Leased
from hitl.store.schema import consensus, cycle, operation
from hitl.tables.table_operation import as_bytes, from_bytes

PENDING, CONFIRMED = "pending", "confirmed"

DONE = ("item", "labels", "confidence", "why")
"""Columns of the done items."""

BASIS = "basis"
"""Key in a run's metrics that holds the digest of its inputs (`hitl.inputs_digest`)."""

BY_HAND = 0
"""Run number of operations queued by hand; runs count from 1."""


@dataclass(frozen=True)
class CycleRecord:
    """Results of one run: a consensus per question, the plan, changes to push, and metrics (JSON values).

    `due` names the scheduled run it was for, if any. `again`: kind and key of operations to send even if they equal
    confirmed ones. `told`: events that report the run.
    """

    results: Mapping[str, Consensus]
    plan: Plan
    operations: tuple[Operation, ...] = ()
    metrics: Mapping[str, Any] | None = None
    due: str | None = None
    again: frozenset[tuple[str, str]] = frozenset()
    told: Announcement = Announcement()


@dataclass(frozen=True, slots=True)
class CycleSummary:
    """One line of the history."""

    number: int
    recorded_at: datetime
    metrics: Mapping[str, Any]

    @property
    def revision(self) -> int | None:
        """Revision of the store that the run used (`Store.revision`), or None if not recorded."""
        found = (self.basis or {}).get("revision")
        return None if found is None else int(found)

    @property
    def basis(self) -> Mapping[str, Any] | None:
        """Digest of the run's inputs (`hitl.inputs_digest`), or None if not recorded."""
        found: Mapping[str, Any] | None = self.metrics.get(BASIS)
        return found


class Results(Leased):
    """Results of runs, and the outbox."""

    def record_cycle(self, lease: Lease, record: CycleRecord) -> int:
        """Write the results of a run and its changes to push, together. Return its number, 1 for the first."""
        # Slow work is done before the transaction, to keep it short.
        row: dict[str, Any] = {
            "project": lease.project,
            "plan": replace(record.plan, done=()).to_json(),
            "due": record.due,
        }
        row["done"] = _packed(record.plan.done)
        row["metrics"] = json.dumps(dict(record.metrics or {}))
        results = [
            {"project": lease.project, "position": place, "question": question, "packed": result.to_bytes()}
            for place, (question, result) in enumerate(record.results.items())
        ]
        rows = _rows(self.database, lease.project, _last_of_each(record.operations))
        asked = question_log.rows_of(lease.project, record.plan, record.results)
        with self._fenced(lease) as connection:
            last = sa.select(sa.func.max(cycle.c.number)).where(cycle.c.project == lease.project)
            number = 1 + (connection.execute(last).scalar() or 0)
            _forget_plans(connection, lease.project)
            new = {"number": number, "recorded_at": self.database.now()}
            connection.execute(sa.insert(cycle).values(row | new))
            connection.execute(sa.delete(consensus).where(consensus.c.project == lease.project))
            if results:
                connection.execute(sa.insert(consensus), [each | {"number": number} for each in results])
            question_log.write(self.database, connection, number, asked)
            _write_operations(self.database, connection, number, rows)
            for kind, key in record.again:
                this = sa.and_(operation.c.project == lease.project, operation.c.kind == kind, operation.c.key == key)
                connection.execute(sa.update(operation).where(this).values(state=PENDING))
            older = operation.c.number.between(BY_HAND + 1, number - 1)
            connection.execute(sa.delete(operation).where(_pending(lease.project), older))
            announce(self.database, connection, lease.project, record.told)
        return number

    def forget(self, lease: Lease, *, deleted_seconds: float, cycles: int) -> None:
        """Delete rows marked as deleted `deleted_seconds` ago, and metrics of all but the last `cycles` runs."""
        last = sa.select(sa.func.max(cycle.c.number)).where(cycle.c.project == lease.project)
        with self._fenced(lease) as connection:
            retention.forget_deleted(self.database, connection, lease.project, deleted_seconds)
            number = connection.execute(last).scalar() or 0
            retention.forget_cycles(connection, lease.project, number, cycles)

    def cycles(self, project: str) -> list[CycleSummary]:
        """Return all runs, oldest first."""
        return self._last_cycles(project, None)[::-1]

    def last_cycle(self, project: str) -> CycleSummary | None:
        """Return the history line of the last run, or None before the first."""
        return next(iter(self._last_cycles(project, 1)), None)

    def recorded(self, project: str, due: str) -> bool:
        """Return True if a run was recorded for the scheduled run of this name."""
        query = sa.select(cycle.c.number).where(cycle.c.project == project, cycle.c.due == due).limit(1)
        return self.database.scalar(query) is not None

    def latest(self, project: str) -> tuple[dict[str, Consensus], Plan] | None:
        """Return the consensus of each question and the plan of the last run, or None before the first."""
        with self.database.snapshot() as connection:
            row = connection.execute(_last(project, cycle.c.number, cycle.c.plan, cycle.c.done)).first()
            if row is None:
                return None
            columns = (consensus.c.question, consensus.c.packed)
            of_cycle = sa.and_(consensus.c.project == project, consensus.c.number == row.number)
            packed = connection.execute(sa.select(*columns).where(of_cycle).order_by(consensus.c.position)).all()
        results = {name: Consensus.from_bytes(bytes(each), f"consensus of {name!r}") for name, each in packed}
        return results, replace(Plan.from_json(row.plan), done=_unpacked(bytes(row.done)))

    def done(self, project: str) -> pa.Table | None:
        """Return the items done by the last run, with the columns of `DONE`, or None before the first run."""
        packed = self.database.scalar(_last(project, cycle.c.done))
        return None if packed is None else pa.ipc.open_stream(bytes(packed)).read_all()

    def plan(self, project: str) -> Plan | None:
        """Return the plan of the last run without its done items (see `latest`), or None before the first."""
        text = self.database.scalar(_last(project, cycle.c.plan))
        return None if text is None else Plan.from_json(text)

    def queue(self, lease: Lease, operations: Iterable[Operation]) -> None:
        """Queue operations entered by hand: new items, ground truth. Each is sent until it is confirmed.

        They follow those queued earlier. An operation with the kind and key of a waiting one replaces it.
        """
        mine = sa.and_(operation.c.project == lease.project, operation.c.number == BY_HAND)
        with self._fenced(lease) as connection:
            last = connection.execute(sa.select(sa.func.max(operation.c.position)).where(mine)).scalar()
            rows = _rows(self.database, lease.project, operations, 1 + (last or 0))
            _write_operations(self.database, connection, BY_HAND, rows)

    def queued(self, project: str) -> list[Operation]:
        """Return the operations queued by hand that are still to be pushed, in order; a subset of `pending`."""
        return [each for each, _ in self._outbox(project, _pending(project) & (operation.c.number == BY_HAND))]

    def withdraw(self, lease: Lease, operation: Operation) -> bool:
        """Drop an operation queued by hand. Return True if it was queued. Operations of runs stay."""
        with self._fenced(lease) as connection:
            return _drop_queued(connection, lease.project, operation)

    def pending(self, project: str) -> list[Operation]:
        """Return the operations still to be pushed, in order."""
        return [each for each, _ in self._outbox(project, _pending(project))]

    def count_pending(self, project: str) -> dict[str, int]:
        """Count the operations still to be pushed per kind, without reading their payloads."""
        query = sa.select(operation.c.kind, sa.func.count()).where(_pending(project)).group_by(operation.c.kind)
        return {str(kind): int(count) for kind, count in self.database.rows(query.order_by(operation.c.kind))}

    def operations(self, project: str, kind: str | None = None) -> list[tuple[Operation, str]]:
        """Return the latest operation per (kind, key) with its state, "pending" or "confirmed"; optionally of one
        kind.
        """
        wanted = sa.true() if kind is None else operation.c.kind == kind
        return self._outbox(project, (operation.c.project == project) & wanted)

    def confirm(self, lease: Lease, *receipts: Receipt) -> None:
        """Mark these operations as confirmed, all or none, so that they are not pushed again.

        An operation that has changed in the outbox since is left alone.
        """
        said = ("kind", "key", "digest")
        these = [{f"its_{name}": getattr(receipt.operation, name) for name in said} for receipt in receipts]
        if not these:
            return
        named = [operation.c[name] == sa.bindparam(f"its_{name}") for name in said]
        mine = sa.and_(operation.c.project == lease.project, *named)
        values: Any = {"state": CONFIRMED, **{name: sa.bindparam(f"its_{name}") for name in ("changed", "detail")}}
        results = [{"its_changed": receipt.changed, "its_detail": receipt.detail} for receipt in receipts]
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(operation).where(mine, operation.c.number == BY_HAND), these)
            connection.execute(sa.update(operation).where(mine).values(values), list(map(or_, these, results)))

    def _outbox(self, project: str, wanted: sa.ColumnElement[bool]) -> list[tuple[Operation, str]]:
        """Return the selected operations with their states, oldest run first, each run in its order."""
        columns = (operation.c.kind, operation.c.key, operation.c.payload, operation.c.digest, operation.c.state)
        rows = self.database.rows(sa.select(*columns).where(wanted).order_by(operation.c.number, operation.c.position))
        return [(from_bytes(kind, key, bytes(payload), digest), state) for kind, key, payload, digest, state in rows]

    def _last_cycles(self, project: str, count: int | None) -> list[CycleSummary]:
        """Return the last `count` runs (None: all), newest first."""
        rows = self.database.rows(_last(project, cycle.c.number, cycle.c.recorded_at, cycle.c.metrics, count=count))
        return [
            CycleSummary(number, datetime.fromtimestamp(recorded_at, UTC), json.loads(metrics))
            for number, recorded_at, metrics in rows
        ]


def _last(project: str, *columns: sa.Column[Any], count: int | None = 1) -> sa.Select[Any]:
    return sa.select(*columns).where(cycle.c.project == project).order_by(cycle.c.number.desc()).limit(count)


def _forget_plans(connection: sa.Connection, project: str) -> None:
    connection.execute(
        sa.update(cycle).where(cycle.c.project == project, cycle.c.plan.is_not(None)).values(plan=None, done=None)
    )


def _table_of(done: DoneItems) -> pa.Table:
    """Convert to a table with the columns of `DONE`."""
    columns = (done.items, _few(done.labels), np.asarray(done.confidence, np.float64), _few(done.why))
    return pa.table(dict(zip(DONE, columns, strict=True)))


def _packed(done: Sequence[Done]) -> bytes:
    """Serialize as Arrow, because there may be a million items."""
    table = _table_of(DoneItems.of(done))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)  # one thread per column costs more
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _few(values: Sequence[Any]) -> pa.Array:
    """Convert a column with few distinct values, each of them once."""
    place = {value: n for n, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter(map(place.__getitem__, values), np.int32, len(values))
    return pa.array(list(place)).take(pa.array(codes))


def _unpacked(packed: bytes) -> DoneItems:
    table = pa.ipc.open_stream(packed).read_all()
    items, labels, confidence, why = (table.column(name).to_pylist() for name in DONE)
    return DoneItems(items, list(map(tuple, labels)), confidence, why)


def _last_of_each(operations: Iterable[Operation]) -> Iterable[Operation]:
    """Keep the last operation per (kind, key), in its own position."""
    last: dict[tuple[str, str], Operation] = {}
    for each in operations:
        last.pop((each.kind, each.key), None)
        last[each.kind, each.key] = each
    return last.values()


def _rows(
    database: Database, project: str, operations: Iterable[Operation], first: int = 0
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split operations into new rows, written whole, and rows already stored with the same payload."""
    query = sa.select(operation.c.kind, operation.c.key, operation.c.digest).where(operation.c.project == project)
    stored = {(kind, key): digest for kind, key, digest in database.rows(query)}
    new, same = [], []
    for position, each in enumerate(operations, start=first):
        row = {"project": project, "kind": each.kind, "key": each.key, "position": position, "digest": each.digest}
        if stored.get((each.kind, each.key)) == each.digest:
            same.append(row)
        else:
            new.append(row | {"payload": as_bytes(each), "state": PENDING, "changed": None, "detail": None})
    return new, same


def _write_operations(
    database: Database,
    connection: sa.Connection,
    number: int,
    rows: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
) -> None:
    """Write the rows. Repeated operations keep their state and receipt; others become pending."""
    new, same = rows
    if new:
        database.upsert(connection, operation, [{**row, "number": number} for row in new])
    if same:
        named = [operation.c[name] == sa.bindparam(f"its_{name}") for name in ("project", "kind", "key", "digest")]
        values = [{f"its_{name}": value for name, value in row.items()} | {"its_number": number} for row in same]
        moved: Any = {name: sa.bindparam(f"its_{name}") for name in ("number", "position")}
        connection.execute(sa.update(operation).where(*named).values(moved), values)


def _drop_queued(connection: sa.Connection, project: str, this: Operation) -> bool:
    """Delete an operation queued by hand from the outbox. Return True if there was one."""
    drop = sa.delete(operation).where(_is(project, this), operation.c.number == BY_HAND)
    return connection.execute(drop).rowcount > 0


def _pending(project: str) -> sa.ColumnElement[bool]:
    return sa.and_(operation.c.project == project, operation.c.state == PENDING)


def _is(project: str, this: Operation) -> sa.ColumnElement[bool]:
    same = [operation.c[name] == getattr(this, name) for name in ("kind", "key", "digest")]
    return sa.and_(operation.c.project == project, *same)
