"""A benchmark that takes nights goes on where it ended."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.testing.crowds import crowd
from tests.bench import bench_learn, results
from tests.bench.bench_learn import Job, figures_of, needed, run, runs_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A set of sixty items whose features tell their class."""

    def evidence() -> Any:
        made, truth = crowd(np.random.default_rng(0), 60, n_classes=2, n_annotators=5, asked=0.6)
        return replace(made, truth=truth, features=np.eye(2)[truth])

    monkeypatch.setitem(bench_learn.SETS, "rte", evidence)  # type: ignore[arg-type]
    return "rte"


def test_runs_come_back_as_they_were_saved(small: str) -> None:
    kept = {seed: run(Job(small, seed, "logistic", 4)) for seed in (0, 2)}
    figures = figures_of(small, kept, 4)
    again = runs_of(figures, 4)
    assert again.keys() == kept.keys()
    for seed, (tracks, seconds) in kept.items():
        back, took = again[seed]
        assert took == seconds
        for name, track in tracks.items():
            assert needed([back[name]], 0.9) == needed([track], 0.9)
            np.testing.assert_array_equal(back[name].accuracy, track.accuracy)
    assert figures_of(small, again, 4) == figures
    assert runs_of(figures, 5) == {}, "runs of other batches are not of the same table"


def test_a_run_that_goes_on_makes_what_is_missing_and_leaves_other_sets(
    small: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    one = figures_of(small, {0: run(Job(small, 0, "logistic", 4))}, 4)
    results.save("learn", [], {small: one, "satellite": {**one, "seconds": None}})
    bench_learn.main(["--keep", "--save", "--sets", small, "--seeds", "1", "--steps", "4"])  # nothing is missing
    assert results.load("learn")[small] == one
    assert " 1        4" in capsys.readouterr().out
    made = []

    class InThisProcess:
        def __init__(self, *given: Any) -> None: ...

        def __enter__(self) -> InThisProcess:
            return self

        def __exit__(self, *given: Any) -> None: ...

        def submit(self, work: Any, job: Job) -> Any:
            made.append(job.seed)
            future: Any = Future()
            future.set_result(work(job))
            return future

    monkeypatch.setattr(bench_learn, "ProcessPoolExecutor", InThisProcess)
    bench_learn.main(["--keep", "--save", "--sets", small, "--seeds", "3", "--steps", "4"])
    assert made == [1, 2]
    assert results.load("learn")[small]["seeds"] == 3
    assert results.load("learn")[small]["runs"]["0"] == one["runs"]["0"]
    assert {line.split()[0] for line in (tmp_path / "learn.txt").read_text().splitlines()[3:5]} == {small, "satellite"}
