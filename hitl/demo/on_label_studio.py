"""`hitl demo --label-studio`: runs with a real Label Studio, installed and started on this machine.

The demo creates a project with real texts, and signs up annotators. After each run, each annotator opens their tab and
answers "next" as recorded until nothing is left. The last plan stays unanswered, so that a user who logs in sees
predictions, tabs and an order.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
import pyarrow as pa

from hitl import cycle, project
from hitl.annotations import Annotations, Name
from hitl.connectors.label_studio import TOKEN, LabelStudio, LabelStudioSettings, replies
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.server import VERSION, LocalServer, Person, installed_in, is_installed
from hitl.crew import Crew
from hitl.demo.recorded import QUESTION, rte, texts
from hitl.demo.replayed import HEADER, Comparison
from hitl.errors import BadSettings, Refused
from hitl.evidence import Evidence
from hitl.operations import Judgement
from hitl.platform import Operation, Progress, silent
from hitl.report import write
from hitl.settings import Settings, new_settings
from hitl.store import Store

PEOPLE = 12
PASSWORD = "entailment-2008"
MAX_RUNS = 40
ENOUGH = 0.6
"""Share of the recorded answers after which the demo stops."""
CONFIG = f"""<View>
  <Text name="text" value="$text"/>
  <Header value="Does it follow?"/>
  <Text name="hypothesis" value="$hypothesis"/>
  <Choices name="{QUESTION}" toName="text" choice="single" showInline="true">
    <Choice value="no"/>
    <Choice value="yes"/>
  </Choices>
</View>"""


@dataclass(frozen=True)
class Desk:
    """A signed-up annotator who opens their tab and answers as recorded. `answers`: task key -> label."""

    person: Person
    client: Client
    answers: dict[str, str]

    def work(self, project: int) -> int:
        """Take "next" until the tab is empty. Return the number of tasks answered."""
        views = self.client.get("/api/dm/views/", project=project)
        tabs = [int(view["id"]) for view in views if view["data"].get("title") == f"hitl: {self.person.email}"]
        answered = 0
        while tabs:
            try:
                task = self.client.get(f"/api/projects/{project}/next", view=tabs[0])
            except Refused:  # 404: nothing left for this annotator
                break
            value = {"choices": [self.answers[str(task["id"])]]}
            result = {"from_name": QUESTION, "to_name": "text", "type": "choices", "value": value}
            annotation = {"result": [result], "lead_time": 10.0}
            self.client.post(f"/api/tasks/{task['id']}/annotations/", annotation, replies.WITH_ID)
            answered += 1
        return answered


def run(output: Path, items: int, keep: bool, progress: Progress = silent) -> None:
    """Run the demo in a new folder hitl-demo*, print the comparison, and write the report.

    `items`: number of tasks. If `keep`, Label Studio runs until Ctrl-C.
    """
    began = time.perf_counter()
    for ending in (signal.SIGTERM, signal.SIGINT):  # both must also stop the server
        signal.signal(ending, signal.default_int_handler)
    names = chain(["hitl-demo"], (f"hitl-demo-{number}" for number in count(2)))
    folder = next(Path(name) for name in names if not Path(name).exists())
    folder.mkdir()
    recorded, people = _part(rte(), items)
    starts = f"starting Label Studio {VERSION} from {installed_in()}"
    if not is_installed():
        starts = (
            f"installing Label Studio {VERSION} and what it needs with pip into {installed_in()} (about 1 GB, some "
            "minutes, once); to remove it, delete that folder"
        )
    print(f"{recorded.annotations!r}\n{starts}", flush=True)
    with LocalServer(folder / "label-studio", progress) as server:
        number = LabelStudio.create_project(server.url, server.token, "hitl demo: does it follow?", CONFIG)
        source = {"kind": "label-studio", "url": server.url, "project": number}
        new_settings.write(folder / "hitl.toml", "rte", source, "sqlite:///hitl.db", [])
        loaded = project.load(folder / "hitl.toml")
        connector = LabelStudio(server.url, server.token, number)
        with Store(f"sqlite:///{folder.resolve()}/hitl.db") as store:
            recorded, item_texts = _upload(recorded, connector, store, loaded.name)
            comparison = Comparison(recorded)
            judgement = _loop(comparison, _desks(recorded.annotations, people, server), connector, loaded, store)
        print(comparison.summary())
        report = comparison.report(judgement, item_texts, "hitl demo: a real Label Studio", "hitl demo --label-studio")
        write(report, output)
        print(f"\nreport:  {output.resolve()}   ({time.perf_counter() - began:.0f} s)")
        if keep:
            _leave_open(server, number, folder, [*judgement.plan.annotators, _email(people[0])][0])
    print(f"Label Studio has stopped. To see the stored results: cd {folder} && hitl status")
    print(f"To start it again: hitl demo --resume {folder}")


def resume(folder: Path, progress: Progress = silent) -> None:
    """Start the Label Studio of an earlier demo again, until Ctrl-C. Raises BadSettings for any other folder."""
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    if not (folder / "label-studio").is_dir():
        raise BadSettings(f"--resume {folder}: no demo; expected the folder that `hitl demo --label-studio` made")
    loaded = project.load(folder / "hitl.toml")
    assert isinstance(loaded.source, LabelStudioSettings)
    print(f"starting Label Studio {VERSION} from {installed_in()}", flush=True)
    with LocalServer(folder / "label-studio", progress) as server:
        if server.url != loaded.source.url:
            print(f"Its port is taken: set source.url in {folder}/hitl.toml to {server.url}, then `hitl pull --full`")
        with Store(f"sqlite:///{folder.resolve()}/hitl.db") as store:
            plan = store.plan(loaded.name)
        asked = () if plan is None else plan.annotators
        _leave_open(server, loaded.source.project, folder, next(iter(asked), None))
    print(f"Label Studio has stopped. To start it again: hitl demo --resume {folder}")


def _leave_open(server: LocalServer, number: int, folder: Path, annotator: Name | None) -> None:
    """Say how to look at the project, and wait for Ctrl-C."""
    print(f"project: {server.url}/projects/{number}/data")
    print(f"login:   {server.admin_email} / {server.admin_password}")
    if annotator is not None:
        print(f"or as:   {annotator} / {PASSWORD} (their tab holds what is asked next)")
    print(f"go on:   cd {folder} && export {TOKEN}={server.token} && hitl status")
    print("\nLabel Studio runs until you press Ctrl-C.", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("stopped")


def _loop(
    comparison: Comparison, desks: list[Desk], connector: LabelStudio, loaded: Settings, store: Store
) -> Judgement:
    """Run until the share `ENOUGH` is answered, and return the last judgement. Its questions stay unanswered."""
    only: dict[Name, frozenset[Name]] = {desk.person.email: frozenset(desk.answers) for desk in desks}
    tasks = comparison.recorded.annotations.n_items
    print(f"{tasks} tasks, {len(desks)} annotators signed up\n\n{HEADER}", flush=True)
    spent = 0
    for _ in range(MAX_RUNS):
        judgement = cycle.run(loaded, store, connector, crew=Crew(tuple(only), only=only)).judgement
        comparison.add(spent, judgement.results[QUESTION])
        print(comparison.row(len(judgement.plan.done)), flush=True)
        if not judgement.plan.asks or spent >= ENOUGH * len(comparison.recorded.annotations):
            break
        spent += sum(desk.work(connector.project) for desk in desks)
    return judgement


def _upload(
    recorded: Evidence, connector: LabelStudio, store: Store, name: str
) -> tuple[Evidence, dict[str, dict[str, str]]]:
    """Create the tasks. Return the recording with task keys as item names, in stored order, and task key -> texts."""
    item_texts = {item: data for item, data in texts().items() if item in set(recorded.annotations.items)}
    batch = [{"key": item, "data": {**data, "rte": item}} for item, data in item_texts.items()]
    list(connector.push([Operation("add_items", "rte", {"items": batch})]))
    with store.lease(name) as lease:
        cycle.pull(lease, store, connector)
    table = store.items(name)
    stored = zip(table.column("item").to_pylist(), table.column("data").to_pylist(), strict=True)
    item_of = {key: json.loads(data)["rte"] for key, data in stored}
    task_of = {item: key for key, item in item_of.items()}
    rows = [{**row, "item": task_of[row["item"]]} for row in recorded.annotations.table().to_pylist()]
    row_of = {item: n for n, item in enumerate(recorded.annotations.items)}
    assert recorded.truth is not None
    truth = recorded.truth[[row_of[item] for item in item_of.values()]]
    classes = recorded.annotations.classes
    annotations = Annotations.from_frame(pa.Table.from_pylist(rows), items=tuple(item_of), classes=classes)
    return Evidence(annotations, truth=truth), {key: item_texts[item] for key, item in item_of.items()}


def _desks(annotations: Annotations, people: tuple[str, ...], server: LocalServer) -> list[Desk]:
    """Sign up all annotators, each with the answers they gave in 2008."""
    answers: dict[str, dict[str, str]] = {name: {} for name in people}
    for row in annotations.table().to_pylist():
        answers[row["annotator"]][row["item"]] = row["label"]
    signed_up = {name: server.sign_up(_email(name), PASSWORD) for name in people}
    return [Desk(person, Client(server.url, person.token), answers[name]) for name, person in signed_up.items()]


def _part(recorded: Evidence, items: int) -> tuple[Evidence, tuple[str, ...]]:
    """Return the recorded answers of the busiest annotators to the items most of them answered, and their names."""
    annotations = recorded.annotations
    busiest = np.sort(np.argsort(-annotations.labels_per_annotator, kind="stable")[:PEOPLE])
    by_them = np.isin(annotations.annotator, busiest)
    shared = np.bincount(annotations.item[by_them], minlength=annotations.n_items)
    chosen = np.sort(np.argsort(-shared, kind="stable")[:items])
    table = annotations.select(by_them & np.isin(annotations.item, chosen)).table()
    names = tuple(annotations.items[n] for n in chosen)
    part = Annotations.from_frame(table, items=names, classes=annotations.classes)
    assert recorded.truth is not None
    return Evidence(part, truth=recorded.truth[chosen]), tuple(map(str, part.annotators))


def _email(name: str) -> str:
    return f"{name}@example.com"
