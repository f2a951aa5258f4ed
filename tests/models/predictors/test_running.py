"""A run over a table: every item once, in order, resumed where it stopped, a batch in memory at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hitl.errors import BadInput, BadTable, Busy
from hitl.models.predictors import running
from hitl.models.predictors.inputs import Batch, Inputs
from hitl.models.predictors.running import predict
from hitl.tables.matrices import Array, read_probabilities
from hitl.tables.read import read_table
from hitl.tables.write import exclusive_lock
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


def table(folder: Path, n: int = 100) -> Inputs:
    x = np.linspace(0, 1, n)
    lines = [f"i{k},{'' if k % 10 == 9 else x[k]}" for k in range(n)]
    (folder / "t.csv").write_text("item,x\n" + "\n".join(lines) + "\n")
    return Inputs(folder / "t.csv")


@pytest.mark.parametrize(
    ("ending", "rows"), [("csv", 1), ("tsv", 30), ("jsonl", 1000), ("parquet", 30), ("csv.gz", 30), ("jsonl.gz", 30)]
)
def test_every_item_once_in_order(tmp_path: Path, ending: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ROWS", rows)
    inputs, model = table(tmp_path), Recorder()
    progress: list[tuple[int, int | None]] = []
    output = tmp_path / f"p.{ending}"
    summary = predict(
        inputs, model, output, "f", batch_size=16, progress=lambda what, at, total: progress.append((at, total))
    )
    assert (summary.items, summary.silent, summary.resumed) == (100, 10, 0)
    assert model.asked == [(n, min(16, 100 - n)) for n in range(0, 100, 16)]
    assert (progress[0], progress[-1]) == ((0, 100), (100, 100))
    predicted = read_probabilities(output).to_pylist()
    assert [row["item"] for row in predicted] == [f"i{n}" for n in range(100)]
    x = np.linspace(0, 1, 100)
    for n, row in enumerate(predicted):
        assert (row["p_yes"] is None) if n % 10 == 9 else (float(row["p_yes"]) == x[n])
    assert sorted(os.listdir(tmp_path)) == sorted([f"p.{ending}", "t.csv"])


def interrupt(inputs: Inputs, output: Path, fingerprint: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict(inputs, Recorder(fail_at=70), output, fingerprint, batch_size=10)
    assert not output.exists()


def test_an_interrupted_run_goes_on_where_it_stopped_and_another_model_begins_anew(tmp_path: Path) -> None:
    inputs, again = table(tmp_path), Recorder()
    interrupt(inputs, tmp_path / "p.csv", "f")
    assert predict(inputs, again, tmp_path / "p.csv", "f", batch_size=8).resumed == 70
    assert again.asked[0] == (70, 2)  # the rest of the batch in which the earlier run stopped
    assert sum(count for _, count in again.asked) == 30
    predict(inputs, Recorder(), tmp_path / "q.csv", "f", batch_size=10)
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    interrupt(inputs, tmp_path / "r.csv", "f")
    assert predict(inputs, Recorder(), tmp_path / "r.csv", "other", batch_size=10).resumed == 0


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    """The rows of one were taken for those of the other: a file of the answers of two models, without a word."""
    inputs, output = table(tmp_path), tmp_path / "p.csv"
    with (
        exclusive_lock(tmp_path / ".p.csv.lock", "p.csv"),
        pytest.raises(Busy, match=r"p\.csv: another process writes it; wait for it, or write elsewhere"),
    ):
        predict(inputs, Recorder(), output, "f")
    assert predict(inputs, Recorder(), output, "f").items == 100
    assert sorted(os.listdir(tmp_path)) == ["p.csv", "t.csv"]


def test_a_part_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / ".p.csv.part").write_text("no database " * 100)
    with pytest.raises(BadInput, match=r"p\.csv\.part: cannot be used as a cache: .*; remove it"):
        predict(table(tmp_path), Recorder(), tmp_path / "p.csv", "f")


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


@pytest.mark.journey
def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    n = 25_000
    (tmp_path / "slow.py").write_text(SLOW)
    x = np.random.default_rng(0).normal(size=n)
    (tmp_path / "t.csv").write_text("item,x\n" + "".join(f"{k},{x[k]}\n" for k in range(n)))
    command = [sys.executable, "-m", "hitl", "predict", "t.csv", "-m", "slow.py:Slow", "-o", "p.parquet", "--json"]
    killed = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PAUSE": "0.03"})
    part = tmp_path / ".p.parquet.part"
    deadline = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < 100_000:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert not (tmp_path / "p.parquet").exists()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert 256 <= json.loads(done.stdout)["resumed"] < n
    predicted = read_table(tmp_path / "p.parquet")
    assert predicted.column("item").to_pylist() == [str(k) for k in range(n)]
    np.testing.assert_allclose(predicted.column("p_yes").to_numpy(), 1 / (1 + np.exp(-x)), rtol=1e-12)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
