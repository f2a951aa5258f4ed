"""Saving pages: which of two rows stays, what is deleted, and that a page is saved whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from hitl.platform import AnnotatorRow, Page, PullSummary
from hitl.store import Store, pages, versions
from tests.store.rows import item, page, predicted, said


def save(store: Store, *saved: Page, project: str = "p") -> PullSummary:
    with store.lease(project) as lease:
        for each in saved:
            summary = store.save_page(lease, each)
    return summary


def answers(store: Store, project: str = "p", question: str = "q") -> list[tuple[Any, ...]]:
    table = store.annotations(project, question)
    return list(zip(*(table[name].to_pylist() for name in ("item", "annotator", "label")), strict=True))


def keys(store: Store, project: str = "p") -> list[str]:
    return list(store.items(project)["item"].to_pylist())


def test_empty_store(store: Store) -> None:
    assert store.cursor("p") is None
    assert store.problems("p") == []
    assert store.predictions("p", "q") == {}
    assert not any(store.counts("p").values())
    assert store.items("p").schema.types == [pa.string(), pa.string(), pa.int64(), pa.bool_(), pa.string()]
    assert store.items("p").column_names == ["item", "data", "labels_wanted", "closed", "ref"]
    assert store.annotators("p").schema == pa.schema([("key", pa.string()), ("name", pa.string())])
    assert store.annotations("p", "q").schema.types == [pa.string()] * 3 + [pa.float64()] * 2
    assert store.annotations("p", "q").column_names == ["item", "annotator", "label", "time", "duration"]
    assert store.gold("p", "q").column_names == ["item", "label"]
    assert store.skips("p").column_names == ["item", "annotator"]
    assert all(table.num_rows == 0 for table in (store.items("p"), store.gold("p", "q"), store.skips("p")))


def test_the_own_id_of_an_item_comes_back_and_changes_with_it(store: Store) -> None:
    save(store, page(1, item("7", ref="a1"), item("8")))
    assert store.items("p")["ref"].to_pylist() == ["a1", None]
    assert save(store, page(2, item("7", ref="a1"), item("8"))).changed == 0
    save(store, page(3, item("7", second=1, ref="b1"), item("8", second=1, ref="b2")))
    assert store.items("p")["ref"].to_pylist() == ["b1", "b2"]


def test_a_page_comes_back(store: Store) -> None:
    summary = save(
        store,
        page(
            7,
            item("10", data={"text": "ä 漢字 🙂", "n": [1, None]}, labels_wanted=3, closed=True),
            item("9"),
            AnnotatorRow("u1", "Zoë ✎"),
            AnnotatorRow("u0", "Ann"),
            said("a2", "10", "yes", 5, who="u1", duration=1.5),
            said("a1", "10", "no", 9, who=None),
            problems=["task 9: strange"],
        ),
    )
    assert summary == PullSummary(items=2, annotations=2, changed=6, deleted=0, problems=("task 9: strange",), pages=1)
    assert store.cursor("p") == {"page": 7}
    assert store.problems("p") == ["task 9: strange"]
    items = store.items("p").to_pylist()
    assert [row["item"] for row in items] == ["10", "9"]
    assert json.loads(items[0]["data"]) == {"text": "ä 漢字 🙂", "n": [1, None]}
    assert (items[0]["labels_wanted"], items[0]["closed"], items[1]["closed"]) == (3, True, False)
    assert store.annotators("p").to_pylist() == [{"key": "u0", "name": "Ann"}, {"key": "u1", "name": "Zoë ✎"}]
    first = {"item": "10", "annotator": "u1", "label": "yes", "time": 1714564805.0, "duration": 1.5}
    second = {"item": "10", "annotator": None, "label": "no", "time": 1714564809.0, "duration": None}
    assert store.annotations("p", "q").to_pylist() == [first, second]
    stored = {"items": 2, "annotations": 2, "labels": 2, "annotators": 2, "annotators_with_labels": 1}
    assert {name: number for name, number in store.counts("p").items() if number} == stored


def test_names_of_any_kind(store: Store) -> None:
    nasty = ["ключ", "with space", "it's", 'a"b', "100%", "%(name)s", ":colon", "back\\slash", "🙂", "$1"]
    rows = [item(name) for name in nasty] + [said(f"a {name}", name, name, who=name, question=name) for name in nasty]
    save(store, page(1, *rows), project="it's 100% ☃")
    assert keys(store, "it's 100% ☃") == nasty
    for name in nasty:
        assert answers(store, "it's 100% ☃", name) == [(name, name, name)]


def test_nulls_first(store: Store) -> None:
    rows = [said(f"a{n:04}", "1", str(n), n // 40, who=None if n < 1500 else "ann") for n in range(2000)]
    timed = [said("z", "1", "z", 59, duration=2.5)]
    save(store, page(1, item("1"), *rows, *timed))
    table = store.annotations("p", "q")
    assert table["annotator"].null_count == 1500
    assert table["duration"].to_pylist() == [None] * 2000 + [2.5]


def test_newer_version_wins_and_old_replay_is_ignored(store: Store) -> None:
    old = page(1, item("1", 1, data={"v": 1}), said("a", "1", "no", 1), said("gone", "1", "no", 1, who="bob"))
    new = page(2, item("1", 2, data={"v": 2}), said("a", "1", "yes", 2), said("b", "1", "yes", 2, who="eve"))
    summary = save(store, old, new)
    assert (summary.changed, summary.deleted) == (3, 1)
    expected = [("1", "ann", "yes"), ("1", "eve", "yes")]
    assert answers(store) == expected
    replay = save(store, old)
    assert (replay.changed, replay.deleted) == (0, 0)
    assert answers(store) == expected
    assert json.loads(store.items("p")["data"][0].as_py()) == {"v": 2}
    assert store.cursor("p") == {"page": 1}, "the cursor is where the source says it is"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2024-05-01T12:00:00Z", "2024-05-01T12:00:00.5Z"),
        ("2024-05-01T12:00:00.5+00:00", "2024-05-01T12:00:00.500001Z"),
        ("2024-05-01T14:00:00+02:00", "2024-05-01T12:00:01Z"),
        ("9", "10"),
        ("v-a", "v-b"),
    ],
)
def test_versions_are_in_order(older: str, newer: str) -> None:
    assert versions.sortable(older) < versions.sortable(newer)


def test_an_item_that_is_on_the_page_but_not_live(store: Store) -> None:
    """It was deleted while the page was read."""
    contradiction = page(2, item("1", 1), item("2"), said("a", "1"), said("b", "2"), live=[])
    save(store, page(1, item("1"), said("a", "1")), contradiction)
    assert (keys(store), answers(store)) == ([], [])
    again = save(store, contradiction)
    assert (again.changed, again.deleted) == (0, 0)


def test_predictions(store: Store) -> None:
    third = 1 / 3
    save(
        store,
        page(
            1,
            item("2"),
            item("1"),
            predicted("1", "m", yes=0.25, no=0.75),
            predicted("2", "m", yes=third, no=2 * third),
            predicted("1", "模型", maybe=1.0),
            predicted("1", "m", question="r", x=1.0),
        ),
    )
    found = store.predictions("p", "q")
    assert list(found) == ["m", "模型"]
    assert found["m"].column_names == ["item", "p_yes", "p_no"]
    assert found["m"].to_pydict() == {"item": ["2", "1"], "p_yes": [third, 0.25], "p_no": [2 * third, 0.75]}
    summary = save(store, page(2, item("1", 1), predicted("1", "m", yes=0.5, maybe=0.5)))
    assert (summary.changed, summary.deleted) == (1, 2)
    assert store.predictions("p", "q")["m"].to_pylist()[1] == {"item": "1", "p_yes": 0.5, "p_no": 0.0, "p_maybe": 0.5}
    assert store.predictions("p", "r") == {}


def test_problems_are_those_of_the_latest_pull(store: Store) -> None:
    save(store, page(1, problems=["a"]), page(2), page(3, problems=["b" * 10_000]))
    assert store.problems("p") == ["a", "b" * 500]
    save(store, page(4, problems=map(str, range(1000))))
    assert store.problems("p") == [str(n) for n in range(100)]
    save(store, page(5))
    assert store.problems("p") == []


def test_a_failure_inside_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, page(1, item("1"), said("a", "1")))

    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(pages, "_save_cursor", fail)
    with pytest.raises(RuntimeError), store.lease("p") as lease:
        store.save_page(lease, page(2, item("2"), item("1", 1), live=["2"], problems=["x"]))
    assert store.cursor("p") == {"page": 1}
    assert (keys(store), answers(store), store.problems("p")) == (["1"], [("1", "ann", "yes")], [])


_KILLED = """
import sys, time
from hitl.store import Store, pages, versions
from tests.store.rows import item, page, said, unrenewed

def pause(*arguments):
    save(*arguments)  # everything is written, nothing committed
    print("inside", flush=True)
    time.sleep(60)

store = Store(sys.argv[1])
with unrenewed(store, seconds=0.5) as lease:
    store.save_page(lease, page(1, item("1"), said("a", "1")))
    save, pages.save = pages.save, pause
    many = [item(str(n), 1) for n in range(5000)]
    store.save_page(lease, page(2, *many, *(said(f"a{n}", str(n)) for n in range(5000)), live=["1"]))
"""


def test_kill_9_in_the_middle_of_a_page(url: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", _KILLED, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "inside\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with Store(url) as store:
        assert store.cursor("p") == {"page": 1}
        assert (keys(store), answers(store)) == (["1"], [("1", "ann", "yes")])
        assert store.counts("p")["items"] == 1


def test_a_version_that_is_no_time(store: Store) -> None:
    save(store, page(1, item("1"), replace(said("a", "1"), version="revision x")))
    assert store.annotations("p", "q")["time"].to_pylist() == [None]


def test_how_an_item_is_served_is_no_news(store: Store) -> None:
    """A push changes it, and the next pull brings it back."""
    save(store, page(1, item("1"), item("2"), said("a", "1")))
    before = store.revision("p")
    summary = save(store, page(2, item("1", 1, labels_wanted=3), item("2", 1, closed=True), said("a", "1")))
    assert (summary.changed, store.revision("p")) == (0, before)
    assert store.served("p") == {"1": (3, False)}
    save(store, page(3, item("1", 2, labels_wanted=2), item("2", 2, data={"text": "new"}), said("a", "1")))
    save(store, page(4, item("1", 3, labels_wanted=4), said("a", "1", "no", 1)))
    save(store, page(5, live=["2"]))
    save(store, page(6, item("1", 5), live=["1", "2"]))
    assert store.revision("p") == before + 4


def test_a_problem_that_two_pages_of_a_pull_have_is_one(store: Store) -> None:
    summary = save(store, page(1, item("9"), problems=["task 9: strange"]), page(2, problems=["task 9: strange"]))
    assert (summary + summary).problems == tuple(store.problems("p")) == ("task 9: strange",)
