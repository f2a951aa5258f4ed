"""`Store`: the database behind one or several projects.

Writes take a `Lease`; each is one transaction that begins with the fence. Reads take a project's name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType

import pyarrow as pa
import sqlalchemy as sa

from hitl.consensus import Consensus
from hitl.errors import StoreError
from hitl.exchange import Cursor, Operation, Page, Receipt
from hitl.plan import Plan
from hitl.store import cycles, pages, tables
from hitl.store import lease as leases
from hitl.store.cycles import CycleRecord, CycleSummary
from hitl.store.database import Database
from hitl.store.lease import Lease
from hitl.store.pages import PageSummary
from hitl.store.schema import project as projects

LONGEST = 500
"""Characters of an error's message that are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """When a cycle failed, with which error and message."""

    at: datetime
    error: str
    message: str


class Store:
    """What was pulled, what was concluded, what must still be pushed.

    `url` is "sqlite:///folder/hitl.db" or "postgresql://user:password@host/database". Opening brings the schema up to
    date. A store may be used from several threads and processes; close it, or use it as a context manager.

    Raises StoreError when the database cannot be opened, here or later.

    Attributes:
        database: its connections, for what stands beside the store's own tables in the same database.
    """

    def __init__(self, url: str) -> None:
        self.database = Database(url)

    def __repr__(self) -> str:
        return f"Store({self.database.name!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    # -- the lease -----------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, project: str, *, seconds: float = 300, owner: str | None = None) -> Iterator[Lease]:
        """The right to write to a project. It ends `seconds` after the last write, or with the block.

        Raises Busy when another holds it; a lease whose time is over is taken over.
        """
        lease = leases.acquire(self.database, project, seconds, owner)
        try:
            yield lease
        finally:
            with suppress(StoreError):  # what the block raised matters more, and the lease ends by itself
                leases.release(self.database, lease)

    def renew(self, lease: Lease) -> None:
        """Start the lease's time anew, during long work. Raises LeaseLost when it was overtaken."""
        with self._fenced(lease):
            pass

    def check(self, lease: Lease) -> None:
        """To be called just before a push: raises LeaseLost when the lease was overtaken, and renews it."""
        self.renew(lease)

    def holder(self, project: str) -> str | None:
        """Who holds the project's lease now, in words, or None."""
        with self.database.read() as connection:
            return leases.holder(self.database, connection, project)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[sa.Connection]:
        """A transaction that only the newest lease gets."""
        with self.database.write() as connection:
            leases.fence(self.database, connection, lease)
            yield connection

    # -- what was pulled -----------------------------------------------------------------------------------

    def cursor(self, project: str) -> Cursor | None:
        """Where the last pull stopped; None: pull everything."""
        query = sa.select(projects.c.cursor).where(projects.c.project == project)
        with self.database.read() as connection:
            text = connection.execute(query).scalar()
        cursor: Cursor | None = None if text is None else json.loads(text)
        return cursor

    def reset_cursor(self, lease: Lease) -> None:
        """Let the next pull start from the beginning."""
        with self._fenced(lease) as connection:
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(cursor=None))

    def save_page(self, lease: Lease, page: Page) -> PageSummary:
        """Save rows and cursor together, or nothing. `hitl.store.pages` says which of two rows stays."""
        with self._fenced(lease) as connection:
            return pages.save(self.database, connection, lease, page)

    def items(self, project: str) -> pa.Table:
        """Live items in the order first seen: item, data (JSON text), labels_wanted, closed."""
        return tables.items(self.database, project)

    def annotators(self, project: str) -> pa.Table:
        """Everyone the platform has named, by key: key, name."""
        return tables.annotators(self.database, project)

    def annotations(self, project: str, question: str) -> pa.Table:
        """Live answers: item, annotator (or null), label, time (of the version, seconds since the epoch), duration.

        Items in the order of `items`, the answers to one from the oldest to the newest.
        """
        return tables.answers(self.database, project, question)

    def gold(self, project: str, question: str) -> pa.Table:
        """The latest known truth of each live item: item, label."""
        return tables.gold(self.database, project, question)

    def skips(self, project: str) -> pa.Table:
        """Who passed over which live item, each pair once: item, annotator."""
        return tables.skips(self.database, project)

    def predictions(self, project: str, question: str) -> dict[str, pa.Table]:
        """For each model a table of live items: item, p_<class>, ..."""
        return tables.predictions(self.database, project, question)

    def problems(self, project: str) -> list[str]:
        """What the latest pull that brought a page could not understand (the first hundred)."""
        query = sa.select(projects.c.problems).where(projects.c.project == project)
        with self.database.read() as connection:
            text = connection.execute(query).scalar()
        return [] if text is None else [str(problem) for problem in json.loads(text)]

    def note_failure(self, lease: Lease, error: Exception | None) -> None:
        """Why a cycle failed just now; None: it did not, and an older failure is over."""
        said = None
        if error is not None:
            said = json.dumps({"at": time.time(), "error": type(error).__name__, "message": str(error)[:LONGEST]})
        elif self.failure(lease.project) is None:
            return  # nothing to write, as nearly always
        with self._fenced(lease) as connection:
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(failure=said))

    def failure(self, project: str) -> Failure | None:
        """Why the last cycle failed; None when it did not, or when no cycle has noted it."""
        query = sa.select(projects.c.failure).where(projects.c.project == project)
        with self.database.read() as connection:
            text = connection.execute(query).scalar()
        if text is None:
            return None
        found = json.loads(text)
        return Failure(datetime.fromtimestamp(found["at"], UTC), found["error"], found["message"])

    def counts(self, project: str) -> dict[str, int]:
        """How many items, annotations, annotators, skips and items with gold there are."""
        with self.database.read() as connection:
            return tables.counts(connection, project)

    # -- what was concluded --------------------------------------------------------------------------------

    def record_cycle(self, lease: Lease, record: CycleRecord) -> int:
        """Write what a cycle concluded and what is to be pushed, together; gives its number, 1 for the first."""
        packed = cycles.pack(record)
        with self._fenced(lease) as connection:
            return cycles.record(self.database, connection, lease.project, packed)

    def cycles(self, project: str) -> list[CycleSummary]:
        """All cycles, oldest first."""
        with self.database.read() as connection:
            return cycles.history(connection, project)

    def last_cycle(self, project: str) -> CycleSummary | None:
        """The last cycle's line of the history, or None before the first."""
        with self.database.read() as connection:
            return next(iter(cycles.history(connection, project, last=1)), None)

    def recorded(self, project: str, due: str) -> bool:
        """Whether a cycle was recorded for the scheduled run of this name."""
        with self.database.read() as connection:
            return cycles.recorded(connection, project, due)

    def latest(self, project: str) -> tuple[dict[str, Consensus], Plan] | None:
        """The consensus of each question and the plan of the last cycle, or None before the first."""
        with self.database.read() as connection:
            found = cycles.latest(connection, project)
        if found is None:
            return None
        results = {name: Consensus.from_bytes(packed, f"consensus of {name!r}") for name, packed in found[0].items()}
        return results, Plan.from_json(found[1])

    def plan(self, project: str) -> Plan | None:
        """The plan of the last cycle alone, or None before the first."""
        with self.database.read() as connection:
            text = cycles.latest_plan(connection, project)
        return None if text is None else Plan.from_json(text)

    # -- the outbox ----------------------------------------------------------------------------------------

    def queue(self, lease: Lease, operations: Iterable[Operation]) -> None:
        """Have these sent although no cycle came to them: new items, known truth. Each is sent until it is confirmed.

        One with the kind and key of another that still waits replaces it.
        """
        with self._fenced(lease) as connection:
            cycles.queue(self.database, connection, lease.project, operations)

    def queued(self, project: str) -> list[Operation]:
        """What was queued by hand and must still be pushed, in order; a part of `pending`."""
        with self.database.read() as connection:
            found = cycles.operations(connection, project, cycles.PENDING, cycles.BY_HAND)
        return [operation for operation, _ in found]

    def withdraw(self, lease: Lease, operation: Operation) -> bool:
        """Do not send again what was queued by hand; whether it was. What a cycle says stays."""
        with self._fenced(lease) as connection:
            return cycles.withdraw(connection, lease.project, operation)

    def pending(self, project: str) -> list[Operation]:
        """What must still be pushed, in order."""
        with self.database.read() as connection:
            return [operation for operation, _ in cycles.operations(connection, project, cycles.PENDING)]

    def count_pending(self, project: str) -> int:
        """How many operations must still be pushed; what they say is not read."""
        with self.database.read() as connection:
            return cycles.count(connection, project, cycles.PENDING)

    def operations(self, project: str) -> list[tuple[Operation, str]]:
        """The latest operation of each (kind, key) with its state, "pending" or "confirmed"."""
        with self.database.read() as connection:
            return cycles.operations(connection, project)

    def confirm(self, lease: Lease, receipt: Receipt) -> None:
        """The platform is as the operation says: it will not be pushed again."""
        with self._fenced(lease) as connection:
            cycles.confirm(connection, lease.project, receipt)
