"""A newcomer follows each tutorial word by word, on real servers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.label_studio.conftest import Project
from tests.connectors.mlflow.server import Server
from tests.connectors.reader import Reader, fill, follows, in_label_studio
from tests.events.receivers import receiving

pytestmark = [pytest.mark.server, pytest.mark.journey]


@follows("docs/tutorials/learning.md", "docs/tutorials/files.md")
def test_with_files(tmp_path: Path, page: str) -> None:
    reader = Reader(tmp_path, {})

    def answer(line: str) -> None:
        if "writes audit.csv" in line:
            fill(reader.here / "audit.csv", "answer")
            assert "audit" in reader.type(line)

    reader.follow(page, answer)
    assert all((reader.here / file).exists() for file in ("replay.html", "report.html") if page.endswith("files.md"))


@follows("docs/tutorials/team.md")
def test_for_a_team(tmp_path: Path, page: str) -> None:
    with receiving() as receiver:
        reader = Reader(tmp_path, {"https://hooks.example/services/...": f"'{receiver.url}'"})
        reader.follow(page)
        assert len(receiver.got) >= 1
    assert "bob" in reader.type("hitl users list")


@follows("docs/tutorials/label-studio.md")
def test_in_label_studio(tmp_path: Path, make_project: Callable[..., Project], page: str) -> None:
    project = make_project()
    reader = Reader(tmp_path, in_label_studio(project, tmp_path))
    try:
        reader.follow(page)
    finally:
        reader.state.unlink()  # it holds the token
    assert {f"hitl: {project.people[k].email}" for k in (0, 1)} <= set(project.views())
    with (tmp_path / "labels.csv").open() as file:
        assert len(list(csv.DictReader(file))) >= 12


@follows("docs/tutorials/traces.md")
def test_where_traces_are(tmp_path: Path, mlflow: Server, page: str) -> None:
    made = mlflow.experiment("chat", 12, {"correct": {"categorical": {"options": ["yes", "no"]}}})
    for n in range(6):
        made.say(n, "ann", "yes" if n % 2 else "no")
        made.say(n, "gpt", "yes", kind="LLM_JUDGE")
    Reader(tmp_path, {"http://localhost:5000": mlflow.url}).follow(page)
    assert set(made.queue("hitl: bob")) & set(range(12))
    assert [one for one in made.assessments(0) if one["assessment_name"] == "correct_hitl"]
