"""Tables that change between cycles: clocks that jump, torn files, rows that come in at the top, and much time."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.tables import SETTLED, Look, Tables
from hitl.platform import PullSummary
from hitl.store import Store
from tests.projects import NOON, settings

HEADER = "item,annotator,label\n"
DAY = 24 * 3600.0


class Clock:
    """This machine's clock, as a test sets it."""

    now = NOON

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("name", ["ann", "Zoë", 'a "b", c', "back\\slash", "tab\tline", "\u2028 \U0001f600", "7"])
def test_an_answer_is_named_by_item_and_annotator_as_json_has_them(tmp_path: Path, name: str) -> None:
    """Stores hold such keys: another text for the same two would be another answer."""
    rows = [{"item": name, "annotator": name + "!", "label": "cat"}, {"item": name, "annotator": None, "label": "dog"}]
    (tmp_path / "annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (page,) = Tables(tmp_path).pull(None)
    said = hashlib.sha256(b"dog").hexdigest()[:16]
    assert [row.key for row in page.annotations] == [json.dumps([name, name + "!"]), json.dumps([name, None, said, 1])]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "time", found.time)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        yield store


def write(folder: Path, *rows: str, name: str = "annotations", header: str = HEADER) -> Path:
    (folder / f"{name}.csv").write_text(header + "".join(f"{row}\n" for row in rows))
    return folder


def pull(store: Store, connector: Tables) -> PullSummary:
    with store.lease("p") as lease:
        return cycle.pull(lease, store, connector)


def stored(store: Store) -> list[tuple[Any, ...]]:
    rows = store.annotations("p", "label").to_pylist()
    return [(row["item"], row["annotator"], row["label"]) for row in rows]


def count(store: Store, query: str) -> int:
    with store.database.read() as connection:
        return int(connection.exec_driver_sql(query).scalar() or 0)


def test_a_clock_that_was_ahead_once_loses_no_later_answer(tmp_path: Path, store: Store, clock: Clock) -> None:
    connector = Tables(write(tmp_path, "1,ann,yes", "2,ann,no"))
    clock.now = NOON + DAY
    pull(store, connector)
    for step, late in enumerate((0.0, -DAY, 600.0, -600.0), start=1):
        clock.now = NOON + step + late
        answer = ("no", "yes")[step % 2]
        write(tmp_path, f"1,ann,{answer}", "2,ann,no", *(f"3,bob{n},yes" for n in range(step)))
        pull(store, connector)
        assert stored(store)[0] == ("1", "ann", answer)
        assert len(stored(store)) == 2 + step


def test_unchanged_answers_keep_their_version(tmp_path: Path, store: Store, clock: Clock) -> None:
    """It says when an answer came."""
    connector = Tables(write(tmp_path, "1,ann,yes"))
    pull(store, connector)
    clock.now += 60
    write(tmp_path, "1,ann,yes", "1,bob,no")
    assert pull(store, connector).changed == 2, "bob, and bob's answer"
    assert [row["time"] for row in store.annotations("p", "label").to_pylist()] == [NOON, NOON + 60]


def half(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Answers of 400 items, of which the last half alone says "maybe", and the first half of them."""
    rows = [f"{n},ann,{('yes', 'no', 'maybe')[n % 2 + (n > 300)]}" for n in range(400)]
    write(tmp_path, *rows)
    return rows, rows[:200]


def test_half_a_file_is_no_deletion_until_it_stays(tmp_path: Path, store: Store) -> None:
    rows, first = half(tmp_path)
    connector = Tables(tmp_path)
    pull(store, connector)
    write(tmp_path, *first, "new,bob,yes")
    summary = pull(store, connector)
    assert len(stored(store)) == 401
    assert summary.deleted == 0
    assert "annotations.* has 201 rows where the last run found 400" in summary.problems[0]
    assert "--accept-deletions" in summary.problems[0]
    assert "maybe" in connector.questions()[0].classes, "what is stored is still understood"
    write(tmp_path, *rows)
    assert pull(store, connector).problems == ()
    assert len(stored(store)) == 400


def test_few_rows_may_go_but_not_all_of_a_table() -> None:
    assert Look({"truth": 15}).lost({"truth": 5}, share=0.1) == []
    assert Look({"truth": 3}).lost({}, share=0.1) == ["truth.* has 0 rows where the last run found 3"]


def test_a_cycle_over_half_a_file_goes_on(tmp_path: Path, store: Store) -> None:
    _, first = half(tmp_path)
    cycle.run(settings(), store, Tables(tmp_path))
    write(tmp_path, *first, "new,bob,yes")
    report = cycle.run(settings(), store, Tables(tmp_path))
    assert report.judgement.metrics["labels"] == 401


@pytest.mark.parametrize("second_look", [True, False])
def test_rows_that_stay_away_or_are_said_to_be_gone_are_deleted(
    tmp_path: Path, store: Store, clock: Clock, second_look: bool
) -> None:
    _, first = half(tmp_path)
    pull(store, Tables(tmp_path))
    write(tmp_path, *first)
    connector = Tables(tmp_path)
    if second_look:
        pull(store, connector)
        clock.now += SETTLED
        file = tmp_path / "annotations.csv"
        os.utime(file, ns=(0, 0))
        assert pull(store, Tables(tmp_path)).deleted == 0, "somebody still writes"
        for seconds in (1.0, SETTLED - 2):  # as `hitl serve` pulls
            clock.now += seconds
            assert "stay like this for ten minutes" in pull(store, Tables(tmp_path)).problems[0]
        clock.now += 1.0
    else:
        connector.accept_deletions()
    assert pull(store, connector).deleted == 200, "items, and with them their answers"
    assert len(stored(store)) == 200
    assert pull(store, Tables(tmp_path)) == PullSummary()


def test_a_last_line_that_is_cut_is_not_believed(tmp_path: Path, store: Store) -> None:
    _, first = half(tmp_path)
    pull(store, Tables(tmp_path))
    write(tmp_path, *first)
    text = (tmp_path / "annotations.csv").read_text()
    (tmp_path / "annotations.csv").write_text(text[:-3])  # "yes" or "no" lost its end
    pull(store, Tables(tmp_path))
    assert {label for *_, label in stored(store)} == {"yes", "no", "maybe"}


def test_a_few_rows_and_a_share_below_the_limit_go_at_once(tmp_path: Path, store: Store) -> None:
    write(tmp_path, *(f"{n},ann,yes" for n in range(12)))
    pull(store, Tables(tmp_path))
    write(tmp_path, "0,ann,yes", "1,ann,yes")
    assert pull(store, Tables(tmp_path)).deleted == 10


def test_items_that_are_put_back_as_they_were_are_there_again(tmp_path: Path, store: Store) -> None:
    rows = [f"{n},ann,yes" for n in range(12)]
    for there in (rows, rows[:2], rows, rows[:2], rows):
        write(tmp_path, *there)
        pull(store, Tables(tmp_path))
        assert len(stored(store)) == len(there)
    write(tmp_path, *(f"{n},ann,yes" for n in range(400)))
    pull(store, Tables(tmp_path))
    write(tmp_path, *(f"{n},ann,yes" for n in range(200)))
    assert pull(store, Tables(tmp_path, max_shrink=0.5)).deleted == 200


def test_one_row_at_the_top_renames_no_answer_of_nobody(tmp_path: Path, store: Store) -> None:
    rows = [f"{n % 700},,{('yes', 'no')[n % 2]}" for n in range(2000)]
    write(tmp_path, *rows)
    pull(store, Tables(tmp_path))
    write(tmp_path, "0,,yes", *rows)
    summary = pull(store, Tables(tmp_path))
    assert (summary.changed, summary.deleted) == (1, 0)
    assert len(stored(store)) == 2001
    assert count(store, "SELECT count(*) FROM hitl_annotation WHERE deleted") == 0


def test_what_was_deleted_is_forgotten_a_month_later(tmp_path: Path, store: Store, clock: Clock) -> None:
    rows = [f"{n},{who},{('yes', 'no')[n % 2]}" for n in range(300) for who in ("ann", "bob", "cyd")]
    write(tmp_path, *rows)
    pull(store, Tables(tmp_path))
    gone = {f"{n},cyd,{('yes', 'no')[n % 2]}" for n in range(9)}
    write(tmp_path, *(row for row in rows if row not in gone))
    pull(store, Tables(tmp_path))
    assert count(store, "SELECT count(*) FROM hitl_annotation WHERE deleted") == 9
    for days, left in ((29, 9), (31, 0)):
        with store.lease("p") as lease:
            clock.now = NOON + days * DAY
            store.forget(lease, deleted_seconds=30 * DAY, cycles=1000)
        assert count(store, "SELECT count(*) FROM hitl_annotation WHERE deleted") == left
