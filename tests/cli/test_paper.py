"""`--paper` and `combine.paper`: a method with the settings of its paper, on the command line and in a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hitl
from hitl.models import VBIBCC
from hitl.tables.files import read_table
from tests.command_line import Run

ROWS = [(f"i{n}", f"a{k}", "cat" if (n * (k + 2)) % (3 + k) else "dog") for n in range(14) for k in range(4)]
LABELS = {"item": [row[0] for row in ROWS], "annotator": [row[1] for row in ROWS], "label": [row[2] for row in ROWS]}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    lines = ["item,annotator,label", *(",".join(row) for row in ROWS)]
    (tmp_path / "annotations.csv").write_text("\n".join(lines) + "\n")
    net = [f"i{n},{0.1 + n / 20:.2f},{0.9 - n / 20:.2f}" for n in range(14)]
    (tmp_path / "net.csv").write_text("\n".join(["item,p_cat,p_dog", *net]) + "\n")
    return tmp_path


def settings_of(out: str) -> dict[str, Any]:
    return dict(json.loads(out)["fit"]["settings"])


def test_it_combines_with_the_settings_of_the_paper(run: Run, files: Path) -> None:
    code, out, err = run(
        "combine", "annotations.csv", "--method", "vb-ibcc", "--paper", "--output", "found.csv", "--json"
    )
    assert (code, err) == (0, "")
    assert settings_of(out)["shared"] is False
    table = read_table("found.csv")
    found = np.stack([np.asarray(table.column(f"p_{name}").cast("float64")) for name in ("cat", "dog")], axis=1)
    evidence = hitl.Evidence.from_tables(LABELS)
    np.testing.assert_allclose(found, VBIBCC.paper().fit(evidence).probabilities, atol=1e-6)
    assert np.abs(found - VBIBCC().fit(evidence).probabilities).max() > 1e-3  # the test can tell
    same = hitl.combine(LABELS, method="vb-ibcc", paper=True, diagonal=3.0)
    assert same.fit.settings == VBIBCC(diagonal=3.0, shared=False, begin="prior").fit(evidence).fit.settings


def test_what_else_judges_files_knows_it_too(run: Run, files: Path) -> None:
    given = ["annotations.csv", "--method", "pl-em", "--paper", "--probabilities", "net=net.csv"]
    code, out, _ = run("combine", *given, "--save", "c.npz", "--json")
    assert (code, settings_of(out)["refit"]) == (0, True)
    for command in ("models", "annotators"):
        code, out, err = run(command, *given)
        assert (code, "judged by pl-em" in out, err) == (0, True, "")
    code, _, err = run("annotators", "annotations.csv", "--paper", "--consensus", "c.npz")
    assert (code, "--method and --consensus exclude each other" in err) == (78, True)


@pytest.mark.parametrize("method", [[], ["--method", "default"], ["--method", "majority"]])
def test_a_method_without_a_paper_is_refused_with_those_that_have_one(run: Run, files: Path, method: list[str]) -> None:
    code, _, err = run("combine", "annotations.csv", *method, "--paper", "--output", "x.csv")
    name = method[1] if method else "default"
    assert code == 78
    assert f"method '{name}' has no settings of a paper; these have: weighted-majority, vb-ibcc, " in err
    assert "pl, pl-em, bayesian-pl" in err
    assert not Path("x.csv").exists()


def test_spans_are_judged_by_it_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "spans.csv").write_text("document,annotator,start,end,label\na,ann,0,3,PER\na,bob,0,3,PER\n")
    (tmp_path / "texts.csv").write_text("document,text\na,Ada met Bob.\n")
    spans = ["combine", "spans.csv", "--texts", "texts.csv"]
    assert run(*spans, "--method", "vb-ibcc", "--paper", "--output", "found.csv")[0] == 0
    assert run(*spans, "--paper")[0] == 78


# -- a project -----------------------------------------------------------------------------------------------


@pytest.fixture
def project(run: Run, files: Path) -> Path:
    assert run("init", "--tables", ".")[0] == 0
    return files


def change(project: Path, **keys: str) -> None:
    text = (project / "hitl.toml").read_text()
    old = 'method = "default"'
    assert old in text
    lines = [f"{key} = {value}" for key, value in ({"method": '"default"'} | keys).items()]
    (project / "hitl.toml").write_text(text.replace(old, "\n".join(lines)))


def test_a_project_combines_as_the_paper_has_it(run: Run, project: Path) -> None:
    change(project, method='"vb-ibcc"', paper="true")
    code, out, _ = run("doctor")
    assert (code, "ok    combiner: vb-ibcc, with the settings of its paper" in out) == (0, True)
    assert run("run")[0] == 0
    assert run("combine", "--output", "found.csv")[0] == 0
    table = read_table("found.csv")
    found = np.stack([np.asarray(table.column(f"p_{name}").cast("float64")) for name in ("cat", "dog")], axis=1)
    expected = VBIBCC.paper().fit(hitl.Evidence.from_tables(LABELS))
    order = [expected.items.index(item) for item in table.column("item").to_pylist()]
    np.testing.assert_allclose(found, expected.probabilities[order], atol=1e-6)


def test_options_of_ones_own_stand(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_COMBINE__PAPER", "true")
    change(project, method='"vb-ibcc"', options="{ diagonal = 3.0, off = 0.5 }")
    assert run("run")[0] == 0
    assert run("combine", "--output", "found.csv")[0] == 0
    table = read_table("found.csv")
    method = VBIBCC(diagonal=3.0, off=0.5, shared=False, begin="prior")
    expected = method.fit(hitl.Evidence.from_tables(LABELS))
    order = [expected.items.index(item) for item in table.column("item").to_pylist()]
    found = np.asarray(table.column("p_cat").cast("float64"))
    np.testing.assert_allclose(found, expected.probabilities[order, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"paper": "true"}, "method 'default' has no settings of a paper; these have: weighted-majority"),
        ({"method": '"vb-ibcc"', "paper": '"yes, please"'}, "combine.paper: input should be a valid boolean"),
        ({"method": '"vb-ibcc"', "papers": "true"}, "combine.papers: no such key; did you mean 'paper'?"),
        ({"method": '"vb-ibcc"', "paper": "true", "options": "{ diag = 1 }"}, "method 'vb-ibcc' has no setting 'diag'"),
    ],
)
def test_mistakes_are_named_by_doctor_and_run(run: Run, project: Path, keys: dict[str, str], message: str) -> None:
    change(project, **keys)
    code, out, err = run("doctor")
    assert (code, message in out + err) == (78, True)
    code, _, err = run("run")
    assert (code, message in err) == (78, True)
