"""A pull that reads only what has changed leaves the store as one that reads everything, whatever was changed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors import table_changes, tables
from hitl.connectors.table_index import Index
from hitl.connectors.tables import Tables
from hitl.platform import Operation
from hitl.store import Store
from hitl.tables import pieces

ITEMS, PEOPLE, LABELS = 120, ("ann", "bob", "cyd", 'd"e', ""), ("yes", "no", "may\nbe", "", "'=sum")

Row = tuple[str, str, str, str]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST", 150)
    monkeypatch.setattr(pieces, "MOST", 600)
    monkeypatch.setattr(pieces, "ROWS", 3)
    monkeypatch.setattr(table_changes, "PART", 1)
    monkeypatch.setattr(tables, "PAGE", 40)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items the pulls sent that read only what has changed."""
    found: list[int] = []
    since = table_changes.Changes.since

    def noted(self: Any, before: Any) -> Any:
        changed = since(self, before)
        if changed is not None:
            found.append(len(changed.told.answers.rows.names))  # type: ignore[union-attr]
        return changed

    monkeypatch.setattr(table_changes.Changes, "since", noted)
    return found


def text(rows: list[Row], ends: str = "\n") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=ends)
    writer.writerow(("item", "annotator", "label", "duration"))
    writer.writerows(rows)
    return out.getvalue().encode()


def begun(dice: random.Random) -> list[Row]:
    rows = [(f"i{n}", who, dice.choice(LABELS[:2]), "1.5") for n in range(ITEMS) for who in PEOPLE[:3]]
    if dice.random() < 0.5:
        dice.shuffle(rows)  # as a log has them
    return rows


def changed(rows: list[Row], dice: random.Random) -> list[Row]:
    """Labels change, rows come, go, move and come twice; what came twice goes again."""
    once = {row[:2] if row[1] else (place,): row for place, row in enumerate(rows)}
    rows = [*once.values()]
    for _ in range(dice.choice((1, 1, 2, 5))):
        place = dice.randrange(len(rows))
        item, who, label, duration = rows[place]
        what = dice.choice(("label", "label", "swap", "time", "drop", "add", "new", "move", "twice", "item"))
        if what == "label":
            rows[place] = (item, who, dice.choice(LABELS), duration)
        elif what == "swap":
            others = [n for n, row in enumerate(rows) if row[0] == item]
            rows[place] = (item, who, rows[others[-1]][2], duration)
            rows[others[-1]] = (*rows[others[-1]][:2], label, rows[others[-1]][3])
        elif what == "time":
            rows[place] = (item, who, label, dice.choice(("", "2", "7.25")))
        elif what == "drop":
            del rows[place]
        elif what == "add":
            rows.insert(place, (item, f"p{dice.randrange(9**9)}", dice.choice(LABELS), ""))
        elif what == "new":
            rows.insert(place, (f"n{dice.randrange(9**9)}", dice.choice(PEOPLE), dice.choice(LABELS), ""))
        elif what == "move":
            rows.insert(dice.randrange(len(rows)), rows.pop(place))
        elif what == "twice" and dice.random() < 0.2:
            rows.insert(dice.randrange(len(rows)), (item, who, dice.choice((label, "no")), duration))
        elif what == "item" and dice.random() < 0.2:
            rows = [row for row in rows if row[0] != item]
    return rows


def state(store: Store, connector: Tables) -> dict[str, Any]:
    """All that is stored of the tables but when it came; in the order that items have."""
    found: dict[str, Any] = {"question": connector.questions(), "problems": store.problems("p")}
    for table in ("hitl_item", "hitl_annotation", "hitl_prediction", "hitl_annotator"):
        with store.database.read() as connection:
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().all()
        left_out = {"version", "created", "time", "deleted_at"}
        kept = [{name: value for name, value in row.items() if name not in left_out} for row in rows]
        if table == "hitl_item":  # those that are gone keep their places
            places = sorted(row.pop("position") for row in kept if not row["deleted"])
            assert len(set(places)) == len(places)
        found[table] = sorted(kept, key=str)
    found["order"] = store.items("p").column("item").to_pylist()
    return found


def pull(store: Store, connector: Tables) -> None:
    with store.lease("p") as lease:
        cycle.pull(lease, store, connector)


class Pair:
    """A project whose pulls take the short way where they can, and one that reads everything."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folders = [folder / "short", folder / "whole"]
        self.stores = [Store(f"sqlite:///{folder}/{n}.db") for n in range(2)]
        for each in self.folders:
            (each / "hitl-output").mkdir(parents=True)
        self.connectors = [Tables(each, **options) for each in self.folders]

    def write(self, name: str, content: bytes) -> None:
        for folder in self.folders:
            (folder / name).write_bytes(content)

    def pull(self) -> tuple[dict[str, Any], dict[str, Any]]:
        (self.folders[1] / "hitl-output" / ".annotations.index").unlink(missing_ok=True)
        for store, connector in zip(self.stores, self.connectors, strict=True):
            pull(store, connector)
        short, whole = (state(*each) for each in zip(self.stores, self.connectors, strict=True))
        return short, whole


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path, max_shrink=0.5)
    yield found
    for store in found.stores:
        store.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_changes(pair: Pair, taken: list[int], seed: int) -> None:
    dice = random.Random(seed)
    rows, ends, mark = begun(dice), dice.choice(("\n", "\n", "\r\n")), dice.choice((b"", b"\xef\xbb\xbf"))
    pair.write("items.csv", b"item,text\n" + b"".join(b"i%d,t%d\n" % (n, n) for n in range(0, ITEMS, 2)))
    for turn in range(14):
        kept = rows
        rows = changed(rows, dice) if turn else rows
        content = mark + text(rows, ends)
        if turn and dice.random() < 0.15:
            content = content[: -dice.randrange(1, 40)]  # still being written
        pair.write("annotations.csv", content)
        if dice.random() < 0.1:
            pair.write("truth.csv", b"item,label\ni%d,yes\n" % dice.randrange(ITEMS))
        if dice.random() < 0.1:
            p = b"item,p_yes,p_no\n" + b"".join(b"i%d,.%d,.%d\n" % (n, n % 9 + 1, 9 - n % 9) for n in range(50))
            pair.write("probabilities_m.csv", p)
        try:
            short, whole = pair.pull()
        except Exception as error:  # both say the same of what cannot be read, and go on from there
            with pytest.raises(type(error), match=r".*"):
                pull(pair.stores[1], pair.connectors[1])
            rows = kept
            pair.write("annotations.csv", text(rows, ends))
            short, whole = pair.pull()
        assert short == whole
    assert len(taken) > 2
    (pair.folders[0] / "hitl-output" / ".annotations.index").unlink()
    pair.write("annotations.csv", text(changed(rows, dice), ends))
    short, whole = pair.pull()
    assert short == whole


@pytest.mark.parametrize("seed", range(3))
def test_pulls_that_are_cut_short(pair: Pair, taken: list[int], monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Before their page is saved, before the index is kept, with an index of another time, or a damaged one."""
    dice, (store, _), (connector, _) = random.Random(seed), pair.stores, pair.connectors
    rows, index = begun(dice), pair.folders[0] / "hitl-output" / ".annotations.index"
    older: list[bytes] = []
    for turn in range(16):
        rows = changed(rows, dice) if turn else rows
        pair.write("annotations.csv", text(rows))
        if turn:
            older.append(index.read_bytes())
            what = dice.choice(("unsaved", "unkept", "older", "damaged", "whole"))
            if what in ("unsaved", "unkept"):
                with store.lease("p") as lease:
                    pages = connector.pull(store.cursor("p"))
                    for page in pages:
                        if what == "unkept":
                            store.save_page(lease, page)
                        break
                    pages.close()  # type: ignore[attr-defined]
                rows = changed(rows, dice)
                pair.write("annotations.csv", text(rows))
            elif what == "older":
                index.write_bytes(dice.choice(older))
            elif what == "damaged":
                bytes_of = bytearray(index.read_bytes())
                bytes_of[dice.randrange(len(bytes_of))] ^= 0xFF
                index.write_bytes(bytes_of)
        short, whole = pair.pull()
        assert {**short, "order": 0} == {**whole, "order": 0}
    assert taken


def test_what_was_sent_alone_is_looked_at_when_everything_is_read(pair: Pair, taken: list[int]) -> None:
    """The blocks of items that the cursor has are older than what was sent since."""
    rows = begun(random.Random(0))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    pair.write("annotations.csv", text([(*rows[0][:2], "other", ""), *rows[1:]]))
    pair.pull()
    assert taken == [1]
    (pair.folders[0] / "hitl-output" / ".annotations.index").unlink()
    pair.write("annotations.csv", text(rows))
    short, whole = pair.pull()
    assert short == whole


Change = Callable[[list[Row]], list[Row]]

LONG_WAY: dict[str, Change] = {
    "an item is gone": lambda rows: [row for row in rows if row[0] != rows[7][0]],
    "an annotator answers twice": lambda rows: [*rows, (*rows[7][:2], "other", "")],
    "a row comes twice": lambda rows: [*rows, rows[7]],
    "an item without a name": lambda rows: [*rows, ("", "ann", "yes", "")],
    "much is new": lambda rows: [(*row[:2], "other", "") for row in rows],
}


@pytest.mark.parametrize("name", LONG_WAY)
def test_what_is_not_plain_is_looked_at_as_a_whole(
    pair: Pair, taken: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(table_changes, "MOST", 100)
    rows = begun(random.Random(1))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    pair.write("annotations.csv", text(LONG_WAY[name](rows)))
    if "name" in name:
        with pytest.raises(Exception, match=f"line {len(rows) + 2}: the item is empty"):
            pull(pair.stores[0], pair.connectors[0])
    else:
        short, whole = pair.pull()
        assert short == whole
    assert taken == []


def test_a_file_in_which_a_row_stands_twice_is_read_as_a_whole(pair: Pair, taken: list[int]) -> None:
    rows = begun(random.Random(4))
    for content in ([*rows, rows[0]], [*rows, rows[0], ("i1", "dee", "no", "")]):
        pair.write("annotations.csv", text(content))
        short, whole = pair.pull()
        assert short == whole
    assert taken == []


def test_a_file_that_is_read_as_a_whole_is_cut_by_what_is_known_of_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = begun(random.Random(4))
    pair.write("annotations.csv", text([*rows, (*rows[0][:2], "other", "")]))  # contradicts
    pair.pull()
    assert Index.read(pair.folders[0] / "hitl-output" / ".annotations.index") is None
    real, looks = pieces._piece_end, list[int]()
    monkeypatch.setattr(pieces, "_piece_end", lambda data: [looks.append(1), real(data)][1])
    pull(pair.stores[0], pair.connectors[0])
    assert len(looks) <= 2
    pair.write("annotations.csv", text(rows))
    short, whole = pair.pull()
    assert short == whole
    assert Index.read(pair.folders[0] / "hitl-output" / ".annotations.index") is not None


def test_an_item_that_came_alone_goes_again(pair: Pair, taken: list[int]) -> None:
    rows = begun(random.Random(5))
    for content in (rows, [*rows, ("new", "ann", "yes", "")], rows):
        pair.write("annotations.csv", text(content))
        short, whole = pair.pull()
        assert short == whole
    assert taken == [1]
    assert "new" not in short["order"]


def test_only_pieces_that_are_new_are_read(pair: Pair, taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = begun(random.Random(2))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    monkeypatch.setattr(table_changes._Touched, "table", lambda self, name: self._tables.get(name))
    monkeypatch.setattr("hitl.connectors.table_reading.read_table", lambda *_: pytest.fail("the whole file was read"))
    pair.write("annotations.csv", text([*rows[:50], ("new", "ann", "yes", ""), *rows[50:]]))
    pull(pair.stores[0], pair.connectors[0])
    assert taken == [1]


def test_an_index_comes_back_as_it_was_written(pair: Pair) -> None:
    pair.write("annotations.csv", text(begun(random.Random(3))))
    pair.pull()
    path = pair.folders[0] / "hitl-output" / ".annotations.index"
    index = Index.read(path)
    assert index is not None
    assert index.rows == ITEMS * 3
    assert len(index.touched(index)) == 0
    path.write_bytes(path.read_bytes()[:-100])
    assert Index.read(path) is None


def test_an_edit_of_the_same_size_within_the_same_tick_is_seen(pair: Pair, taken: list[int]) -> None:
    """Twice: where the file is known by its pieces, and where it has to be cut anew."""
    rows = begun(random.Random(6))
    for turn, label in enumerate(("yes", "yet", "yep")):
        pair.write("annotations.csv", text([*rows[:7], (*rows[7][:2], label, ""), *rows[8:]]))
        for folder in pair.folders:
            os.utime(folder / "annotations.csv", ns=(10**18, 10**18))
        short, whole = pair.pull()
        assert short == whole
        assert label in {row["label"] for row in short["hitl_annotation"]}
        assert len(taken) == turn


def older(store: Store, folder: Path) -> None:
    """The cursor and the index as the first version with an index has left them."""
    path = folder / "annotations.csv"
    digest = hashlib.sha256(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    cursor = {**(store.cursor("p") or {}), "files": digest.hexdigest()[:16]}
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE hitl_project SET cursor = ?", (json.dumps(cursor),))
    with (folder / "hitl-output" / ".annotations.index").open("wb") as file:
        np.savez(file, header=np.frombuffer(b'{"form": 1}', np.uint8), digests=np.zeros(16, np.uint8))


@pytest.mark.parametrize("changes", [False, True])
def test_a_cursor_of_an_older_version_leads_to_one_look_at_everything(
    pair: Pair, taken: list[int], changes: bool
) -> None:
    (store, _), (connector, _) = pair.stores, pair.connectors
    rows = begun(random.Random(7))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    older(store, pair.folders[0])
    rows = changed(rows, random.Random(1)) if changes else rows
    pair.write("annotations.csv", text(rows))
    if not changes:
        (page,) = connector.pull(store.cursor("p"))
        assert not page.items, "the blocks of items are stored as they are"
    short, whole = pair.pull()
    assert short == whole
    assert taken == []
    pair.write("annotations.csv", text([(*rows[0][:2], "other", ""), *rows[1:]]))
    short, whole = pair.pull()
    assert short == whole
    assert taken == [1]


def test_a_file_that_changes_while_it_is_read_leaves_no_index(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is not what the pieces are of, those of an older index either."""
    rows = begun(random.Random(8))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    index = pair.folders[0] / "hitl-output" / ".annotations.index"
    kept = index.read_bytes()
    pair.write("truth.csv", b"item,label\ni1,yes\n")  # so that all is looked at
    real, other = table_changes.Changes.index, text([(*rows[0][:2], "later", ""), *rows[1:]])

    def late(self: Any, answers: Any) -> Any:
        pair.write("annotations.csv", other)
        return real(self, answers)

    with monkeypatch.context() as patched:
        patched.setattr(table_changes.Changes, "index", late)
        pull(pair.stores[0], pair.connectors[0])
    assert index.read_bytes() == kept
    short, whole = pair.pull()
    assert short == whole


def test_a_piece_that_changes_while_it_is_read_is_left_to_the_next_pull(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short way takes nothing of another state of the file than the one that it found."""
    rows = begun(random.Random(9))
    pair.write("annotations.csv", text(rows))
    pair.pull()
    real = pieces.Pieces.read

    def late(self: Any, path: Path, places: Any) -> Any:
        if places:
            path.write_bytes(text([(*rows[0][:2], "later", ""), *rows[1:]]))
        return real(self, path, places)

    pair.write("annotations.csv", text([(*rows[0][:2], "sooner", ""), *rows[1:]]))
    with monkeypatch.context() as patched:
        patched.setattr(pieces.Pieces, "read", late)
        pull(pair.stores[0], pair.connectors[0])
    pair.write("annotations.csv", text([(*rows[0][:2], "later", ""), *rows[1:]]))
    short, whole = pair.pull()
    assert short == whole


def test_a_question_is_that_of_what_was_pulled(tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label\na,ann,x\nb,bob,y\n")
    tables = Tables(tmp_path)
    pages = [*tables.pull(None)]
    (tmp_path / "annotations.csv").write_text("item,annotator,label\na,ann,x\nb,bob,z\n")
    assert tables.questions()[0].classes == ("x", "y")
    list(tables.pull(pages[-1].cursor))
    assert tables.questions()[0].classes == ("x", "z")
    assert Tables(tmp_path).questions() == tables.questions()


def test_a_pull_alone_makes_no_folder_and_the_first_push_keeps_its_index(tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label\na,ann,x\nb,bob,y\n")
    tables, output = Tables(tmp_path), tmp_path / "hitl-output"
    list(tables.pull(None))
    assert not output.exists()
    list(tables.push([Operation("order", "", {"items": ["a"]})]))
    kept = Index.read(output / ".annotations.index")
    assert kept is not None
    assert kept.rows == 2
