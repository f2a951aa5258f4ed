"""Cycles and the outbox."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hitl.platform import Operation, Receipt
from hitl.store import CycleRecord, Store, results
from tests.store.rows import PLAN, assign, consensus, order, record


def run(store: Store, *operations: Operation, confirmed: tuple[Operation, ...] = (), project: str = "p") -> int:
    with store.lease(project) as lease:
        number = store.record_cycle(lease, record(*operations))
        for operation in confirmed:
            store.confirm(lease, Receipt(operation, 1, "done"))
    return number


def states(store: Store) -> list[tuple[str, str, str]]:
    return [(operation.kind, operation.key, state) for operation, state in store.operations("p")]


def test_before_the_first_cycle(store: Store) -> None:
    assert store.latest("p") is None
    assert store.plan("p") is None
    assert store.cycles("p") == []
    assert store.pending("p") == []


def test_consensus_and_plan_come_back(store: Store) -> None:
    results = {"topic=спорт": consensus(), "a": consensus(0.125)}
    with store.lease("p") as lease:
        assert store.record_cycle(lease, CycleRecord(results, PLAN, (), {"accuracy": 0.5, "n": [1]})) == 1
    assert store.plan("p") == replace(PLAN, done=())
    found = store.latest("p")
    assert found is not None
    assert list(found[0]) == ["topic=спорт", "a"]
    assert found[1] == PLAN
    for name, result in results.items():
        assert np.array_equal(found[0][name].probabilities, result.probabilities)
        assert found[0][name].fit == result.fit
        assert found[0][name].annotators.names == ("ann",)


def test_history(store: Store) -> None:
    with store.lease("p") as lease:
        for number in range(5):
            store.record_cycle(lease, record(metrics={"open": 10 - number}, q=consensus(number / 16)))
    history = store.cycles("p")
    assert [(line.number, line.metrics) for line in history] == [(n + 1, {"open": 10 - n}) for n in range(5)]
    assert all(timedelta(0) <= datetime.now(UTC) - line.recorded_at < timedelta(minutes=5) for line in history)
    found = store.latest("p")
    assert found is not None
    assert found[0]["q"].probabilities[0, 0] == 0.5
    assert _kept(store) == [5]


def _kept(store: Store) -> list[int]:
    query = "SELECT c.number FROM hitl_consensus c JOIN hitl_cycle y ON y.number = c.number WHERE y.plan IS NOT NULL"
    with store.database.read() as connection:
        return sorted(number for (number,) in connection.exec_driver_sql(query))


def test_an_operation_is_pending_until_confirmed(store: Store) -> None:
    first, second = order("2", "1"), assign("ann", "1")
    run(store, second, first)
    assert store.pending("p") == [second, first], "in the order given"
    assert [operation.digest for operation in store.pending("p")] == [second.digest, first.digest]
    with store.lease("p") as lease:
        store.confirm(lease, Receipt(second, 1))
    assert store.pending("p") == [first]
    assert states(store) == [("assign", "ann", "confirmed"), ("order", "", "pending")]


def test_the_same_again_has_nothing_to_send(store: Store) -> None:
    run(store, order("1"), confirmed=(order("1"),))
    run(store, assign("ann", "2"), order("1"))
    assert store.pending("p") == [assign("ann", "2")]
    assert states(store) == [("assign", "ann", "pending"), ("order", "", "confirmed")]


def test_something_else_is_pending_again(store: Store) -> None:
    run(store, order("1"), confirmed=(order("1"),))
    run(store, order("2"))
    assert store.pending("p") == [order("2")]
    run(store, order("1"))
    assert store.pending("p") == [order("1")], "the platform may have seen order 2 without our knowing"


def test_pending_ones_of_an_older_cycle_are_dropped_and_confirmed_ones_stay(store: Store) -> None:
    run(store, order("1"), assign("ann", "1"), assign("bob", "2"), confirmed=(assign("ann", "1"),))
    run(store, assign("eve", "3"))
    assert states(store) == [("assign", "ann", "confirmed"), ("assign", "eve", "pending")]


def test_the_later_of_two_in_one_cycle_replaces_the_earlier(store: Store) -> None:
    run(store, order("1"), assign("ann", "1"), order("2"))
    assert store.pending("p") == [assign("ann", "1"), order("2")]


def test_a_receipt_for_what_was_replaced_confirms_nothing(store: Store) -> None:
    run(store, order("1"))
    run(store, order("2"), confirmed=(order("1"), assign("nobody")))
    assert store.pending("p") == [order("2")]


def test_after_a_crash_what_is_pending_is_sent_again(store: Store, url: str) -> None:
    run(store, order("1"))
    with Store(url) as another:
        assert another.pending("p") == [order("1")]


def test_cycle_and_outbox_are_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, order("1"))

    write = results._write_operations

    def fail(*arguments: Any) -> None:
        write(*arguments)
        raise RuntimeError("power cut")

    monkeypatch.setattr(results, "_write_operations", fail)
    with pytest.raises(RuntimeError):
        run(store, order("2"))
    assert len(store.cycles("p")) == 1
    assert store.pending("p") == [order("1")]


def test_projects_do_not_touch_one_another(store: Store) -> None:
    run(store, order("1"))
    for _ in range(4):
        assert run(store, order("2"), project="other") > 0
    assert store.pending("p") == [order("1")]
    assert _kept(store) == []
    assert [line.number for line in store.cycles("p")] == [1]
    assert [line.number for line in store.cycles("other")] == [1, 2, 3, 4]


def test_the_last_cycle_and_whether_a_run_was_recorded_are_found_without_reading_the_history(store: Store) -> None:
    assert store.last_cycle("p") is None
    assert not store.recorded("p", "2026-11-20")
    with store.lease("p") as lease:
        for number in range(5):
            due = None if number == 3 else f"2026-11-2{number}"
            store.record_cycle(lease, CycleRecord({}, PLAN, (), {"open": 10 - number}, due))
    assert store.last_cycle("p") == store.cycles("p")[-1]
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE hitl_cycle SET metrics = 'nobody reads this' WHERE number < 5")
    last = store.last_cycle("p")
    assert last is not None
    assert (last.number, last.metrics) == (5, {"open": 6})
    assert [store.recorded("p", f"2026-11-2{number}") for number in range(6)] == [True, True, True, False, True, False]
    assert not store.recorded("other", "2026-11-20")


def test_the_name_of_a_run_is_found_by_its_index(sqlite_url: str) -> None:
    query = "EXPLAIN QUERY PLAN SELECT number FROM hitl_cycle WHERE project = 'p' AND due = 'd' LIMIT 1"
    with Store(sqlite_url) as store, store.database.read() as connection:
        (said,) = [row[-1] for row in connection.exec_driver_sql(query)]
    assert "USING COVERING INDEX hitl_cycle_due" in said or "USING INDEX hitl_cycle_due" in said


def test_pending_operations_are_counted(store: Store) -> None:
    assert store.count_pending("p") == {}
    run(store, order("1"), assign("ann", "1"), assign("bob", "2"), confirmed=(assign("ann", "1"),))
    run(store, order("3"), project="other")
    assert sum(store.count_pending("p").values()) == len(store.pending("p")) == 2
    assert [operation.kind for operation in store.pending("p")] == ["order", "assign"]
