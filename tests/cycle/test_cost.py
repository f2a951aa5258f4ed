"""What a cycle reads and writes follows from what has changed, in rows and statements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.store import Store
from tests.projects import NOON, settings, state

N = 2000
ROWS = [f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}" for n in range(N) for who in ("ann", "bob", "cyd")]


def write(folder: Path, rows: list[str]) -> None:
    (folder / "annotations.csv").write_text("item,annotator,label\n" + "".join(f"{row}\n" for row in rows))


def changed(rows: list[str]) -> list[str]:
    """With ten other labels, all over the file."""
    rows = [*rows]
    for place in range(7, len(rows), len(rows) // 10)[:10]:
        head, _, label = rows[place].rpartition(",")
        rows[place] = f"{head},{1 - int(label)}"
    return rows


@contextmanager
def written(store: Store) -> Iterator[Counter[str]]:
    """Rows that are written to each table, and bytes of text and blobs ("bytes")."""
    found: Counter[str] = Counter()

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        table = re.match(r"(?:INSERT INTO|UPDATE) (\w+)", statement)
        if table:
            rows = parameters if isinstance(parameters, list) else [parameters]
            found[table[1]] += len(rows)
            values = (value for row in rows for value in (row.values() if isinstance(row, dict) else row))
            found["bytes"] += sum(len(value) for value in values if isinstance(value, str | bytes))

    sa.event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(store.database.engine, "before_cursor_execute", note)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    write(tmp_path, ROWS)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run_if_changed(settings(), store, Tables(tmp_path), now=NOON)
        yield store


def test_ten_changed_labels_write_ten_rows(tmp_path: Path, store: Store) -> None:
    write(tmp_path, changed(ROWS))
    with written(store) as rows:
        report = cycle.run_if_changed(settings(), store, Tables(tmp_path), now=NOON + 60)
    assert isinstance(report, cycle.CycleReport)
    assert report.pulled.changed == 10
    assert rows["hitl_annotation"] == 10
    assert rows["hitl_item"] == 1, "the revision, in one statement"
    assert rows["hitl_annotator"] == rows["hitl_prediction"] == 0
    assert rows["hitl_snapshot"] == 2, "the answers, and the digests of the items"
    assert store.annotations("p", "label").equals(store._from_rows("p", "label", None).table())


def test_what_is_judged_is_what_a_new_store_would_judge(tmp_path: Path, store: Store) -> None:
    write(tmp_path, changed(ROWS))
    now = cycle.run(settings(), store, Tables(tmp_path), now=NOON + 60).judgement
    with Store(f"sqlite:///{tmp_path}/new.db") as new:
        expected = cycle.run(settings(), new, Tables(tmp_path), now=NOON + 60).judgement
    assert (now.results["label"].probabilities == expected.results["label"].probabilities).all()
    assert now.plan.done == expected.plan.done


def test_the_same_again_writes_no_payload(tmp_path: Path, store: Store) -> None:
    """A cycle that judges the same confirms nothing, and what it records is small but for the consensus."""
    before = state(tmp_path)
    with written(store) as rows:
        report = cycle.run(settings(), store, Tables(tmp_path), now=NOON + 60)
    assert report.receipts == ()
    assert rows["hitl_annotation"] == rows["hitl_item"] == rows["hitl_snapshot"] == 0
    with store.database.read() as connection:
        query = (
            "SELECT sum(length(packed)) FROM hitl_consensus UNION ALL SELECT sum(length(payload)) FROM hitl_operation"
        )
        consensus, payloads = (int(row[0]) for row in connection.exec_driver_sql(query))
    assert payloads > 20_000
    assert rows["bytes"] - consensus < 20_000, "no payload"
    assert state(tmp_path) == before


def test_nothing_new_writes_a_note_alone(tmp_path: Path, store: Store) -> None:
    with written(store) as rows:
        report = cycle.run_if_changed(settings(), store, Tables(tmp_path), now=NOON + 60)
    assert isinstance(report, cycle.Unchanged)
    assert set(rows) == {"hitl_project", "bytes"}
    assert rows["bytes"] < 2_000
