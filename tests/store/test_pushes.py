"""What a platform has done is confirmed together, soon, and also where something fails behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hitl import operations
from hitl.errors import LeaseLost, Refused
from hitl.operations import confirmed
from hitl.plan import Plan
from hitl.platform import Operation, Receipt, silent
from hitl.store import CycleRecord, Lease, Store

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


@pytest.fixture
def batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many receipts were confirmed at a time."""
    real, seen = store.confirm, list[int]()

    def watched(lease: Lease, *receipts: Receipt) -> None:
        real(lease, *receipts)
        seen.append(len(receipts))

    monkeypatch.setattr(store, "confirm", watched)
    return seen


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def keys(store: Store) -> list[str]:
    return [each.key for each in store.pending("p")]


def test_what_is_done_soon_is_confirmed_at_once_and_told_in_order(
    store: Store, lease: Lease, batches: list[int]
) -> None:
    told = list[tuple[str, int, int | None]]()
    receipts = (Receipt(each, 1, "said") for each in OPERATIONS)
    found = [*confirmed(lease, store, receipts, lambda *said: told.append(said), 2, 9)]
    assert [receipt.operation for receipt in found] == [*OPERATIONS]
    assert batches == [6]
    assert keys(store) == []
    assert told == [(what, n, 9) for what in ("pushed", "push") for n in range(3, 9)]


def test_what_takes_long_is_confirmed_one_by_one(
    store: Store, lease: Lease, batches: list[int], clock: list[float]
) -> None:
    def slow() -> Iterator[Receipt]:
        for n, each in enumerate(OPERATIONS):
            clock[0] += 0.4 if n < 3 else 5
            yield Receipt(each, 1)

    for n, receipt in enumerate(confirmed(lease, store, slow(), silent, 0, 6)):
        assert receipt.operation.key not in keys(store), n
    assert batches == [3, 1, 1, 1, 0]


@pytest.mark.parametrize("error", [Refused("no"), KeyboardInterrupt(), ZeroDivisionError()])
def test_what_was_done_before_a_failure_is_confirmed(store: Store, lease: Lease, error: BaseException) -> None:
    def failing() -> Iterator[Receipt]:
        for each in OPERATIONS[:2]:
            yield Receipt(each, 1)
        raise error

    found = list[Receipt]()
    with pytest.raises(type(error)):
        found.extend(confirmed(lease, store, failing(), silent, 0, 6))
    assert keys(store) == ["p2", "p3", "p4", "p5"]


def test_what_was_done_is_confirmed_where_nobody_asks_for_more(
    store: Store, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "EVERY", 0.0)
    receipts = confirmed(lease, store, (Receipt(each, 1) for each in OPERATIONS), silent, 0, 6)
    assert next(receipts).operation.key == "p0"
    receipts.close()  # type: ignore[attr-defined]
    assert keys(store) == ["p1", "p2", "p3", "p4", "p5"]


def test_one_that_was_stopped_and_overtaken_does_one_thing_more_and_confirms_nothing(
    store: Store, lease: Lease, clock: list[float]
) -> None:
    sent = list[str]()

    def sending() -> Iterator[Receipt]:
        for each in OPERATIONS:
            if each.key == "p2":  # stopped here, while another takes over
                clock[0] += 400
                with store.database.write() as connection:
                    connection.exec_driver_sql("UPDATE hitl_project SET epoch = epoch + 1")
            sent.append(each.key)
            yield Receipt(each, 1)

    with pytest.raises(LeaseLost):
        list(confirmed(lease, store, sending(), silent, 0, 6))
    assert sent == ["p0", "p1", "p2"]
    assert len(keys(store)) == 6


def test_of_what_the_outbox_says_otherwise_by_now_nothing_is_confirmed(store: Store, lease: Lease) -> None:
    other = Operation("assign", "p1", {"items": ["other"]})
    store.queue(lease, [Operation("gold", "", {"questions": {}})])
    (gold,) = store.queued("p")
    store.confirm(lease, Receipt(OPERATIONS[0], 1), Receipt(other, 1), Receipt(gold, 3), Receipt(OPERATIONS[2], 0))
    assert keys(store) == ["p1", "p3", "p4", "p5"]
    states = {each.key: state for each, state in store.operations("p") if each.kind == "assign"}
    assert states["p0"] == states["p2"] == "confirmed"
    assert store.operations("p", "gold") == []
