"""Where nothing has changed since the last cycle it stands; whatever it rests on makes the next one judge again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from hitl import cycle, inputs_digest
from hitl.connectors.tables import Tables
from hitl.plan import Activity, Ask, Plan
from hitl.platform import AnnotatorRow, Cursor, Page, Question
from hitl.settings import CrewSettings, FeatureSettings, Settings
from hitl.status import status_of
from hitl.store import Store, schema
from tests.projects import HOUR, NOON, settings

CREW = CrewSettings(annotators=("dee", "eve"), capacity=4, expire_hours=24)


def ours(**changes: Any) -> Settings:
    return settings().model_copy(update={"crew": CREW, **changes})


def again(store: Store, connector: Tables, chosen: Settings | None = None, now: float = NOON + 60) -> bool:
    """Whether the next cycle judges again."""
    report = cycle.run_if_changed(chosen or ours(), store, connector, now=now)
    return isinstance(report, cycle.CycleReport)


def test_nothing_new_is_not_judged_again_and_no_row_is_read(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cycle.run_if_changed(ours(), store, Tables(folder), now=NOON)
    assert isinstance(first, cycle.CycleReport)

    def read(*_: Any) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(cycle, "judge", read)
    monkeypatch.setattr(Tables, "questions", read)
    for name in ("items", "annotations", "gold", "skips", "counts", "plan", "latest"):
        monkeypatch.setattr(Store, name, read)
    report = cycle.run_if_changed(ours(), store, Tables(folder), now=NOON + 60)
    assert isinstance(report, cycle.Unchanged)
    assert (report.last.number, report.receipts, report.changed) == (1, (), 0)
    monkeypatch.undo()
    assert len(store.cycles("p")) == 1
    assert status_of(ours(), store).looked_at is not None


def test_what_stands_is_what_would_be_judged(folder: Path, store: Store) -> None:
    plan = cycle.run_if_changed(ours(), store, Tables(folder), now=NOON).judgement.plan  # type: ignore[union-attr]
    assert not again(store, Tables(folder))
    assert cycle.run(ours(), store, Tables(folder), now=NOON + 120).judgement.plan == plan
    assert not again(store, Tables(folder), now=NOON + 180)


def more_answers(folder: Path, _: Store) -> None:
    with (folder / "annotations.csv").open("a") as handle:
        handle.write("3,dee,1\n")


def more_items(folder: Path, _: Store) -> None:
    with (folder / "items.csv").open("a") as handle:
        handle.write("new,text\n")


def pulled_before(folder: Path, store: Store) -> None:
    """By `hitl pull`, so that the cycle itself finds nothing new."""
    more_answers(folder, store)
    with store.lease("p") as lease:
        assert cycle.pull(lease, store, Tables(folder)).changed


@pytest.mark.parametrize("change", [more_answers, more_items, pulled_before])
def test_what_changes_what_is_stored_is_judged(
    folder: Path, store: Store, change: Callable[[Path, Store], None]
) -> None:
    cycle.run_if_changed(ours(), store, Tables(folder), now=NOON)
    change(folder, store)
    assert again(store, Tables(folder))
    assert not again(store, Tables(folder))


def test_other_settings_and_other_files_are_judged(folder: Path, store: Store) -> None:
    cycle.run_if_changed(ours(), store, Tables(folder), now=NOON)
    other = ours(crew=CREW.model_copy(update={"capacity": 3}))
    assert again(store, Tables(folder), other)
    assert not again(store, Tables(folder), other)
    file = folder / "predicted.csv"
    file.write_text("item,p_0,p_1\n0,0.9,0.1\n")
    modelled = ours(models={"m": str(file)})
    assert again(store, Tables(folder), modelled)
    assert not again(store, Tables(folder), modelled)
    file.write_text("item,p_0,p_1\n0,0.25,0.75\n")
    assert again(store, Tables(folder), modelled)


@pytest.mark.parametrize("model", ["edited.py:encode", "edited:encode"])
def test_code_of_a_model_that_was_edited_is_judged(
    folder: Path, store: Store, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by its file, or as a module of the folder in which the command runs."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "edited", raising=False)
    code = folder / "edited.py"
    code.write_text("def encode(texts):\n    return [[len(one)] for one in texts]\n")
    (folder / "items.csv").write_text("item,text\n" + "".join(f"{n},text {n}\n" for n in range(9)))
    ours_by = ours(features=FeatureSettings(text="text", model=model))
    cycle.run_if_changed(ours_by, store, Tables(folder), now=NOON)
    assert not again(store, Tables(folder), ours_by)
    code.write_text(code.read_text() + "# edited\n")
    assert again(store, Tables(folder), ours_by)


def test_a_question_that_expires_is_judged(folder: Path, store: Store) -> None:
    cycle.run_if_changed(ours(), store, Tables(folder), now=NOON)
    assert not again(store, Tables(folder), now=NOON + 24 * HOUR - 1)
    assert again(store, Tables(folder), now=NOON + 24 * HOUR)
    assert store.plan("p").expired  # type: ignore[union-attr]


def test_what_was_not_confirmed_is_pushed(folder: Path, store: Store) -> None:
    class Refusing(Tables):
        def push(self, operations: Any) -> Any:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cycle.run_if_changed(ours(), store, Refusing(folder), now=NOON)
    report = cycle.run_if_changed(ours(), store, Tables(folder), now=NOON + 60)
    assert isinstance(report, cycle.Unchanged)
    assert report.receipts
    assert store.count_pending("p") == {}
    assert store.failure("p") is None


class Platform(Tables):
    """Tables behind a platform that always brings a page, and knows its people."""

    asked: tuple[Question, ...] | None = None
    people: tuple[str, ...] = ("dee", "eve")

    def questions(self) -> tuple[Question, ...]:
        return self.asked or super().questions()

    def annotators(self) -> tuple[AnnotatorRow, ...]:
        return tuple(AnnotatorRow(name, name) for name in self.people)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        yield from super().pull(cursor)
        if cursor is not None:
            yield Page(cursor=cursor)


def test_other_questions_and_other_people_are_judged(folder: Path, store: Store) -> None:
    platform = Platform(folder)
    cycle.run_if_changed(ours(), store, platform, now=NOON)
    assert not again(store, platform)
    (question,) = Tables(folder).questions()
    platform.asked = (replace(question, classes=("0", "1", "2"), options=("0", "1", "2")),)
    assert again(store, platform)
    assert not again(store, platform)
    platform.people = ("dee",)
    assert again(store, platform)
    assert not again(store, platform)


def test_a_cycle_without_digests_is_judged_again(folder: Path, store: Store) -> None:
    assert not inputs_digest.unchanged(None, {}, None, NOON)
    cycle.run(ours(), store, Tables(folder), crew=None, now=NOON)
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE hitl_cycle SET metrics = '{}'")
    assert again(store, Tables(folder))


def test_the_plan_changes_by_itself_when_the_first_question_expires() -> None:
    assert inputs_digest.until(Plan(), 10.0) is None
    anyone = Ask(1, None, 0.0, 1.0, "", since=5.0)
    assert inputs_digest.until(Plan(asks=(anyone,)), 10.0) is None
    named = (Ask(2, "ann", 0.0, 1.0, "", since=7.0), Ask(3, "bob", 0.0, 1.0, "", since=6.0))
    assert inputs_digest.until(Plan(asks=(anyone, *named)), 10.0) == 16.0
    owing = Activity("ann", 0, 0.0, unanswered=4.0)
    assert inputs_digest.until(Plan(asks=named, people=(owing,)), 10.0) == 14.0


def test_another_data_set_in_a_folder_of_models_is_judged(folder: Path, store: Store) -> None:
    """As `Dataset.save_to_disk` writes it: a folder, whose files change."""
    named = folder / "net"
    named.mkdir()

    def save(*p: float) -> None:
        table = pa.table({"item": [str(n) for n in range(12)], "p_0": [1 - p[n % len(p)] for n in range(12)]})
        table = table.append_column("p_1", pa.array([p[n % len(p)] for n in range(12)]))
        with pa.OSFile(str(named / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        (named / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}], "_indices": None}))

    chosen = ours(models={"net": str(named)})
    save(0.1, 0.9)
    assert again(store, Tables(folder), chosen)
    assert not again(store, Tables(folder), chosen)
    save(0.1, 0.8, 0.7)
    assert again(store, Tables(folder), chosen)


def test_what_is_deleted_long_enough_is_forgotten_though_nothing_is_new(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + passed)
    deleted = sa.select(sa.func.count()).where(schema.annotation.c.deleted_at.is_not(None))
    chosen = ours(crew=CrewSettings())
    assert again(store, Tables(folder), chosen, now=real())
    rows = (folder / "annotations.csv").read_text().splitlines()
    (folder / "annotations.csv").write_text("\n".join(rows[:-2]) + "\n")
    assert again(store, Tables(folder), chosen, now=real())
    for days, left in ((0, 2), (29, 2), (31, 0)):
        passed = days * 24 * HOUR
        assert not again(store, Tables(folder), chosen, now=real())
        assert store.database.scalar(deleted) == left


def test_two_crews_over_one_store_are_told_that_they_undo_each_other(folder: Path, store: Store) -> None:
    other = ours(crew=CREW.model_copy(update={"annotators": ("zoe",)}))
    told = []
    for chosen in (ours(), other, other, ours(), other):
        cycle.run_if_changed(chosen, store, Tables(folder))
        told.append("undo each other's plan" in " ".join(status_of(chosen, store).left_out))
    assert told == [False, False, False, True, True]
