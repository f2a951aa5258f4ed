"""The commands against a real Label Studio, from `hitl init` to the report."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hitl.tables.read import read_table
from tests.command_line import COMMAND, forked
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import labeled_project

pytestmark = [pytest.mark.server, pytest.mark.journey]

Hitl = Callable[..., subprocess.CompletedProcess[str]]
AT_ONCE = f"from hitl.connectors.label_studio import client; client.WAITS = (0.0,) * len(client.WAITS); {COMMAND}"
"""The command, which tries again without a pause."""


@pytest.fixture
def hitl(project: Project, tmp_path: Path) -> Hitl:
    """`hitl("run")` in an empty folder, with the server's token in the environment."""

    def call(*arguments: str, token: str = project.server.token) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HITL_")}
        environment["HITL_LABEL_STUDIO_TOKEN"] = token
        return forked(AT_ONCE, *arguments, folder=tmp_path, environment=environment)

    return call


def test_a_lead_sets_a_project_up_and_runs_it(make_project: Callable[..., Project], hitl: Hitl, tmp_path: Path) -> None:
    project, tasks = labeled_project(make_project)
    made = hitl("init", "--label-studio", project.server.url, "--project", str(project.number), "--name", "texts")
    assert made.returncode == 0, made.stderr
    assert "HITL_LABEL_STUDIO_TOKEN" in made.stdout
    checked = hitl("doctor")
    assert "ok    " in checked.stdout, checked.stderr
    first = hitl("run", "--json")
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    assert report["metrics"]["items"] == len(tasks)
    assert report["changed"] > 0
    again = json.loads(hitl("run", "--json").stdout)
    assert (again["changed"], again["operations"]) == (0, 0)
    assert hitl("doctor").returncode == 0
    status = json.loads(hitl("status", "--json").stdout)
    assert (status["cycles"], status["pending"], status["stored"]["items"]) == (2, 0, len(tasks))
    assert hitl("export", "labels.csv", "--annotators-output", "people.csv").returncode == 0
    assert read_table(tmp_path / "labels.csv").column("item").to_pylist() == [str(task) for task in tasks]
    people = read_table(tmp_path / "people.csv").column("annotator").to_pylist()
    assert people == [project.people[0].email, project.people[1].email]
    assert hitl("report").returncode == 0
    assert "text 1" in (tmp_path / "hitl-report.html").read_text()
    (tmp_path / "new.csv").write_text("item,text\nn1,something new\n")
    (tmp_path / "gold.csv").write_text(f"item,label\n{tasks[0]},bad\n")
    assert hitl("add", "new.csv").returncode == 0
    assert hitl("add", "new.csv").stdout.startswith("items of new.csv: 0 changed")
    assert hitl("gold", "gold.csv").returncode == 0
    after = json.loads(hitl("run", "--json").stdout)
    assert after["metrics"]["items"] == len(tasks) + 1
    assert any(annotation["ground_truth"] for annotation in project.task(tasks[0])["annotations"])


@pytest.mark.parametrize(
    ("url", "token", "number", "code", "message"),
    [
        ("http://127.0.0.1:1", "x" * 40, 1, 69, "127.0.0.1:1"),
        (None, "f" * 40, 1, 77, "HITL_LABEL_STUDIO_TOKEN"),
        (None, None, 999_999, 77, "999999"),
        ("ftp://nowhere", None, 1, 78, "http://"),
    ],
    ids=["nobody answers", "wrong token", "no such project", "no address"],
)
def test_what_goes_wrong_has_its_exit_code_and_says_what_to_do(
    project: Project,
    hitl: Hitl,
    tmp_path: Path,
    url: str | None,
    token: str | None,
    number: int,
    code: int,
    message: str,
) -> None:
    made = hitl("init", "--label-studio", url or project.server.url, "--project", str(number))
    assert made.returncode == 0
    for command in (["run"], ["doctor"], ["pull"]):
        done = hitl(*command, token=token or project.server.token)
        said = done.stdout + done.stderr
        assert done.returncode == (code if command != ["doctor"] else done.returncode) != 0, said
        assert message in said
        assert "Traceback" not in said
        assert (token or project.server.token) not in said


def test_a_plan_from_the_store_needs_no_token(make_project: Callable[..., Project], hitl: Hitl) -> None:
    project, tasks = labeled_project(make_project)
    assert hitl("init", "--label-studio", project.server.url, "--project", str(project.number)).returncode == 0
    assert hitl("plan", token="").returncode == 78  # nothing is stored
    assert hitl("run").returncode == 0
    expected = json.loads(hitl("plan", "--dry-run", "--json").stdout)
    done = hitl("plan", "--dry-run", "--json", token="")
    assert (done.returncode, json.loads(done.stdout)) == (0, expected), done.stderr
    assert "HITL_LABEL_STUDIO_TOKEN is not set" in done.stderr
    assert expected["metrics"]["items"] == len(tasks)
    assert hitl("plan", token="").returncode == 0  # recorded; the next push, which needs the token, sends it
    assert hitl("push", token="").returncode == 78


def test_a_control_that_is_not_supported_is_refused(make_project: Callable[..., Project], hitl: Hitl) -> None:
    polygons = """<View><Image name="img" value="$image"/>
    <PolygonLabels name="area" toName="img"><Label value="cat"/></PolygonLabels></View>"""
    project = make_project(polygons)
    assert hitl("init", "--label-studio", project.server.url, "--project", str(project.number)).returncode == 0
    done = hitl("run")
    assert done.returncode == 77
    assert "PolygonLabels" in done.stderr
