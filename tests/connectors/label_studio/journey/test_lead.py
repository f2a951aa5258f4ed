"""A lead and an annotator at work, each in a browser: `hitl serve` as a process beside a real Label Studio.

The lead logs in, starts a cycle, watches a label arrive that the annotator gives in Label Studio's editor, follows a
cell of confusion to its items, makes a plan and approves it, and sends an item back. Label Studio serves what was
planned, and what was sent back; the new answer is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hitl.connectors.label_studio.assign import tabs
from tests.connectors.label_studio.conftest import Project, choice
from tests.scheduled import until
from tests.service.web.browser.seen import browser, needs_chromium, watched
from tests.service.web.processes import first_user, serving

pytestmark = [pytest.mark.server, pytest.mark.journey, needs_chromium]

PASSWORD = "a-long-password"
SECRET = "the secret of webhooks"
PATIENCE = 60_000
"""Milliseconds that a page may take."""

SAID = {0: "gbggbgbg", 1: "gbbgbgbg", 2: "gggggbgb"}
"""Person -> what they said of the first eight of ten tasks; the third one likes all."""

ANNOTATOR, OPTIMIST = 3, 2
"""Places of the one who labels in a browser, and of the one who likes all."""


@dataclass
class Journey:
    """The project, its service, and a page of each of the two.

    Attributes:
        address: of the service; tasks: of the project, in the order of their texts.
        troubles: what the lead's browser complains of.
    """

    project: Project
    address: str
    tasks: list[int]
    lead: Any
    annotator: Any
    troubles: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def email(self) -> str:
        """The annotator's, which is their name."""
        return self.project.people[ANNOTATOR].email

    @property
    def tab(self) -> str:
        """The address of the annotator's tab in Label Studio."""
        return tabs(self.project.admin, self.project.number)[self.email]

    def goes_to(self, part: str) -> None:
        """The lead follows a link of the project's navigation."""
        self.lead.get_by_role("navigation", name="Project").get_by_role("link", name=part, exact=True).click()
        self.lead.wait_for_url(f"**/{part.lower()}")

    def runs(self) -> None:
        """The lead starts a cycle, and the page follows it to its end."""
        self.goes_to("Runs")
        self.lead.get_by_role("button", name="Start a run now").click()
        self.lead.get_by_text("run, started by admin just now").filter(has_text=" changes").wait_for()

    def planned(self) -> int:
        """The task of the annotator's first question on the page of the plan."""
        self.goes_to("Plan")
        self.lead.get_by_role("listitem").filter(has_text=self.email).get_by_role("link").click()
        self.lead.wait_for_url("**/plan?annotator=*")
        first = self.lead.locator("main tbody tr").first
        assert first.locator("[data-name=annotator]").inner_text() == self.email
        return int(first.locator("a.item").inner_text())

    def labels(self) -> None:
        """The annotator lets Label Studio serve the questions of their tab."""
        self.annotator.goto(self.tab)
        self.annotator.get_by_role("button", name="Toggle open").last.click()
        self.annotator.get_by_text("Label Tasks As Displayed").click()

    def sees(self, task: int) -> bool:
        """The annotator has the task before them. Fails where it is another."""
        self.annotator.get_by_text(f"text {self.tasks.index(task)}", exact=True).last.wait_for()
        self.annotator.get_by_role("button", name="Submit current annotation").wait_for()
        return True

    def done(self, step: str) -> None:
        """Say how long it took."""
        print(f"{time.monotonic() - self.began:5.1f} s  {step}")


def test_a_lead_and_an_annotator(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project()
    tasks = labeled(project)
    write(project, tmp_path)
    secrets = {"HITL_LABEL_STUDIO_TOKEN": project.server.token, "HITL_WEBHOOK_SECRET": SECRET}
    with serving(tmp_path, "serve", secrets=secrets) as (address, said, _), browser() as chromium:
        hook = {"url": f"{address}/webhook/p", "headers": {"X-Hitl-Secret": SECRET}}
        wanted = {"project": project.number, "send_payload": True, "send_for_all_actions": True}
        project.admin.post("/api/webhooks/", {**wanted, **hook})
        lead, annotator = chromium.new_context().new_page(), chromium.new_context().new_page()
        for page in (lead, annotator):
            page.set_default_timeout(PATIENCE)
        journey = Journey(project, address, tasks, lead, annotator)
        watched(lead, journey)
        log_in(journey, *first_user(said))
        journey.runs()
        journey.done("a first cycle")
        task = a_label_arrives(journey)
        confusion_leads_to_its_items(journey)
        make_a_plan(journey)
        approve(journey)
        send_back(journey, task)
        it_comes_back(journey, task)
        assert journey.troubles == []


def labeled(project: Project) -> list[int]:
    """Ten tasks; three people have labeled eight of them."""
    ids = [int(person.id) for person in project.people]
    names = {"g": "good", "b": "bad"}

    def annotated(n: int) -> list[dict[str, Any]]:
        return [
            {"completed_by": ids[k], "result": choice(names[said[n]]), "ground_truth": False}
            for k, said in SAID.items()
            if n < len(said)
        ]

    return project.add(10, annotated)


def write(project: Project, folder: Path) -> None:
    """Its hitl.toml: nothing looks at the platform by itself, so that what comes comes by webhooks."""
    crew = ", ".join(f'"{person.email}"' for person in project.people)
    (folder / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\n'
        f'url = "{project.server.url}"\nproject = {project.number}\nabstain = ["Unsure"]\n'
        f"[crew]\nannotators = [{crew}]\ncapacity = 3\n"
        "[budget]\nopen_questions = 9\ntarget_confidence = 0.97\n"
        '[schedule]\npoll = "10h"\n'
    )


def log_in(journey: Journey, name: str, password: str) -> None:
    """Both: the lead to hitl, the annotator to Label Studio."""
    lead, annotator, server = journey.lead, journey.annotator, journey.project.server
    lead.on("dialog", lambda dialog: dialog.accept())
    lead.goto(f"{journey.address}/projects/p")
    lead.get_by_label("Name").fill(name)
    lead.get_by_label("Password").fill(password)
    lead.get_by_role("button", name="Log in").click()
    lead.wait_for_url(f"{journey.address}/projects/p")
    annotator.goto(f"{server.url}/user/login/")
    annotator.locator("[name=email]").fill(journey.project.people[3].email)
    annotator.locator("[name=password]").fill(PASSWORD)
    annotator.locator("form [type=submit], form button").first.click()
    annotator.wait_for_url(lambda url: "/user/login" not in url)
    journey.done("both are logged in")


def a_label_arrives(journey: Journey) -> int:
    """Given in Label Studio's editor; the lead's page of the item changes, and is not loaded anew. The item."""
    lead, annotator, task = journey.lead, journey.annotator, journey.planned()
    journey.lead.locator("main tbody tr a.item").first.click()
    lead.wait_for_url(f"**/items/{task}")
    until(lambda: lead.locator("#live-state").text_content() == "live")
    lead.evaluate("window.stays = true")
    answers, meter = lead.locator("main [data-name=said]"), lead.locator("main .meterbox").first
    before, belief = answers.count(), meter.get_attribute("aria-label")
    journey.labels()
    assert journey.sees(task)
    annotator.get_by_text("bad").last.click()
    annotator.get_by_role("button", name="Submit current annotation").click()
    began = time.monotonic()
    until(lambda: answers.count() == before + 1)
    print(f"        from the button in Label Studio to the page: {time.monotonic() - began:.1f} s")
    assert meter.get_attribute("aria-label") != belief
    assert "bad" in lead.get_by_role("row", name=journey.email).inner_text()
    assert lead.evaluate("window.stays"), "the page was loaded again"
    journey.done("a label has arrived")
    return task


def confusion_leads_to_its_items(journey: Journey) -> None:
    """From the annotator who likes all to the items that they said "good" of where we say "bad"."""
    lead, optimist = journey.lead, journey.project.people[OPTIMIST].email
    journey.goes_to("Annotators")
    lead.get_by_role("link", name=optimist, exact=True).click()
    cell = lead.get_by_role("row", name="bad").locator("td.cell a").first
    labels = int(cell.get_attribute("title").split()[0])
    assert labels >= 2
    cell.click()
    lead.wait_for_url("**/items?**")
    items = lead.locator("a.item")
    assert items.count() == labels
    items.first.click()
    lead.wait_for_url("**/items/*")
    assert "good" in lead.get_by_role("row", name=optimist).inner_text()
    assert lead.locator("section h2").first.inner_text().startswith("bad, ")
    journey.done("the items behind a cell of confusion")


def make_a_plan(journey: Journey) -> None:
    """Made and looked at; nothing is sent."""
    lead, project = journey.lead, journey.project
    before = project.settings()["model_version"]
    journey.goes_to("Plan")
    lead.get_by_role("button", name="Make a plan").click()
    lead.get_by_text("plan, started by admin").filter(has_text="look at it below").wait_for()
    lead.get_by_role("button", name="Approve and send").wait_for()
    assert project.settings()["model_version"] == before, "nothing is sent before it is approved"
    journey.done("a plan")


def approve(journey: Journey) -> None:
    """Sent to Label Studio, which serves the annotator the first question of the plan: by its API and in its editor."""
    lead, project = journey.lead, journey.project
    lead.get_by_role("button", name="Approve and send").click()
    lead.get_by_text("push, started by admin").filter(has_text=" changes").wait_for()
    lead.get_by_text("The platform is up to date with the plan.").wait_for()
    task = journey.planned()
    assert project.next(ANNOTATOR, int(journey.tab.rpartition("=")[2])) == task
    journey.labels()
    assert journey.sees(task)
    journey.done("the plan is approved and served")


def send_back(journey: Journey, task: int) -> None:
    """From the item's page, to the annotator, with words."""
    lead = journey.lead
    lead.goto(f"{journey.address}/projects/p/items/{task}")
    lead.get_by_label("To", exact=True).fill(journey.email)
    lead.get_by_label("Note").fill("the last word")
    lead.get_by_role("button", name="Send back").click()
    lead.wait_for_url("**/rework")
    assert lead.locator("[data-name=state]").inner_text() == "waits for the next plan"
    journey.runs()
    assert journey.planned() == task
    lead.goto(f"{journey.address}/projects/p/rework")
    assert lead.locator("[data-name=state]").inner_text() == "asked"
    journey.done("an item is sent back")


def it_comes_back(journey: Journey, task: int) -> None:
    """The annotator's tab in Label Studio begins with it; their new answer there is what was asked for."""
    annotator, project = journey.annotator, journey.project
    annotator.goto(journey.tab)
    first = annotator.get_by_text(f"text {journey.tasks.index(task)}", exact=True)
    first.wait_for()
    listed = project.person(ANNOTATOR).get(
        "/api/tasks", view=int(journey.tab.rpartition("=")[2]), project=project.number, fields="all"
    )
    assert listed["tasks"][0]["id"] == task
    first.click()
    annotator.get_by_text("good").last.click()
    annotator.get_by_text("Update", exact=True).click()
    journey.lead.locator("[data-name=state]").filter(has_text="answered").wait_for()
    journey.done("it has come back, and is answered")
