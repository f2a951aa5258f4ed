"""A fit that would take more memory than there is says so before it begins, and which method fits."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hitl.annotations import Annotations
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.models.combiner import memory_of, needs_of
from hitl.models.methods import COMBINERS
from hitl.models.registry import combiner
from hitl.shards import encoding
from hitl.tables import limits
from hitl.tables.limits import Limits, within
from hitl.tables.read import read_parts, read_table
from hitl.testing.crowds import sample
from tests.compile_kernels import long_in_journeys

ALONE = [name for name in COMBINERS.own if not needs_of(COMBINERS.load(name))]


def many_classes(n_items: int, n_annotators: int, n_classes: int) -> Annotations:
    """Three labels per item, of as many classes and annotators as there are."""
    item = np.repeat(np.arange(n_items, dtype=np.int32), 3)
    row = np.arange(3 * n_items, dtype=np.int32)
    names = (tuple(map(str, range(size))) for size in (n_items, n_annotators, n_classes))
    items, annotators, classes = names
    return Annotations(item, row % n_annotators, row % n_classes, items, annotators, classes, classes)


@pytest.mark.parametrize("name", ALONE)
def test_every_method_says_what_it_would_take(name: str) -> None:
    evidence = Evidence(many_classes(7_000, 500, 20_000))
    with (
        within(Limits(memory=1 << 30)),
        pytest.raises(
            BadEvidence, match=rf"^{name} would take .* (GB|TB) of memory .*20,000 classes.*\(limits\.memory"
        ),
    ):
        combiner(name).fit(evidence)


@pytest.mark.parametrize("name", [name for name in COMBINERS.own if "gpc" in name])
def test_a_gaussian_process_of_many_items_says_what_it_would_take_and_which_fits(name: str) -> None:
    """A covariance of 300,000 x 300,000 items takes 720 GB. The sparse process has some hundreds of points."""
    many = many_classes(300_000, 100, 3)
    truth = np.arange(300_000) % 3
    evidence = Evidence(many, features=np.zeros((300_000, 2)), truth=truth)
    most = 1 << 30 if name == "variational-gpc-ma" else 16 << 30
    fits = "default" if name == "variational-gpc-ma" else "variational-gpc-ma"
    with (
        within(Limits(memory=most)),
        pytest.raises(BadEvidence, match=rf"^{name} would take .* (GB|TB) .*300,000 items.*; {fits} takes .* [MG]B$"),
    ):
        combiner(name).fit(evidence)


def test_the_message_names_the_method_that_fits() -> None:
    evidence = Evidence(many_classes(3_000, 500, 1_000))
    with within(Limits(memory=4 << 30)), pytest.raises(BadEvidence, match=r"; default takes 624 MB$"):
        combiner("vb-ibcc").fit(evidence)


@pytest.mark.journey
def test_the_limit_is_what_the_process_may_take() -> None:
    """At its value: with 4 GB of address space, the kernel's or numpy's error was what a user saw."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "from tests.models.inference.test_memory import *\n"
        "try: combiner('vb-ibcc').fit(Evidence(many_classes(7000, 500, 20000)))\n"
        "except BadEvidence as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("vb-ibcc would take 22.4 TB of memory for 7,000 items, 500 annotators and 20,000 cl")


def test_a_container_has_what_its_cgroup_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    monkeypatch.setattr(limits, "CGROUP", tmp_path)
    assert limits.memory_limit() == 650_000
    (tmp_path / "memory.max").write_text("max\n")
    assert limits.memory_limit() > 650_000


def test_a_small_parquet_file_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """Dictionary and run-length encoding: 300,000 rows of one text of 10,000 characters take some kB in the file."""
    path = tmp_path / "labels.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(300_000, np.int32)), ["x" * 10_000])
    parquet.write_table(pa.table({"item": text}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 100_000
    with within(Limits(memory=1 << 30)):
        for read in (lambda: read_table(path), lambda: next(read_parts(path, 1 << 18))):
            with pytest.raises(BadTable, match=r"labels\.parquet: .* GB .*limits\.memory"):
                read()
        assert next(read_parts(path, 1_000)).num_rows == 1_000  # some MB at a time
        with pytest.raises(BadTable, match=r"labels\.parquet: .* GB .*limits\.memory"):
            encoding.encode([str(path)], str(tmp_path / "shards"), encoding.Columns(annotator=None, label="item"))
    assert not (tmp_path / "shards").exists()


CHEAP: dict[str, dict[str, object]] = {
    "gpc-ma": {"tolerance": 1e-1},
    "gpc-concatenated": {"tolerance": 1e-1},
    "variational-gpc-ma": {"inducing": 20, "learning_steps": 3, "tolerance": 1e-2, "device": "cpu"},
    **{name: {"burn_in": 2, "draws": 4, "thin": 1} for name in ("gibbs-ibcc", "ebcc", "dbcc", "edbcc")},
}
"""Settings under which a slow method takes less time, and the same memory for each item, annotator and class."""

SIZES = {
    "confusion matrices": {"n_items": 60, "n_annotators": 40, "n_classes": 20, "asked": 0.1},
    "beliefs": {"n_items": 600, "n_annotators": 4, "n_classes": 40, "asked": 0.75},
    "covariances": {"n_items": 200, "n_annotators": 4, "n_classes": 4, "asked": 0.75},
}
"""What takes most of the memory -> evidence."""


@pytest.mark.journey
@pytest.mark.parametrize("most_of_it", SIZES)
@pytest.mark.parametrize("name", long_in_journeys(COMBINERS.own))
def test_the_estimate_is_near_the_peak(name: str, most_of_it: str) -> None:
    if (most_of_it == "covariances") != ("gpc" in name) and most_of_it != "confusion matrices":
        pytest.skip("not what this method holds")
    method = combiner(name, **CHEAP.get(name, {}))
    evidence, _ = sample(method, **SIZES[most_of_it])
    small, _ = sample(method, n_items=30)
    method.fit(small)  # loads and compiles
    tracemalloc.start()
    method.fit(evidence)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory_of(method, evidence) >= peak / 1.5
    if name != "variational-gpc-ma":  # the memory of PyTorch is not traced
        assert memory_of(method, evidence) <= 3 * peak
