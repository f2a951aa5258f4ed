"""Cycles and the outbox."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hitl.platform import Operation, Receipt
from hitl.store import CycleRecord, Store, outbox
from tests.store.rows import PLAN, assign, consensus, order, record


def run(store: Store, *operations: Operation, confirmed: tuple[Operation, ...] = (), project: str = "p") -> int:
    with store.lease(project) as lease:
        number = store.record_cycle(lease, record(*operations))
        for operation in confirmed:
            store.confirm(lease, Receipt(operation, 1, "done"))
    return number


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


ASSIGN = assign("ann", "1")


@pytest.mark.parametrize(
    ("runs", "pending"),
    [
        ([((ASSIGN, order("2", "1")), (ASSIGN,))], [order("2", "1")]),
        ([((order("1"),), (order("1"),)), ((ASSIGN, order("1")), ())], [ASSIGN]),
        ([((order("1"),), (order("1"),)), ((order("2"),), ())], [order("2")]),
        # The platform may have seen order 2 without our knowing.
        ([((order("1"),), (order("1"),)), ((order("2"),), ()), ((order("1"),), ())], [order("1")]),
        ([((order("1"), ASSIGN, assign("bob", "2")), (ASSIGN,)), ((assign("eve", "3"),), ())], [assign("eve", "3")]),
        ([((order("1"), ASSIGN, order("2")), ())], [ASSIGN, order("2")]),
        ([((order("1"),), ()), ((order("2"),), (order("1"), assign("nobody")))], [order("2")]),
    ],
    ids=["confirmed", "same-again", "changed", "changed-back", "older-dropped", "last-of-two", "late-receipt"],
)
def test_what_is_pending_after_these_runs(
    store: Store, runs: list[tuple[tuple[Operation, ...], tuple[Operation, ...]]], pending: list[Operation]
) -> None:
    for operations, confirmed in runs:
        run(store, *operations, confirmed=confirmed)
    run(store, order("3"), project="other")
    assert store.pending("p") == pending, "in the order given"
    assert [each.digest for each in store.pending("p")] == [each.digest for each in pending]
    assert sum(store.count_pending("p").values()) == len(pending)
    known = {operation.key: state for operation, state in store.operations("p")}
    assert all(known[each.key] == "pending" for each in pending)
    if runs[0][1] == (ASSIGN,):
        assert known["ann"] == "confirmed", "it stays"


def test_after_a_crash_what_is_pending_is_sent_again(store: Store, url: str) -> None:
    run(store, order("1"))
    with Store(url) as another:
        assert another.pending("p") == [order("1")]


def test_cycle_and_outbox_are_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, order("1"))

    write = outbox.replace_pending

    def fail(*arguments: Any) -> None:
        write(*arguments)
        raise RuntimeError("power cut")

    monkeypatch.setattr(outbox, "replace_pending", fail)
    with pytest.raises(RuntimeError):
        run(store, order("2"))
    assert len(store.cycles("p")) == 1
    assert store.pending("p") == [order("1")]
