"""One run at a time per project: a lease in the database, with an epoch that rises with every holder.

    acquire   takes a lease that is free or expired, whose holder has died on this machine, or that was written while
              the clock was ahead; the epoch rises by one
    fence     the first statement of every write: fails unless this lease is still the newest, and renews it
    keep      renews it in the background during fits and pushes that may outlast it
    release   gives it up

A process that was paused past its lease and overtaken (a zombie) still believes it holds the lease. Its epoch is no
longer the newest, so its next write fails and changes nothing. The fence is an UPDATE of the project's row. It takes
the lock that a takeover also needs, so neither can slip between the other's check and its commit.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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
"""Seconds to wait for a brief lease, which is taken often to check for news and soon released."""

KEPT_HOURS = 12.0
"""Longest time a lease is renewed in the background, in hours, so that a hung process cannot hold a project forever."""

AHEAD = 60.0
"""Seconds by which a lease may end later than one taken now. A lease beyond that was written by a clock that was ahead;
it counts as expired unless its holder is known to be alive. Otherwise a clock once a year ahead would block a project
for a year.
"""

LONGEST = 86_400.0
"""Longest duration of a lease, in seconds, for holders of an older version that do not record it."""

_held: set[str] = set()
"""Owners whose leases this process holds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one project, for `seconds` after each write."""

    project: str
    owner: str
    epoch: int
    seconds: float


class Leased:
    """A database to which only the holder of a project's lease writes."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)

    @contextmanager
    def lease(
        self,
        project: str,
        *,
        seconds: float = SECONDS,
        owner: str | None = None,
        keep: bool = True,
        brief: bool = False,
    ) -> Iterator[Lease]:
        """Hold the right to write to a project until the block ends, renewing it in the background.

        With `keep` False the lease ends `seconds` after the last write, as does that of a process that is stopped or
        killed. `brief` means that it is released within seconds, so others wait for it (at most BRIEF_SECONDS). Raises
        Busy if another process holds it; an expired lease is taken over.
        """
        lease = self._acquired(project, seconds, owner or (_owner(seconds, BRIEF) if brief else None))
        try:
            with self._kept(lease) if keep else nullcontext():
                yield lease
        finally:
            _held.discard(lease.owner)
            # An error of the block matters more, and the lease expires by itself. A lost lease is left alone.
            with suppress(StoreError), self.database.write() as connection:
                connection.execute(_mine(lease).values(owner="", lease_until=0.0))

    def _acquired(self, project: str, seconds: float, owner: str | None) -> Lease:
        """Acquire the lease, waiting if it is held only briefly."""
        until = time.monotonic() + BRIEF_SECONDS
        while True:
            try:
                return acquire(self.database, project, seconds, owner)
            except Busy:
                held = self.database.scalar(sa.select(projects.c.owner).where(projects.c.project == project))
                if time.monotonic() > until or (held and BRIEF not in held):
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

    def renew(self, lease: Lease) -> None:
        """Restart the lease's duration, during long work and just before a push.

        Raises LeaseLost if it was overtaken.
        """
        with self._fenced(lease):
            pass

    def holder(self, project: str) -> str | None:
        """Describe who is writing to the project and until when at most, or return None if no live process is."""
        with self.database.read() as connection:
            return next((_holder(connection, name) for name in _held_by(self.database, connection, project)), None)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[sa.Connection]:
        """Open a write transaction that only the newest lease gets.

        It renews the lease and blocks other writers until it ends.
        """
        with self.database.write() as connection:
            renew = _mine(lease).values(lease_until=self.database.now() + lease.seconds)
            if connection.execute(renew).rowcount != 1:
                raise LeaseLost(
                    f"project {lease.project!r}: this cycle took too long and was overtaken; "
                    f"the lease is held by {_holder(connection, lease.project)}. Nothing was written to the store since"
                )
            yield connection


BRIEF = ":brief-"
"""Marks the owner of a brief lease."""


def _owner(seconds: float, kind: str = ":") -> str:
    """Return a unique owner: machine, process, its start time, and the duration of the lease."""
    return f"{socket.gethostname()}:{os.getpid()}:{_life(os.getpid())}{kind}{uuid.uuid4().hex[:8]}:{seconds:.0f}"


def _mine(lease: Lease) -> sa.Update:
    """Return an UPDATE of the project's row that matches only if the lease is still the newest."""
    return sa.update(projects).where(
        projects.c.project == lease.project, projects.c.epoch == lease.epoch, projects.c.owner == lease.owner
    )


def acquire(database: Database, name: str, seconds: float, owner: str | None) -> Lease:
    """Take the lease of a project, or raise Busy."""
    owner = owner or _owner(seconds)
    _held.add(owner)  # before it is visible in the store, or another thread would take it for dead
    try:
        with database.write() as connection:
            epoch = _taken(database, connection, name, seconds, owner)
    except BaseException:
        _held.discard(owner)
        raise
    return Lease(name, owner, epoch, seconds)


def _taken(database: Database, connection: sa.Connection, name: str, seconds: float, owner: str) -> int:
    """Take the lease and return its epoch. Raises Busy."""
    taken = connection.execute(_take(database, name, seconds, owner)).rowcount == 1
    if not taken and not _take_what_is_over(database, connection, name, seconds, owner):
        raise Busy(f"project {name!r} is held by {_holder(connection, name)}. Try again later")
    return int(connection.execute(sa.select(projects.c.epoch).where(projects.c.project == name)).scalar_one())


def _take(database: Database, name: str, seconds: float, owner: str) -> Any:
    """Insert a row, or raise the epoch of an expired lease; otherwise change nothing."""
    now = database.now()
    first = database.insert(projects).values(
        project=name, epoch=1, owner=owner, lease_until=now + seconds, problems="[]", problems_epoch=0
    )
    taken = {
        "epoch": projects.c.epoch + 1,
        "owner": first.excluded.owner,
        "lease_until": first.excluded.lease_until,
    }
    take = first.on_conflict_do_update(
        index_elements=[projects.c.project], set_=taken, where=projects.c.lease_until <= now
    )
    return take.execution_options(preserve_rowcount=True)


def _take_what_is_over(database: Database, connection: sa.Connection, name: str, seconds: float, owner: str) -> bool:
    """Take over from a dead process of this machine, or from a clock that was ahead."""
    left = projects.c.lease_until - database.now()
    found = connection.execute(sa.select(projects.c.owner, left).where(projects.c.project == name)).first()
    if found is None or not _is_over(*found):
        return False
    holder = found.owner
    take = (
        sa.update(projects)
        .where(projects.c.project == name, projects.c.owner == holder)
        .values(epoch=projects.c.epoch + 1, owner=owner, lease_until=database.now() + seconds)
    )
    return connection.execute(take).rowcount == 1


def _is_over(owner: str, left: float) -> bool:
    """Return True if no process holds the owner's lease, which has `left` seconds to go."""
    lives = _lives(owner)
    return left <= 0 or lives is False or (lives is None and left > _lasts(owner) + AHEAD)


def _lasts(owner: str) -> float:
    """Return the seconds that the owner's lease lasts after a renewal."""
    said = owner.rpartition(":")[2]
    return float(said) if owner.count(":") > 3 and said.isdigit() else LONGEST


def _lives(owner: str) -> bool | None:
    """Return True if the process of an owner "host:pid:life:..." is alive, None if it runs on another machine.

    The process id may have been reused, even by this process: in a container every start has id 1. If the system hides
    the start time of another user's process, the process is assumed to be the owner.
    """
    host, _, rest = owner.partition(":")
    number, _, rest = rest.partition(":")
    life = rest.partition(":")[0]
    if not number.isdigit() or (host != socket.gethostname() and not _is_here(life)):
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
    return _BEGAN not in life or _life(pid) in ("", life)


_BEGAN = "@"


def _life(pid: int) -> str:
    """Identify a process by start time, boot and container, so that a reused process id differs.

    Return "" if the system does not report it (Linux does).
    """
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{began}{_BEGAN}{_machine()}"
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """Identify this boot of the machine and the PID namespace (container)."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"


def _is_here(life: str) -> bool:
    """Return True if a process with this life belongs to our machine and PID namespace, whatever the host name."""
    with suppress(OSError):
        return life.partition(_BEGAN)[2] == _machine()
    return False


def holders(database: Database, connection: sa.Connection) -> list[str]:
    """Describe who holds which project now, leaving out processes that have died."""
    return [f"project {name!r} is held by {_holder(connection, name)}" for name in _held_by(database, connection)]


def _held_by(database: Database, connection: sa.Connection, project: str | None = None) -> list[str]:
    """Return the projects that are held now, or only `project`."""
    left = (projects.c.lease_until - database.now()).label("left")
    query = sa.select(projects.c.project, projects.c.owner, left).where(projects.c.owner != "")
    if project is not None:
        query = query.where(projects.c.project == project)
    return [row.project for row in connection.execute(query) if not _is_over(row.owner, row.left)]


def _holder(connection: sa.Connection, name: str) -> str:
    """Describe who holds the lease and until when."""
    query = sa.select(projects.c.owner, projects.c.lease_until).where(projects.c.project == name)
    row = connection.execute(query).first()
    if row is None or not row.owner:
        return "nobody"
    until = datetime.fromtimestamp(row.lease_until, UTC)
    return f"{_shown(row.owner)} until {until:%Y-%m-%d %H:%M:%S} UTC"


def _shown(owner: str) -> str:
    """Format an owner for messages: machine and process id."""
    parts = owner.split(":")
    return f"{parts[0]}, process {parts[1]}," if len(parts) > 2 and parts[1].isdigit() else owner
