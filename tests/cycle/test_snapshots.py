"""Evidence that is read from snapshots is that of the rows, to the bit, whatever has happened in between."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.evidence import Evidence
from hitl.project import stored_evidence
from hitl.store import Store, archive, schema
from tests.projects import NOON, settings

ITEMS = 60


def write(folder: Path, rows: list[tuple[str, str, str]], truth: dict[str, str]) -> None:
    lines = (",".join(row) for row in rows)
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,label", *lines, ""]))
    known = (f"{item},{label}" for item, label in truth.items())
    (folder / "truth.csv").write_text("\n".join(["item,label", *known, ""]))


def step(dice: random.Random, rows: list[tuple[str, str, str]], truth: dict[str, str]) -> None:
    """Some labels change, come, go or are withdrawn; the truth of an item becomes known."""
    for _ in range(dice.choice((1, 3, 12))):
        place = dice.randrange(len(rows))
        item, annotator, _ = rows[place]
        what = dice.random()
        if what < 0.4:
            rows[place] = (item, annotator, dice.choice(("no", "yes", "")))
        elif what < 0.6 and len(rows) > ITEMS:
            del rows[place]
        elif what < 0.8:
            rows.append((f"{dice.randrange(ITEMS + 9)}", dice.choice(("cyd", "dee", "")), dice.choice(("no", "yes"))))
        else:
            truth[item] = dice.choice(("no", "yes"))


def bits(evidence: Evidence) -> dict[str, Any]:
    found = {field.name: getattr(evidence.annotations, field.name) for field in fields(evidence.annotations)}
    found |= {"truth": evidence.truth}
    return {name: (v.dtype, v.tobytes()) if isinstance(v, np.ndarray) else v for name, v in found.items()}


@pytest.mark.parametrize("seed", range(2))
def test_snapshots_say_what_the_rows_say(tmp_path: Path, seed: int) -> None:
    """Of a store that another one writes to as well, and that is put back from a backup now and then."""
    folder, dice, truth = tmp_path / "tables", random.Random(seed), dict[str, str]()
    folder.mkdir()
    rows = [(f"{n}", who, dice.choice(("no", "yes"))) for n in range(ITEMS) for who in ("ann", "bob", "cyd")]
    connector, url = Tables(folder, max_shrink=1.0, classes=("no", "yes")), f"sqlite:///{tmp_path}/0.db"
    merged = 0
    for turn in range(12):
        step(dice, rows, truth)
        write(folder, rows, truth)
        with Store(url) as store, Store(url) as other:
            for each in (store, other):
                with each.lease("p") as lease:
                    cycle.pull(lease, each, connector)
                step(dice, rows, truth)
                write(folder, rows, truth)
            now = stored_evidence(settings(), store, connector.questions())
            with store.database.write() as connection:
                kept = connection.execute(sa.select(schema.snapshot)).mappings().all()
                merged += any(row["name"] != "digests" and row["revision"] < store.revision("p") for row in kept)
                connection.execute(sa.delete(schema.snapshot))
            plain = stored_evidence(settings(), store, connector.questions())
            assert bits(now["label"]) == bits(plain["label"])
            with store.database.write() as connection:
                if kept:
                    connection.execute(sa.insert(schema.snapshot), [dict(row) for row in kept])
            if dice.random() < 0.6:
                with store.lease("p") as lease:
                    store.keep_answers(lease, ["label"])
        if dice.random() < 0.3:
            archive.backup(url, tmp_path / f"{turn}.zip")
            url = f"sqlite:///{tmp_path}/{turn + 1}.db"
            archive.restore(url, tmp_path / f"{turn}.zip")
    assert merged, "snapshots of before were brought up to date"


def test_a_cycle_on_snapshots_is_the_cycle_of_a_new_store(tmp_path: Path) -> None:
    dice, truth = random.Random(7), dict[str, str]()
    rows = [(f"{n}", who, dice.choice(("no", "yes"))) for n in range(ITEMS) for who in ("ann", "bob", "cyd")]
    with Store(f"sqlite:///{tmp_path}/0.db") as store:
        for turn in range(4):
            write(tmp_path, rows, truth)
            found = cycle.run(settings(), store, Tables(tmp_path, max_shrink=1.0), now=NOON + turn).judgement
            with Store(f"sqlite:///{tmp_path}/new{turn}.db") as new:
                expected = cycle.judge(
                    settings(), _pulled(new, tmp_path), Tables(tmp_path).questions(), now=NOON + turn
                )
            place = {item: n for n, item in enumerate(found.results["label"].items)}
            order = [place[item] for item in expected.results["label"].items]
            close = np.abs(found.results["label"].probabilities[order] - expected.results["label"].probabilities)
            assert close.max() < 1e-9, "but for the order of the items"
            step(dice, rows, truth)


def _pulled(store: Store, folder: Path) -> Store:
    with store.lease("p") as lease:
        cycle.pull(lease, store, Tables(folder))
    return store
