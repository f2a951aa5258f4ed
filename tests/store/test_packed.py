"""Packed answers are those of the rows, in their order; a page has no more items read anew than it changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from hitl.store import Store, packed, schema
from hitl.store.database import Few
from hitl.store.lease import Lease
from tests.store.rows import at, item, page, said

N = 40


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SIZE", 4)
    monkeypatch.setattr(packed, "AT_ONCE", 3)
    monkeypatch.setattr(packed, "MOST", 2)


def plain(store: Store) -> list[dict[str, Any]]:
    return store._rows("p", "q", None).drop_columns(["position"]).to_pylist()


def fill(store: Store, lease: Lease) -> None:
    dice = random.Random(1)
    for n in range(N):
        answers = [said(f"{n} {who}", str(n), "yes", dice.randrange(60), who=f"w{who}") for who in range(n % 4)]
        store.save_page(lease, page(n, item(str(n)), *answers))


def behind(store: Store) -> dict[int, list[int] | None]:
    """The blocks that are not as the rows are: positions that may have changed; None: there is no block."""
    there = store._blocks("p", "q")
    return {n: there.get(n) for n in range(10) if there.get(n) != []}


def test_packed_answers_are_those_of_the_rows(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        before, counts = store.annotations("p", "q"), store.counts("p")
        assert store.pack(lease, ["q"]) == N // 4
        assert store.counts("p") == counts
        assert [counts[name] for name in ("labels", "annotations", "annotators_with_labels")] == [60, 60, 3]
        assert store.annotations("p", "q").equals(before)
        assert store.pack(lease, ["q"]) == 0
    assert before.num_rows == 60


def test_a_page_notes_what_it_changes(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        store.pack(lease, ["q"])
        same = page(99, item("9"), said("9 0", "9", "yes", 60, who="w0"))
        store.save_page(lease, same)
        assert behind(store) == {2: [9]}
        assert store.pack(lease, ["q"]) == 1
        store.save_page(lease, same)
        assert behind(store) == {}, "it says nothing new"
        moved = page(100, item("30", 60), said("9 0", "30", "yes", 61, who="w0"))
        store.save_page(lease, moved)
        assert behind(store) == {2: [9], 7: [30]}, "an answer has gone from one item to another"
        live = {str(n) for n in range(N) if n not in (3, 39)}
        store.save_page(lease, page(101, live=live))
        assert behind(store) == {0: [3], 2: [9], 7: [30], 9: [39]}
        assert store.annotations("p", "q").to_pylist() == plain(store)
        store.save_page(lease, page(102, *(item(str(n), 61) for n in (4, 5, 6)), item("8", 61)))
        assert behind(store) == {0: [3], 1: None, 2: [8, 9], 7: [30], 9: [39]}, "most of a block: it is made anew"
        assert store.annotations("p", "q").to_pylist() == plain(store)
        store.save_page(lease, page(103, *(item(f"new {n}", 1) for n in range(5)), said("a", "new 4", "no")))
        assert store.annotations("p", "q").to_pylist() == plain(store)
        store.pack(lease, ["q"])
        assert store.annotations("p", "q").to_pylist() == plain(store)


def test_what_is_packed_is_not_read_from_the_rows(sqlite_url: str) -> None:
    """After a change the rows of what has changed alone are read."""
    with Store(sqlite_url) as store, store.lease("p") as lease:
        fill(store, lease)
        store.pack(lease, ["q"])
        store.save_page(lease, page(99, item("9"), said("9 0", "9", "no", 60, who="w0")))
        asked: list[str] = []
        sa.event.listen(store.database.engine, "before_cursor_execute", lambda *said: asked.append(str(said[2])))
        store.annotations("p", "q")
    of_rows = [query for query in asked if "FROM hitl_annotation" in query]
    assert len(of_rows) == 1
    assert "position IN" in of_rows[0]


def test_a_block_is_read_by_its_items(sqlite_url: str) -> None:
    """And not by looking at every answer."""
    with Store(sqlite_url) as store, store.lease("p") as lease:
        fill(store, lease)
        between = schema.item.c.position.between(8, 11)
        among = Few(store.database.among_numbers(schema.item.c.position, [8, 10]))
        for word, where in (("BETWEEN", between), ("position IN", among)):
            steps = _steps(store, word, lambda where=where: store._rows("p", "q", where))  # type: ignore[misc]
            assert any("hitl_item_position" in step for step in steps), steps
            assert any("hitl_annotation_item" in step for step in steps), steps


@pytest.mark.parametrize("what", ["skips", "gold"])
def test_what_is_few_is_read_by_its_kind(sqlite_url: str, what: str) -> None:
    with Store(sqlite_url) as store, store.lease("p") as lease:
        fill(store, lease)
        steps = _steps(store, "kind", lambda: store.gold("p", "q") if what == "gold" else store.skips("p"))
    assert any("hitl_annotation_kind" in step for step in steps), steps


def _steps(store: Store, word: str, read: Callable[[], Any]) -> list[str]:
    """How SQLite goes about the query with this word."""
    queries: list[tuple[str, Any]] = []
    sa.event.listen(
        store.database.engine, "before_cursor_execute", lambda *said: queries.append((str(said[2]), said[3]))
    )
    read()
    (query, values) = next(one for one in queries if word in one[0])
    with store.database.read() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", values).all()
    return [str(row[3]) for row in plan]


def test_versions_order_the_answers_of_an_item(store: Store) -> None:
    with store.lease("p") as lease:
        store.save_page(lease, page(0, item("1"), said("a", "1", "no", 9, who="x"), said("b", "1", "yes", 3, who="x")))
        store.pack(lease, ["q"])
    assert [row["label"] for row in store.annotations("p", "q").to_pylist()] == ["yes", "no"]
    assert at(9) > at(3)


@pytest.mark.parametrize("seed", range(5))
def test_after_random_changes_what_is_packed_is_what_the_rows_say(store: Store, seed: int) -> None:
    """Answers that come, change, move and go, items too; packed now and then, and never, give the same codes."""
    dice = random.Random(seed)
    with store.lease("p") as lease, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "SIZE", 8)
        fill(store, lease)
        for turn in range(25):
            keys = dice.sample(range(N + 5), dice.choice((1, 1, 2, 12)))
            answers = [
                said(f"{n} {who}", str(n), dice.choice(("yes", "no")), dice.randrange(60), who=f"w{who}")
                for n in keys
                for who in range(dice.randrange(4))
            ]
            gone = {str(n) for n in dice.sample(range(N), 2)} if dice.random() < 0.3 else set()
            live = {str(n) for n in range(N + 5)} - gone | set(map(str, keys))
            rows = [item(str(n), 60 + turn) for n in keys] + answers
            store.save_page(lease, page(turn, *rows, live=live if dice.random() < 0.4 else None))
            if dice.random() < 0.5:
                store.pack(lease, ["q"])
            found = store.answers("p", "q")
            assert found.table().to_pylist() == plain(store)
            assert found.items.to_pylist() == store.items("p").column("item").to_pylist()


def test_an_answer_to_an_item_that_comes_while_items_are_read_is_given_to_no_other(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds no lease reads items, and then answers; b comes back in between, and d is new."""
    first = [said(f"{name}1", name, "yes", who="ann") for name in "abc"]
    real, late = store._rows, [item("b", 5), item("d", 5), said("b1", "b", "no", 6), said("d1", "d", "no", 6)]
    with Store(url) as other, other.lease("p") as lease:
        other.save_page(lease, page(1, *map(item, "abc"), *first, live=set("abc")))
        other.save_page(lease, page(2, live=set("ac")))

        def rows(*given: Any) -> Any:
            if late:
                other.save_page(lease, page(3, *late, live=set("abcd")))
                late.clear()
            return real(*given)

        monkeypatch.setattr(store, "_rows", rows)
        between = store.annotations("p", "q").to_pylist()
        after = store.annotations("p", "q").to_pylist()
    assert [(row["item"], row["label"]) for row in between] == [("a", "yes"), ("c", "yes")]
    assert [(row["item"], row["label"]) for row in after] == [("a", "yes"), ("b", "no"), ("c", "yes"), ("d", "no")]
