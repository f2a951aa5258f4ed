"""`hitl annotators`: what it shows, writes and refuses, for files and for a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models import DawidSkene
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.analysis.copied_accounts import copied_accounts
from hitl.tables.read import read_table
from hitl.tables.write import write_table
from tests.bench.honesty.copies import Kind, with_copies
from tests.command_line import Run

PEOPLE = {"ann": 0.95, "bob": 0.9, "cyd": 0.85, "dee": 0.9, "eve": 0.8, "fay": 0.9}
KINDS = ("cat", "dog", "cow")


def rows(n: int = 300) -> list[tuple[str, str, str, str]]:
    """Six who work, one of them worse from March on; one always says cow, one anything."""
    rng = np.random.default_rng(0)
    found = []
    for item in range(n):
        true, month = int(rng.integers(3)), 1 + 4 * item // n
        for who, accuracy in PEOPLE.items():
            if rng.random() < 0.3:
                continue
            right = 0.5 if who == "fay" and month > 2 else accuracy
            said = true if rng.random() < right else (true + 1) % 3
            found.append((f"i{item}", who, KINDS[said], f"2024-{month:02d}-{1 + item % 28:02d}"))
        found.append((f"i{item}", "zed", "cow", f"2024-{month:02d}-01"))
        found.append((f"i{item}", "yan", KINDS[rng.integers(3)], f"2024-{month:02d}-01"))
    return found


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    lines = [",".join(row) for row in rows()]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label,when", *lines]) + "\n")
    return tmp_path


def test_the_table_says_who_is_who(run: Run, tables: Path) -> None:
    code, out, err = run("annotators", "annotations.csv", "--time", "when")
    assert (code, err) == (0, "")
    found = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "always 'cow'" in found["zed"]
    assert "random answers" in found["yan"]
    assert "worse over time (" in found["fay"]
    assert "says 'dog' for" in found["eve"] or "says 'cow' for" in found["eve"] or "says 'cat' for" in found["eve"]
    assert "Krippendorff's alpha 0." in out
    assert "Group 1: " in out
    assert "People to talk to: 3 of 8 annotators" in out
    assert "worse over time" not in run("annotators", "annotations.csv")[1]


def test_copied_accounts_are_named(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    evidence = with_copies(Kind(4, (0.5, 0.85), people=12, items=500).draw(rng), rng, 1, 150)
    annotations = evidence.annotations
    write_table(tmp_path / "annotations.csv", annotations.table())
    (pair,) = copied_accounts(annotations).pairs
    copy, original = (annotations.annotators[k] for k in (pair.copy, pair.original))
    code, out, err = run("annotators", "annotations.csv", "--json")
    assert (code, err) == (0, "")
    flags = {row["annotator"]: row["flags"] for row in json.loads(out)["annotators"]}
    expected = f"they agree on {pair.agreed} of 150 shared items, also where they are wrong; they count as one"
    assert flags[copy] == [f"copies {original} (or both are one person): {expected}"]
    assert flags[original] == [f"copied by {copy}"]
    out = " ".join(run("annotators", "annotations.csv")[1].split())
    assert "People to talk to: 2 of 13 annotators" in out


def test_those_to_look_into_come_first_and_rows_limits_the_table(run: Run, tables: Path) -> None:
    _, out, _ = run("annotators", "annotations.csv", "--time", "when", "--rows", "4")
    names = [
        line.split()[0] for line in out.splitlines() if line.split() and line.split()[0] in {*PEOPLE, "zed", "yan"}
    ]
    assert set(names[:3]) == {"zed", "yan", "fay"}  # fay has fewest labels
    assert len(names) == 4
    assert "4 of 8; --rows shows more, --output writes all" in " ".join(out.split())


def test_json_has_everything_and_only_json_values(run: Run, tables: Path) -> None:
    def no_constants(value: str) -> Any:
        raise AssertionError(value)

    code, out, _ = run("annotators", "annotations.csv", "--time", "when", "--json", "--method", "dawid-skene")
    assert code == 0
    found = json.loads(out, parse_constant=no_constants)
    people = {row["annotator"]: row for row in found["annotators"]}
    assert list(people) == sorted(people, key=lambda who: -people[who]["labels"])
    assert people["zed"]["flags"] == ["always 'cow'"]
    assert people["zed"]["spammer"] > 0.95 > people["ann"]["spammer"]
    assert people["ann"]["bits"] > people["eve"]["bits"] > 0.2 > people["yan"]["bits"]
    confusion = people["eve"]["confusions"][0]
    assert confusion["low"] < confusion["often"] < confusion["high"]
    assert people["fay"]["accuracy_before"] > people["fay"]["accuracy_after"]
    assert people["ann"]["changed_at"] is None
    windows = people["fay"]["windows"]
    assert windows[0]["accuracy"] > windows[-1]["accuracy"]
    assert sum(window["labels"] for window in windows) == people["fay"]["labels"]
    assert found["agreement"]["low"] < found["agreement"]["alpha"] < found["agreement"]["high"]
    assert found["method"] == "dawid-skene"
    assert sum(found["ways_to_answer"].values()) == pytest.approx(1)
    for row in found["annotators"]:
        assert row["communities"] == {} or sum(row["communities"].values()) <= 1 + 1e-9
        assert row["community"] in (None, *range(1, len(found["communities"]) + 1))
    for community in found["communities"]:
        assert np.sum(community["prototype"], axis=1) == pytest.approx(1, abs=1e-3)


def test_figures_are_those_of_the_profiler(run: Run, tables: Path) -> None:
    evidence = Evidence.from_tables(read_table(tables / "annotations.csv"))
    expected = AnnotatorProfiler().fit(evidence, DawidSkene().fit(evidence)).frame()
    flags = ["--method", "dawid-skene", "--output", "people.csv"]
    assert "wrote people.csv" in run("annotators", "annotations.csv", *flags)[1]
    table = read_table("people.csv", ["annotator"]).to_pylist()
    written = {row["annotator"]: row for row in table}
    for row in expected.to_dict("records"):
        for key in ("labels", "accuracy", "low", "high", "bits", "agrees", "spammer"):
            assert float(written[row["annotator"]][key]) == pytest.approx(row[key])
        assert (written[row["annotator"]]["confusions"] or "") == row["confusions"]


def test_a_saved_consensus_judges_without_a_fit(run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("combine", "annotations.csv", "--method", "dawid-skene", "--save", "c.npz", "--output", "c.csv")[0] == 0
    by_fit = json.loads(run("annotators", "annotations.csv", "--method", "dawid-skene", "--json")[1])
    monkeypatch.setattr(DawidSkene, "fit", None)
    by_file = json.loads(run("annotators", "annotations.csv", "--consensus", "c.npz", "--json")[1])
    assert by_file == by_fit


def test_truth_models_and_more_options_than_classes(run: Run, tmp_path: Path) -> None:
    said = ["unsure" if (n // 2 + 3 * k) % 7 == 0 else "ab"[n % 2] for n in range(60) for k in range(3)]
    who = ["x", "y", ""] * 60
    lines = [f"{place // 3},{who[place]},{label}" for place, label in enumerate(said)]
    (tmp_path / "a.csv").write_text("\n".join(["task,who,said", *lines]))
    (tmp_path / "truth.csv").write_text("task,said\n0,a\n1,b\n")
    (tmp_path / "p.csv").write_text(
        "task,p_a,p_b\n" + "".join(f"{n},0.{7 - n % 2 * 4},0.{3 + n % 2 * 4}\n" for n in range(60))
    )
    flags = ["--item", "task", "--annotator", "who", "--label", "said", "--classes", "a,b", "--options", "a,b,unsure"]
    more = ["--truth", "truth.csv", "--probabilities", "net=p.csv", "--json"]
    code, out, _ = run("annotators", "a.csv", *flags, *more)
    assert code == 0
    people = {row["annotator"]: row for row in json.loads(out)["annotators"]}
    assert set(people) == {"x", "y", "(anonymous)"}
    assert people["(anonymous)"]["community"] is None
    assert {"true": "a", "said": "unsure"}.items() <= people["x"]["confusions"][0].items()


BAD = [
    (["--method", "magic"], 78, "method 'magic' is unknown"),
    (["--consensus", "nothing.npz"], 65, "nothing.npz"),
    (["--consensus", "annotations.csv"], 65, "not a saved consensus"),
    (["--method", "majority", "--consensus", "c.npz"], 78, "exclude each other"),
    (["--time", "then"], 65, "no column 'then'"),
    (["--output", "people.xlsx"], 65, ".xlsx is read but not written"),
    (["--output", "nowhere/people.csv"], 65, "does not exist"),
    (["--classes", "cat,dog"], 65, "label 'cow' is not one of"),
    (["--rows", "0"], 2, "--rows"),
]


@pytest.mark.parametrize(("flags", "code", "message"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input_is_a_clear_error_and_writes_nothing(
    run: Run, tables: Path, flags: list[str], code: int, message: str
) -> None:
    before = sorted(path.name for path in tables.iterdir())
    output = [] if "--output" in flags else ["--output", "people.csv"]
    got, out, err = run("annotators", "annotations.csv", *flags, *output)
    assert (got, message in err) == (code, True), err
    assert "Traceback" not in err + out
    assert sorted(path.name for path in tables.iterdir()) == before


# -- projects ----------------------------------------------------------------------------------------------


@pytest.fixture
def project(run: Run, tables: Path) -> Path:
    assert run("init", "--tables", ".", "--name", "pets")[0] == 0
    assert run("run")[0] == 0
    return tables


def test_a_project_is_judged_by_its_last_cycle(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("combined again")

    monkeypatch.setattr("hitl.models.registry.combiner", never)
    code, out, err = run("annotators", "--output", "people.csv")
    assert (code, err) == (0, "")
    assert ", the last run\n" in out
    assert "always 'cow'" in out
    assert read_table("people.csv", ["annotator"]).num_rows == 8
    found = json.loads(run("annotators", "--json")[1])
    assert found["project"] == "pets"
    ((_, question),) = found["questions"].items()
    assert {row["annotator"] for row in question["annotators"]} == {*PEOPLE, "yan", "zed"}


def test_new_labels_since_the_last_cycle_are_combined_first(run: Run, project: Path) -> None:
    with (project / "annotations.csv").open("a") as more:
        more.write("i0,gus,cat,2024-05-01\ni1,gus,cat,2024-05-01\n")
    assert run("pull")[0] == 0
    code, out, _ = run("annotators")
    assert code == 0
    assert "combined now, because labels, settings or files have changed since" in out
    assert "gus" in out
    assert json.loads(run("status", "--json")[1])["cycles"] == 1
