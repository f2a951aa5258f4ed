"""On a Dask cluster: the results of one process, whatever becomes of workers; clear errors where there is none."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hitl.errors import MissingExtra, Unreachable
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner
from hitl.models.inference.engine import Serial, summed
from hitl.shards import cluster
from hitl.shards.cluster import OnCluster, on_dask
from hitl.shards.combining import combine
from hitl.shards.encoding import encode
from hitl.shards.reading import StoredShards
from hitl.tables.matrices import read_vectors
from hitl.tables.write import write_table
from tests.command_line import Run
from tests.shards.test_combining import crowd, results_in

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> StoredShards:
    folder = tmp_path_factory.mktemp("cluster")
    write_table(folder / "labels.csv", crowd(600))
    encode([str(folder / "labels.csv")], str(folder / "shards"), shard_labels=400)
    return StoredShards.open(str(folder / "shards"))


@pytest.fixture(scope="module")
def engine() -> Iterator[OnCluster]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with on_dask(None, 2) as found:
            yield found


class Tree(str):
    """A sum as it is added up."""

    def __add__(self, other: str) -> Tree:
        return Tree(f"({self} {other})")


def test_neighbours_in_a_task_are_added_up_as_all_are() -> None:
    for shards in range(1, 80):
        parts = [Tree(number) for number in range(shards)]
        for size in (1, 2, 4, 8):
            tasks = [summed(parts[first : first + size]) for first in range(0, shards, size)]
            assert summed(tasks) == summed(parts), (shards, size)


class Labels:
    """How many labels a shard has; as work that a worker is lost during."""

    def __init__(self, fatal: Path | None = None) -> None:
        self.fatal = fatal

    def __call__(self, evidence: Evidence) -> int:
        if self.fatal is not None:
            try:
                os.close(os.open(self.fatal, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return len(evidence.annotations)


def test_sums_are_added_in_the_order_of_one_process(shards: StoredShards, engine: OnCluster) -> None:
    """To the last bit, of numbers whose sum depends on the order."""
    assert engine.total(Odd(), shards) == Serial().total(Odd(), shards)


class Odd:
    """A number of a shard that no float holds exactly."""

    def __call__(self, evidence: Evidence) -> float:
        return 1.0 / (1 + evidence.annotations.n_items) * 10.0 ** (evidence.annotations.n_items % 17)


def test_a_worker_that_is_lost_changes_nothing(shards: StoredShards, engine: OnCluster, tmp_path: Path) -> None:
    assert engine.total(Labels(tmp_path / "killed"), shards) == shards.n_labels
    assert (tmp_path / "killed").exists(), "none was killed"
    assert engine.total(Labels(), shards) == shards.n_labels


@pytest.mark.journey
def test_the_only_worker_may_be_lost(shards: StoredShards, tmp_path: Path) -> None:
    with on_dask(None, 1) as alone:
        assert alone.total(Labels(tmp_path / "killed"), shards) == shards.n_labels


@pytest.mark.parametrize("method", [VBIBCC(), DefaultCombiner()])
@pytest.mark.journey
def test_a_worker_that_is_lost_during_a_fit_changes_nothing(method: Any, shards: StoredShards, tmp_path: Path) -> None:
    combine(shards, str(tmp_path / "here"), method, engine=Serial())
    with on_dask(None, 2) as engine:
        info = engine._client.scheduler_info(n_workers=-1)["workers"]
        victim = engine._client.run(os.getpid, workers=[next(iter(info))])
        passes: list[int] = []

        def kill(what: str, done: int, of: int | None) -> None:
            if what == "passes" and done == 4 and not passes:
                passes.append(done)
                threading.Thread(target=os.kill, args=(next(iter(victim.values())), signal.SIGKILL)).start()

        engine._progress = kill
        combine(shards, str(tmp_path / "there"), method, engine=engine)
    assert passes
    here, there = results_in(tmp_path / "here"), results_in(tmp_path / "there")
    assert {item: row["label"] for item, row in here.items()} == {item: row["label"] for item, row in there.items()}
    assert max(abs(here[item]["confidence"] - there[item]["confidence"]) for item in here) < 1e-9


def test_the_command_takes_the_address_of_a_scheduler(
    run: Run, shards: StoredShards, engine: OnCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards._shards[0][0]
    address = engine._client.scheduler.address
    wanted = ["combine", folder, "--method", "vb-ibcc", "--engine", "dask", "--scheduler", address]
    code, _, err = run(*wanted, "--output", str(tmp_path / "out"))
    assert code == 0, err
    combine(shards, str(tmp_path / "here"), VBIBCC(), engine=Serial())
    assert results_in(tmp_path / "out").keys() == results_in(tmp_path / "here").keys()
    monkeypatch.setattr(cluster, "WAIT", 0.5)
    code, _, err = run(*wanted[:-1], "tcp://127.0.0.1:9", "--output", str(tmp_path / "none"))
    assert (code, "no Dask scheduler answers there" in err) == (Unreachable.exit_code, True), err
    assert not (tmp_path / "none").exists()


@pytest.mark.journey
def test_replays_are_those_of_one_machine(run: Run, engine: OnCluster, tmp_path: Path) -> None:
    truth = [{"item": f"i{n}", "label": f"c{n % 3}"} for n in range(60)]
    write_table(tmp_path / "truth.csv", pa.Table.from_pylist(truth))
    wanted = ["replay", "--truth", str(tmp_path / "truth.csv"), "--simulate", "good=5", "--seeds", "2", "--json"]
    code, here, err = run(*wanted, "--workers", "1")
    assert code == 0, err
    scheduler = engine._client.scheduler.address
    code, there, err = run(*wanted, "--workers", "1", "--engine", "dask", "--scheduler", scheduler)
    assert code == 0, err
    assert json.loads(there) == json.loads(here)
    code, _, err = run(*wanted, "--scheduler", scheduler)
    assert (code, "for --engine dask" in err) == (78, True)


DEADLY = """
import os, signal, time
from pathlib import Path

def lengths(texts):
    time.sleep(0.01)
    if "the end" in texts and not Path("{folder}/died").exists():
        Path("{folder}/died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [[len(text), 1.5] for text in texts]
"""


@pytest.mark.journey
def test_features_are_made_by_workers_also_when_one_is_lost(run: Run, engine: OnCluster, tmp_path: Path) -> None:
    texts = ["the end" if n == 30 else "x" * (n % 7 + 1) for n in range(60)]
    write_table(tmp_path / "items.csv", pa.table({"item": [f"i{n}" for n in range(60)], "text": texts}))
    (tmp_path / "mine.py").write_text(DEADLY.format(folder=tmp_path))
    wanted = ["embed", str(tmp_path / "items.csv"), "--text", "text", "--batch-size", "4"]
    named, output = ["--model", f"{tmp_path / 'mine.py'}:lengths"], tmp_path / "there.parquet"
    there = ["--engine", "dask", "--scheduler", engine._client.scheduler.address]
    code, _, err = run(*wanted, *named, "-o", str(output), *there)
    assert code == 0, err
    assert (tmp_path / "died").exists()
    items, x_nd = read_vectors(output)
    assert items == [f"i{n}" for n in range(60)]
    assert x_nd.tolist() == [[len(text), 1.5] for text in texts]
    code, _, err = run(*wanted, "-o", str(output), *there)
    assert (code, "what sees each item by itself" in err) == (78, True), err
    code, _, err = run("embed", "--project", *there)
    assert (code, "for a table of items" in err) == (78, True), err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "2"], "for --engine dask"),
        (["--engine", "dask", "--workers", "2", "--scheduler", "tcp://x:1"], "exclude each other"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Run, shards: StoredShards, flags: list[str], message: str) -> None:
    code, _, err = run("combine", shards._shards[0][0], "--output", "out", *flags)
    assert (code, message in err) == (78, True), err


def test_tables_need_no_cluster(run: Run, tmp_path: Path) -> None:
    write_table(tmp_path / "labels.csv", crowd(20))
    code, _, err = run("combine", str(tmp_path / "labels.csv"), "--engine", "dask")
    assert (code, "make some with `hitl shard`" in err) == (78, True), err


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"hitl-toolkit\[cluster\]"), on_dask(None, 1):
        pass
