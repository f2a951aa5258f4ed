"""Features are there for `[learn]`, policies and graphs too: a method that makes no use of them is no mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from hitl.models.combiner import needs_of
from hitl.models.methods import COMBINERS
from tests.command_line import Run
from tests.projects import folder_with_tables

SETTINGS = """name = "p"
[source]
kind = "tables"
path = "p"
[features]
text = "text"
dimensions = 2
[graph]
neighbours = 2
[learn]
model = "logistic"
folds = 2
[combine]
method = "{method}"
"""
SAMPLED = {"gibbs-ibcc", "ebcc", "dbcc", "edbcc"}
SPANS = [f"{n},{who},0,{4 if (who, n % 3) == ('cyd', 0) else 3},PER" for n in range(9) for who in ("ann", "bob", "cyd")]
METHODS = [name for name in COMBINERS if "sequence" not in needs_of(COMBINERS.load(name)) and name not in SAMPLED]
"""Methods that a project can name, apart from those that draw samples: they run as the others do, and longer."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of tables with known truth and a model, which some methods need."""
    folder = folder_with_tables(tmp_path / "p")
    (folder / "truth.csv").write_text("item,label\n" + "".join(f"{n},{n % 2}\n" for n in range(3)))
    rows = "".join(f"{n},{0.3 + n % 2 * 0.4},{0.7 - n % 2 * 0.4}\n" for n in range(12))
    (folder / "probabilities_net.csv").write_text(f"item,p_1,p_0\n{rows}")
    return folder


def assert_silent(run: Run, folder: Path, method: str, *commands: str) -> None:
    (folder.parent / "hitl.toml").write_text(SETTINGS.format(method=method))
    for words in commands:
        status, out, err = run(*words.split())
        assert status == 0, (words, out, err)
        assert "ignores the features" not in out + err, words


@pytest.mark.journey
@pytest.mark.parametrize("method", METHODS)
def test_no_run_says_that_its_method_ignores_features(run: Run, project: Path, method: str) -> None:
    assert_silent(run, project, method, "run")


@pytest.mark.parametrize("method", ["default", "pl-em"])
def test_no_command_of_a_project_says_so(run: Run, project: Path, method: str) -> None:
    assert_silent(
        *(run, project, method, "run", "learn", "run --dry-run", "status", "annotators", "models", "report"),
        *("export labels.csv", "audit"),
    )


@pytest.mark.parametrize("method", ["default", "bsc-seq"])
def test_nor_where_annotators_mark_parts_of_texts(run: Run, tmp_path: Path, method: str) -> None:
    folder = folder_with_tables(tmp_path / "p")
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,start,end,label", *SPANS]) + "\n")
    assert_silent(run, folder, method, "run", "status", "annotators", "report", "audit")
