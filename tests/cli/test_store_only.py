"""Commands that show what is stored need neither the platform nor its token, and say how old it is."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.test_combine import tables
from tests.command_line import Run

__all__ = ["tables"]

STORE_ONLY = (
    "status",
    "export labels.csv --annotators-output people.csv --annotations raw.csv --asked asked.csv",
    "report",
    "annotators",
    "models",
    "plan --dry-run",
    "run --dry-run",
    "push --dry-run",
)
AGE = r"as of \d{4}-\d\d-\d\d \d\d:\d\d UTC, the last run"


@pytest.fixture
def project(run: Run, tables: Path) -> Path:
    """A project of tables after a run."""
    data = tables / "data"
    data.mkdir()
    shutil.move(tables / "annotations.csv", data / "annotations.csv")
    shutil.move(tables / "probs.csv", data / "probabilities_net.csv")
    assert run("init", "data", "--name", "pets")[0] == 0
    assert run("run")[0] == 0
    return data


def unreachable(data: Path, platform: str) -> None:
    """Take away the platform: the tables, or a server that nobody started, whose token is not set."""
    shutil.rmtree(data)
    if platform == "server":
        text = re.sub(
            'kind = "tables"\npath = "data"',
            'kind = "label-studio"\nurl = "http://127.0.0.1:9"\nproject = 1',
            Path("hitl.toml").read_text(),
        )
        Path("hitl.toml").write_text(text)


@pytest.mark.parametrize("platform", ["tables", "server"])
def test_what_is_stored_is_shown_without_the_platform(run: Run, project: Path, platform: str) -> None:
    before = {command: run(*command.split()) for command in STORE_ONLY}
    unreachable(project, platform)
    for command, (_, expected, _) in before.items():
        code, out, err = run(*command.split())
        assert (code, err) == (0, ""), command
        assert out == expected, command
        if command.split()[0] not in ("status", "push"):
            assert re.search(AGE, out), command
    assert re.fullmatch(AGE, json.loads(run("plan", "--dry-run", "--json")[1])["as_of"])
    assert re.fullmatch(AGE, json.loads(run("annotators", "--json")[1])["as_of"])


def test_before_the_first_pull_there_is_nothing_to_show(run: Run, tables: Path) -> None:
    assert run("init", "--tables", ".")[0] == 0
    for command in ("annotators", "models", "report", "plan --dry-run", "export labels.csv"):
        code, _, err = run(*command.split())
        assert (code != 0, "`hitl run`" in err) == (True, True), command


@pytest.mark.parametrize(
    ("setting", "combined_again"),
    [("HITL_COMBINE__METHOD", True), ("HITL_BUDGET__OPEN_QUESTIONS", False)],
)
def test_changed_settings_of_the_consensus_are_followed_or_told(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, setting: str, combined_again: bool
) -> None:
    method = json.loads(run("annotators", "--json")[1])["questions"]["label"]["method"]
    monkeypatch.setenv(setting, "dawid-skene" if combined_again else "7")
    found = json.loads(run("annotators", "--json")[1])
    assert found["questions"]["label"]["method"] == ("dawid-skene" if combined_again else method)
    assert ("combined now" in found["as_of"]) is combined_again
    assert ("settings" in run("export", "labels.csv")[2]) is combined_again


def test_labels_pulled_since_the_run_are_told(run: Run, project: Path) -> None:
    with (project / "annotations.csv").open("a") as file:
        file.write("t1,zoe,parrot\n")
    assert run("pull")[0] == 0
    assert "have changed since the last run" in run("export", "labels.csv")[2]
    out = run("plan", "--dry-run")[1]
    assert re.search(rf"with what was pulled since .*{AGE[6:]}", out)
    assert "parrot" in json.loads(run("annotators", "--json")[1])["questions"]["label"]["classes"]  # a new class too


def test_an_item_that_nothing_speaks_about_has_no_label(run: Run, project: Path) -> None:
    """The most frequent class is not the label of an item that nobody has answered and no model predicts."""
    (project / "items.csv").write_text("item\nt1\nlonely\n")
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    with Path("labels.csv").open() as file:
        rows = {row["item"]: row for row in csv.DictReader(file)}
    assert (rows["lonely"]["label"], rows["lonely"]["confidence"], rows["lonely"]["labels"]) == ("", "", "0")
    assert all(bool(row["label"]) == (row["source"] != "nobody") == bool(row["confidence"]) for row in rows.values())
