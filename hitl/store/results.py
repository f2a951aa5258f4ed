"""Results of runs: consensus, plan, questions and metrics, recorded in one transaction with the changes to push.

The consensus and the plan of a run are stored until the next run; its metrics are stored longer. If several older runs
in a row have equal metrics, only the first and the last are kept. Every planned question is logged permanently: once,
by the first run that plans it, with its probability and the item's labels at the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from hitl.annotations import places_of
from hitl.consensus import Consensus
from hitl.plan import DoneItems, Plan
from hitl.platform import Operation
from hitl.store import outbox
from hitl.store.database import Database
from hitl.store.events import Announcement, announce
from hitl.store.lease import Lease, Leased
from hitl.store.schema import annotation, consensus, cycle, item, prediction, question_log, snapshot
from hitl.tables.columns import as_stream, tables_in

DONE = ("item", "labels", "confidence", "why")
"""Columns of the done items."""

BASIS = "basis"
"""Key in a run's metrics that holds the digest of its inputs (`hitl.inputs_digest`)."""

OF_ONE_RUN = ("due", "at", "seconds", BASIS)
"""Metrics that record when a run took place and on which inputs, not its result."""

RECENT = 20
"""Number of recent runs whose metrics are kept even if they equal those of their neighbors."""


@dataclass(frozen=True)
class CycleRecord:
    """Results of one run: a consensus per question, the plan, changes to push, and metrics (JSON values).

    `again`: kind and key of operations to send even if they equal confirmed ones. `told`: events that report the run.
    `done`: question -> items for which it is done, if there are several questions.
    """

    results: Mapping[str, Consensus]
    plan: Plan
    operations: tuple[Operation, ...] = ()
    metrics: Mapping[str, Any] | None = None
    again: frozenset[tuple[str, str]] = frozenset()
    told: Announcement = Announcement()
    done: Mapping[str, DoneItems] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CycleSummary:
    """One run in the history."""

    number: int
    recorded_at: datetime
    metrics: Mapping[str, Any]

    @property
    def revision(self) -> int | None:
        """Revision of the store that the run used (`Store.revision`), or None if not recorded."""
        return (self.basis or {}).get("revision")

    @property
    def basis(self) -> Mapping[str, Any] | None:
        """Digest of the run's inputs (`hitl.inputs_digest`), or None if not recorded."""
        return self.metrics.get(BASIS)


class Results(Leased):
    """Results of runs."""

    def record_cycle(self, lease: Lease, record: CycleRecord) -> int:
        """Write the results of a run and its changes to push in one transaction. Return its number, 1 for the first."""
        # Slow work is done before the transaction, to keep it short.
        project, metrics = lease.project, json.dumps(dict(record.metrics or {}))
        row: dict[str, Any] = {"project": project, "metrics": metrics}
        row["plan"] = replace(record.plan, done=()).to_json()
        done = [("", DoneItems.of(record.plan.done)), *record.done.items()]
        row["done"] = b"".join(_packed(question, items) for question, items in done)
        results = [
            {"project": project, "position": place, "question": question, "packed": result.to_bytes()}
            for place, (question, result) in enumerate(record.results.items())
        ]
        asked = [*_logged(record.plan, record.results)]
        with self._fenced(lease) as connection:
            number = 1 + (connection.execute(_last_number(project)).scalar() or 0)
            with_plan = sa.and_(cycle.c.project == project, cycle.c.plan.is_not(None))
            connection.execute(sa.update(cycle).where(with_plan).values(plan=None, done=None))
            connection.execute(sa.insert(cycle).values(row | {"number": number, "recorded_at": self.database.now()}))
            connection.execute(sa.delete(consensus).where(consensus.c.project == project))
            if results:
                connection.execute(sa.insert(consensus), [each | {"number": number} for each in results])
            if asked:
                log = self.database.insert(question_log).on_conflict_do_nothing()
                connection.execute(log, [{"project": project, "number": number, **each} for each in asked])
            outbox.replace_pending(self.database, connection, project, number, record.operations, record.again)
            announce(self.database, connection, project, record.told)
        return number

    def forget(self, lease: Lease, *, deleted_seconds: float, cycles: int) -> None:
        """Delete rows marked as deleted at least `deleted_seconds` ago, and all but the last `cycles` runs."""
        with self._fenced(lease) as connection:
            _forget_deleted(self.database, connection, lease.project, deleted_seconds)
            number = connection.execute(_last_number(lease.project)).scalar() or 0
            _forget_cycles(connection, lease.project, number, cycles)

    def cycles(self, project: str, count: int | None = None) -> list[CycleSummary]:
        """Return the last `count` runs (None: all that are stored), oldest first."""
        return self._last_cycles(project, count)[::-1]

    def last_cycle(self, project: str) -> CycleSummary | None:
        """Return the last run, or None before the first."""
        return next(iter(self._last_cycles(project, 1)), None)

    def latest(self, project: str) -> tuple[dict[str, Consensus], Plan] | None:
        """Return (question -> consensus, plan) of the last run, or None before the first."""
        with self.database.read() as connection:
            row = connection.execute(_last(project, cycle.c.number, cycle.c.plan, cycle.c.done)).first()
            if row is None:
                return None
            query = sa.select(consensus.c.question, consensus.c.packed).order_by(consensus.c.position)
            of_run = (consensus.c.project == project, consensus.c.number == row.number)
            packed = connection.execute(query.where(*of_run)).all()
        results = {name: Consensus.from_bytes(bytes(each), f"consensus of {name!r}") for name, each in packed}
        return results, replace(Plan.from_json(row.plan), done=_done_items(tables_in(bytes(row.done))[0]))

    def done(self, project: str, question: str = "") -> pa.Table | None:
        """Return the items done by the last run, with the columns of `DONE`, or None before the first run.

        Of several questions, `question` selects one; by default, items are done in all of them.
        """
        return self._done_tables(project).get(question)

    def done_by_question(self, project: str) -> dict[str, DoneItems]:
        """Return question -> items for which it was done by the last run; empty if there is only one question."""
        return {question: _done_items(table) for question, table in self._done_tables(project).items() if question}

    def _done_tables(self, project: str) -> dict[str, pa.Table]:
        packed = self.database.scalar(_last(project, cycle.c.done))
        tables = [] if packed is None else tables_in(bytes(packed))
        return {table.schema.metadata[b"question"].decode(): table for table in tables}

    def plan(self, project: str) -> Plan | None:
        """Return the plan of the last run without its done items (see `latest`), or None before the first."""
        text = self.database.scalar(_last(project, cycle.c.plan))
        return None if text is None else Plan.from_json(text)

    def _last_cycles(self, project: str, count: int | None) -> list[CycleSummary]:
        """Return the last `count` runs (None: all), newest first."""
        rows = self.database.rows(_last(project, cycle.c.number, cycle.c.recorded_at, cycle.c.metrics, count=count))
        return [CycleSummary(number, datetime.fromtimestamp(at, UTC), json.loads(text)) for number, at, text in rows]

    # -- the log of questions ------------------------------------------------------------------------------

    def asks(self, project: str) -> pa.Table:
        """Return every question ever planned, in the order of the plans.

        Columns: cycle (the first run that planned it), item, annotator (null: anyone), since (seconds since the epoch),
        probability (null: unknown), check, audit, done (True if the item was done at that run), labels (JSON text:
        question -> label of the item at that run).
        """
        return self._asked(question_log.c.project == project)

    def audits(self, project: str) -> pa.Table:
        """Return the rows of `asks` that were audit questions."""
        return self._asked(question_log.c.project == project, question_log.c.audit.is_(sa.true()))

    def _asked(self, *wanted: sa.ColumnElement[bool]) -> pa.Table:
        log = question_log.c
        columns = [log.number.label("cycle"), log.item, sa.func.nullif(log.annotator, ANYONE, type_=sa.Text())]
        columns[-1] = columns[-1].label("annotator")
        columns += [log.since, log.probability, log.check, log.audit, log.done, log.labels]
        return self.database.table(sa.select(*columns).where(*wanted).order_by(log.number, log.position))


ANYONE = ""
"""Stored as the annotator of a question that is for anyone, because part of a key cannot be null."""


def _logged(plan: Plan, results: Mapping[str, Consensus]) -> Iterator[dict[str, Any]]:
    """Yield the questions of a plan as rows of the log, without project and run number."""
    asked = {ask.item for ask in plan.asks}
    done = _done_among(DoneItems.of(plan.done), asked, results)
    row_of = {question: places_of(result.items, asked) for question, result in results.items()}
    for position, ask in enumerate(plan.asks):
        labels = {
            question: str(result.classes[int(result.codes[row_of[question][ask.item]])])
            for question, result in results.items()
            if ask.item in row_of[question]
        }
        yield {
            "item": str(ask.item),
            "annotator": ANYONE if ask.annotator is None else str(ask.annotator),
            "since": float(ask.since),
            "position": position,
            "probability": ask.probability,
            "check": ask.check,
            "audit": ask.audit,
            "done": ask.item in done,
            "labels": json.dumps(labels, ensure_ascii=False),
        }


def _done_among(done: DoneItems, items: set[Any], results: Mapping[str, Consensus]) -> set[Any]:
    """Return the given items that are done."""
    if done.rows is None or not results:
        return items.intersection(done.items)
    row = places_of(next(iter(results.values())).items, items)
    among = np.isin(np.fromiter(row.values(), np.int64, len(row)), done.rows)
    return {item for item, is_done in zip(row, among.tolist(), strict=True) if is_done}


def _last(project: str, *columns: sa.Column[Any], count: int | None = 1) -> sa.Select[Any]:
    return sa.select(*columns).where(cycle.c.project == project).order_by(cycle.c.number.desc()).limit(count)


def _last_number(project: str) -> sa.Select[Any]:
    return sa.select(sa.func.max(cycle.c.number)).where(cycle.c.project == project)


def _packed(question: str, done: DoneItems) -> bytes:
    """Serialize as Arrow, because there may be a million items."""
    columns = (done.items, _few(done.labels), np.asarray(done.confidence, np.float64), _few(done.why))
    table = pa.table(dict(zip(DONE, columns, strict=True)))
    return as_stream(table.replace_schema_metadata({"question": question}))


def _done_items(table: pa.Table) -> DoneItems:
    items, labels, confidence, why = (column.to_pylist() for column in table.columns)
    return DoneItems(items, [*map(tuple, labels)], confidence, why)


def _few(values: Sequence[Any]) -> pa.Array:
    """Convert a column with few distinct values to Arrow. Each distinct value is converted once."""
    place = {value: n for n, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter(map(place.__getitem__, values), np.int32, len(values))
    return pa.array(list(place)).take(pa.array(codes))


# -- deletion of old data ----------------------------------------------------------------------------------


def _forget_deleted(database: Database, connection: sa.Connection, project: str, seconds: float) -> None:
    """Delete items and annotations that were marked as deleted at least `seconds` ago.

    Marked rows only keep old pages from restoring them, and days are enough for that.
    """
    until = connection.execute(sa.select(database.now())).scalar_one() - seconds
    items = sa.and_(item.c.project == project, item.c.deleted_at <= until)
    gone = connection.execute(sa.select(item.c.item).where(items)).scalars().all()
    old = sa.and_(annotation.c.project == project, annotation.c.deleted_at <= until)
    connection.execute(sa.delete(annotation).where(old))
    if gone:
        # A snapshot from before the deletion would still contain the items.
        newest = sa.select(sa.func.max(item.c.revision)).where(items).scalar_subquery()
        stale = sa.and_(snapshot.c.project == project, snapshot.c.revision < newest)
        connection.execute(sa.delete(snapshot).where(stale))
        for table in (annotation, prediction):
            connection.execute(sa.delete(table).where(table.c.project == project, database.among(table.c.item, gone)))
        connection.execute(sa.delete(item).where(items))


def _forget_cycles(connection: sa.Connection, project: str, number: int, kept: int) -> None:
    """Delete all but the last `kept` runs.

    If the newest three runs before the last `RECENT` have equal metrics, delete the middle one.
    """
    mine = cycle.c.project == project
    connection.execute(sa.delete(cycle).where(mine, cycle.c.number <= number - kept))
    query = sa.select(cycle.c.number, cycle.c.metrics).where(mine, cycle.c.number <= number - RECENT)
    last = connection.execute(query.order_by(cycle.c.number.desc()).limit(3)).all()
    course = [{name: x for name, x in json.loads(row.metrics).items() if name not in OF_ONE_RUN} for row in last]
    if len(last) == 3 and course[0] == course[1] == course[2]:
        connection.execute(sa.delete(cycle).where(mine, cycle.c.number == last[1].number))
