"""One cycle at a time per project: a lease in the database, with an epoch that rises with every holder.

    acquire   takes a lease no process holds, one whose time is over, one whose holder has died on this machine, or one
              that was written while the clock was ahead; the epoch rises by one
    fence     the first statement of every write: fails unless this lease is still the newest, and renews it
    keep      renews it in the background, while fits and pushes run that may take longer than it lasts
    release   gives it back

A process that was paused past its lease and overtaken (a zombie) still believes it holds it; its epoch is no longer
the newest, so that its next write fails and changes nothing. The fence is an UPDATE of the project's row: it takes
the lock that a take-over also needs, so neither can slip between the other's check and its commit.
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
"""How long a lease lasts after the last write or renewal."""

BRIEF_SECONDS = 10.0
"""How long others wait for a lease that is taken to look for news, again and again, and soon given back."""

KEPT_HOURS = 12.0
"""How long it is renewed in the background at most: a process that hangs may not hold a project for ever."""

AHEAD = 60.0
"""Seconds that a lease may end later than one taken now would: of a clock that has been set back by more it is over,
unless its holder is seen to live. Otherwise a clock that was once a year ahead would close a project for a year."""

LONGEST = 86_400.0
"""Seconds that a lease lasts at most whose holder, one of an older version, does not say how long."""

_held: set[str] = set()
"""The owners whose leases this process has taken and not given back."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one project, for `seconds` after each write."""

    project: str
    owner: str
    epoch: int
    seconds: float


class Leased:
    """A database that only the holder of a project's lease writes to."""

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
        """The right to write to a project, until the block ends; it is renewed in the background meanwhile.

        With `keep` False it ends `seconds` after the last write. So does that of a process that is stopped or killed.
        `brief`: it is given back within seconds, so that others wait for it (BRIEF_SECONDS at most). Raises Busy when
        another holds it; a lease whose time is over is taken over.
        """
        lease = self._acquired(project, seconds, owner or (_owner(seconds, BRIEF) if brief else None))
        try:
            with self._kept(lease) if keep else nullcontext():
                yield lease
        finally:
            _held.discard(lease.owner)
            # What the block raised matters more, and the lease ends by itself; nothing happens when it was lost.
            with suppress(StoreError), self.database.write() as connection:
                connection.execute(_mine(lease).values(owner="", lease_until=0.0))

    def _acquired(self, project: str, seconds: float, owner: str | None) -> Lease:
        """The lease, when it is free; one that is held for a moment only is waited for."""
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
                    return  # the next write says so
                except StoreError:
                    continue  # the next time may do

        thread = threading.Thread(target=renew, name="hitl-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def renew(self, lease: Lease) -> None:
        """Start the lease's time anew, during long work and just before a push.

        Raises LeaseLost when it was overtaken.
        """
        with self._fenced(lease):
            pass

    def holder(self, project: str) -> str | None:
        """Who writes to the project now and until when at most, in words; None: no process that is alive."""
        with self.database.read() as connection:
            return next((_holder(connection, name) for name in _held_by(self.database, connection, project)), None)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[sa.Connection]:
        """A transaction that only the newest lease gets; it renews the lease, and others wait for its end."""
        with self.database.write() as connection:
            renew = _mine(lease).values(lease_until=self.database.now() + lease.seconds)
            if connection.execute(renew).rowcount != 1:
                raise LeaseLost(
                    f"project {lease.project!r}: this cycle took too long and was overtaken; "
                    f"the lease is held by {_holder(connection, lease.project)}. Nothing was written to the store since"
                )
            yield connection


BRIEF = ":brief-"
"""What the owner of a lease has in it that others wait for."""


def _owner(seconds: float, kind: str = ":") -> str:
    """A name for this holder that no other has: machine, process, when it began, and how long it may last."""
    return f"{socket.gethostname()}:{os.getpid()}:{_life(os.getpid())}{kind}{uuid.uuid4().hex[:8]}:{seconds:.0f}"


def _mine(lease: Lease) -> sa.Update:
    """An UPDATE of the project's row, if the lease is still the newest."""
    return sa.update(projects).where(
        projects.c.project == lease.project, projects.c.epoch == lease.epoch, projects.c.owner == lease.owner
    )


def acquire(database: Database, name: str, seconds: float, owner: str | None) -> Lease:
    """Take the lease of a project, or raise Busy."""
    owner = owner or _owner(seconds)
    _held.add(owner)  # before others can read it: a thread that finds it in the store may not take it for a dead one
    try:
        with database.write() as connection:
            epoch = _taken(database, connection, name, seconds, owner)
    except BaseException:
        _held.discard(owner)
        raise
    return Lease(name, owner, epoch, seconds)


def _taken(database: Database, connection: sa.Connection, name: str, seconds: float, owner: str) -> int:
    """The epoch of the lease just taken; raises Busy."""
    taken = connection.execute(_take(database, name, seconds, owner)).rowcount == 1
    if not taken and not _take_what_is_over(database, connection, name, seconds, owner):
        raise Busy(f"project {name!r} is held by {_holder(connection, name)}. Try again later")
    return int(connection.execute(sa.select(projects.c.epoch).where(projects.c.project == name)).scalar_one())


def _take(database: Database, name: str, seconds: float, owner: str) -> Any:
    """A new row, or the next epoch of one whose time is over; otherwise nothing."""
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
    """Take over at once from a process of this machine that is no more (killed: it could not release), and from a clock
    that was ahead."""
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
    """Whether no process holds the lease of an owner any more that has so many seconds left."""
    lives = _lives(owner)
    return left <= 0 or lives is False or (lives is None and left > _lasts(owner) + AHEAD)


def _lasts(owner: str) -> float:
    """Seconds that the lease of an owner lasts after it was renewed."""
    said = owner.rpartition(":")[2]
    return float(said) if owner.count(":") > 3 and said.isdigit() else LONGEST


def _lives(owner: str) -> bool | None:
    """Whether the process of an owner "host:pid:life:..." lives; None: it is none of this machine, which cannot say.

    Its number may be another process's by now, this one's too: in a container every start has number 1. Where the
    system hides when a process of another user began, it is taken for the one that is meant.
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
    """What no other process of the same number has: when it began, on which start of the machine, in which container.

    "" where the system does not say (Linux does).
    """
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{began}{_BEGAN}{_machine()}"
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """This start of this machine, and the container whose processes are counted from 1."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"


def _is_here(life: str) -> bool:
    """Whether a process of this life is one of those that this one can see, whatever the name of the machine."""
    with suppress(OSError):
        return life.partition(_BEGAN)[2] == _machine()
    return False


def holders(database: Database, connection: sa.Connection) -> list[str]:
    """Who holds which project now, in words; processes that have died are left out."""
    return [f"project {name!r} is held by {_holder(connection, name)}" for name in _held_by(database, connection)]


def _held_by(database: Database, connection: sa.Connection, project: str | None = None) -> list[str]:
    """Those of all projects, or of this one, that are held now."""
    left = (projects.c.lease_until - database.now()).label("left")
    query = sa.select(projects.c.project, projects.c.owner, left).where(projects.c.owner != "")
    if project is not None:
        query = query.where(projects.c.project == project)
    return [row.project for row in connection.execute(query) if not _is_over(row.owner, row.left)]


def _holder(connection: sa.Connection, name: str) -> str:
    """Who holds the lease and until when, in words."""
    query = sa.select(projects.c.owner, projects.c.lease_until).where(projects.c.project == name)
    row = connection.execute(query).first()
    if row is None or not row.owner:
        return "nobody"
    until = datetime.fromtimestamp(row.lease_until, UTC)
    return f"{_shown(row.owner)} until {until:%Y-%m-%d %H:%M:%S} UTC"


def _shown(owner: str) -> str:
    """An owner for people: the machine and the number of the process."""
    parts = owner.split(":")
    return f"{parts[0]}, process {parts[1]}," if len(parts) > 2 and parts[1].isdigit() else owner
