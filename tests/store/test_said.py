"""A few items are looked up by an index, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from hitl.platform import AnnotationRow, ItemRow, Page, PredictionRow
from hitl.store import Store
from hitl.store.said import Answer


def annotation(key: str, item: str, label: str | None, kind: str = "answer", at: int = 1) -> AnnotationRow:
    when = f"2026-01-01T00:00:{at:02d}Z"
    return AnnotationRow(key, item, "q", "7", label, kind, when, when)  # type: ignore[arg-type]


def test_what_is_said_of_a_few_items(store: Store) -> None:
    items = tuple(ItemRow(f"i{n}", {}, "2026-01-01T00:00:00Z") for n in range(3))
    said = (
        annotation("a", "i0", "yes", at=3),
        annotation("b", "i0", "no", at=2),
        annotation("c", "i0", None, "skip"),
        annotation("d", "i1", "yes", "gold"),
        annotation("e", "i2", "no"),
    )
    predicted = (PredictionRow("i1", "q", "m", {"yes": 0.25, "no": 0.75}),)
    with store.lease("p") as lease:
        store.save_page(lease, Page({}, items, said, predicted))
        store.database.analyse()
        assert store.said_of("p", ["i0", "i1", "never"]) == [
            Answer("q", "i1", "7", "yes", "gold"),
            Answer("q", "i0", "7", "no", "answer"),
            Answer("q", "i0", "7", "yes", "answer"),
        ]
        assert store.predicted_of("p", ["i0", "i1"]) == {("q", "m", "i1"): {"yes": 0.25, "no": 0.75}}
        gone = Page({}, (ItemRow("i0", {}, "2026-01-01T00:00:09Z"),), (annotation("a", "i0", "yes", at=3),))
        store.save_page(lease, gone)
    assert store.said_of("p", ["i0"]) == [Answer("q", "i0", "7", "yes", "answer")]


def test_sqlite_finds_a_few_items_by_their_index(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        items = tuple(ItemRow(f"i{n}", {}, "1") for n in range(400))
        said = tuple(annotation(f"a{n}", f"i{n % 400}", "yes") for n in range(4_000))
        with store.lease("p") as lease:
            store.save_page(lease, Page({}, items, said))
        store.database.analyse()
        plan = "EXPLAIN QUERY PLAN SELECT label FROM hitl_annotation WHERE project = 'p' AND item IN ('i1', 'i2')"
        with store.database.read() as connection:
            assert "hitl_annotation_item" in str(connection.execute(sa.text(plan)).all())


def test_postgresql_is_told_to_count_what_has_come(postgres_url: str) -> None:
    """Its own count comes up to a minute late. Till then, all answers would be read again for each of a few items."""
    with Store(postgres_url) as store, store.lease("p") as lease:
        counted = sa.text("SELECT reltuples FROM pg_class WHERE relname = 'hitl_annotation'")

        def saved(first: int, end: int) -> float:
            items = tuple(ItemRow(f"i{n}", {}, "1") for n in range(400))
            said = tuple(annotation(f"a{n}", f"i{n % 400}", "yes") for n in range(first, end))
            store.save_page(lease, Page({}, items, said))
            store.database.analyse()
            with store.database.read() as connection:
                return float(connection.execute(counted).scalar_one())

        assert [saved(0, 4_000), saved(4_000, 20_000)] == [4_000, 20_000]
        plan = "EXPLAIN SELECT label FROM hitl_annotation WHERE project = 'p' AND item IN ('i1', 'i2')"
        with store.database.read() as connection:
            assert "hitl_annotation_item" in str(connection.execute(sa.text(plan)).all())


def two_pages() -> Iterator[Page]:
    """Of 800 items with ten answers each."""
    for first in (0, 400):
        items = tuple(ItemRow(f"i{n}", {}, "1") for n in range(first, first + 400))
        said = tuple(annotation(f"a{n}", f"i{first + n % 400}", "yes") for n in range(10 * first, 10 * first + 4_000))
        yield Page({"read": first}, items, said)


def test_a_page_is_not_compared_with_all_that_was_pulled_before(sqlite_url: str) -> None:
    """A walk through all answers for each page of a first pull takes a minute and more of a million labels."""
    with Store(sqlite_url) as store, store.lease("p") as lease:
        plans: list[str] = []

        def explain(connection: sa.Connection, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if statement.startswith("SELECT") and "hitl_annotation" in statement:
                plans.append(str(cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()))

        sa.event.listen(store.database.engine, "before_cursor_execute", explain)
        for page in two_pages():
            store.save_page(lease, page)
        assert store.said_of("p", ["i1"])
        assert len(plans) == 3
        assert all("hitl_annotation_item (project=? AND item=?)" in plan for plan in plans), plans
