"""What a cycle concluded, and the outbox: how the platform should be, and whether it has said that it is.

    record   consensus, plan, metrics and operations of one cycle, within one transaction of the caller
    queue    operations that no cycle came to: new items, known truth
    pending  what must still be pushed; after a crash, all that was not confirmed is pushed again (harmless: the same
             operation twice changes nothing the second time)
    confirm  the platform is as the operation says

The outbox has one row an operation (kind, key). A cycle that says the same again of a confirmed one has nothing to
send; one that says something else makes it pending; one that says nothing leaves a confirmed one as it is and drops a
pending one, which was only right for the older cycle. What was queued by hand goes before what cycles say, no cycle
drops it, and it is gone once it is confirmed: it is to be done once, and not to be kept so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from hitl.consensus import Consensus
from hitl.exchange import Operation, Receipt
from hitl.plan import Plan
from hitl.store.database import Database
from hitl.store.schema import consensus, cycle, operation

KEPT = 3
"""How many cycles keep their consensus and plan; the metrics of all are kept."""

PENDING, CONFIRMED = "pending", "confirmed"

BY_HAND = 0
"""The number of what no cycle came to; cycles count from 1."""


@dataclass(frozen=True)
class CycleRecord:
    """What one cycle concluded: a consensus a question, the plan, what to push, and figures (JSON values).

    `due` names the scheduled run that the cycle was for, if any.
    """

    results: Mapping[str, Consensus]
    plan: Plan
    operations: tuple[Operation, ...] = ()
    metrics: Mapping[str, Any] | None = None
    due: str | None = None


@dataclass(frozen=True, slots=True)
class CycleSummary:
    """One line of the history."""

    number: int
    recorded_at: datetime
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """A record as it is stored, made before the transaction, which should be short."""

    results: tuple[tuple[str, bytes], ...]
    plan: str
    operations: tuple[tuple[Operation, str], ...]
    metrics: str
    due: str | None


def pack(record: CycleRecord) -> Packed:
    """Everything that takes time."""
    last: dict[tuple[str, str], Operation] = {}
    for each in record.operations:
        last.pop((each.kind, each.key), None)  # the later of two with one name replaces it, in its own place
        last[each.kind, each.key] = each
    return Packed(
        tuple((question, result.to_bytes()) for question, result in record.results.items()),
        record.plan.to_json(),
        tuple((each, json.dumps(each.payload)) for each in last.values()),
        json.dumps(dict(record.metrics or {})),
        record.due,
    )


def record(database: Database, connection: sa.Connection, project: str, packed: Packed) -> int:
    """Write a cycle and its outbox; gives its number, 1 for the first."""
    last = connection.execute(sa.select(sa.func.max(cycle.c.number)).where(cycle.c.project == project)).scalar()
    number = 1 + (last or 0)
    row = {"project": project, "number": number, "metrics": packed.metrics, "plan": packed.plan, "due": packed.due}
    connection.execute(sa.insert(cycle).values(row | {"recorded_at": database.now()}))
    blobs = [
        {"project": project, "number": number, "position": position, "question": question, "packed": blob}
        for position, (question, blob) in enumerate(packed.results)
    ]
    if blobs:
        connection.execute(sa.insert(consensus), blobs)
    _forget_older(connection, project, number - KEPT)
    _write_outbox(database, connection, project, number, packed.operations)
    return number


def _forget_older(connection: sa.Connection, project: str, number: int) -> None:
    """Drop the consensus and the plan of the cycles up to this one."""
    connection.execute(sa.delete(consensus).where(consensus.c.project == project, consensus.c.number <= number))
    connection.execute(
        sa.update(cycle)
        .where(cycle.c.project == project, cycle.c.number <= number, cycle.c.plan.is_not(None))
        .values(plan=None)
    )


def _write_outbox(
    database: Database,
    connection: sa.Connection,
    project: str,
    number: int,
    operations: Iterable[tuple[Operation, str]],
) -> None:
    _write_operations(database, connection, project, number, operations)
    connection.execute(
        sa.delete(operation).where(
            operation.c.project == project,
            operation.c.state == PENDING,
            operation.c.number.between(BY_HAND + 1, number - 1),
        )
    )


def queue(database: Database, connection: sa.Connection, project: str, operations: Iterable[Operation]) -> None:
    """Have these sent, after those queued before; one with the kind and key of a pending one replaces it."""
    packed = [(each, json.dumps(each.payload)) for each in operations]
    last = sa.select(sa.func.max(operation.c.position)).where(
        operation.c.project == project, operation.c.number == BY_HAND
    )
    _write_operations(database, connection, project, BY_HAND, packed, 1 + (connection.execute(last).scalar() or 0))


def _write_operations(
    database: Database,
    connection: sa.Connection,
    project: str,
    number: int,
    operations: Iterable[tuple[Operation, str]],
    first: int = 0,
) -> None:
    rows = [
        {
            "project": project,
            "kind": each.kind,
            "key": each.key,
            "number": number,
            "position": position,
            "digest": each.digest,
            "payload": payload,
            "state": PENDING,
            "changed": None,
            "detail": None,
        }
        for position, (each, payload) in enumerate(operations, start=first)
    ]
    if rows:
        connection.execute(_upsert_operation(database), rows)


def _upsert_operation(database: Database) -> Any:
    """The same again keeps its state and receipt; anything else is pending."""
    insert = database.insert(operation)
    new, same = insert.excluded, insert.excluded.digest == operation.c.digest
    values = {name: new[name] for name in ("number", "position", "digest", "payload")}
    values |= {name: sa.case((same, operation.c[name]), else_=new[name]) for name in ("state", "changed", "detail")}
    return insert.on_conflict_do_update(index_elements=["project", "kind", "key"], set_=values)


def confirm(connection: sa.Connection, project: str, receipt: Receipt) -> None:
    """Mark the operation confirmed; nothing happens when the outbox says something else by now."""
    this = _is(project, receipt.operation)
    connection.execute(sa.delete(operation).where(this, operation.c.number == BY_HAND))
    values = {"state": CONFIRMED, "changed": receipt.changed, "detail": receipt.detail}
    connection.execute(sa.update(operation).where(this).values(values))


def withdraw(connection: sa.Connection, project: str, refused: Operation) -> bool:
    """Take an operation that was queued by hand out of the outbox; whether it was one."""
    return (
        connection.execute(sa.delete(operation).where(_is(project, refused), operation.c.number == BY_HAND)).rowcount
        > 0
    )


def _is(project: str, this: Operation) -> sa.ColumnElement[bool]:
    return sa.and_(
        operation.c.project == project,
        operation.c.kind == this.kind,
        operation.c.key == this.key,
        operation.c.digest == this.digest,
    )


def operations(
    connection: sa.Connection, project: str, state: str | None = None, number: int | None = None
) -> list[tuple[Operation, str]]:
    """The outbox with the state of each, oldest cycle first, each cycle in its order.

    `state`, `number`: those in this state, or of this cycle, alone.
    """
    query = (
        sa.select(operation.c.kind, operation.c.key, operation.c.payload, operation.c.state)
        .where(operation.c.project == project)
        .order_by(operation.c.number, operation.c.position)
    )
    if state is not None:
        query = query.where(operation.c.state == state)
    if number is not None:
        query = query.where(operation.c.number == number)
    return [
        (Operation(kind, key, json.loads(payload)), state) for kind, key, payload, state in connection.execute(query)
    ]


def count(connection: sa.Connection, project: str, state: str) -> int:
    """How many operations of the outbox are in this state; their payloads are not read."""
    rows = sa.select(sa.func.count()).where(operation.c.project == project, operation.c.state == state)
    return int(connection.execute(rows).scalar_one())


def history(connection: sa.Connection, project: str, last: int | None = None) -> list[CycleSummary]:
    """All cycles, oldest first; or so many of the last ones."""
    query = (
        sa.select(cycle.c.number, cycle.c.recorded_at, cycle.c.metrics)
        .where(cycle.c.project == project)
        .order_by(cycle.c.number.desc())
        .limit(last)
    )
    newest_first = [
        CycleSummary(number, datetime.fromtimestamp(recorded_at, UTC), json.loads(metrics))
        for number, recorded_at, metrics in connection.execute(query)
    ]
    return newest_first[::-1]


def recorded(connection: sa.Connection, project: str, due: str) -> bool:
    """Whether a cycle was recorded for the run of this name."""
    query = sa.select(cycle.c.number).where(cycle.c.project == project, cycle.c.due == due).limit(1)
    return connection.execute(query).first() is not None


def latest_plan(connection: sa.Connection, project: str) -> str | None:
    """The plan of the last cycle as JSON, or None before the first."""
    query = sa.select(cycle.c.plan).where(cycle.c.project == project).order_by(cycle.c.number.desc()).limit(1)
    plan: str | None = connection.execute(query).scalar()
    return plan


def latest(connection: sa.Connection, project: str) -> tuple[dict[str, bytes], str] | None:
    """The packed results and plan of the last cycle, or None before the first."""
    query = (
        sa.select(cycle.c.number, cycle.c.plan)
        .where(cycle.c.project == project)
        .order_by(cycle.c.number.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    blobs = (
        sa.select(consensus.c.question, consensus.c.packed)
        .where(consensus.c.project == project, consensus.c.number == row.number)
        .order_by(consensus.c.position)
    )
    return {question: bytes(packed) for question, packed in connection.execute(blobs)}, row.plan
