"""Answers are those of the rows, in their order, whatever snapshot is kept and whatever came in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from hitl.errors import BadInput
from hitl.platform import Question
from hitl.store import Store
from hitl.store.lease import Lease
from tests.store.rows import at, item, page, said

N = 40
QUESTION = Question("q", ("no", "yes"), ("no", "yes", "unsure"))


def fill(store: Store, lease: Lease) -> None:
    dice = random.Random(1)
    for n in range(N):
        answers = [said(f"{n} {who}", str(n), "yes", dice.randrange(60), who=f"w{who}") for who in range(n % 4)]
        store.save_page(lease, page(n, item(str(n)), *answers))


def by_rows(store: Store) -> list[dict[str, Any]]:
    """The answers by a query that joins and sorts."""
    query = """
        SELECT a.item, a.annotator, a.label, a.time, a.duration FROM hitl_annotation a
        JOIN hitl_item i ON i.project = a.project AND i.item = a.item
        WHERE a.project = 'p' AND a.question = 'q' AND a.kind = 'answer' AND NOT a.deleted AND NOT i.deleted
        ORDER BY i.position, a.version, a.annotation
    """
    with store.database.read() as connection:
        return [dict(row) for row in connection.exec_driver_sql(query).mappings()]


@pytest.mark.parametrize("seed", range(2))
def test_after_random_changes_they_are_what_the_rows_say(store: Store, seed: int) -> None:
    """Answers that come, change, move and go, items too; with a snapshot of now, of before, and of long ago."""
    dice = random.Random(seed)
    with store.lease("p") as lease:
        fill(store, lease)
        for turn in range(25):
            keys = dice.sample(range(N + 5), dice.choice((1, 1, 2, 12)))
            answers = [
                said(f"{n} {who}", str(n), dice.choice(QUESTION.options), dice.randrange(60), who=f"w{who}")
                for n in keys
                for who in range(dice.randrange(4))
            ]
            if dice.random() < 0.2:
                answers.append(said("7 1", str(keys[0]), "no", 60 + turn, who="w1"))  # of another item before
            gone = {str(n) for n in dice.sample(range(N), 2)} if dice.random() < 0.3 else set()
            live = {str(n) for n in range(N + 5)} - gone | set(map(str, keys))
            rows = [item(str(n), 60 + turn) for n in keys] + answers
            store.save_page(lease, page(turn, *rows, live=live if dice.random() < 0.4 else None))
            if dice.random() < 0.3:
                store.keep_answers(lease, ["q"])
            found = store.answers("p", "q")
            assert found.table().to_pylist() == by_rows(store)
            assert found.keys.equals(store.key_column("p"))
            assert found.keys.to_pylist() == store.items("p").column("item").to_pylist()
            labels = store.counts("p")["labels"]
            assert labels == len({(row["item"], row["annotator"]) for row in by_rows(store)})


def test_a_snapshot_is_written_where_something_has_changed(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        assert store.keep_answers(lease, ["q", "other"]) == 2
        assert store.keep_answers(lease, ["q", "other"]) == 0
        same = page(99, item("9"), said("9 0", "9", "yes", 60, who="w0"))
        store.save_page(lease, same)
        assert store.keep_answers(lease, ["q"]) == 1
        store.save_page(lease, same)
        assert store.keep_answers(lease, ["q"]) == 0


def test_a_snapshot_of_before_what_was_deleted_and_forgotten(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        store.keep_answers(lease, ["q"])
        store.save_page(lease, page(99, live={str(n) for n in range(N - 1)}))
        store.forget(lease, deleted_seconds=-1, cycles=10)
    assert store.answers("p", "q").table().to_pylist() == by_rows(store)
    assert len(store.answers("p", "q").keys) == N - 1


@pytest.mark.parametrize("what", ["annotations", "skips", "gold"])
def test_few_rows_are_found_by_an_index(sqlite_url: str, what: str) -> None:
    """Those of items that have changed since a snapshot, and those of rare kinds."""
    queries: list[tuple[str, Any]] = []
    with Store(sqlite_url) as store, store.lease("p") as lease:
        items = [item(str(n)) for n in range(2000)]
        store.save_page(lease, page(1, *items, *(said(f"{n}", str(n // 3)) for n in range(6000))))
        store.keep_answers(lease, ["q"])
        store.save_page(lease, page(2, item("9"), said("27", "9", "no", 60)))
        read: dict[str, Callable[[], Any]] = {
            "annotations": lambda: store.annotations("p", "q"),
            "skips": lambda: store.skips("p"),
            "gold": lambda: store.gold("p", "q"),
        }
        sa.event.listen(
            store.database.engine, "before_cursor_execute", lambda _, __, text, *more: queries.append((text, more[0]))
        )
        read[what]()
        of_rows = [query for query in queries if "FROM hitl_annotation" in query[0]]
        assert of_rows
        with store.database.read() as connection:
            plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all() for text, values in of_rows]
    steps = [str(row[3]) for plan in plans for row in plan]
    index = "hitl_annotation_item" if what == "annotations" else "hitl_annotation_kind"
    assert any(index in step for step in steps), steps
    assert not any(step.startswith("SCAN hitl") for step in steps), steps


def test_versions_order_the_answers_of_an_item(store: Store) -> None:
    with store.lease("p") as lease:
        store.save_page(lease, page(0, item("1"), said("a", "1", "no", 9, who="x"), said("b", "1", "yes", 3, who="x")))
        rows = [replace(said(name, "2", name), version=version) for name, version in (("c", "r9"), ("d", "r1"))]
        store.save_page(lease, page(1, item("2"), *rows))
        store.keep_answers(lease, ["q"])
    assert [row["label"] for row in store.annotations("p", "q").to_pylist()] == ["yes", "no", "d", "c"]
    assert at(9) > at(3)


def test_labels_are_named_and_of_the_same_items(store: Store) -> None:
    with pytest.raises(BadInput, match="no items stored"):
        store.labels("p", QUESTION, {})
    with store.lease("p") as lease:
        fill(store, lease)
        first = store.labels("p", QUESTION, {"w0": "ann", "w1": "bob", "w2": "bob"})
        assert first.annotators == ("ann", "bob")
        again = store.labels("p", replace(QUESTION, name="other"), {}, first.items)  # type: ignore[arg-type]
        assert (again.items, len(again)) == (first.items, 0)
        store.save_page(lease, page(99, item("new")))
    with pytest.raises(BadInput, match="items changed"):
        store.labels("p", QUESTION, {}, first.items)  # type: ignore[arg-type]


def test_an_answer_to_an_item_that_comes_while_items_are_read_is_given_to_no_other(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds no lease reads items, and then answers; b comes back in between, and d is new."""
    first = [said(f"{name}1", name, "yes", who="ann") for name in "abc"]
    real, late = store._live_items, [item("b", 5), item("d", 5), said("b1", "b", "no", 6), said("d1", "d", "no", 6)]
    with Store(url) as other, other.lease("p") as lease:
        other.save_page(lease, page(1, *map(item, "abc"), *first, live=set("abc")))
        other.save_page(lease, page(2, live=set("ac")))

        def items(*given: Any) -> Any:
            found = real(*given)
            if late:
                other.save_page(lease, page(3, *late, live=set("abcd")))
                late.clear()
            return found

        monkeypatch.setattr(store, "_live_items", items)
        between = store.annotations("p", "q").to_pylist()
        after = store.annotations("p", "q").to_pylist()
    assert [(row["item"], row["label"]) for row in between] == [("a", "yes"), ("c", "yes")]
    assert [(row["item"], row["label"]) for row in after] == [("a", "yes"), ("b", "no"), ("c", "yes"), ("d", "no")]
