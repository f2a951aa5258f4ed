"""Allow one run at a time per project, by a lease in the database. Its epoch rises with every holder.

    acquire   takes a lease that is free or expired, whose holder has died on this machine, or that was written while
              the clock was ahead; the epoch rises by one
    fence     the first statement of every write: fails unless this lease is still the newest, and renews it
    release   gives it up; until then it is renewed in the background

A process that was paused past its lease and overtaken (a zombie) still believes it holds the lease. Its epoch is no
longer the newest, so its next write fails and changes nothing. The fence is an UPDATE of the project's row. It takes
the lock that a takeover also needs, so neither can slip between the other's check and its commit.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hitl.errors import Busy, LeaseLost, StoreError
from hitl.store.database import Database
from hitl.store.schema import project as projects

SECONDS = 300.0
"""Duration of a lease after the last write or renewal, in seconds."""

BRIEF_SECONDS = 10.0
"""Maximum seconds to wait while another process holds a brief lease (`Leased.lease`), which it soon releases."""

KEPT_HOURS = 12.0
"""Longest time a lease is renewed in the background, in hours, so that a hung process cannot hold a project forever."""

AHEAD = 60.0
"""Seconds by which a stored lease may end later than one taken now. One that ends later still was written while a clock
was ahead. It counts as expired unless its holder is known to be alive, because otherwise a clock that was once a year
ahead would block a project for a year.
"""

_held: set[str] = set()
"""Owners whose leases this process holds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one project, for `seconds` after each write."""

    project: str
    owner: str
    epoch: int
    seconds: float


class _HeldBriefly(Busy):
    """The holder soon releases the lease."""


class Leased:
    """A database to which only the holder of a project's lease writes."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)

    @contextmanager
    def lease(self, project: str, *, seconds: float = SECONDS, brief: bool = False) -> Iterator[Lease]:
        """Hold the right to write to a project until the block ends, renewing it in the background.

        The lease of a process that is stopped or killed ends after `seconds`. `brief` means that it is released within
        seconds, so others wait for it (at most BRIEF_SECONDS). Raises Busy if another process holds it.
        """
        lease = self._acquired(project, seconds, owner_of(os.getpid(), seconds, brief))
        try:
            with self._kept(lease):
                yield lease
        finally:
            _held.discard(lease.owner)
            # Ignore errors: one raised in the block matters more, and the lease expires by itself.
            with suppress(StoreError), self.database.write() as connection:
                connection.execute(_mine(lease).values(owner="", lease_until=0.0))

    def _acquired(self, project: str, seconds: float, owner: str) -> Lease:
        until = time.monotonic() + BRIEF_SECONDS
        while True:
            try:
                return acquire(self.database, project, seconds, owner)
            except _HeldBriefly:
                if time.monotonic() > until:
                    raise
            time.sleep(0.02)

    @contextmanager
    def _kept(self, lease: Lease) -> Iterator[None]:
        done, last = threading.Event(), time.monotonic() + 3600 * KEPT_HOURS

        def renew() -> None:
            while not done.wait(lease.seconds / 4) and time.monotonic() < last:
                try:
                    self.renew(lease)
                except LeaseLost:
                    return  # the next write raises it
                except StoreError:
                    continue  # the next renewal may succeed

        thread = threading.Thread(target=renew, name="hitl-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _noted(self, column: str, project: str) -> Any:
        """Return a JSON column of the project's row, or None."""
        text = self.database.scalar(sa.select(projects.c[column]).where(projects.c.project == project))
        return None if text is None else json.loads(text)

    def _note(self, lease: Lease, **values: Any) -> None:
        with self._fenced(lease) as connection:
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(values))

    def renew(self, lease: Lease) -> None:
        """Restart the lease's duration. Raises LeaseLost if another process has taken it over."""
        with self._fenced(lease):
            pass

    def holder(self, project: str) -> str | None:
        """Describe who is writing to the project and until when at most, or return None if no live process is."""
        with self.database.read() as connection:
            return holders(self.database, connection).get(project)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[sa.Connection]:
        """Open a write transaction that renews the lease. Other writers of the project wait until it ends.

        Raises LeaseLost if the lease is no longer the newest.
        """
        with self.database.write() as connection:
            renew = _mine(lease).values(lease_until=self.database.now() + lease.seconds)
            if connection.execute(renew).rowcount != 1:
                query = sa.select(projects.c.owner, projects.c.lease_until).where(projects.c.project == lease.project)
                row = connection.execute(query).first()
                raise LeaseLost(
                    f"project {lease.project!r}: this run took too long, and another took over. The lease is held by "
                    f"{_described(*row) if row and row.owner else 'nobody'}. Nothing was written to the store since"
                )
            yield connection


def acquire(database: Database, project: str, seconds: float, owner: str) -> Lease:
    """Take the lease of a project, or raise Busy."""
    _held.add(owner)  # before the store shows the owner, or another thread would consider it dead
    try:
        with database.write() as connection:
            blank = {"epoch": 0, "owner": "", "lease_until": 0.0, "problems": "[]", "problems_epoch": 0}
            connection.execute(database.insert(projects).values(project=project, **blank).on_conflict_do_nothing())
            mine = projects.c.project == project
            query = sa.select(projects.c.epoch, projects.c.owner, projects.c.lease_until).where(mine)
            row = connection.execute(query.with_for_update()).one()
            now = connection.execute(sa.select(database.now())).scalar_one()
            if not _is_over(row.owner, row.lease_until - now):
                kind = _HeldBriefly if ":brief:" in row.owner else Busy
                raise kind(
                    f"project {project!r}: another run is in progress ({_process(row.owner)}). The project is free "
                    f"when it ends, or at {_time(row.lease_until)} if that process has died. Try again then"
                )
            taken = {"epoch": row.epoch + 1, "owner": owner, "lease_until": now + seconds}
            connection.execute(sa.update(projects).where(mine).values(taken))
    except BaseException:
        _held.discard(owner)
        raise
    return Lease(project, owner, row.epoch + 1, seconds)


def holders(database: Database, connection: sa.Connection) -> dict[str, str]:
    """Return project -> who holds it now, in words, leaving out processes that have died."""
    left = (projects.c.lease_until - database.now()).label("left")
    query = sa.select(projects.c.project, projects.c.owner, projects.c.lease_until, left)
    rows = connection.execute(query.where(projects.c.owner != "")).all()
    return {row.project: _described(row.owner, row.lease_until) for row in rows if not _is_over(row.owner, row.left)}


def _mine(lease: Lease) -> sa.Update:
    """Return an UPDATE of the project's row that matches only if the lease is still the newest."""
    return sa.update(projects).where(
        projects.c.project == lease.project, projects.c.epoch == lease.epoch, projects.c.owner == lease.owner
    )


# -- owners ------------------------------------------------------------------------------------------------


def owner_of(pid: int, seconds: float, brief: bool = False) -> str:
    """Return a unique owner: host, process id, `_life` of the process, kind of lease, random id, duration."""
    kind = "brief" if brief else "run"
    return f"{socket.gethostname()}:{pid}:{_life(pid)}:{kind}:{uuid.uuid4().hex[:8]}:{seconds:.0f}"


def _described(owner: str, until: float) -> str:
    return f"{_process(owner)}, until it ends, or {_time(until)} if that process has died"


def _process(owner: str) -> str:
    host, pid = owner.split(":")[:2]
    return f"{host}, process {pid}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _is_over(owner: str, left: float) -> bool:
    """Return True if the owner's lease has ended: it expired, its process died, or the clock was ahead when it began.

    `left`: seconds until it expires.
    """
    if left <= 0:
        return True
    lives, seconds = _lives(owner), float(owner.rpartition(":")[2])
    return lives is False or (lives is None and left > seconds + AHEAD)


def _lives(owner: str) -> bool | None:
    """Return True if the owner's process is alive, False if it has died, None if it runs on another machine.

    The process id may have been reused, even by this process: in a container every start has id 1. If the system hides
    the start time of another user's process, the process is assumed to be the owner.
    """
    host, number, life = owner.split(":")[:3]
    if host != socket.gethostname() and not (_machine() and life.endswith(f"@{_machine()}")):
        return None
    pid = int(number)
    if pid == os.getpid():
        return owner in _held
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return _life(pid) in ("", life)


def _life(pid: int) -> str:
    """Identify a process by start time, boot and container, so that a process that reuses its id differs.

    Return "" if the system does not report it (Linux does).
    """
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{began}@{_machine()}"


def _machine() -> str:
    """Identify this boot of the machine and the PID namespace (container), "" if the system does not report it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""
