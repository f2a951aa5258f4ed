"""Beliefs that are stored by difference are those that were fitted, to what is shown; over any course of cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import sqlalchemy as sa

from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget
from hitl.errors import StoreError
from hitl.evidence import Evidence
from hitl.plan import DoneItems, Plan
from hitl.store import CycleRecord, Store, archive, beliefs, schema, wholes
from hitl.tables import row_differences
from hitl.tables.encoding import CheckedNames
from hitl.tables.row_differences import RowsByDifference
from tests.store.rows import consensus

N, CLASSES = 200, ("a", "b", "c")

Floats = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "LEAST", 50)


def names(n: int = N, first: int = 0) -> CheckedNames:
    return CheckedNames.of(pa.array([f"item {place}" for place in range(first, first + n)]))


def fitted(p: Floats, items: CheckedNames) -> Consensus:
    one = consensus()
    people = replace(one.annotators, classes=CLASSES, options=CLASSES)
    return replace(one, items=items, classes=CLASSES, probabilities=p, annotators=people)


def drawn(rng: np.random.Generator, n: int = N) -> Floats:
    return rng.dirichlet([0.3] * len(CLASSES), n)


def nudged(p: Floats, rng: np.random.Generator) -> Floats:
    """A few rows drawn anew, many moved by less than is shown, all in one direction, and some to a tie or past it."""
    p = p.copy()
    few = rng.choice(len(p), 5, replace=False)
    p[few] = drawn(rng, 5)
    step = np.minimum(p[:, 0], 0.9e-6)
    p[:, 0] -= step
    p[:, 1] += step
    tied = rng.choice(len(p), 2, replace=False)
    p[tied] = [0.5 - 5e-7, 0.5 + 5e-7, 0.0] if rng.random() < 0.5 else [0.5 + 5e-7, 0.5 - 5e-7, 0.0]
    return p


def plan_of(result: Consensus) -> Plan:
    """What is done at 0.9, as a pool of items has it."""
    n = len(result.items)
    item = np.arange(n, dtype=np.int32)
    said = Annotations(item, 0 * item, 0 * item, result.items, ("ann",), CLASSES, CLASSES)
    pool = PoolState.of([(Evidence(said), result)], Budget(target_confidence=0.9))
    return Plan((), pool.done, int(pool.open.sum()))


def record(store: Store, *results: Consensus) -> None:
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({f"q{n}": one for n, one in enumerate(results)}, plan_of(results[0])))


def assert_is(store: Store, *results: Consensus) -> None:
    """The same labels, beliefs, learned numbers and done items; all that stands is within what is negligible."""
    found = store.latest("p")
    assert found is not None
    assert list(found[0]) == [f"q{n}" for n in range(len(results))]
    for one, expected in zip(found[0].values(), results, strict=True):
        assert one.items == expected.items
        assert (one.labels == expected.labels).all()
        assert np.abs(one.probabilities - expected.probabilities).max() <= beliefs.NEGLIGIBLE
        assert (one.annotators.concentration == expected.annotators.concentration).all()
        assert one.fit == expected.fit
    done, expected_done = DoneItems.of(found[1].done), DoneItems.of(plan_of(results[0]).done)
    for part in ("items", "labels", "why"):
        assert [*getattr(done, part)] == [*getattr(expected_done, part)]
    assert np.allclose(done.confidence, expected_done.confidence, rtol=0, atol=beliefs.NEGLIGIBLE)
    table = store.done("p")
    assert table is not None
    assert table.column("item").to_pylist() == [*done.items]
    assert table.column("labels").to_pylist() == [[*map(str, each)] for each in done.labels]


def parts(store: Store) -> dict[tuple[str, str], int]:
    """Name and part -> bytes."""
    with store.database.read() as connection:
        rows = connection.execute(sa.select(schema.whole.c.name, schema.whole.c.part, schema.whole.c.packed)).all()
    return {(name, part): len(packed) for name, part, packed in rows}


@pytest.mark.parametrize("seed", range(3))
def test_over_any_course_of_cycles_what_is_stored_is_what_was_fitted(store: Store, seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = names()
    now = [drawn(rng), drawn(rng)]
    for step in range(40):
        if rng.random() < 0.1:  # items come and go
            items = names(N + int(rng.integers(20)), int(rng.integers(5)))
            now = [drawn(rng, len(items)) for _ in now]
        if rng.random() < 0.1:
            now = now[:1] if len(now) == 2 else [now[0], drawn(rng, len(items))]
        results = [fitted(p, items) for p in now]
        record(store, *results)
        assert_is(store, *results)
        expected = {f"beliefs {n}" for n in range(len(now))}
        assert {name for name, _ in parts(store)} == {*expected, "items"}, f"step {step}"
        assert sum(name == "items" for name, _ in parts(store)) == 1
        now = [nudged(p, rng) for p in now]


def test_few_changed_rows_write_few(store: Store) -> None:
    rng = np.random.default_rng(0)
    p = drawn(rng)
    record(store, fitted(p, names()))
    before = _whole(store)
    p = p.copy()
    p[[3, 77]] = p[[77, 3]]
    record(store, fitted(p, names()))
    assert _whole(store) == before, "it stays"
    with store.database.read() as connection:
        found = wholes.rows_of(connection, "p", ["beliefs 0"])["beliefs 0"]
    assert found.rows.tolist() == [3, 77]
    assert_is(store, fitted(p, names()))
    p = drawn(rng)
    record(store, fitted(p, names()))
    assert _whole(store) != before, "much has changed: a new whole"
    assert ("beliefs 0", "changes") not in parts(store)
    assert_is(store, fitted(p, names()))


def _whole(store: Store) -> bytes:
    query = sa.select(schema.whole.c.packed).where(schema.whole.c.name == "beliefs 0", schema.whole.c.part == "whole")
    return bytes(store.database.scalar(query))


def test_small_steps_do_not_add_up_unseen(store: Store) -> None:
    p = np.tile([0.7, 0.2, 0.1], (N, 1))
    for _ in range(20):
        record(store, fitted(p, names()))
        assert_is(store, fitted(p, names()))
        p = p.copy()
        p += [-5e-7, 5e-7, 0]


def test_a_few_items_are_stored_whole_and_exactly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    p = drawn(np.random.default_rng(1))
    record(store, fitted(p, names()))
    monkeypatch.setattr(row_differences, "LEAST", N + 1)
    p = p[:, [1, 0, 2]] + [1e-9, 0, -1e-9]
    record(store, fitted(p, names()))
    assert parts(store) == {}
    found = store.latest("p")
    assert found is not None
    assert (found[0]["q0"].probabilities == p).all()


@pytest.mark.parametrize("at", ["forget", "write", "forget_items"])
def test_a_power_cut_in_between_leaves_the_cycle_before(store: Store, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    rng = np.random.default_rng(2)
    before = fitted(drawn(rng), names())
    record(store, before)
    real = getattr(wholes, at)

    def cut(*given: object) -> None:
        real(*given)
        raise RuntimeError("power cut")

    monkeypatch.setattr(wholes, at, cut)
    with pytest.raises(RuntimeError):
        record(store, fitted(drawn(rng, N + 5), names(N + 5)))
    assert_is(store, before)
    monkeypatch.undo()


def test_projects_do_not_touch_one_another(store: Store) -> None:
    rng = np.random.default_rng(3)
    mine, other = fitted(drawn(rng), names()), fitted(drawn(rng, N + 1), names(N + 1))
    record(store, mine)
    with store.lease("other") as lease:
        store.record_cycle(lease, CycleRecord({"q": other}, plan_of(other)))
    assert_is(store, mine)
    record(store, mine)
    found = store.latest("other")
    assert found is not None
    assert (found[0]["q"].probabilities == other.probabilities).all()


def test_parts_that_do_not_fit_are_told(store: Store) -> None:
    rng = np.random.default_rng(4)
    p = drawn(rng)
    record(store, fitted(p, names()))
    p = p.copy()
    p[0] = p[0, [1, 2, 0]]
    record(store, fitted(p, names()))
    with store.database.write() as connection:
        connection.execute(sa.update(schema.whole).where(schema.whole.c.part == "changes").values(version="another"))
    with pytest.raises(StoreError, match="damaged"):
        store.latest("p")


def test_a_backup_brings_it_back(store: Store, url: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    p = drawn(rng)
    for _ in range(3):
        result = fitted(p, names())
        record(store, result)
        p = nudged(p, rng)
    archive.backup(url, tmp_path / "kept.zip")
    archive.restore(f"sqlite:///{tmp_path}/back.db", tmp_path / "kept.zip")
    with Store(f"sqlite:///{tmp_path}/back.db") as back:
        assert_is(back, result)


def _seen(columns: Sequence[Floats]) -> list[int]:
    return beliefs._labels(tuple(columns)).tolist()


def test_labels_are_those_of_a_consensus() -> None:
    rng = np.random.default_rng(7)
    p = drawn(rng, 500)
    p[:100] = [[0.5, 0.5, 0.0]]
    p[100:200] = [[0.5 - 2e-10, 0.0, 0.5 + 2e-10]]
    assert _seen([*p.T]) == fitted(p, names(500)).labels.tolist()


def test_rows_that_differ_are_found_in_parts_as_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "AT_ONCE", 7)
    rng = np.random.default_rng(8)
    stands, now = drawn(rng), drawn(rng)
    held = RowsByDifference.whole("items", list(stands.T))
    for rows in ([], [0], [3, 77, N - 1]):
        moved = np.isin(np.arange(N), rows)
        held = held.follow([*(stands * 0.5).T], moved)
        stands[moved] *= 0.5
        for own, column in zip(held.columns, stands.T, strict=True):
            assert (own == column).all()
        now[::3] = stands[::3]
        found = held.differing([*now.T], lambda own, other: own[1] != other[1])
        assert (found == (stands[:, 1] != now[:, 1])).all()
        parts = held.packed_whole(), held.packed_changes() if len(held.rows) else None
        again = RowsByDifference.unpacked("items", held.version, *parts)
        assert (again.digest, again.rows.tolist()) == (held.digest, held.rows.tolist())
        assert all((own == column).all() for own, column in zip(again.columns, held.columns, strict=True))
