"""A pull of tables compares the items that say something else, whatever came, went or broke in between."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hitl import cycle
from hitl.connectors.tables import SETTLED, Tables
from hitl.platform import Page
from hitl.store import Store, pages
from hitl.store.schema import annotation

N = 3000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        yield store


@pytest.fixture
def rows(tmp_path: Path) -> list[str]:
    found = [f"{n},{who},{('yes', 'no')[n % 2]}" for n in range(N) for who in ("ann", "bob")]
    write(tmp_path, found)
    return found


def write(folder: Path, rows: list[str]) -> None:
    (folder / "annotations.csv").write_text("item,annotator,label\n" + "".join(f"{row}\n" for row in rows))


def pull(folder: Path, store: Store) -> list[Page]:
    found = []
    with store.lease("p") as lease:
        for page in Tables(folder).pull(store.cursor("p")):
            store.save_page(lease, page)
            found.append(page)
    return found


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Items that are compared row by row."""
    found: list[str] = []
    compare = pages._Saver.rows

    def noted(saver: pages._Saver, page: Page) -> None:
        found.extend(row.key for row in page.items)
        compare(saver, page)

    monkeypatch.setattr(pages._Saver, "rows", noted)
    return found


def stored(store: Store) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {key: [] for key in store.items("p").column("item").to_pylist()}
    for row in store.annotations("p", "label").to_pylist():
        found[row["item"]].append((row["annotator"], row["label"]))
    return {key: sorted(said, key=str) for key, said in sorted(found.items())}


def test_what_changes_alone_is_compared(tmp_path: Path, store: Store, rows: list[str], compared: list[str]) -> None:
    pull(tmp_path, store)
    assert compared == [], "new items are inserted"
    rows[3000] = "1500,ann,no"
    write(tmp_path, ["new,ann,yes", *rows[:2000], *rows[2002:]])
    (page,) = pull(tmp_path, store)
    assert page.live is not None
    assert compared == ["1500"]
    assert {*stored(store)} == {"new", *(str(n) for n in range(N) if n != 1000)}
    assert stored(store)["1500"] == [("ann", "no"), ("bob", "yes")]


def test_other_bytes_that_say_the_same_change_nothing(
    tmp_path: Path, store: Store, rows: list[str], compared: list[str]
) -> None:
    pull(tmp_path, store)
    revision = store.revision("p")
    (tmp_path / "annotations.csv").unlink()
    text = '{"item": "%s", "annotator": "%s", "label": "%s"}\n'
    (tmp_path / "annotations.jsonl").write_text("".join(text % (*row.split(","),) for row in rows))
    (page,) = pull(tmp_path, store)
    assert (page.live, compared) == (None, [])
    assert store.revision("p") == revision
    assert pull(tmp_path, store) == []


def changed(rows: list[str], dice: random.Random) -> list[str]:
    """Labels change, rows come, go and move."""
    rows = [*rows]
    for _ in range(dice.randrange(1, 6)):
        place, item = dice.randrange(len(rows)), dice.randrange(N // 50)
        what = dice.choice(["change", "drop", "add", "move", "nobody"])
        if what == "change":
            rows[place] = f"{rows[place].rpartition(',')[0]},{dice.choice(['yes', 'no', ''])}"
        elif what == "drop":
            del rows[place : place + dice.choice([1, 2, 7])]
        elif what == "move":
            rows.insert(dice.randrange(len(rows)), rows.pop(place))
        else:
            rows.insert(place, f"{item},{dice.choice(['cyd', 'dee']) if what == 'add' else ''},yes")
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_the_store_is_as_the_tables_say_whatever_was_cut_short(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Pulls of other contents are saved or killed before; the next one is as if there had been no other."""
    monkeypatch.setattr(pages, "_COLUMNS_AT_ONCE", 7)
    monkeypatch.setattr(pages, "_ROWS_AT_ONCE", 3)
    dice = random.Random(seed)
    rows = [f"{n},{who},yes" for n in range(N // 50) for who in ("ann", "bob")]
    for turn in range(12):
        history = [changed(rows, dice), rows] if dice.random() < 0.5 else [changed(rows, dice)]
        for content in history[:-1] if len(history) > 1 else history:
            write(tmp_path, content)
            with store.lease("p") as lease:
                for page in Tables(tmp_path, max_shrink=1.0).pull(store.cursor("p")):
                    if dice.random() < 0.7:
                        store.save_page(lease, page)
        rows = history[-1]
        write(tmp_path, rows)
        with store.lease("p") as lease:
            cycle.pull(lease, store, Tables(tmp_path, max_shrink=1.0))
        with Store(f"sqlite:///{tmp_path}/fresh{turn}.db") as fresh, fresh.lease("p") as lease:
            cycle.pull(lease, fresh, Tables(tmp_path))
            assert stored(store) == stored(fresh)


def test_what_a_doubted_pull_has_left_is_looked_at_again(
    tmp_path: Path, store: Store, rows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(tmp_path, store)
    write(tmp_path, [row for row in rows if "bob" not in row])
    assert pull(tmp_path, store)[-1].partial
    assert len(stored(store)["7"]) == 2
    later = time.time() + SETTLED
    monkeypatch.setattr(time, "time", lambda: later)
    assert not pull(tmp_path, store)[-1].partial
    assert {len(said) for said in stored(store).values()} == {1}


def test_other_settings_read_the_same_files_anew(tmp_path: Path, store: Store) -> None:
    """As if the files had been changed: another column of labels, and fewer classes."""
    rows = "".join(f"{n},ann,{'yes' if n % 2 else 'no'},{'no' if n % 2 else 'yes'}\n" for n in range(8))
    (tmp_path / "annotations.csv").write_text("item,annotator,label,second\n" + rows)
    found = []
    for named in ({}, {"label": "second"}, {"label": "second", "classes": ("yes",)}, {}):
        with store.lease("p") as lease:
            cycle.pull(lease, store, Tables(tmp_path, **named))  # type: ignore[arg-type]
        found.append(store.annotations("p", "label").column("label").to_pylist())
    assert found == [["no", "yes"] * 4, ["yes", "no"] * 4, ["yes"] * 4, ["no", "yes"] * 4]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("item,text,note\na,t1,n1\nb,t2,n2\n", "item,body,note\na,t1,n1\nb,t2,n2\n"),
        ("item,text,note\na,t1,n1\nb,t2,n2\n", "item,note,text\na,t1,n1\nb,t2,n2\n"),
        ('{"item": "a", "x": 1}\n{"item": "b", "x": 2}\n', '{"item": "a", "x": "1"}\n{"item": "b", "x": "2"}\n'),
    ],
    ids=["another name", "names that change places", "text in place of numbers"],
)
def test_a_column_that_is_called_or_typed_otherwise_is_seen(
    tmp_path: Path, store: Store, compared: list[str], before: str, after: str
) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label\na,ann,yes\nb,ann,no\n")
    file = tmp_path / ("items.jsonl" if before.startswith("{") else "items.csv")
    file.write_text(before)
    pull(tmp_path, store)
    file.write_text(after)
    pull(tmp_path, store)
    assert compared == ["a", "b"]
    with Store(f"sqlite:///{tmp_path}/fresh.db") as fresh:
        pull(tmp_path, fresh)
        assert store.items("p").column("data").equals(fresh.items("p").column("data"))
    assert pull(tmp_path, store) == []


def test_a_project_may_have_any_name(tmp_path: Path, store: Store, rows: list[str]) -> None:
    name = 'it\'s "50 %s" :new ?, ü'
    with store.lease(name) as lease:
        for page in Tables(tmp_path).pull(None):
            store.save_page(lease, page)
    assert store.counts(name)["annotations"] == len(rows)
    assert store.annotations(name, "label").column("label")[:2].to_pylist() == ["yes", "yes"]


def test_a_few_items_are_found_by_index_after_one_page(tmp_path: Path, store: Store, rows: list[str]) -> None:
    """SQLite would read all annotations of the project: without statistics it takes a project for ten rows."""
    pull(tmp_path, store)
    among = store.database.among(annotation.c.item, ["7", "8"])
    query = sa.select(annotation).where(annotation.c.project == "p", among)
    with store.database.read() as connection:
        compiled = query.compile(connection)
        values = tuple(compiled.params[name] for name in compiled.positiontup or ())
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values).all()
    assert "USING INDEX hitl_annotation_item" in steps[0][3]
