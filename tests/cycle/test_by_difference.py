"""Cycles that write what has changed come to what a new project comes to, over any course of labels, and cut short."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors import table_patches, tables
from hitl.connectors.tables import Tables
from hitl.operations import _labels_wanted
from hitl.store import Store, packed, wholes
from hitl.store.beliefs import NEGLIGIBLE
from hitl.tables import row_differences
from tests.projects import NOON, settings

N, WHO = 300, ("ann", "bob", "cyd")


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "LEAST", 50)
    monkeypatch.setattr(packed, "SIZE", 50)
    monkeypatch.setattr(tables, "PAGE", 60)


def write(folder: Path, said: dict[tuple[int, str], int]) -> None:
    rows = "".join(f"{item},{who},{label}\n" for (item, who), label in said.items())
    (folder / "annotations.csv").write_text("item,annotator,label\n" + rows)


def edited(said: dict[tuple[int, str], int], rng: np.random.Generator) -> dict[tuple[int, str], int]:
    """Some labels changed, gone, or new; now and then a new item."""
    said = dict(said)
    for place in rng.choice(len(said), 5, replace=False).tolist():
        key = [*said][place]
        said[key] = 1 - said[key]
    if rng.random() < 0.3:
        said.pop([*said][int(rng.integers(len(said)))])
    if rng.random() < 0.2:
        said[max(said)[0] + 1, "ann"] = int(rng.integers(2))
    return said


def rows_of(folder: Path, name: str) -> dict[str, dict[str, str]]:
    with (folder / "hitl-output" / name).open(newline="") as file:
        return {row["item"]: row for row in csv.DictReader(file)}


def assert_is_new(url: str, folder: Path, fresh: Path) -> None:
    """Store and files are as a new project has them, but for what is shown as the same."""
    fresh.mkdir()
    (fresh / "annotations.csv").write_bytes((folder / "annotations.csv").read_bytes())
    with Store(f"sqlite:///{fresh}/h.db") as new, Store(url) as store:
        expected = cycle.run(settings(), new, Tables(fresh), now=NOON).judgement.results["label"]
        latest = store.latest("p")
        assert latest is not None
        found = latest[0]["label"]
        assert [*found.items] == [*expected.items]
        assert (found.labels == expected.labels).all()
        assert np.abs(found.probabilities - expected.probabilities).max() <= NEGLIGIBLE
        again = new.latest("p")
        assert again is not None
        assert [(one.item, one.labels, one.why) for one in latest[1].done] == [
            (one.item, one.labels, one.why) for one in again[1].done
        ]
    shown, wanted = rows_of(folder, "consensus.csv"), rows_of(fresh, "consensus.csv")
    assert [*shown] == [*wanted]
    for item, row in wanted.items():
        assert shown[item]["label"] == row["label"]
        numbers = [name for name in row if name not in ("item", "label")]
        assert all(abs(float(shown[item][name]) - float(row[name])) <= 4.1e-6 for name in numbers)


class Cut(BaseException):
    """A process that is killed."""


def cut_at(patched: pytest.MonkeyPatch, where: str | None) -> None:
    """Kill the cycle: when rows are written, the consensus is pushed, or behind its file."""
    places: dict[str, tuple[Any, str]] = {
        "rows": (wholes, "write"),
        "push": (tables, "write_consensus"),
        "file": (table_patches, "_keep"),
    }

    def killed(*given: Any, **named: Any) -> None:
        raise Cut

    if where is not None:
        patched.setattr(*places[where], killed)


@pytest.mark.parametrize("seed", range(3))
def test_over_any_course_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    folder, url = tmp_path / "d", f"sqlite:///{tmp_path}/h.db"
    folder.mkdir()
    said = {(item, who): int(rng.random() < 0.8) ^ item % 2 for item in range(N) for who in WHO}
    path = folder / "hitl-output" / "consensus.csv"
    for step in range(8):
        write(folder, said)
        where = None if step == 0 or rng.random() < 0.3 else ["rows", "push", "file"][int(rng.integers(3))]
        with monkeypatch.context() as patched, suppress(Cut), Store(url) as store:
            cut_at(patched, where)
            cycle.run_if_changed(settings(), store, Tables(folder), now=NOON)
        if rng.random() < 0.3 and path.exists():
            path.write_bytes(path.read_bytes().replace(b"0.", b"7.", 1))  # somebody edits it
        with Store(url) as store:
            judgement = cycle.run(settings(), store, Tables(folder), now=NOON).judgement
            with store.lease("p") as lease:
                assert all(cycle.push(lease, store, Tables(folder), verify=True))
        assert_is_new(url, folder, tmp_path / f"new {step}")
        wanted = _labels_wanted(judgement.plan, judgement.evidence).payload["items"]
        assert {item: int(row["labels"]) for item, row in rows_of(folder, "labels_wanted.csv").items()} == wanted
        said = edited(said, rng)
