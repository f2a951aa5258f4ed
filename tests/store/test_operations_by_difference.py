"""Operations that are stored by difference say what was judged, to what is shown, over any course of cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import sqlalchemy as sa

from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.crew import Budget
from hitl.errors import StoreError
from hitl.evidence import Evidence
from hitl.operations import Judgement, _labels_wanted, consensus_operation, operations_of
from hitl.plan import Ask, Plan
from hitl.platform import Operation, Receipt
from hitl.settings import PushSettings
from hitl.store import CycleRecord, Store, schema
from hitl.tables import row_differences
from hitl.tables.encoding import CheckedNames
from hitl.tables.label_columns import CLOSE, ConsensusOperation, WantedOperation
from hitl.tables.operations_by_difference import ConsensusByDifference, WantedByDifference
from tests.store.test_beliefs import CLASSES, drawn, fitted, names, nudged

WHAT = PushSettings(order=False, assignments=False, consensus=True, labels_wanted=True)

Floats = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "LEAST", 50)


def judged(items: CheckedNames, labeled: npt.NDArray[np.bool_], *beliefs: Floats) -> Judgement:
    """Of questions with these beliefs, about items of which some have a label; the first open ones are asked."""
    rows = np.flatnonzero(labeled).astype(np.int32)
    said = Annotations(rows, 0 * rows, 0 * rows, items, ("ann",), CLASSES, CLASSES)
    evidence = {f"q{n}": Evidence(said) for n in range(len(beliefs))}
    results: dict[str, Consensus] = {f"q{n}": fitted(p, items) for n, p in enumerate(beliefs)}
    pool = PoolState.of([(evidence[name], results[name]) for name in results], Budget(target_confidence=0.9))
    asks = tuple(Ask(items[row], "bob", 0.5, 0.5, "unsure") for row in pool.open_rows[:5].tolist())
    return Judgement(evidence, results, Plan(asks, pool.done, int(pool.open.sum())))


def planned(store: Store, judgement: Judgement, what: PushSettings = WHAT) -> tuple[Operation, ...]:
    return tuple(operations_of(what, store, "p", judgement))


def record(store: Store, judgement: Judgement, *operations: Operation) -> None:
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord(judgement.results, judgement.plan, operations))


def confirm(store: Store) -> None:
    with store.lease("p") as lease:
        for each in store.pending("p"):
            store.confirm(lease, Receipt(each, 1))


def assert_says(found: Operation, judgement: Judgement) -> None:
    """What the operation of these judgements would say as a whole."""
    if found.kind == "labels_wanted":
        assert found.payload == _labels_wanted(judgement.plan, judgement.evidence).payload
        assert WantedOperation.of(found).table.equals(_labels_wanted(judgement.plan, judgement.evidence).table)
        return
    expected = consensus_operation(judgement)
    assert isinstance(found, ConsensusOperation)
    assert isinstance(expected, ConsensusOperation)
    assert [*found.columns] == [*expected.columns]
    for name, columns in found.columns.items():
        other = expected.columns[name]
        assert columns.items.equals(other.items)
        assert columns.classes == other.classes
        assert (columns.labels == other.labels).all()
        assert np.abs(columns.shares - other.shares).max(initial=0) <= CLOSE
    assert found.payload["questions"].keys() == expected.payload["questions"].keys()


def course(rng: np.random.Generator, cycles: int) -> Iterator[Judgement]:
    """Judgements of a pool in which items, questions and labels come and go, and beliefs move."""
    items, now = names(), [drawn(rng), drawn(rng)]
    labeled = rng.random(len(items)) < 0.9
    for _ in range(cycles):
        if rng.random() < 0.1:
            items = names(len(items) + int(rng.integers(5)), int(rng.integers(5)))
            now, labeled = [drawn(rng, len(items)) for _ in now], rng.random(len(items)) < 0.9
        if rng.random() < 0.1:
            now = now[:1] if len(now) == 2 else [now[0], drawn(rng, len(items))]
        if rng.random() < 0.1:
            labeled = np.ones(len(items), bool)
        yield judged(items, labeled, *now)
        if rng.random() < 0.8:
            now = [nudged(p, rng) for p in now]
            labeled = labeled ^ (rng.random(len(items)) < 0.005)


@pytest.mark.parametrize("seed", range(3))
def test_over_any_course_of_cycles_what_is_sent_is_what_was_judged(store: Store, url: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for judgement in course(rng, 40):
        what = WHAT if rng.random() < 0.9 else WHAT.model_copy(update={"consensus": False})
        operations = planned(store, judgement, what)
        assert all(isinstance(each, ConsensusByDifference | WantedByDifference) for each in operations)
        record(store, judgement, *operations)
        with Store(url) as other:  # that has written nothing
            found = {each.kind: each for each, _ in other.operations("p")}
            assert {each.kind: each.digest for each in other.pending("p")} == {
                each.kind: each.digest for each in store.pending("p")
            }
            for each in operations:
                assert found[each.kind].digest == each.digest
                assert_says(each, judgement)
                assert_says(found[each.kind], judgement)
        if rng.random() < 0.7:
            confirm(store)
            assert store.pending("p") == []


def test_the_same_again_is_the_same_operation(store: Store) -> None:
    judgement = judged(names(), np.ones(200, bool), drawn(np.random.default_rng(0)))
    record(store, judgement, *planned(store, judgement))
    confirm(store)
    assert store.pending("p") == []
    record(store, judgement, *planned(store, judgement))
    assert store.pending("p") == []


def test_what_was_pushed_stays_as_it_was_while_nothing_is_said_of_it(store: Store) -> None:
    """The consensus is not pushed any more: what was confirmed is still what a verification compares with."""
    rng = np.random.default_rng(1)
    first = judged(names(), np.ones(200, bool), drawn(rng))
    record(store, first, *planned(store, first))
    confirm(store)
    later = judged(names(210), np.ones(210, bool), drawn(rng, 210))
    record(store, later, *planned(store, later, WHAT.model_copy(update={"consensus": False})))
    found = {each.kind: each for each, _ in store.operations("p")}
    assert_says(found["consensus"], first)
    assert_says(found["labels_wanted"], later)


def test_a_power_cut_leaves_the_operations_before(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from hitl.store import cycles

    rng = np.random.default_rng(2)
    p = drawn(rng)
    before = judged(names(), np.ones(200, bool), p)
    record(store, before, *planned(store, before))
    write = cycles._write_rows

    def cut(*given: object) -> None:
        write(*given)  # type: ignore[arg-type]
        raise RuntimeError("power cut")

    monkeypatch.setattr(cycles, "_write_rows", cut)
    after = judged(names(), np.ones(200, bool), nudged(p, rng))
    with pytest.raises(RuntimeError):
        record(store, after, *planned(store, after))
    for each, _ in store.operations("p"):
        assert_says(each, before)


def test_operations_that_were_stored_whole_are_followed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    p = drawn(rng)
    monkeypatch.setattr(row_differences, "LEAST", 1000)
    judgement = judged(names(), np.ones(200, bool), p)
    record(store, judgement, *planned(store, judgement))
    monkeypatch.setattr(row_differences, "LEAST", 50)
    judgement = judged(names(), np.ones(200, bool), nudged(p, rng))
    record(store, judgement, *planned(store, judgement))
    for each, _ in store.operations("p"):
        assert_says(each, judgement)
    monkeypatch.setattr(row_differences, "LEAST", 1000)
    judgement = judged(names(), np.ones(200, bool), drawn(rng))
    record(store, judgement, *planned(store, judgement))
    for each, _ in store.operations("p"):
        assert_says(each, judgement)
    with store.database.read() as connection:
        assert connection.execute(sa.select(schema.whole)).all() == []


def test_rows_of_another_operation_are_told(store: Store) -> None:
    judgement = judged(names(), np.ones(200, bool), drawn(np.random.default_rng(4)))
    record(store, judgement, *planned(store, judgement))
    confirm(store)
    with store.database.write() as connection:
        connection.execute(sa.update(schema.operation).where(schema.operation.c.kind == "consensus").values(digest="x"))
    with pytest.raises(StoreError, match="damaged"):
        store.operations("p")


def test_questions_that_change_places_are_said_anew(store: Store, url: str) -> None:
    """As when two controls change places: their rows are stored by place."""
    rng = np.random.default_rng(5)
    one, two = drawn(rng), drawn(rng)
    judgement = judged(names(), np.ones(200, bool), one, two)
    record(store, judgement, *planned(store, judgement))
    confirm(store)
    for _ in range(3):
        judgement = judged(names(), np.ones(200, bool), one, two := nudged(two, rng))
        turned = replace(
            judgement,
            evidence=dict(reversed([*judgement.evidence.items()])),
            results=dict(reversed([*judgement.results.items()])),
        )
        for each in (turned, judgement):
            record(store, each, *planned(store, each))
            with Store(url) as other:
                for operation, _ in other.operations("p"):
                    assert_says(operation, each)
