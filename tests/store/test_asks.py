"""What was ever asked: written once with its probability, kept when plans are forgotten."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hitl.plan import Ask, Done, Plan
from hitl.store import CycleRecord, Store, outbox
from tests.store.rows import consensus

NOW = 1764000000.1234567
FIRST = Ask("2", "ann", 0.5, 0.75, "unsure", NOW)
AUDIT = Ask("1", "bob", 0.0, 0.75, "drawn", NOW, probability=0.1 + 0.2, audit=True)
ANYONE = Ask("2", None, 0.1, 0.5, "unsure", NOW + 1, probability=None)
CHECK = Ask("unknown", "ann", 0.0, 0.9, "known", NOW + 2, check=True)
DONE = (Done("1", ("yes",), 0.75, "confident"),)


def record(store: Store, *asks: Ask, project: str = "p", shift: float = 0.0) -> int:
    with store.lease(project) as lease:
        results = {"q": consensus(shift), "topic=спорт": consensus(0.5)}
        return store.record_cycle(lease, CycleRecord(results, Plan(asks, DONE, 1)))


def test_a_question_is_kept_as_it_was_first_planned(store: Store) -> None:
    assert store.asks("p").num_rows == 0
    record(store, FIRST, AUDIT)
    later = replace(AUDIT, probability=0.9, audit=False)  # it waits, and the labels have changed since
    record(store, later, ANYONE, CHECK, shift=0.5)
    names = ("cycle", "item", "annotator", "since", "probability", "check", "audit", "done", "labels")
    both = {"q": "no", "topic=спорт": "no"}
    expected = [
        (1, "2", "ann", NOW, 1.0, False, False, False, both),
        (1, "1", "bob", NOW, 0.1 + 0.2, False, True, True, {"q": "yes", "topic=спорт": "no"}),
        (2, "2", None, NOW + 1, None, False, False, False, both),
        (2, "unknown", "ann", NOW + 2, 1.0, True, False, False, {}),
    ]
    assert store.asks("p").column_names == [*names]
    assert [
        (*row[:-1], json.loads(row[-1])) for row in zip(*store.asks("p").to_pydict().values(), strict=False)
    ] == expected
    assert "\\u" not in store.asks("p").column("labels")[0].as_py()
    assert store.audits("p").to_pylist() == store.asks("p").to_pylist()[1:2]


def test_who_is_asked_again_later_has_another_row(store: Store) -> None:
    record(store, AUDIT)
    record(store, replace(AUDIT, since=NOW + 9, probability=0.5))
    assert store.asks("p").column("probability").to_pylist() == [0.1 + 0.2, 0.5]


def test_it_is_kept_when_the_plan_is_forgotten_and_by_project(store: Store) -> None:
    record(store, AUDIT)
    for number in range(3):
        record(store, replace(FIRST, since=NOW + number))
    record(store, AUDIT, project="other")
    assert store.asks("p").column("item").to_pylist() == ["1", *["2"] * 3]
    assert store.asks("other").num_rows == 1


def test_what_a_crash_undoes_was_not_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(outbox, "replace_pending", fail)
    with pytest.raises(RuntimeError):
        record(store, FIRST)
    assert store.asks("p").num_rows == 0
