"""Annotations that are kept are those of the rows, to the bit, whatever came in between; a part that fails is read."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from hitl.annotations import Annotations, CheckedNames
from hitl.errors import BadAnnotations, BadInput, ConflictingLabels
from hitl.platform import Question
from hitl.store import Store, archive, schema
from hitl.store.lease import Lease
from hitl.store.settled import answers as settled_answers
from hitl.store.settled import notes, settling
from hitl.tables import row_differences
from tests.store.rows import item, page, said

N = 40
QUESTION = Question("q", ("yes", "no"), ("yes", "no", "unsure"))
NAMES = {"w0": "ann", "w1": "bob", "w2": "cyd", "w9": "nobody"}


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "LEAST", 10)
    monkeypatch.setattr(settling, "PART", 4)
    monkeypatch.setattr(settling, "MOST", 2)
    monkeypatch.setattr(notes, "MOST", 2)


def answer(n: int, who: int, dice: random.Random) -> Any:
    length = dice.choice((None, None, 2.5))
    label = dice.choice(QUESTION.options)
    key = None if who == 3 else f"w{who}"
    return said(f"{n} {who}", str(n), str(label), dice.randrange(50), who=key, duration=length)


def fill(store: Store, lease: Lease) -> None:
    dice = random.Random(1)
    for n in range(N):
        store.save_page(lease, page(n, item(str(n)), *(answer(n, who, dice) for who in range(n % 5))))


def bits(annotations: Annotations) -> dict[str, Any]:
    found = {field.name: getattr(annotations, field.name) for field in fields(annotations)}
    return {name: (v.dtype, v.tobytes()) if isinstance(v, np.ndarray) else v for name, v in found.items()}


def anew(store: Store, question: Question = QUESTION, names: Mapping[str, str] = NAMES) -> Annotations:
    """As they were made before any were kept."""
    found = store.answers("p", question.name)
    return settling._annotations(found, CheckedNames.of(found.items), question, names)


def assert_same(store: Store, question: Question = QUESTION, names: Mapping[str, str] = NAMES) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConflictingLabels)
        now, expected = store.labels("p", question, names), anew(store, question, names)
    assert bits(now) == bits(expected)
    assert repr(now) == repr(expected)
    assert now.items.column.equals(expected.items.column)  # type: ignore[attr-defined]


@contextmanager
def counted() -> Iterator[list[int]]:
    """How often answers are what was kept."""
    made = settled_answers.SettledAnnotations.of
    times: list[int] = []

    def of(*given: Any) -> Any:
        times.append(1)
        return made(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settled_answers.SettledAnnotations, "of", of)
        yield times


def parts(store: Store) -> dict[str, Any]:
    """What is kept of the question, by part; notes have one name."""
    table = schema.settled
    with store.database.read() as connection:
        rows = connection.execute(sa.select(table).where(table.c.question == "q").order_by(table.c.part)).all()
    return {row.part.partition(" ")[0]: row for row in rows}


def places(row: Any) -> list[int]:
    found: list[int] = np.frombuffer(bytes(row.changed), np.int64).tolist()
    return found


def settle(store: Store, lease: Lease, question: Question = QUESTION, names: Mapping[str, str] = NAMES) -> None:
    store.settle(lease, [question], names)


@pytest.mark.parametrize("seed", range(6))
def test_after_random_changes_what_is_kept_is_what_the_rows_say(store: Store, seed: int) -> None:
    """Answers and items come, change, move, go and come back; annotators too, and their names."""
    dice, names = random.Random(seed), dict(NAMES)
    with store.lease("p") as lease, counted() as times:
        fill(store, lease)
        settle(store, lease)
        for turn in range(30):
            keys = dice.sample(range(N + 3), dice.choice((1, 1, 2, 8)))
            crowd = range(5 if dice.random() < 0.1 else 4)
            answers = [answer(n, who, dice) for n in keys for who in crowd if dice.random() < 0.5]
            if dice.random() < 0.2:  # an answer of another item
                answers.append(said("7 1", str(keys[0]), "no", 60 + turn, who="w1"))  # of a version that is no time
            gone = {str(n) for n in dice.sample(range(N), 2)} if dice.random() < 0.3 else set()
            live = {str(n) for n in range(N + 3)} - gone | set(map(str, keys))
            rows = [item(str(n), 60 + turn) for n in keys] + answers
            store.save_page(lease, page(turn, *rows, live=live if dice.random() < 0.4 else None))
            if dice.random() < 0.1:
                names["w1"] = dice.choice(("bob", "zoe", "ann"))
            assert_same(store, names=names)
            if dice.random() < 0.3:
                store.pack(lease, ["q"])
            if dice.random() < 0.6:
                settle(store, lease, names=names)
                assert_same(store, names=names)
            if dice.random() < 0.2:
                store.forget(lease, deleted_seconds=0, cycles=3)
                assert_same(store, names=names)
    assert len(times) > 15, "mostly they are what was kept"


def test_what_changes_is_noted_and_written_beside_the_whole(store: Store) -> None:
    with store.lease("p") as lease, counted() as times:
        fill(store, lease)
        settle(store, lease)
        whole = parts(store)["whole"]
        store.save_page(lease, page(100, item("9", 1), said("9 0", "9", "no", 59, who="w0")))
        assert places(parts(store)["noted"]) == [9]
        assert_same(store)
        settle(store, lease)
        assert parts(store).keys() == {"whole", "changes"}
        assert places(parts(store)["changes"]) == [9]
        store.save_page(lease, page(101, item("30", 1), item("new"), said("x", "new", "yes", 59, who="w0")))
        assert places(parts(store)["noted"]) == [30], "what is new is not in the whole"
        assert_same(store)
        settle(store, lease)
        assert places(parts(store)["changes"]) == [9, 30, N]
        assert parts(store)["whole"] == whole
        before = parts(store)
        settle(store, lease)
        assert parts(store) == before, "nothing has changed"
        assert_same(store)
        assert len(times) == 3
        some = [item(str(n), 2) for n in range(10, 20)]
        store.save_page(lease, page(102, *some))
        settle(store, lease)
        assert parts(store).keys() == {"whole"}, "much has changed: a new whole"
        assert_same(store)
        store.save_page(lease, page(103, *(item(str(n), 3) for n in range(30))))
        assert parts(store) == {}, "so much may have changed that it is forgotten"
        assert_same(store)
        assert len(times) == 4


def test_it_is_not_kept_of_few_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "LEAST", N + 1)
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
    assert parts(store) == {}


def test_kept_answers_are_not_joined_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
    expected = anew(store)
    monkeypatch.setattr(Store, "answers", None)
    found = store.labels("p", QUESTION, NAMES)
    again = store.labels("p", QUESTION, NAMES, found.items)  # type: ignore[arg-type]
    assert again.items is found.items
    assert "time" not in vars(found), "it is unpacked when somebody asks"
    assert bits(found) == bits(expected)
    with pytest.raises(ValueError, match="read-only"):
        found.label[0] = 1
    assert bits(found.select(found.label == 1)) == bits(expected.select(expected.label == 1))


def test_other_items_are_told(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
        before = store.labels("p", QUESTION, NAMES).items
        store.save_page(lease, page(100, item("new")))
    with pytest.raises(BadInput, match="items came or went while it was read"):
        store.labels("p", QUESTION, NAMES, before)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        (Question("q", ("yes", "no"), ("yes", "no", "unsure", "other")), NAMES),
        (Question("q", ("no", "yes"), ("no", "yes", "unsure")), NAMES),
        (Question("q", ("yes", "no", "unsure"), ("yes", "no", "unsure")), NAMES),
        (QUESTION, {**NAMES, "w0": "zoe"}),
        (QUESTION, {**NAMES, "w0": "bob"}),
        (QUESTION, {**NAMES, "w1": ""}),
    ],
)
def test_other_terms_are_other_codes(store: Store, question: Question, names: dict[str, str]) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
        assert_same(store, question, names)
        settle(store, lease, question, names)
        assert_same(store, question, names)
        store.save_page(lease, page(100, item("5", 1), said("5 1", "5", "no", 59, who="w1")))
        assert_same(store, question, names)
        assert_same(store)


def test_who_comes_and_who_goes_have_codes_and_have_none(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
        store.save_page(lease, page(100, item("5", 1), said("new", "5", "no", 59, who="w9")))
        assert_same(store)
        settle(store, lease)
        assert store.labels("p", QUESTION, NAMES).annotators[-2:] == ("nobody", "(anonymous)")
        store.save_page(lease, page(101, item("5", 2)))
        assert_same(store)
        assert "nobody" not in store.labels("p", QUESTION, NAMES).annotators
        settle(store, lease)
        assert_same(store)


def test_contradictions_are_told_each_time(store: Store) -> None:
    """They are not kept, and it is not tried each time."""
    with store.lease("p") as lease:
        fill(store, lease)
        twice = (said("a", "5", "no", 9, who="w0"), said("b", "5", "yes", 9, who="w0"))
        store.save_page(lease, page(100, item("5", 1), *twice))
        settle(store, lease)
        whole = parts(store)["whole"]
        assert whole.codes is None
        settle(store, lease)
        assert parts(store)["whole"] == whole
        with pytest.warns(ConflictingLabels):
            store.labels("p", QUESTION, NAMES)
        store.save_page(lease, page(101, item("5", 2), twice[0]))
        settle(store, lease)
        assert parts(store)["whole"].codes is not None, "it is soon tried again"
        store.save_page(lease, page(102, item("5", 3), *twice))
        with pytest.warns(ConflictingLabels):
            store.labels("p", QUESTION, NAMES)


def test_an_answer_that_cannot_be_is_told(store: Store) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
        store.save_page(lease, page(100, item("5", 1), said("a", "5", "something", 59)))
        with pytest.raises(BadAnnotations, match="'something' is not one of the 3 expected"):
            store.labels("p", QUESTION, NAMES)
        settle(store, lease)
        with pytest.raises(BadAnnotations, match="'something' is not one of the 3 expected"):
            store.labels("p", QUESTION, NAMES)


@pytest.mark.parametrize("part", ["whole", "changes"])
@pytest.mark.parametrize("column", ["codes", "names", "time", "duration"])
def test_damaged_parts_are_not_used(store: Store, part: str, column: str) -> None:
    with store.lease("p") as lease, counted() as times:
        fill(store, lease)
        settle(store, lease)
        store.save_page(lease, page(100, item("5", 1), said("5 0", "5", "no", 59, who="w0", duration=3.0)))
        settle(store, lease)
        assert_same(store)
        written = bytearray(getattr(parts(store)[part], column))
        for broken in (written[:-1] + bytes([written[-1] ^ 1]), written[:7], b""):
            with store.database.write() as connection:
                mine = schema.settled.c.part == part
                connection.execute(sa.update(schema.settled).where(mine).values({column: bytes(broken)}))
            assert_same(store)
        assert len(times) == 1
        store.save_page(lease, page(101, item("6", 1)))
        settle(store, lease)
        assert_same(store)


def test_times_that_nobody_knows_take_no_room(store: Store) -> None:
    with store.lease("p") as lease:
        rows = [said(f"{n}", f"{n}", "yes", who="w0") for n in range(N)]
        store.save_page(lease, page(0, *(item(f"{n}") for n in range(N)), *rows))
        settle(store, lease)
        assert parts(store)["whole"].duration is None
        assert_same(store)
        assert store.labels("p", QUESTION, NAMES).duration.strides == (0,)  # type: ignore[union-attr]
        store.save_page(lease, page(1, item("3", 1), said("3", "3", "no", 9, who="w0", duration=2.0)))
        assert_same(store)
        settle(store, lease)
        assert_same(store)


def test_projects_and_questions_do_not_touch_one_another(store: Store) -> None:
    other = Question("other", ("yes", "no"), ("yes", "no"))
    with store.lease("p") as lease, store.lease("p2") as second:
        fill(store, lease)
        fill(store, second)
        store.save_page(lease, page(99, item("3", 1), said("o", "3", "no", question="other")))
        store.settle(lease, [QUESTION, other], NAMES)
        before = parts(store)
        store.save_page(second, page(100, item("5", 1), said("5 0", "5", "no", 59, who="w0")))
        store.settle(second, [QUESTION], NAMES)
        assert {row.project for row in parts(store).values()} == {"p2"}, "the later of two"
        with store.database.write() as connection:
            connection.execute(sa.delete(schema.settled).where(schema.settled.c.project == "p2"))
        assert parts(store) == before
        store.save_page(lease, page(101, item("6", 1), said("o2", "6", "yes", question="other")))
        assert_same(store)
        assert_same(store, other)


def test_a_backup_brings_it_back(store: Store, url: str, tmp_path: Path) -> None:
    with store.lease("p") as lease:
        fill(store, lease)
        settle(store, lease)
        store.save_page(lease, page(100, item("5", 1), said("5 0", "5", "no", 59, who="w0")))
    archive.backup(url, tmp_path / "kept.zip")
    archive.restore(f"sqlite:///{tmp_path}/back.db", tmp_path / "kept.zip")
    with Store(f"sqlite:///{tmp_path}/back.db") as back, counted() as times:
        assert parts(back).keys() == {"whole", "noted"}
        assert_same(back)
        assert times
