"""Queue events: one row per event and address, written in the transaction that records what the event reports.

    announce   add events for their addresses, and store what has been reported so far (`Announcement.told`)
    claim      lock the first due event for a while, so that no other process sends it
    settle     mark it delivered, schedule a retry, or mark it failed

If a process is killed after claiming an event, the lock expires and another process sends the same event under the same
id, so nothing is lost. Claiming and settling need no lease, because they change no data of the project. Events are
stored for `KEPT` seconds for inspection; waiting events stay longer.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from hitl.store.database import Database
from hitl.store.lease import Leased
from hitl.store.schema import address as addresses
from hitl.store.schema import event as events
from hitl.store.schema import project as projects

State = Literal["waiting", "delivered", "failed"]
WAITING: State = "waiting"
DELIVERED: State = "delivered"
FAILED: State = "failed"

KEPT = 30 * 24 * 3600.0
"""Seconds after which an event is deleted, unless it is still waiting."""

BETWEEN = 1e-5
"""Seconds added to the time of each further event created at once, so that events sort in order."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event to report.

    Attributes:
        kind: "items.decided", ...; at: time, in seconds since the epoch.
        body: JSON text to send, byte for byte the same at each attempt.
        to: names of the addresses it is sent to.
        id: identifier by which receivers recognize duplicates.
    """

    kind: str
    at: float
    body: str
    to: tuple[str, ...]
    id: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """Events to queue together, and `told`: what has been reported so far (JSON values; None: unchanged)."""

    events: tuple[Event, ...] = ()
    told: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event to deliver to one address. Times are seconds since the epoch.

    Attributes:
        event: id of the event.
        address: name of the receiver.
        kind, at, body: see `Event`.
        state: "waiting", "delivered" or "failed".
        attempts: number of attempts, including the claimed one.
        due: earliest time of the next attempt while the delivery waits; 0: at once.
        tried: time of the last attempt, or None.
        said: outcome of the last attempt, in words; empty before the first.
    """

    event: str
    address: str
    kind: str
    at: float
    body: str
    state: State
    attempts: int
    due: float
    tried: float | None
    said: str

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, without the body."""
        return {
            "event": self.event,
            "kind": self.kind,
            "at": _written(self.at),
            "address": self.address,
            "state": self.state,
            "attempts": self.attempts,
            "tried": None if self.tried is None else _written(self.tried),
            "next": _written(self.due) if self.state == WAITING and self.due else None,
            "said": self.said,
        }


@dataclass(frozen=True, slots=True)
class Counted:
    """Number of deliveries to an address: total delivered and failed, and currently waiting.

    `gone`: when the address was turned off, in seconds since the epoch; None if it is on.
    """

    delivered: int = 0
    failed: int = 0
    waiting: int = 0
    gone: float | None = None


class Announced(Leased):
    """The event queue of the store."""

    def told(self, project: str) -> dict[str, Any]:
        """Return what has been reported so far, as last recorded by an announcement."""
        return dict(self._noted("told", project) or {})

    def claim(self, project: str, address: str, seconds: float, now: float | None = None) -> Delivery | None:
        """Claim the first due delivery to this address for `seconds`. Return None if no delivery is due.

        `now`: time to use instead of the current one. A claim that ends more than 2 * `seconds` from now was made while
        the clock was ahead, and is ignored.
        """
        when: Any = self.database.now() if now is None else sa.literal(now, sa.Double())
        mine = (events.c.project == project, events.c.address == address, events.c.state == WAITING)
        free = (events.c.held <= when) | (events.c.held > when + 2 * seconds)  # `when` may lie in the past
        ready = sa.select(events.c.event, events.c.attempts).where(*mine, events.c.due <= when, free)
        ready = ready.order_by(events.c.at, events.c.event).limit(1)
        if not self.database.rows(ready):
            return None  # the usual case: nothing is written
        with self.database.write() as connection:
            found = connection.execute(ready).first()
            if found is None:
                return None
            taken = {"attempts": found.attempts + 1, "held": when + seconds, "tried": when}
            unchanged = (events.c.event == found.event) & (events.c.attempts == found.attempts)
            take = sa.update(events).where(*mine, unchanged, free).values(taken)
            if connection.execute(take).rowcount != 1:
                return None  # another process was faster
            query = _listed().where(*mine, events.c.event == found.event)
            return Delivery(*connection.execute(query).one())

    def arrived(self, project: str, it: Delivery, said: str) -> None:
        """Mark the delivery as delivered. Other events for this address become due at once, because it responds."""
        self._settle(project, it, state=DELIVERED, said=said)
        waiting = (*_of(project, it.address), events.c.state == WAITING, events.c.due > 0)
        self.database.change(sa.update(events).where(*waiting).values(due=0.0))

    def later(self, project: str, it: Delivery, said: str, seconds: float, now: float | None = None) -> None:
        """Schedule a retry of the delivery after `seconds`."""
        when: Any = self.database.now() if now is None else sa.literal(now, sa.Double())
        self._settle(project, it, due=when + seconds, said=said)

    def not_sent(self, project: str, it: Delivery) -> None:
        """Undo the claim of a delivery that was not sent."""
        self._settle(project, it, attempts=it.attempts - 1)

    def lost(self, project: str, it: Delivery, said: str) -> None:
        """Mark the delivery as failed, so that it is not sent again."""
        self._settle(project, it, state=FAILED, said=said)

    def _settle(self, project: str, it: Delivery, **values: Any) -> None:
        """Record the outcome of an attempt, unless a newer attempt has begun."""
        this = (*_of(project, it.address), events.c.event == it.event, events.c.state == WAITING)
        this = (*this, events.c.attempts == it.attempts)
        with self.database.write() as connection:
            settled = connection.execute(sa.update(events).where(*this).values(held=0.0, **values)).rowcount == 1
            if settled and "state" in values:
                _count(self.database, connection, project, it.address, **{values["state"]: 1})

    def give_up(self, project: str, address: str, said: str, before: float | None = None) -> int:
        """Mark waiting deliveries to this address as failed. Return their number.

        `before`: only those of events before this time, in seconds since the epoch.
        """
        waiting = (*_of(project, address), events.c.state == WAITING)
        if before is not None:
            waiting = (*waiting, events.c.at < before)
        if not self.database.rows(sa.select(events.c.event).where(*waiting).limit(1)):
            return 0
        with self.database.write() as connection:
            stop = sa.update(events).where(*waiting).values(state=FAILED, said=said, held=0.0)
            count = connection.execute(stop).rowcount
            _count(self.database, connection, project, address, failed=count)
            return count

    def switch(self, project: str, address: str, digest: str, *, off: bool) -> None:
        """Turn an address off because its receiver wants no more events, or on again.

        `digest`: digest of its URL. If the URL changes, the address is on again.
        """
        with self.database.write() as connection:
            _count(self.database, connection, project, address)
            mine = (addresses.c.project == project, addresses.c.address == address)
            gone = self.database.now() if off else None
            connection.execute(sa.update(addresses).where(*mine).values(digest=digest, gone=gone))

    def is_off(self, project: str, address: str, digest: str) -> bool:
        """Return True if the address was turned off and its URL still has this digest."""
        mine = (addresses.c.project == project, addresses.c.address == address, addresses.c.digest == digest)
        return bool(self.database.rows(sa.select(addresses.c.gone).where(*mine, addresses.c.gone.is_not(None))))

    def resend(self, project: str) -> int:
        """Queue all failed deliveries again. Return the number."""
        again = sa.update(events).where(events.c.project == project, events.c.state == FAILED)
        return self.database.change(again.values(state=WAITING, attempts=0, due=0.0, held=0.0))

    def deliveries(self, project: str, limit: int = 100) -> list[Delivery]:
        """Return the last deliveries, newest event first."""
        query = _listed().where(events.c.project == project)
        query = query.order_by(events.c.at.desc(), events.c.event, events.c.address).limit(limit)
        return [Delivery(*row) for row in self.database.rows(query)]

    def count_deliveries(self, project: str) -> dict[str, Counted]:
        """Return address -> number of delivered, failed and waiting events. Addresses without any are left out."""
        columns = (addresses.c.address, addresses.c.delivered, addresses.c.failed, addresses.c.gone)
        rows = self.database.rows(sa.select(*columns).where(addresses.c.project == project))
        counts = {name: Counted(delivered, failed, 0, gone) for name, delivered, failed, gone in rows}
        waiting = sa.select(events.c.address, sa.func.count()).group_by(events.c.address)
        for name, count in self.database.rows(waiting.where(events.c.project == project, events.c.state == WAITING)):
            counts[name] = replace(counts.get(name, Counted()), waiting=int(count))
        return dict(sorted(counts.items()))


def announce(database: Database, connection: sa.Connection, project: str, said: Announcement) -> None:
    """Queue events within the transaction that records their cause, and delete settled ones older than `KEPT`."""
    if said.told is not None:
        mine = sa.update(projects).where(projects.c.project == project)
        connection.execute(mine.values(told=json.dumps(dict(said.told))))
    if not said.events:
        return
    past = (events.c.project == project, events.c.at < database.now() - KEPT, events.c.state != WAITING)
    connection.execute(sa.delete(events).where(*past))
    blank = {"state": WAITING, "attempts": 0, "due": 0.0, "held": 0.0, "tried": None, "said": ""}
    rows = [
        {"event": one.id, "kind": one.kind, "body": one.body, "at": one.at + place * BETWEEN}
        | {"project": project, "address": name, **blank}
        for place, one in enumerate(said.events)
        for name in one.to
    ]
    if rows:
        connection.execute(sa.insert(events), rows)


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _listed() -> sa.Select[Any]:
    """Select events in the columns of `Delivery`."""
    names = ("event", "address", "kind", "at", "body", "state", "attempts", "due", "tried", "said")
    return sa.select(*(events.c[name] for name in names))


def _of(project: str, address: str) -> tuple[sa.ColumnElement[bool], ...]:
    return events.c.project == project, events.c.address == address


def _count(database: Database, connection: sa.Connection, project: str, name: str, **more: int) -> None:
    """Add to the counts of an address, creating its row if needed."""
    blank = {"project": project, "address": name, "digest": "", "gone": None, "delivered": 0, "failed": 0}
    connection.execute(database.insert(addresses).values(blank).on_conflict_do_nothing())
    if more:
        mine = (addresses.c.project == project, addresses.c.address == name)
        values = {key: addresses.c[key] + count for key, count in more.items()}
        connection.execute(sa.update(addresses).where(*mine).values(values))
