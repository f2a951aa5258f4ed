"""Own ids against a real Label Studio: what was added or imported is known by the ids of the user's own tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hitl.connectors.label_studio import TOKEN, LabelStudioSettings
from hitl.connectors.label_studio.client import Client
from hitl.settings import Keyed
from hitl.tables.read import read_table
from tests.command_line import Run, caller
from tests.connectors.label_studio.conftest import SENTIMENT, TOPICS, Project, choice

pytestmark = [pytest.mark.server, pytest.mark.journey]


class Lead:
    """Someone who gives commands in a folder of their own."""

    def __init__(self, project: Project, folder: Path, run: Run) -> None:
        self.project, self.folder, self.run = project, folder, run
        self.configure()

    def configure(self, key: str = "") -> None:
        source = f'[source]\nkind = "label-studio"\nurl = "{self.project.server.url}"\n'
        source += f"project = {self.project.number}\n{f'key = {json.dumps(key)}' if key else ''}\n"
        (self.folder / "hitl.toml").write_text(f'name = "p"\nstore = "sqlite:///hitl.db"\n{source}')

    def does(self, *arguments: str) -> str:
        code, out, err = self.run(*arguments)
        assert code == 0, out + err
        return out

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def table(self, name: str) -> pa.Table:
        return read_table(self.folder / name)

    def import_tasks(self, *data: dict[str, Any]) -> list[int]:
        answer = self.project.admin.post(
            f"{self.project.path}/import", [{"data": one} for one in data], return_task_ids="true"
        )
        return [int(number) for number in answer["task_ids"]]


@pytest.fixture
def make_lead(
    make_project: Callable[..., Project],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Lead]:
    def make(config: str = SENTIMENT) -> Lead:
        project = make_project(config)
        run = caller(tmp_path, monkeypatch, capfd)
        monkeypatch.setenv(TOKEN, project.server.token)
        return Lead(project, tmp_path, run)

    return make


def by_item(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["item"]: row for row in table.to_pylist()}


def texts(project: Project) -> dict[str, dict[str, Any]]:
    """Text -> the whole task."""
    listed = project.admin.get("/api/tasks", project=project.number, fields="all", page_size=100)["tasks"]
    rows = [project.task(int(task["id"])) for task in listed]
    return {row["data"]["text"]: row for row in rows}


def test_truth_of_what_was_added_is_given_by_the_same_ids(make_lead: Callable[..., Lead]) -> None:
    lead = make_lead()
    (old,) = lead.import_tasks({"text": "imported by hand"})
    lead.write("new.csv", "item,text\na1,first\na2,second\n")
    lead.write("truth.csv", "item,label\na1,good\na2,bad\n")
    lead.does("pull")
    lead.does("add", "new.csv")
    lead.does("gold", "truth.csv")
    tasks = texts(lead.project)
    gold = {
        text: [a["result"][0]["value"]["choices"] for a in task["annotations"] if a["ground_truth"]]
        for text, task in tasks.items()
    }
    assert gold == {"imported by hand": [], "first": [["good"]], "second": [["bad"]]}
    lead.does("run")
    lead.does("export", "labels.csv", "--annotations", "raw.csv")
    rows = by_item(lead.table("labels.csv"))
    assert list(rows) == [str(old), "a1", "a2"]
    assert [row["task"] for row in rows.values()] == [
        str(tasks[t]["id"]) for t in ("imported by hand", "first", "second")
    ]
    assert (rows["a1"]["label"], rows["a1"]["source"], rows["a1"]["text"]) == ("good", "ground truth", "first")
    assert (rows[str(old)]["source"], rows[str(old)]["labels"], rows[str(old)]["done"]) == ("nobody", "0", "false")
    lead.write("missing.csv", "item,label\nno such,good\n")
    code, _, err = lead.run("gold", "--dry-run", "missing.csv")
    assert code != 0
    assert "item 'no such' is not in the project" in err


def test_a_field_of_the_data_names_the_items_everywhere_and_can_be_set_later(make_lead: Callable[..., Lead]) -> None:
    lead = make_lead()
    tasks = lead.import_tasks(*({"text": f"text {n}", "ref": 100 + n} for n in range(4)))
    for n in (1, 2):
        lead.project.answer(n, tasks[0], "good")
    lead.project.answer(1, tasks[1], "bad")
    lead.does("run")
    lead.does("export", "before.csv")
    assert lead.table("before.csv").column("item").to_pylist() == [str(task) for task in tasks]
    lead.configure("ref")  # no new pull
    lead.does("export", "labels.csv", "--annotations", "raw.csv")
    rows = by_item(lead.table("labels.csv"))
    assert list(rows) == ["100", "101", "102", "103"]
    assert [row["task"] for row in rows.values()] == [str(task) for task in tasks]
    assert [(row["labels"], row["source"]) for row in rows.values()] == [
        ("2", "annotators"),
        ("1", "annotators"),
        ("0", "nobody"),
        ("0", "nobody"),
    ]
    raw = lead.table("raw.csv").to_pylist()
    assert [row["item"] for row in raw] == ["100", "100", "101"]
    server = lead.project.task(tasks[1])["annotations"][0]["updated_at"]
    assert raw[2]["time"] == server
    lead.write("truth.csv", "item,label\n102,good\n")
    lead.does("gold", "truth.csv")
    assert any(a["ground_truth"] for a in lead.project.task(tasks[2])["annotations"])
    lead.does("plan", "-o", "asked.csv")
    assert set(lead.table("asked.csv").column("item").to_pylist()) <= set(rows)
    lead.does("combine", "-o", "consensus.csv")
    assert lead.table("consensus.csv").column("item").to_pylist() == list(rows)
    lead.write("probs.csv", "item,p_good,p_bad\n100,0.9,0.1\n103,0.2,0.8\n")
    files = ("--time", "time", "-p", "net=probs.csv", "--truth", "labels.csv")
    lead.does("combine", "raw.csv", *files, "-o", "joined.csv")  # the user's tables and ours join
    joined = sorted(lead.table("joined.csv").column("item").to_pylist())
    assert joined == ["100", "101", "103"]  # nothing speaks about 102, so labels.csv holds no label of it
    lead.does("report", "-o", "report.html")
    assert "text 3" in (lead.folder / "report.html").read_text()


def test_what_is_added_gets_its_id_in_the_field_and_what_has_it_is_not_added_again(
    make_lead: Callable[..., Lead],
) -> None:
    lead = make_lead()
    lead.configure("ref")
    (there,) = lead.import_tasks({"text": "imported by hand", "ref": "a0"})
    lead.write("new.csv", "item,text\na0,not again\na1,first\n")
    assert "1 change;" in lead.does("add", "new.csv")
    tasks = texts(lead.project)
    assert {text: task["data"]["ref"] for text, task in tasks.items()} == {"imported by hand": "a0", "first": "a1"}
    lead.write("wrong.csv", "item,text,ref\na2,second,b2\n")
    code, _, err = lead.run("add", "wrong.csv")
    assert code != 0
    assert "item 'a2' has 'b2' in its field 'ref'" in err
    assert len(texts(lead.project)) == 2
    assert there


def test_two_tasks_of_one_id_and_tasks_without_are_named(make_lead: Callable[..., Lead]) -> None:
    lead = make_lead()
    lead.configure("ref")
    tasks = lead.import_tasks({"text": "a", "ref": "x"}, {"text": "b"}, {"text": "c", "ref": ""}, {"text": "d"})
    code, out, _ = lead.run("doctor")
    assert code == 1
    assert f"3 of 4 tasks lack the field 'ref' (source.key): {tasks[1]}, {tasks[2]}, {tasks[3]}" in out
    lead.does("run")
    lead.does("export", "labels.csv")
    assert lead.table("labels.csv").column("item").to_pylist() == ["x", *map(str, tasks[1:])]
    admin: Client = lead.project.admin
    admin.patch(f"/api/tasks/{tasks[1]}/", {"data": {"text": "b", "ref": str(tasks[2])}})
    lead.does("run")
    lead.does("export", "labels.csv")
    names = ["x", str(tasks[2]), f"task {tasks[2]}", str(tasks[3])]
    assert lead.table("labels.csv").column("item").to_pylist() == names
    admin.patch(f"/api/tasks/{tasks[1]}/", {"data": {"text": "b", "ref": "x"}})
    lead.does("run")  # the cycle goes on
    assert f"exports and pages need other ids: tasks {tasks[0]} and {tasks[1]}" in lead.run("status")[1]
    code, _, err = lead.run("export", "twice.csv")
    assert code != 0
    assert f"tasks {tasks[0]} and {tasks[1]} have one own id, 'x'" in err
    assert not (lead.folder / "twice.csv").exists()
    code, out, _ = lead.run("doctor")
    assert f"tasks {tasks[0]} and {tasks[1]} have 'x'" in out
    lead.configure("reff")
    code, _, err = lead.run("export", "typo.csv")
    assert "no item has an id in the field 'reff'" in err
    assert "did you mean 'ref'?" in err


def test_a_multiple_choice_is_one_row_an_item(make_lead: Callable[..., Lead]) -> None:
    lead = make_lead(TOPICS)
    lead.configure("ref")
    tasks = lead.import_tasks(*({"text": f"text {n}", "ref": f"r{n}", "p_art": "taken"} for n in range(3)))
    for n in (1, 2, 3):
        for task, topics in ((tasks[0], ("art", "law")), (tasks[1], ())):
            result = choice(*topics, control="topics") if topics else []
            lead.project.person(n).post(f"/api/tasks/{task}/annotations/", {"result": result})
    lead.does("run")
    lead.does("export", "labels.jsonl")
    rows = by_item(lead.table("labels.jsonl"))
    assert [row["label"] for row in rows.values()][:2] == ["art,law", ""]
    first = rows["r0"]
    assert first["p_art"] > 0.5 > first["p_war"]
    sure = min(max(first[f"p_{name}"], 1 - first[f"p_{name}"]) for name in ("art", "law", "war"))
    assert first["confidence"] == pytest.approx(sure)
    assert [(row["labels"], row["source"]) for row in rows.values()] == [
        (3, "annotators"),
        (3, "annotators"),
        (0, "nobody"),
    ]
    assert first["data_p_art"] == "taken"
    lead.does("export", "art.csv", "--question", "topics=art")
    assert lead.table("art.csv").column("label").to_pylist()[:2] == ["yes", "no"]


def test_the_key_is_a_setting_of_this_connector() -> None:
    assert isinstance(LabelStudioSettings(project=1), Keyed)
    assert LabelStudioSettings(project=1).key is None
