"""Commands against a real Label Studio: exit codes, and what needs no token."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from hitl.connectors.label_studio import LabelStudio
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


@pytest.mark.parametrize(
    ("url", "token", "number", "code", "message"),
    [
        ("http://127.0.0.1:1", "token-of-nobody", 1, 69, "127.0.0.1:1"),
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
    arguments = ("init", "--label-studio", url or project.server.url, "--project", str(number))
    refused = hitl(*arguments, token=token or project.server.token)
    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr
    assert not (tmp_path / "hitl.toml").exists()
    (tmp_path / "hitl.toml").write_text(
        f'name = "x"\n[source]\nkind = "label-studio"\nurl = "{url or project.server.url}"\nproject = {number}\n'
    )
    for command in (["run"], ["doctor"], ["pull"]):
        done = hitl(*command, token=token or project.server.token)
        said = done.stdout + done.stderr
        assert done.returncode == (code if command != ["doctor"] else done.returncode) != 0, said
        assert message in said
        assert "Traceback" not in said
        assert (token or project.server.token) not in said


def test_init_looks_at_the_project_of_a_pasted_address(
    make_project: Callable[..., Project], hitl: Hitl, tmp_path: Path
) -> None:
    project, tasks = labeled_project(make_project)
    title = str(project.settings()["title"])
    made = hitl("init", f" <{project.server.url}/projects/{project.number}/data?tab=7&task={tasks[0]}#x>\n")
    assert (made.returncode, made.stderr) == (0, "")
    said = made.stdout.splitlines()
    assert said[0] == f"project {project.number}, {title!r}: {len(tasks)} tasks"
    assert said[1] == "asks 'sentiment': good, bad, Unsure"
    assert said[-1] == "next: `hitl doctor`, then `hitl run`"
    text = (tmp_path / "hitl.toml").read_text()
    settings = tomllib.loads(text)
    assert settings["source"] == {"kind": "label-studio", "url": project.server.url, "project": project.number}
    assert settings["name"] == re.sub("[^a-z0-9.]+", "-", title.lower()).strip("-")
    assert f"# {said[1]}" in text
    assert project.server.token not in text
    assert hitl("run").returncode == 0
    assert hitl("init", f"{project.server.url}/projects/{project.number}").returncode == 78  # never overwrites


def test_init_says_which_projects_there_are(project: Project, hitl: Hitl, tmp_path: Path) -> None:
    title = str(project.settings()["title"])
    for address in (f"{project.server.url}/projects/", f"{project.server.url}/projects/999999/data"):
        done = hitl("init", address)
        assert done.returncode in (77, 78)
        assert title in done.stderr
        assert str(project.number) in done.stderr
    done = hitl("init", f"{project.server.url}/projects/{project.number}", "--control", "mood")
    assert (done.returncode, "expected one of 'sentiment'" in done.stderr) == (78, True)
    empty = LabelStudio.create_project(project.server.url, project.server.token, "no questions yet", "<View></View>")
    done = hitl("init", f"{project.server.url}/projects/{empty}")
    assert (done.returncode, "has no control" in done.stderr) == (77, True)
    assert not (tmp_path / "hitl.toml").exists()


def test_what_costs_answers_is_said_before_there_are_any(make_project: Callable[..., Project], hitl: Hitl) -> None:
    config = """<View><Text name="text" value="$text"/><Image name="image" value="$image"/>
    <RectangleLabels name="car" toName="image"><Label value="car"/></RectangleLabels>
    <Choices name="kind" toName="text"><Choice value="ad"/><Choice value="post"/></Choices>
    <Taxonomy name="topic" toName="text"><Choice value="a"/><Choice value="b"/></Taxonomy>
    <View visibleWhen="choice-selected" whenTagName="kind" whenChoiceValue="ad"><Rating name="stars" toName="text"/>
    </View></View>"""
    several, hidden = "'topic' lets annotators choose several answers", "not always shown (visibleWhen)"
    notes = (several, "'car' lets annotators turn boxes")
    project = make_project(config)
    made = hitl("init", f"{project.server.url}/projects/{project.number}")
    assert all(f"note: {note}" in made.stdout for note in notes), made.stdout
    (line,) = [line for line in hitl("doctor").stdout.split("\n") if several in line]
    assert all(note in line for note in notes)
    assert hidden not in line, "the question before it says which tasks hide it"
    address = f"{project.server.url}/projects/{project.number}"
    assert f"note: stars: {hidden}" in hitl("init", address, "-c", "a.toml", "--control", "stars").stdout
    alone = make_project(config.replace('name="topic"', 'name="topic" maxUsages="1"'))
    assert hitl("init", f"{alone.server.url}/projects/{alone.number}", "-c", "b.toml", "--control", "topic").stdout
    assert "warn  labeling configuration" not in hitl("doctor", "-c", "b.toml").stdout


def test_a_project_that_is_gone_is_a_known_error(make_project: Callable[..., Project], hitl: Hitl) -> None:
    project, _ = labeled_project(make_project)
    assert hitl("init", f"{project.server.url}/projects/{project.number}").returncode == 0
    assert hitl("run").returncode == 0
    project.admin.delete(f"{project.path}/")
    assert hitl("run").returncode == 77
    said = hitl("status").stdout
    assert "said 404" in said
    assert "unexpected" not in said


def test_a_plan_from_the_store_needs_no_token(make_project: Callable[..., Project], hitl: Hitl) -> None:
    project, tasks = labeled_project(make_project)
    assert hitl("init", "--label-studio", project.server.url, "--project", str(project.number)).returncode == 0
    assert hitl("plan", token="").returncode == 65  # nothing is stored
    assert hitl("run").returncode == 0
    expected = json.loads(hitl("plan", "--dry-run", "--json").stdout)
    done = hitl("plan", "--dry-run", "--json", token="")
    assert (done.returncode, json.loads(done.stdout)) == (0, expected), done.stderr
    assert done.stderr == ""
    assert expected["metrics"]["items"] == len(tasks)
    assert hitl("plan", token="").returncode == 0  # recorded; the next push, which needs the token, sends it
    assert hitl("push", token="").returncode == 78
