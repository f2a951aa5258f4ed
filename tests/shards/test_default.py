"""The default combiner, P+L and P+L-EM on folders of shards: the results of memory, whoever works and is killed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, DefaultCombiner, HierarchicalDawidSkene
from hitl.models.inference.engine import Serial
from hitl.shards.combining import combine
from hitl.shards.encoding import encode
from hitl.shards.reading import StoredShards
from hitl.tables.write import write_table
from tests.killing import EVERY, fatal_steps, run_until, steps_of
from tests.shards.test_combining import bytes_in, crowd, results_in

ITEMS, KNOWN = 200, 60


def truths() -> dict[str, list[str]]:
    """Classes of the crowd's items, as it draws them; of one that nobody has labeled too."""
    drawn = np.random.default_rng(0).integers(3, size=ITEMS)
    return {"item": [*(f"i{n}" for n in range(KNOWN)), "i999"], "label": [*(f"c{j}" for j in drawn[:KNOWN]), "c2"]}


def model(seed: int) -> dict[str, list[Any]]:
    """Probabilities for three items of four, and for one without labels."""
    rng = np.random.default_rng(seed)
    p_nj = rng.dirichlet(np.ones(3), size=ITEMS)
    p_nj[np.arange(ITEMS), np.random.default_rng(0).integers(3, size=ITEMS)] += 1
    p_nj /= p_nj.sum(axis=1, keepdims=True)
    some = np.flatnonzero(rng.random(ITEMS) < 0.75)
    items = [*(f"i{n}" for n in some), f"only{seed}"]
    return {"item": items, **{f"p_c{j}": [*p_nj[some, j], 1 / 3] for j in range(3)}}


MODELS = {"resnet": model(1), "vit": model(2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("default")
    write_table(made / "labels.csv", crowd(ITEMS))
    write_table(made / "truth.csv", pa.table(truths()))
    for name, table in MODELS.items():
        write_table(made / f"{name}.csv", pa.table(table))
    labels, known = [str(made / "labels.csv")], [str(made / "truth.csv")]
    models = {name: [str(made / f"{name}.csv")] for name in MODELS}
    encode(labels, str(made / "plain"), shard_labels=150)
    encode(labels, str(made / "known"), truth=known, shard_labels=90)
    encode(labels, str(made / "models"), probabilities=models, shard_labels=150)
    encode(labels, str(made / "all"), truth=known, probabilities=models, shard_labels=110)
    return made


def in_memory(name: str) -> Evidence:
    known = truths() if name in ("known", "all") else None
    return Evidence.from_tables(crowd(ITEMS), MODELS if name in ("models", "all") else None, truth=known)


CASES = [(DefaultCombiner(), name) for name in ("plain", "known", "models", "all")]
CASES += [(PLEM(), "models"), (PLEM(), "all"), (PL(), "all"), (HierarchicalDawidSkene(), "known")]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_results_are_those_of_the_table_in_memory(method: Any, name: str, folder: Path, tmp_path: Path) -> None:
    shards, evidence = StoredShards.open(str(folder / name)), in_memory(name)
    assert len(shards) > 4
    expected = method.apply(method.fit(evidence), evidence)
    combine(shards, str(tmp_path / "out"), method)
    results = results_in(tmp_path / "out")
    assert set(results) == set(expected.items)
    for row in expected.frame().to_dict("records"):
        assert results[row["item"]]["label"] == row["label"]
        for column in ("confidence", "p_c0", "p_c1", "p_c2"):
            assert results[row["item"]][column] == pytest.approx(row[column], abs=1e-6)
    learned = Consensus.load(tmp_path / "out" / "learned.npz")
    people, effect = learned.annotators, learned.design_effect
    np.testing.assert_allclose(people.concentration, expected.annotators.concentration, atol=1e-4)
    np.testing.assert_allclose(people.accuracy, expected.annotators.accuracy, atol=1e-6)
    assert learned.temperatures == pytest.approx(expected.temperatures, rel=1e-6)
    for field in ("rho", "echo", "residual"):
        assert getattr(effect, field) == pytest.approx(getattr(expected.design_effect, field), rel=1e-6)
    assert learned.fit.settings == expected.fit.settings
    again = method.apply(learned, evidence).probabilities
    np.testing.assert_allclose(again, method.apply(expected, evidence).probabilities, atol=1e-6)


@EVERY
@pytest.mark.parametrize("name", ["known", "all"])
def test_without_a_method_the_default_is_taken_and_a_run_that_is_killed_goes_on_to_the_same_bytes(
    name: str, every: int, folder: Path, tmp_path: Path
) -> None:
    command = ("combine", str(folder / name), "--json", "--output")
    steps = steps_of(run_until(0, *command, "whole", folder=tmp_path))
    whole, learned = bytes_in(tmp_path / "whole"), Consensus.load(tmp_path / "whole" / "learned.npz")
    assert json.loads(whole["summary.json"])["fit"]["method"] == "default"
    assert learned.fit.method == "default"
    for step in fatal_steps(steps - 1, every * 7):
        out = f"out{step}"
        assert run_until(step, *command, out, folder=tmp_path).returncode < 0
        done = run_until(0, *command, out, folder=tmp_path)
        made = json.loads(done.stdout)["passes"]
        assert made["read"] == min(step - 1, made["made"] + made["read"])
        assert bytes_in(tmp_path / out) == whole
        again = Consensus.load(tmp_path / out / "learned.npz")
        np.testing.assert_array_equal(again.annotators.concentration, learned.annotators.concentration)
        assert again.design_effect.rho == learned.design_effect.rho


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("distributed")
    from hitl.shards.cluster import on_dask

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with on_dask(None, 2) as engine:
            yield engine


@pytest.mark.parametrize(("method", "name"), CASES[1:])
def test_a_cluster_gives_the_results_of_one_process(
    method: Any, name: str, folder: Path, cluster: Any, tmp_path: Path
) -> None:
    shards = StoredShards.open(str(folder / name))
    combine(shards, str(tmp_path / "here"), method, engine=Serial())
    combine(shards, str(tmp_path / "there"), method, engine=cluster)
    there, here = results_in(tmp_path / "there"), results_in(tmp_path / "here")
    assert set(there) == set(here)
    for item, row in here.items():
        assert there[item]["label"] == row["label"]
        assert there[item]["confidence"] == pytest.approx(row["confidence"], abs=1e-9)
