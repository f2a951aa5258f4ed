"""One cycle at a time: busy, taken over, fenced out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from hitl.errors import Busy, LeaseLost, StoreError
from hitl.platform import Receipt
from hitl.store import Lease, Store, pages, schema
from hitl.store import lease as leases
from hitl.store.learned import FeaturesNote
from tests.store.rows import consensus, item, order, page, record, unrenewed

SHORT = 0.05
HOST, PID = socket.gethostname(), os.getpid()


def acquire(store: Store, project: str = "p", seconds: float = 60, pid: int = PID) -> Lease:
    return leases.acquire(store.database, project, seconds, leases.owner_of(pid, seconds))


def assert_busy(store: Store, project: str = "p") -> None:
    with pytest.raises(Busy), store.lease(project):
        raise AssertionError


def test_busy_says_by_whom_and_until_when(store: Store) -> None:
    with store.lease("p"):
        until = r"is free when it ends, or at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC if that process has died"
        said = rf"'p': another run is in progress \({HOST}, process {PID}\)\. The project {until}"
        with pytest.raises(Busy, match=said), store.lease("p"):
            raise AssertionError
        with store.lease("another project"):
            pass


def test_the_epoch_rises_and_the_block_ends_the_lease(store: Store) -> None:
    with store.lease("p") as first:
        pass
    with pytest.raises(ZeroDivisionError), store.lease("p") as second:
        _ = 1 / 0
    with store.lease("p") as third:
        assert [first.epoch, second.epoch, third.epoch] == [1, 2, 3]
        assert third.owner != first.owner
    with pytest.raises(LeaseLost, match="held by nobody"):
        store.renew(third)


def test_writing_renews(store: Store) -> None:
    with unrenewed(store, seconds=60) as lease:
        for number in range(2):
            with store.database.write() as connection:
                connection.exec_driver_sql("UPDATE hitl_project SET lease_until = 0.0")
            store.save_page(lease, page(number))
            assert_busy(store)


def test_a_lease_whose_time_is_over_still_writes_while_nobody_wants_it(store: Store) -> None:
    with unrenewed(store, seconds=SHORT) as lease:
        time.sleep(2 * SHORT)
        store.save_page(lease, page(1, item("1")))
    assert store.cursor("p") == {"page": 1}


WRITES: dict[str, Callable[[Store, Lease], Any]] = {
    "save_page": lambda store, lease: store.save_page(lease, page(2, item("2"), live=["2"])),
    "bind": lambda store, lease: store.bind(lease, "elsewhere"),
    "record_cycle": lambda store, lease: store.record_cycle(lease, record(order("9"), q=consensus())),
    "confirm": lambda store, lease: store.confirm(lease, Receipt(order("1"), 1)),
    "save_vectors": lambda store, lease: store.save_vectors(lease, "s", {"1": "d"}, np.ones((1, 2))),
    "note_features": lambda store, lease: store.note_features(lease, FeaturesNote("s", "s"), ["s"]),
    "renew": lambda store, lease: store.renew(lease),
}


def _state(store: Store) -> tuple[Any, ...]:
    return (
        store.cursor("p"),
        store.items("p").to_pylist(),
        [(operation.digest, state) for operation, state in store.operations("p")],
        store.cycles("p"),
        store.features_note("p"),
        store.vector_digests("p", "s"),
    )


@pytest.mark.parametrize("write", WRITES)
def test_a_zombie_writes_nothing(store: Store, write: str) -> None:
    """Neither while its overtaker works, nor after it, nor does it end the lease of its overtaker."""
    with unrenewed(store, seconds=SHORT) as zombie:
        store.save_page(zombie, page(1, item("1")))
        store.record_cycle(zombie, record(order("1")))
        before = _state(store)
        time.sleep(2 * SHORT)
        with unrenewed(store, owner=zombie.owner, seconds=60) as overtaker:  # even under the same name
            assert overtaker.epoch == zombie.epoch + 1
            with pytest.raises(LeaseLost, match="another took over"):
                WRITES[write](store, zombie)
            store.renew(overtaker)
        with store.lease("p"):
            pass
        with pytest.raises(LeaseLost):
            WRITES[write](store, zombie)
        assert _state(store) == before


def test_the_block_of_a_zombie_does_not_end_the_lease_of_its_overtaker(store: Store) -> None:
    with store.lease("p") as zombie:
        leases._held.discard(zombie.owner)  # as if its process had died
        overtaker = acquire(store)
    store.renew(overtaker)


def test_each_project_has_its_own_lease(store: Store) -> None:
    with store.lease("one") as lease:
        wrong = Lease("two", lease.owner, lease.epoch, lease.seconds)
        with pytest.raises(LeaseLost):
            store.save_page(wrong, page(1, item("1")))


def test_threads_race_for_it(store: Store) -> None:
    """Six at once, for a lease nobody had and for one whose time is over: one gets it."""
    with unrenewed(store, "over", seconds=0.0):
        for project, epoch in (("new", 1), ("over", 2)):
            assert _race(store, project, 6) == ([epoch], 5)


def _race(store: Store, project: str, runners: int) -> tuple[list[int], int]:
    barrier, got, busy = threading.Barrier(runners), [], []

    def run() -> None:
        barrier.wait()
        try:
            got.append(acquire(store, project).epoch)
        except Busy:
            busy.append(1)

    threads = [threading.Thread(target=run) for _ in range(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got, len(busy)


def test_a_lease_just_taken_is_not_one_of_the_dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the process may come between the commit and the answer."""
    write = store.database.write

    @contextmanager
    def then_another_comes() -> Iterator[Any]:
        with write() as connection:
            yield connection
        monkeypatch.undo()
        with pytest.raises(Busy):
            acquire(store)

    monkeypatch.setattr(store.database, "write", then_another_comes)
    store.renew(acquire(store))


def test_a_takeover_waits_for_a_write_that_has_passed_the_fence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on, save = threading.Event(), threading.Event(), pages.save
    epochs: list[int] = []

    def slow(*arguments: Any) -> Any:
        inside.set()
        assert go_on.wait(10)
        return save(*arguments)

    monkeypatch.setattr(pages, "save", slow)
    with unrenewed(store, seconds=SHORT) as lease:
        writer = threading.Thread(target=store.save_page, args=(lease, page(1, item("1"))))
        writer.start()
        assert inside.wait(10)
        time.sleep(2 * SHORT)  # its time is over in the middle of the transaction
        overtaker = threading.Thread(target=lambda: epochs.append(acquire(store).epoch))
        overtaker.start()
        time.sleep(0.2)
        assert epochs == [], "the overtaker has to wait"
        go_on.set()
        writer.join()
        overtaker.join()
        assert epochs == [2]
        assert store.cursor("p") == {"page": 1}, "written before the take-over"
        with pytest.raises(LeaseLost):
            store.save_page(lease, page(2))


def test_a_database_that_fails_at_the_end_does_not_hide_what_happened(store: Store) -> None:
    def work() -> None:
        with store.database.write() as connection:
            connection.exec_driver_sql("DROP TABLE hitl_project")
        with pytest.raises(StoreError):
            store.cursor("p")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), store.lease("p"):
        work()


def of(host: str, pid: int, life: str, kind: str = "run", seconds: int = 300) -> str:
    return f"{host}:{pid}:{life}:{kind}:0a1b2c3d:{seconds}"


HERE, PARENT = leases._machine(), leases._life(os.getppid())


def dead_pid() -> int:
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("owner", "held"),
    [
        (of(HOST, os.getppid(), PARENT), True),
        (of("elsewhere", 1, "12@other-1"), True),
        (of(HOST, PID, leases._life(PID)), False),
        (of(HOST, PID, "12@other-1"), False),
        (of("another name of this machine", PID, leases._life(PID)), False),
        (of(HOST, os.getppid(), f"12@{HERE}"), False),
        (of(HOST, dead_pid(), ""), False),
    ],
    ids=["alive", "elsewhere", "before", "another-boot", "renamed", "reused", "dead"],
)
def test_a_dead_holder_is_succeeded_at_once(store: Store, owner: str, held: bool) -> None:
    """Also one whose number another process has by now: in a container every start has number 1."""
    with unrenewed(store, owner=owner, seconds=60) as before:
        leases._held.discard(owner)
        if held:
            assert_busy(store)
        else:
            with store.lease("p") as heir:
                assert heir.epoch == before.epoch + 1
                with pytest.raises(LeaseLost):
                    store.renew(before)


@pytest.mark.parametrize(
    ("owner", "ahead", "over"),
    [
        (of("elsewhere", 1, "12@other-1"), 365 * 86_400, True),
        (of("elsewhere", 1, "12@other-1"), leases.AHEAD + 1, True),
        (of("elsewhere", 1, "12@other-1"), leases.AHEAD - 10, False),
        (of("elsewhere", 1, "12@other-1", seconds=90_000), 86_000, False),
        (of(HOST, os.getppid(), f"12@{HERE}"), 365 * 86_400, True),
        (of(HOST, os.getppid(), PARENT), 365 * 86_400, False),
    ],
)
def test_a_lease_that_a_clock_wrote_which_was_ahead_is_over(store: Store, owner: str, ahead: float, over: bool) -> None:
    """It would close the project for as long as the clock was ahead; a holder that lives goes on all the same."""
    lease = leases.acquire(store.database, "p", 300.0, owner)
    with store.database.write() as connection:
        connection.execute(sa.update(schema.project).values(lease_until=time.time() + ahead + 300.0))
    assert (store.holder("p") is None) == over
    if over:
        with store.lease("p") as heir:
            assert heir.epoch == lease.epoch + 1
    else:
        assert_busy(store)


def test_a_process_that_the_system_hides_lives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd's ProtectProc has it: that it is there can be seen, when it began cannot."""

    def hidden(pid: int, signal: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with unrenewed(store, owner=of(HOST, os.getppid(), PARENT), seconds=60):
        monkeypatch.setattr(leases.os, "kill", hidden)
        monkeypatch.setattr(leases, "_life", lambda pid: "")
        assert_busy(store)


def test_a_lease_is_kept_while_its_holder_works_longer_than_it_lasts(store: Store) -> None:
    """Two starters whose fits are longer than the lease: one is busy, none overtakes the other for ever."""

    def until() -> float:
        return float(store.database.scalar(sa.select(schema.project.c.lease_until)))

    with store.lease("p", seconds=1.0) as lease:
        end = until() + 1.0  # by then it would be over twice
        for _ in range(600):
            if until() > end:
                break
            assert_busy(store)
            time.sleep(0.1)
        assert until() > end
        store.renew(lease)
    with store.lease("p") as next_one:
        assert next_one.epoch == lease.epoch + 1


def test_a_brief_lease_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.lease("p", brief=True):
        monkeypatch.setattr(leases, "BRIEF_SECONDS", 0.1)
        assert_busy(store)
        monkeypatch.undo()
        epochs: list[int] = []
        waiting = threading.Thread(target=lambda: epochs.append(store._acquired("p", 60, of(HOST, PID, "")).epoch))
        waiting.start()
    waiting.join()
    assert epochs == [2]


def test_a_push_that_was_cut_short_is_doubted_until_a_lease_later(store: Store) -> None:
    with unrenewed(store, seconds=SHORT) as first:
        assert not store.in_doubt(first)
        store.begin_push(first)
        assert not store.in_doubt(first)
        time.sleep(2 * SHORT)
        with store.lease("p", seconds=0.5) as second:
            assert store.in_doubt(second)
            store.begin_push(second)
            store.end_push(second, verified=True)
        with store.lease("p", seconds=0.5) as third:
            assert store.in_doubt(third), "a request may still have been on its way"
            time.sleep(0.6)
            store.begin_push(third)
            store.end_push(third, verified=True)
            assert not store.in_doubt(third)
            with pytest.raises(LeaseLost):
                store.begin_push(first)
            store.doubt(first)
            assert store.in_doubt(third)
