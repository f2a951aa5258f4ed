"""Results of shards are those of the table in memory, whoever works; a run that is killed goes on to the same bytes."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.errors import BadTable, Busy
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, VBIBCC, DawidSkene, DefaultCombiner, HierarchicalDawidSkene, MajorityVote
from hitl.models.inference.engine import Serial
from hitl.shards.combining import combine
from hitl.shards.encoding import encode
from hitl.shards.reading import StoredShards, write
from hitl.tables.write import write_table
from tests.command_line import Run
from tests.killing import EVERY, fatal_steps, run_until, steps_of

pytestmark = pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")


def crowd(n_items: int = 300, n_annotators: int = 12, seed: int = 0) -> pa.Table:
    """Labels of annotators of unequal accuracy, some of them without an id."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_items)
    n, k = np.nonzero(rng.random((n_items, n_annotators)) < 0.4)
    right = rng.random(len(n)) < np.linspace(0.4, 0.95, n_annotators)[k]
    label = np.where(right, truth[n], rng.integers(3, size=len(n)))
    who = [None if code == 3 else f"k{code}" for code in k]
    return pa.table({"item": [f"i{code}" for code in n], "annotator": who, "label": [f"c{code}" for code in label]})


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_table(tmp_path / "labels.csv", crowd())
    write_table(tmp_path / "truth.csv", pa.table({"item": ["i0", "i1", "i999"], "label": ["c0", "c1", "c2"]}))
    encode([str(tmp_path / "labels.csv")], str(tmp_path / "shards"), shard_labels=200)
    return tmp_path


def results_in(folder: Path) -> dict[str, Any]:
    found = [parquet.read_table(path) for path in sorted(folder.glob("shard-*.parquet"))]
    return {row["item"]: row for row in pa.concat_tables(found).to_pylist()}


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
CASES += [(MajorityVote(), "known"), (DawidSkene(), "known"), (VBIBCC(), "known")]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_results_are_those_of_the_table_in_memory(method: Any, name: str, folder: Path, tmp_path: Path) -> None:
    shards, evidence = StoredShards.open(str(folder / name)), in_memory(name)
    assert len(shards) > 4
    expected = method.apply(method.fit(evidence), evidence)
    made = combine(shards, str(tmp_path / "out"), method)
    assert made.confidence == pytest.approx(expected.confidence.mean(), abs=1e-6)
    results = results_in(tmp_path / "out")
    assert set(results) == set(expected.items)
    for row in expected.frame().to_dict("records"):
        assert results[row["item"]]["label"] == row["label"]
        for column in ("confidence", "p_c0", "p_c1", "p_c2"):
            assert results[row["item"]][column] == pytest.approx(row[column], abs=1e-6)
    learned = Consensus.load(tmp_path / "out" / "learned.npz")
    people, effect = learned.annotators, learned.design_effect
    np.testing.assert_allclose(people.confusion, expected.annotators.confusion, atol=1e-5)
    if people.concentration is not None:
        np.testing.assert_allclose(people.concentration, expected.annotators.concentration, atol=1e-4)
    np.testing.assert_allclose(people.accuracy, expected.annotators.accuracy, atol=1e-6)
    assert learned.temperatures == pytest.approx(expected.temperatures, rel=1e-6)
    for field in ("rho", "echo", "residual") if effect is not None else ():
        assert getattr(effect, field) == pytest.approx(getattr(expected.design_effect, field), rel=1e-6)
    assert learned.fit.settings == expected.fit.settings
    again = method.apply(learned, evidence).probabilities
    np.testing.assert_allclose(again, method.apply(expected, evidence).probabilities, atol=1e-6)


def bytes_in(folder: Path) -> dict[str, bytes]:
    """All files but what says how long it took."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix != ".npz"}


@EVERY
@pytest.mark.parametrize(("name", "method"), [("plain", "vb-ibcc"), ("known", "default"), ("all", "default")])
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(
    name: str, method: str, every: int, folder: Path, tmp_path: Path
) -> None:
    chosen = [] if method == "default" else ["--method", method]
    command = ("combine", str(folder / name), *chosen, "--json", "--output")
    steps = steps_of(run_until(0, *command, "whole", folder=tmp_path))
    whole, learned = bytes_in(tmp_path / "whole"), Consensus.load(tmp_path / "whole" / "learned.npz")
    assert json.loads(whole["summary.json"])["fit"]["method"] == learned.fit.method == method
    for step in fatal_steps(steps, every * (3 if method == "vb-ibcc" else 7)):
        out = f"out{step}"
        assert run_until(step, *command, out, folder=tmp_path).returncode < 0
        done = run_until(0, *command, out, folder=tmp_path)
        if step == steps:  # killed behind its last step
            assert "holds results already" in done.stderr
        else:
            made = json.loads(done.stdout)["passes"]
            assert made["read"] == min(step - 1, made["made"] + made["read"])
        assert bytes_in(tmp_path / out) == whole
        again = Consensus.load(tmp_path / out / "learned.npz")
        np.testing.assert_array_equal(again.annotators.concentration, learned.annotators.concentration)
        assert again.fit.objective == learned.fit.objective
        np.testing.assert_equal(again.design_effect.rho, learned.design_effect.rho)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("distributed")
    from hitl.shards.cluster import on_dask

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with on_dask(None, 2) as engine:
            yield engine


@pytest.mark.parametrize(("method", "name"), [(DefaultCombiner(), "all"), (PLEM(), "all")])
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


@EVERY
def test_making_shards_that_is_killed_leaves_nothing_half_written(every: int, tables: Path) -> None:
    command = ("shard", "labels.csv", "--labels", "100", "--output")
    steps = steps_of(run_until(0, *command, "whole", folder=tables))
    whole = bytes_in(tables / "whole")
    assert steps == len(whole) + 1  # and the folder itself
    for step in fatal_steps(steps, every):
        out = tables / f"out{step}"
        assert run_until(step, *command, out.name, folder=tables).returncode < 0
        if step < steps:
            assert not out.exists()
            assert run_until(0, *command, out.name, folder=tables).returncode == 0
        assert bytes_in(out) == whole
        if step < steps:
            assert not (tables / f".{out.name}.partial").exists()


def test_another_method_or_other_shards_do_not_go_on_with_it(tables: Path) -> None:
    class Stops(Serial):
        passes = 0

        def total(self, work: Any, shards: Any) -> Any:
            Stops.passes += 1
            if Stops.passes == 4:
                raise KeyboardInterrupt
            return super().total(work, shards)

    shards = StoredShards.open(str(tables / "shards"))
    with pytest.raises(KeyboardInterrupt):
        combine(shards, str(tables / "out"), VBIBCC(), engine=Stops())
    with pytest.raises(BadTable, match="an unfinished run of another method or version, or over other shards"):
        combine(shards, str(tables / "out"), DawidSkene())
    with pytest.raises(BadTable, match="an unfinished run"):
        combine(shards, str(tables / "out"), VBIBCC(shared=False))
    encode([str(tables / "labels.csv")], str(tables / "others"), shard_labels=150)
    with pytest.raises(BadTable, match="an unfinished run"):
        combine(StoredShards.open(str(tables / "others")), str(tables / "out"), VBIBCC())
    assert combine(shards, str(tables / "out"), VBIBCC()).read == 3
    with pytest.raises(BadTable, match="holds results already; name a new folder"):
        combine(shards, str(tables / "out"), VBIBCC())


def test_one_process_at_a_time_writes_a_folder(tables: Path) -> None:
    shards = StoredShards.open(str(tables / "shards"))

    class Meanwhile(Serial):
        def total(self, work: Any, some: Any) -> Any:
            with pytest.raises(Busy, match="another process writes it"):
                combine(shards, str(tables / "out"), MajorityVote())
            return super().total(work, some)

    combine(shards, str(tables / "out"), MajorityVote(), engine=Meanwhile())


def test_addresses_take_results_and_checkpoints(tables: Path) -> None:
    import fsspec

    encode([str(tables / "labels.csv")], "memory://scale/shards", shard_labels=200)
    shards = StoredShards.open("memory://scale/shards")
    combine(shards, "memory://scale/out", VBIBCC())
    assert pickle.loads(pickle.dumps(shards))[0].annotations.items == shards[0].annotations.items
    combine(StoredShards.open(str(tables / "shards")), str(tables / "out"), VBIBCC())
    system = fsspec.filesystem("memory")
    names = {path.name for path in (tables / "out").iterdir()}
    assert {name for name in names if not name.startswith("shard")} == {
        "annotators.parquet",
        "learned.npz",
        "summary.json",
    }
    assert {path.rpartition("/")[2] for path in system.ls("/scale/out", detail=False)} == names
    for name, content in bytes_in(tables / "out").items():
        assert system.cat_file(f"/scale/out/{name}") == content


def test_progress_says_which_pass_and_which_shard_is_in_turn(tables: Path) -> None:
    said: list[tuple[str, int, int | None]] = []
    shards = StoredShards.open(str(tables / "shards"))
    found = combine(shards, str(tables / "out"), VBIBCC(), progress=lambda *step: said.append(step))
    passes = [done for what, done, _ in said if what == "passes"]
    assert sorted(set(passes)) == list(range(found.passes))
    assert {(done, total) for what, done, total in said if what == "shards of this pass"} == {
        (number, len(shards)) for number in range(len(shards) + 1)
    }
    assert said[-1] == ("write results", len(shards), len(shards))


def test_shards_written_from_tables_in_memory_are_the_tables(tmp_path: Path) -> None:
    matrix = Annotations.from_matrix([[0, -1, 1], [1, 1, 0], [-1, -1, -1]])
    evidence = Evidence(matrix, {"m": np.array([[0.5, 0.5], [np.nan, np.nan], [0.2, 0.8]])}, truth=np.array([-1, 1, 0]))
    write([evidence, evidence], str(tmp_path))
    for shard in StoredShards.open(str(tmp_path)):
        np.testing.assert_array_equal(shard.probabilities["m"], evidence.probabilities["m"])
        np.testing.assert_array_equal(shard.truth, evidence.truth)  # type: ignore[arg-type]
        assert shard.annotations.items == (0, 1, 2)
        np.testing.assert_array_equal(shard.annotations.label, matrix.label)
        np.testing.assert_array_equal(shard.known, evidence.known)
        np.testing.assert_array_equal(shard.annotations.select(np.arange(len(matrix)) < 3).label, matrix.label[:3])


def test_the_command_line_makes_and_combines_shards(tables: Path, run: Run) -> None:
    code, out, _ = run("shard", str(tables / "labels.csv"), "--labels", "500", "-o", "made")
    assert code == 0
    assert "of 12 annotators on" in out
    assert "in 3 shards\nwrote made\n" in out
    code, out, _ = run("combine", "made", "-m", "majority", "-o", "out")
    assert code == 0
    assert "items in 3 shards" in out
    assert len(results_in(Path("out"))) == len({*crowd().column("item").to_pylist()})
    write_table("more.csv", pa.table({"item": ["new"], "annotator": ["k1"], "label": ["c1"]}))
    code, out, _ = run("shard", "more.csv", "--like", "made", "-o", "made2", "--json")
    assert (code, json.loads(out)["annotators"]) == (0, 12)
    code, out, _ = run("combine", "made*", "-m", "majority", "-o", "both", "--json")
    assert (code, json.loads(out)["items"]) == (0, len(results_in(Path("out"))) + 1)
    write_table("again.csv", pa.table({"item": ["new", "other"], "annotator": ["k1", "k1"], "label": ["c1", "c0"]}))
    assert run("shard", "again.csv", "--like", "made", "-o", "made3")[0] == 0
    code, _, error = run("combine", "made[23]", "-m", "majority", "-o", "all")
    assert (code, Path("all").exists()) == (65, False)
    assert "made3 and made2 both have the item 'new'; make one folder of shards of all tables" in error


@pytest.mark.parametrize("change", [{"truth": True}, {"classes": None}, {"shards": [{"file": "a"}]}, None])
def test_a_manifest_with_other_fields_says_to_make_the_shards_again(change: Any, tables: Path, run: Run) -> None:
    path = tables / "shards" / "manifest.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | change if change else [stored]))
    code, _, error = run("combine", "shards", "-o", "out")
    assert code == 65
    assert "manifest.json: no manifest that this version of hitl reads" in error
    assert "make the shards again (hitl shard)" in error
    assert "__init__" not in error


WRONG = {
    "another option": (("combine", "shards", "--truth", "t.csv", "-o", "out"), "--truth: shards contain this already"),
    "no output": (("combine", "shards"), "expected --output FOLDER"),
    "a method in memory": (("combine", "shards", "-m", "ebcc", "-o", "out"), "needs all labels in memory; on shards:"),
    "no shards": (("combine", ".", "-o", "out"), "no shards: manifest.json is not there"),
    "options alone": (("shard", "a.csv", "--options", "x,y", "-o", "out"), "--options needs --classes"),
    "saved": (("combine", "shards", "--save", "a.npz", "-o", "out"), "--save: not for shards"),
    "a model without a name": (("shard", "a.csv", "-p", "m.csv", "-o", "out"), "expected MODEL=TABLES"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_go_together_is_an_error(case: str, tables: Path, run: Run) -> None:
    arguments, message = WRONG[case]
    code, _, error = run(*arguments)
    assert code in (65, 78)
    assert message in error
    assert not Path("out").exists()


def test_no_warning_of_mapped_arrays(tables: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        combine(StoredShards.open(str(tables / "shards")), str(tables / "out"), DawidSkene())
