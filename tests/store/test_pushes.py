"""What a platform has done is confirmed one by one, also where something fails behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from hitl.errors import LeaseLost, Refused
from hitl.operations import push
from hitl.plan import Plan
from hitl.platform import Operation, Question, Receipt
from hitl.store import CycleRecord, Lease, Store
from tests.cycle.marked import Platform

OPERATIONS = tuple(Operation("assign", f"p{n}", {"items": [f"i{n}"]}) for n in range(6))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        yield store


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({}, Plan(()), OPERATIONS))
        yield lease


class Sending(Platform):
    """Does something before it answers about the third operation."""

    def __init__(self, first: Callable[[], None]) -> None:
        super().__init__(Question("q", ("x", "y"), ("x", "y")), {})
        self.first = first

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            if operation.key == "p2":
                self.first()
            yield from super().push([operation])


def keys(store: Store) -> list[str]:
    return [each.key for each in store.pending("p")]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_what_was_done_before_a_failure_is_confirmed(store: Store, lease: Lease, error: BaseException) -> None:
    def failing() -> None:
        raise error

    told = list[tuple[str, int, int | None]]()
    with pytest.raises(type(error)):
        list(push(lease, store, Sending(failing), lambda *said: told.append(said)))
    assert keys(store) == ["p2", "p3", "p4", "p5"]
    assert told == [("push", 1, 6), ("push", 2, 6)]


def test_what_was_refused_alone_waits(store: Store, lease: Lease) -> None:
    def refusing() -> None:
        raise Refused("no")

    with pytest.raises(Refused):
        list(push(lease, store, Sending(refusing)))
    assert keys(store) == ["p2"]


def test_one_that_was_stopped_and_overtaken_does_one_thing_more_and_confirms_nothing(
    store: Store, lease: Lease
) -> None:
    def overtaken() -> None:  # stopped here, while another takes over
        with store.database.write() as connection:
            connection.exec_driver_sql("UPDATE hitl_project SET epoch = epoch + 1")

    platform = Sending(overtaken)
    with pytest.raises(LeaseLost):
        list(push(lease, store, platform))
    assert [operation.key for operation in platform.pushed] == ["p0", "p1", "p2"]
    assert keys(store) == ["p2", "p3", "p4", "p5"]


def test_of_what_the_outbox_says_otherwise_by_now_nothing_is_confirmed(store: Store, lease: Lease) -> None:
    other = Operation("assign", "p1", {"items": ["other"]})
    store.queue(lease, [Operation("gold", "", {"questions": {}})])
    (gold,) = store.queued("p")
    store.confirm(lease, Receipt(OPERATIONS[0], 1), Receipt(other, 1), Receipt(gold, 3), Receipt(OPERATIONS[2], 0))
    assert keys(store) == ["p1", "p3", "p4", "p5"]
    states = {each.key: state for each, state in store.operations("p") if each.kind == "assign"}
    assert states["p0"] == states["p2"] == "confirmed"
    assert store.operations("p", "gold") == []
