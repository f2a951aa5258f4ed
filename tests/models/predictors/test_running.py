"""A run over a table: every item once, in order, resumed where it stopped, a batch in memory at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hitl.errors import BadInput, BadSettings, BadTable, Busy
from hitl.models.predictors.inputs import Batch, Inputs
from hitl.models.predictors.running import Parts, predict
from hitl.tables.files import read_table
from hitl.tables.locks import held
from hitl.tables.probabilities import Array, read_probabilities
from tests.datasets import dataset


@dataclass
class Recorder:
    """Says x of each item, and remembers what it was asked; fails when it reaches a row."""

    fail_at: int | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    classes = ("no", "yes")

    def predict(self, batch: Batch) -> Array:
        if self.fail_at is not None and batch.start + len(batch.items) > self.fail_at:
            raise KeyboardInterrupt
        self.asked.append((batch.start, len(batch.items)))
        return np.column_stack([1 - batch.inputs[:, 0], batch.inputs[:, 0]])

    def notes(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        return {"row": [batch.start + n for n in range(len(batch.items))]}


def table(folder: Path, n: int = 100) -> Inputs:
    x = np.linspace(0, 1, n)
    lines = [f"i{k},{'' if k % 10 == 9 else x[k]}" for k in range(n)]
    (folder / "t.csv").write_text("item,x\n" + "\n".join(lines) + "\n")
    return Inputs(folder / "t.csv")


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("rows", [1, 30, 1000])
def test_every_item_once_in_order(tmp_path: Path, ending: str, rows: int) -> None:
    inputs = table(tmp_path)
    model = Recorder()
    told: list[tuple[int, int | None]] = []
    done = predict(
        inputs, model, tmp_path / f"p.{ending}", "f", batch_size=16, rows=rows,
        progress=lambda what, at, total: told.append((at, total)),
    )  # fmt: skip
    assert (done.items, done.silent, done.resumed) == (100, 10, 0)
    assert model.asked == [(n, min(16, 100 - n)) for n in range(0, 100, 16)]
    assert told[0] == (0, 100)
    assert told[-1] == (100, 100)
    found = read_probabilities(tmp_path / f"p.{ending}").to_pylist()
    assert [row["item"] for row in found] == [f"i{n}" for n in range(100)]
    assert [int(row["row"]) for row in found] == list(range(100))
    x = np.linspace(0, 1, 100)
    for n, row in enumerate(found):
        assert (row["p_yes"] is None) if n % 10 == 9 else (float(row["p_yes"]) == x[n])
    assert sorted(os.listdir(tmp_path)) == sorted([f"p.{ending}", "t.csv"])


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    inputs = table(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        predict(inputs, Recorder(fail_at=70), tmp_path / "p.csv", "f", batch_size=10, rows=20)
    assert not (tmp_path / "p.csv").exists()
    again = Recorder()
    done = predict(inputs, again, tmp_path / "p.csv", "f", batch_size=8, rows=20)
    assert done.resumed == 70
    assert again.asked[0] == (70, 2)  # the rest of the batch in which the earlier run stopped
    assert sum(count for _, count in again.asked) == 30
    fresh = Recorder()
    predict(inputs, fresh, tmp_path / "q.csv", "f", batch_size=10)
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


def test_another_fingerprint_begins_anew(tmp_path: Path) -> None:
    inputs = table(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        predict(inputs, Recorder(fail_at=70), tmp_path / "p.csv", "one", batch_size=10, rows=10)
    model = Recorder()
    assert predict(inputs, model, tmp_path / "p.csv", "two", batch_size=10).resumed == 0
    assert sum(count for _, count in model.asked) == 100


def test_a_lock_that_its_holder_has_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before the other process ended, locked after that: a third one would lock another file of this name."""
    fcntl = pytest.importorskip("fcntl")
    lock, flock = tmp_path / "lock", fcntl.flock

    def late(*given: Any) -> None:
        lock.unlink()
        flock(*given)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(Busy, match="another process writes it"), held(lock, "p.csv", "file"):
        pass


def test_a_lock_that_cannot_be_removed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows removes no file that is open."""
    inputs, unlink = table(tmp_path), Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name == "lock":
            raise PermissionError(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    assert predict(inputs, Recorder(), tmp_path / "p.csv", "f").items == 100
    assert [path.name for path in (tmp_path / ".p.csv.parts").iterdir()] == ["lock"]


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    """The parts of the one were taken for those of the other: a file of the answers of two models, without a word."""
    inputs, output = table(tmp_path), tmp_path / "p.csv"
    (tmp_path / ".p.csv.parts").mkdir()
    with (
        held(tmp_path / ".p.csv.parts" / "lock", "elsewhere"),
        pytest.raises(Busy, match=r"p\.csv: another process writes it; wait for it, or name another file"),
    ):
        predict(inputs, Recorder(), output, "f")
    assert predict(inputs, Recorder(), output, "f").items == 100
    assert not (tmp_path / ".p.csv.parts").exists()


def test_what_a_killed_run_was_about_to_write_goes_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / ".p.csv.parts"
    folder.mkdir()
    for name in (".000000000000-000000000010.parquet.k2j_3x", ".fingerprint.ab0c"):
        (folder / name).write_bytes(b"half")
    Parts(folder, "f").remove()
    assert not folder.exists()


def test_a_lost_part_is_judged_again_and_a_stray_file_stays(tmp_path: Path) -> None:
    inputs = table(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        predict(inputs, Recorder(fail_at=90), tmp_path / "p.csv", "f", batch_size=10, rows=10)
    folder = tmp_path / ".p.csv.parts"
    (folder / "000000000030-000000000040.parquet").unlink()
    (folder / "notes.txt").write_text("mine")
    model = Recorder()
    assert predict(inputs, model, tmp_path / "p.csv", "f", batch_size=10).resumed == 30
    assert read_table(tmp_path / "p.csv").num_rows == 100
    assert os.listdir(folder) == ["notes.txt"]


def test_the_fingerprint_of_inputs_follows_bytes_columns_and_images(tmp_path: Path) -> None:
    inputs = table(tmp_path)
    first = inputs.digest()
    assert Inputs(tmp_path / "t.csv").digest() == first
    assert Inputs(tmp_path / "t.csv", features=("x",)).digest() != first
    (tmp_path / "t.csv").write_text("item,x\ni0,0.5\n")
    assert inputs.digest() != first
    (tmp_path / "i.csv").write_text("item,path\na,a.png\nb,gone.png\nc,\n")
    (tmp_path / "a.png").write_bytes(b"1")
    pictures = Inputs(tmp_path / "i.csv", image="path")
    before = pictures.digest()
    (tmp_path / "a.png").write_bytes(b"22")
    assert pictures.digest() != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,x\n", "the table is empty"),
        ("item,x\na,1\na,2\n", "item 'a' appears twice"),
        ("item,x\na,1\n,2\n", "line 3: the item is empty"),
        ("item\na\n", "no column but 'item'"),
        ("item,x\na,red\n", r"column 'x' \(name the features with --features\): not numeric"),
    ],
)
def test_a_table_that_cannot_be_judged(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadTable, match=message):
        predict(Inputs(tmp_path / "t.csv"), Recorder(), tmp_path / "p.csv", "f")
    assert not (tmp_path / "p.csv").exists()


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="--text and --image exclude each other"):
        Inputs(tmp_path / "t.csv", text="a", image="b")
    with pytest.raises(BadSettings, match="--batch-size 0"):
        predict(table(tmp_path), Recorder(), tmp_path / "p.csv", "f", batch_size=0)
    with pytest.raises(BadInput, match="does not exist"):
        predict(table(tmp_path), Recorder(), tmp_path / "no" / "p.csv", "f")


def test_memory_is_bounded_by_the_batch(tmp_path: Path) -> None:
    """Ten times the items: the tables alive at a time stay those of a batch."""
    rng = np.random.default_rng(0)
    peaks = []
    for n in (10_000, 100_000):
        lines = pa.table({"item": [f"i{k}" for k in range(n)], **{f"x{d}": rng.random(n) for d in range(8)}})
        parquet.write_table(lines, tmp_path / "t.parquet", row_group_size=2_000)
        size = lines.nbytes
        del lines
        alive: list[int] = []

        class Watching(Recorder):
            def predict(self, batch: Batch, alive: list[int] = alive) -> Array:
                alive.append(pa.total_allocated_bytes())
                return super().predict(batch)

        before = pa.total_allocated_bytes()
        predict(Inputs(tmp_path / "t.parquet"), Watching(), tmp_path / "p.parquet", "f", batch_size=500, rows=2000)
        peaks.append((max(alive) - before) / size)
    assert peaks[1] < 0.25


def test_embeddings_of_a_dataset_folder_are_features(tmp_path: Path) -> None:
    """Also where the embedding stands beside numbers, and a row has none."""
    parts = [
        pa.table({"item": ["a", "b"], "embedding": [[1.0, 2.0], None], "size": [5, 6]}),
        pa.table({"item": ["c"], "embedding": [[3.0, 4.0]], "size": [7]}),
    ]
    inputs = Inputs(dataset(tmp_path / "data", *parts), features=("size", "embedding"))
    (batch,) = inputs.batches(10)
    np.testing.assert_array_equal(batch.inputs, [[5, 1, 2], [6, np.nan, np.nan], [7, 3, 4]])
    assert batch.columns == ()
    assert Inputs(tmp_path / "data", features=("embedding",)).names() == ["a", "b", "c"]
    only = next(iter(Inputs(tmp_path / "data", features=("embedding",)).batches(10)))
    assert only.empty.tolist() == [False, True, False]


SLOW = """
import os, time
import numpy as np

class Slow:
    classes_ = np.array(["no", "yes"])

    def predict_proba(self, X):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        x = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.column_stack([1 - x, x])
"""


def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    n = 25_000
    (tmp_path / "slow.py").write_text(SLOW)
    x = np.random.default_rng(0).normal(size=n)
    (tmp_path / "t.csv").write_text("item,x\n" + "".join(f"{k},{x[k]}\n" for k in range(n)))
    command = [sys.executable, "-m", "hitl", "predict", "t.csv", "-m", "slow.py:Slow", "-o", "p.parquet", "--json"]
    running = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PAUSE": "0.03"})
    parts = tmp_path / ".p.parquet.parts"
    deadline = time.monotonic() + 60
    while not list(parts.glob("*.parquet")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.kill()
    running.wait()
    assert not (tmp_path / "p.parquet").exists()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert 10_000 <= json.loads(done.stdout)["resumed"] < n
    found = read_table(tmp_path / "p.parquet")
    assert found.column("item").to_pylist() == [str(k) for k in range(n)]
    np.testing.assert_allclose(found.column("p_yes").to_numpy(), 1 / (1 + np.exp(-x)), rtol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
