"""One bad thing in a project of two people: the other goes on being served, and the advice that is given cures it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hitl import cycle
from hitl.audit import audit
from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer, Person
from hitl.errors import HitlError
from hitl.service.web.background import ACTIONS
from hitl.service.web.projects import Work
from hitl.settings import Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import SENTIMENT, Project, Through, choice
from tests.connectors.label_studio.projects import settings_for
from tests.of_the_day import of_the_day

pytestmark = [pytest.mark.server, pytest.mark.journey]

MOOD = SENTIMENT.replace('name="sentiment"', 'name="mood"')


class Team:
    """A project of fourteen tasks and two people who are asked by name."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project = project
        self.folder = folder
        self.transport: httpx.BaseTransport | None = None
        self.control = "sentiment"
        self.said = self.told = ""
        self.failed = False
        self.tasks = project.add(14)
        self.settings: Settings = settings_for(project.number, [one.email for one in project.people], max_labels=2)
        self.store = Store(f"sqlite:///{folder}/hitl.db")

    def set(self, part: str, **values: Any) -> None:
        """Change settings, as one does in hitl.toml."""
        old = getattr(self.settings, part)
        self.settings = self.settings.model_copy(update={part: old.model_copy(update=values)})

    def connect(self) -> LabelStudio:
        server, source = self.project.server, self.settings.source
        named = {"control": source.control, "abstain": source.abstain}
        more = {} if self.transport is None else {"transport": self.transport}
        return LabelStudio(server.url, server.token, self.project.number, **named, **more)

    def cycle(self) -> str:
        """Run a cycle; what its user is told."""
        try:
            report = cycle.run(self.settings, self.store, self.connect())
        except HitlError as error:
            self.failed, self.said = True, str(error)
        else:
            self.failed, self.said = False, "; ".join(report.pulled.problems)
        self.told += self.said
        return self.said

    def work(self, k: int, most: int = 2) -> list[int]:
        """What this annotator is served in their tab, and answers."""
        served: list[int] = []
        while len(served) < most and (task := self.project.next(k, self.project.tab(k))) is not None:
            label = "good" if task % 3 else "bad"
            body = {"result": choice(label, control=self.control), "lead_time": 1.5}
            self.project.person(k).post(f"/api/tasks/{task}/annotations/", body)
            served.append(task)
        return served

    def differences(self) -> list[str]:
        found = audit(self.settings, self.store, replace_transport(self)).differences
        return [f"{one.what} {one.key}: {one.why}" for one in found]


def replace_transport(team: Team) -> LabelStudio:
    team.transport = None
    return team.connect()


Act = Callable[[Team], object]


@dataclass(frozen=True)
class Poison:
    """What happens, what is said of it, and what one does who follows that."""

    happens: Act
    said: str
    cure: Act
    served: bool = True
    """Whether the second annotator is served again after the cure."""


def opened(team: Team) -> int:
    """The second annotator has a task open."""
    task = team.project.next(1, team.project.tab(1))
    assert task is not None
    return task


def leave(path: str) -> Act:
    def happens(team: Team) -> None:
        opened(team)
        team.project.admin.delete(path.format(team.project.people[1].id))

    return happens


def crew(*names: str) -> Act:
    """`{0}` and `{1}` are the addresses of the two."""
    return lambda team: team.set(
        "crew", annotators=tuple(name.format(*(one.email for one in team.project.people)) for name in names)
    )


def misspell(team: Team) -> None:
    crew("{0}", team.project.people[1].email.replace("@", "q@"))(team)


class NoUsers(Through):
    """A proxy that answers the list of users with an empty one."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/users/":
            return httpx.Response(200, json=[])
        return super().handle_request(request)


def hide_users(team: Team) -> None:
    team.transport = NoUsers()


def show_users(team: Team) -> None:
    team.transport = None


def delete_wrong_answer(team: Team) -> None:
    found = re.search(r"annotation (\d+)", team.told)
    assert found is not None
    team.project.admin.delete(f"/api/annotations/{found[1]}/")


def submit_twice(team: Team) -> None:
    task = opened(team)
    team.project.answer(1, task, "bad")
    team.project.answer(1, task, "good")


def lose_model(team: Team) -> None:
    team.settings = team.settings.model_copy(update={"models": {"gpt": str(team.folder / "gpt.csv")}})


def restore_model(team: Team) -> None:
    rows = "".join(f"{task},0.8,0.2\n" for task in team.tasks)
    (team.folder / "gpt.csv").write_text(f"item,p_good,p_bad\n{rows}")


def break_model(team: Team) -> None:
    (team.folder / "gpt.csv").write_bytes(b"\x00\xff\xfe" * 40)
    lose_model(team)


GONE = r"crew\.annotators: .*no user '.*or take them out"
POISONS = {
    "unknown name": Poison(misspell, r"no user '.*q@.*did you mean '(.*)'", crew("{0}", "{1}")),
    "person left": Poison(leave("/api/organizations/1/memberships/{}/"), GONE, crew("{0}"), served=False),
    "person deleted": Poison(leave("/api/users/{}/"), GONE, crew("{0}"), served=False),
    "user list empty": Poison(hide_users, r"list of users cannot be read.*GET /api/users/.*does a proxy", show_users),
    "invalid answer": Poison(
        lambda team: team.project.answer(1, opened(team), "no such choice"),
        r"'no such choice' is not among.*fix or delete it", delete_wrong_answer,
    ),
    "double submission": Poison(submit_twice, "", lambda team: None),
    "dead file": Poison(
        lose_model, r"models\.gpt is left out: .*gpt\.csv: no such file.*Fix the file, or take it out", restore_model
    ),
    "broken file": Poison(break_model, r"models\.gpt is left out: .*gpt\.csv, line 1: .*Fix the file", restore_model),
    "deleted task": Poison(
        lambda team: team.project.admin.delete(f"/api/tasks/{opened(team)}/"), "", lambda team: None
    ),
}  # fmt: skip


@pytest.fixture
def team(make_project: Callable[..., Project], server: LocalServer, tmp_path: Path) -> Iterator[Team]:
    project = make_project()
    two: list[Person] = [server.sign_up(f"{who}{project.number}@example.com", "a-long-password") for who in "ab"]
    made = Team(replace(project, people=two), tmp_path)
    with made.store:
        yield made


@pytest.mark.parametrize("name", of_the_day(POISONS, 3))
def test_the_other_is_served_and_the_advice_cures(team: Team, name: str) -> None:
    poison = POISONS[name]
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    before = {*team.work(0), *team.work(1, 1)}
    poison.happens(team)
    for _ in range(2):
        team.cycle()
        assert not team.failed, team.said
        assert re.search(poison.said, team.said), team.said
        served = team.work(0)
        assert len(served) == 2, team.said
        assert not before & set(served)
        before |= set(served)
    poison.cure(team)
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    assert team.differences() == []
    assert len(team.work(0)) == 2
    if poison.served:
        assert team.work(1)


def test_whoever_left_keeps_their_name_with_their_answers(team: Team) -> None:
    team.cycle()
    task = team.work(1, 1)[0]
    team.cycle()
    email = team.project.people[1].email
    leave("/api/organizations/1/memberships/{}/")(team)
    for _ in range(2):
        team.cycle()
        assert email in team.store.annotator_names("p").values()
        assert "Deleted" not in team.store.annotator_names("p").values()
        team.project.admin.patch(f"/api/tasks/{task}/", {"data": {"text": "changed"}})  # the answer is read again


def test_items_sent_back_to_whoever_left_stop_nobody(team: Team) -> None:
    team.cycle()
    team.work(0)
    email = team.project.people[1].email
    for task in team.tasks[:2]:
        team.store.send_back("p", str(task), email, "lea")
    team.cycle()
    leave("/api/organizations/1/memberships/{}/")(team)
    for who in ("nobody@example.com", email):
        team.store.send_back("p", str(team.tasks[2]), who, "lea")
        team.cycle()
        assert not team.failed, team.said
        assert (
            f"items were sent back to '{who}', who is no user of the platform and is not asked. Let them" in team.said
        )
        ACTIONS["plan"](team.settings, team.store, team.connect(), Work("plan", "lea", 0.0))
        assert who not in {ask.annotator for ask in team.store.plan("p").asks if ask.sent_back}
        team.cycle()
    assert team.differences() == []


# -- the labeling configuration changes under it


def configure(team: Team, config: str) -> None:
    team.project.admin.patch(f"/api/projects/{team.project.number}/", {"label_config": config})


def all_are_served(team: Team) -> set[int]:
    """Two cycles, in which both have questions, and new ones after they answered."""
    answered: set[int] = set()
    for _ in range(2):
        team.cycle()
        assert not team.failed, team.said
        for k in (0, 1):
            served = team.work(k)
            assert served, team.said
            answered |= set(served)
    return answered


@pytest.mark.parametrize("named", [False, True])
def test_a_control_that_is_renamed_stops_nobody(team: Team, named: bool) -> None:
    team.set("source", control="sentiment" if named else None)
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    configure(team, MOOD)  # Label Studio allows it while nobody has answered
    team.control = "mood"
    all_are_served(team)
    if named:
        assert "source.control names 'sentiment', and the labeling configuration has 'mood'" in team.said
        team.set("source", control="mood")
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    assert team.differences() == []


def test_an_answer_from_a_page_that_was_open_while_the_control_was_renamed(team: Team) -> None:
    team.cycle()
    configure(team, MOOD)
    task = opened(team)
    wrong = team.project.answer(1, task, "good")  # as the page knew it
    team.control = "mood"
    team.cycle()
    assert f"annotation {wrong['id']}: it answers 'sentiment', which the labeling configuration does not have" in (
        team.said
    )
    assert "fix or delete it on the platform" in team.said
    assert len(team.work(0)) == 2
    team.project.admin.delete(f"/api/annotations/{wrong['id']}/")
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    assert team.differences() == []
    assert len(team.work(1, 9)) >= 3


def test_a_class_that_is_taken_away_and_put_back(team: Team) -> None:
    team.cycle()
    before = {*team.work(0), *team.work(1)}
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    configure(team, SENTIMENT.replace('<Choice value="good"/>', '<Choice value="fine"/>'))
    team.cycle()
    assert not team.failed, team.said
    assert "'good' is not among the choices of 'sentiment'" in team.said
    assert team.differences() == []
    configure(team, SENTIMENT)
    team.cycle()
    assert (team.failed, team.said) == (False, "")
    assert team.differences() == []
    assert team.store.counts("p")["labels"] == len(before)
    all_are_served(team)
