"""A team's first week, with hitl installed from its wheel outside the checkout, on a Label Studio of its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer, Person
from tests.connectors.label_studio.conftest import Project, choice
from tests.deploy.files import built, installed

pytestmark = [pytest.mark.server, pytest.mark.trust]

TWO = """<View><Text name="text" value="$text"/>
<Choices name="tone" toName="text"><Choice value="good"/><Choice value="bad"/></Choices>
<Rating name="stars" toName="text" maxRating="3"/></View>"""
ONE = TWO.replace('<Rating name="stars" toName="text" maxRating="3"/>', "")
PEOPLE = 3


@pytest.fixture(scope="module")
def hitl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel in an environment that knows nothing of the checkout; what hitl needs is lent."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    _, wheel = built(folder)
    return installed(wheel, folder / "env") / "hitl"


class Team:
    """What a team types, and what its annotators do."""

    def __init__(self, hitl: Path, folder: Path, server: LocalServer, people: Sequence[Person] = ()) -> None:
        self.hitl, self.folder, self.server = hitl, folder, server
        self.people = people or [server.sign_up(f"ann{k}@example.com", "a-long-password") for k in range(PEOPLE)]
        self.number = {
            name: LabelStudio.create_project(server.url, server.token, f"project {name}", config)
            for name, config in (("a", ONE), ("b", TWO))
        }
        self.crew: list[str] = [person.email for person in self.people]

    def project(self, name: str) -> Project:
        return Project(self.server, self.people, self.number[name])

    def write(self, name: str) -> None:
        """hitl.toml of a project; both use one store."""
        crew = f"[crew]\nannotators = {json.dumps(self.crew)}\n" if name == "a" else ""
        (self.folder / f"{name}.toml").write_text(
            f'name = "{name}"\nstore = "sqlite:///shared.db"\n[source]\nkind = "label-studio"\n'
            f'url = "{self.server.url}"\nproject = {self.number[name]}\nkey = "ref"\n'
            f"[budget]\nopen_questions = 50\nmin_labels = 2\nmax_labels = 3\n{crew}"
        )

    def run(self, *words: str, code: int = 0) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HITL", "PYTHON"))}
        environment["HITL_LABEL_STUDIO_TOKEN"] = self.server.token
        command = [str(self.hitl), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def work(self, name: str, label: Any, most: int = 100) -> int:
        """Everybody answers what their tab, or else the project, serves them."""
        project, given = self.project(name), 0
        for k in range(PEOPLE):
            view = project.tab(k) if name == "a" else None
            while given < most and (task := project.next(k, view)) is not None:
                project.person(k).post(f"/api/tasks/{task}/annotations/", {"result": label(task), "lead_time": 2.0})
                given += 1
        return given


def tone(task: int) -> list[dict[str, Any]]:
    return choice("good" if task % 2 else "bad", control="tone")


def both(task: int) -> list[dict[str, Any]]:
    stars = {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": 1 + task % 3}}
    return [*tone(task), stars]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


SOURCE = [{"ref": f"r{n}", "text": f"text {n}"} for n in range(5)]


def filled(team: Team) -> Team:
    """Both projects have the items of the source."""
    for name in ("a", "b"):
        project = team.project(name)
        project.admin.post(f"{project.path}/import", [{"data": row} for row in SOURCE])
    return team


def test_the_whole_week(hitl: Path, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with LocalServer(tmp_path / "server") as server:
        team = filled(Team(hitl, tmp_path, server))
        _monday(team, "ann2")
        _tuesday(team)
    (tmp_path / "server" / "port").unlink()
    with LocalServer(tmp_path / "server") as server:  # the server was restarted, at another address
        team.server = server
        _wednesday(team)
        _thursday(team)
    text = {row["ref"]: row["text"] for row in SOURCE}
    for name in ("a.csv", "b.tone.csv", "b.stars.csv"):  # a table a control
        exported = rows(tmp_path / name)
        assert all(row["label"] for row in exported)
        joined = {row["item"]: row["text"] for row in exported}
        assert joined == (text | {"r5": "text 5"} if name == "a.csv" else text)


def _monday(team: Team, third: str) -> None:
    """A mistyped address: named, and the others work; then mended."""
    team.crew[2] = team.crew[2].replace("@", "@@")
    for name in ("a", "b"):
        team.write(name)
    assert f"no user '{third}@@example.com'" in team.run("run", "-c", "a.toml")
    assert "FAIL  crew" in team.run("doctor", "-c", "a.toml", code=1)
    assert team.work("a", tone, most=4) == 4
    team.crew[2] = team.people[2].email
    team.write("a")
    assert "no user" not in team.run("run", "-c", "a.toml")
    assert "ok    crew: 3 named" in team.run("doctor", "-c", "a.toml")
    status = team.run("status", "-c", "a.toml")
    assert f"/projects/{team.number['a']}/data?tab={team.project('a').tab(2)}\n" in status
    assert status.count("Label Tasks As Displayed") == 1
    assert "tone, stars" in team.run("doctor", "-c", "b.toml")
    team.run("run", "-c", "b.toml")


def _tuesday(team: Team) -> None:
    """A task submitted twice, an answer changed and one taken back, and a class added."""
    project = team.project("b")
    first, second = (int(task["id"]) for task in project.admin.get("/api/tasks", project=project.number)["tasks"][:2])
    for _ in range(2):
        project.person(0).post(f"/api/tasks/{first}/annotations/", {"result": both(first)})
    changed = project.person(1).post(f"/api/tasks/{second}/annotations/", {"result": both(second + 1)})
    gone = project.person(2).post(f"/api/tasks/{second}/annotations/", {"result": both(second)})
    team.run("run", "-c", "b.toml")
    project.admin.patch(f"/api/annotations/{changed['id']}/", {"result": both(second)})
    project.admin.delete(f"/api/annotations/{gone['id']}/", {})
    wider = TWO.replace('<Choice value="bad"/>', '<Choice value="bad"/><Choice value="mixed"/>')
    project.admin.patch(f"{project.path}/", {"label_config": wider})
    team.run("run", "-c", "b.toml")
    (team.folder / "new.csv").write_text("item,text\nr5,text 5\n")
    team.run("add", "new.csv", "-c", "a.toml")
    (team.folder / "truth.csv").write_text("item,label\nr5,good\n")
    team.run("gold", "truth.csv", "-c", "a.toml")


def _wednesday(team: Team) -> None:
    """At a new address the project has to be pulled anew, knowingly."""
    for name in ("a", "b"):
        team.write(name)
        assert "If it is the same project at a new address: `hitl pull --full`" in team.run(
            "run", "-c", f"{name}.toml", code=78
        )
        team.run("pull", "--full", "-c", f"{name}.toml")


def _thursday(team: Team) -> None:
    """Both projects end, and their labels are exported."""
    for name, label in (("a", tone), ("b", both)):
        for _ in range(8):
            said = team.run("run", "-c", f"{name}.toml")
            if not team.work(name, label):
                break
        assert "done" in said
        team.run("export", f"{name}.csv", "-c", f"{name}.toml")
        assert "The project is done" in team.run("status", "-c", f"{name}.toml")
