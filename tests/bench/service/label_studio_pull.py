"""Pulling a whole project from Label Studio against its own JSON export, on the same server.

    python -m tests.bench.service.label_studio_pull [--tasks 10000] [--runs 3] [--save]

Tasks have 5 annotations each, by 5 people. Export: the bare HTTP download of
`export?exportType=JSON&download_all_tasks=true`, read to its end and thrown away. Pages: every page made into rows and
thrown away. Pull: what `hitl pull` does, the pages saved in a new SQLite store. Runs in turns, each in a process of its
own; memory is the highest resident set over what the process held after importing the client. Client and server share
two cores here; over a network the server's share weighs more, and all do alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import numpy as np

from hitl import cycle
from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.server import LocalServer
from hitl.store import Store
from tests.bench import results

ANNOTATORS, BATCH = 5, 1_000
CLASSES = ("good", "bad", "mixed")
CONFIG = """<View><Text name="text" value="$text"/><Choices name="sentiment" toName="text">
<Choice value="good"/><Choice value="bad"/><Choice value="mixed"/></Choices></View>"""


def task(number: int, people: Sequence[int]) -> dict[str, Any]:
    """One task with an answer of each person."""
    answers = []
    for k, person in enumerate(people):
        part = {"from_name": "sentiment", "to_name": "text", "type": "choices"}
        value = {"choices": [CLASSES[(number * 7 + k * 3) % 3]]}
        answer = {"completed_by": person, "ground_truth": False, "lead_time": 4.2 + k}
        answers.append(answer | {"result": [part | {"value": value}]})
    text = f"Sentence number {number} about something that somebody has to judge."
    return {"data": {"text": text}, "annotations": answers}


def export(url: str, token: str, project: int) -> int:
    """The bare download; returns bytes."""
    parameters = {"exportType": "JSON", "download_all_tasks": "true"}
    headers = {"Authorization": f"Token {token}", "Accept-Encoding": "identity"}
    path = f"{url}/api/projects/{project}/export"
    with httpx.stream("GET", path, params=parameters, headers=headers, timeout=600) as response:
        response.raise_for_status()
        return sum(len(chunk) for chunk in response.iter_bytes())


def pages(url: str, token: str, project: int) -> int:
    """All pages of our connector; returns annotations."""
    return sum(len(page.annotations) for page in LabelStudio(url, token, project).pull(None))


def pull(url: str, token: str, project: int) -> int:
    """`hitl pull` into a new store; returns the annotations stored."""
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/hitl.db") as store:
        with store.lease("bench") as lease:
            cycle.pull(lease, store, LabelStudio(url, token, project))
        return store.counts("bench")["annotations"]


WAYS: Mapping[str, Callable[[str, str, int], int]] = {"export": export, "pages": pages, "pull": pull}


def child(way: str, url: str, project: str) -> None:
    """Print the figures of one run; the token comes on standard input."""
    token, before = sys.stdin.read().strip(), results.memory("VmRSS")
    with results.measured() as took:
        rows = WAYS[way](url, token, int(project))
    print(json.dumps({"seconds": took["seconds"], "MB": (results.memory() - before) / 1e6, "rows": rows}))


def filled(server: LocalServer, tasks: int, annotators: int) -> int:
    """Create a project whose tasks all annotators have labeled, and return its number."""
    people = [int(server.sign_up(f"annotator{k}@example.com", "a-long-password").id) for k in range(annotators)]
    project = LabelStudio.create_project(server.url, server.token, "bench", CONFIG)
    client = Client(server.url, server.token)
    for start in range(0, tasks, BATCH):
        rows = [task(number, people) for number in range(start, min(start + BATCH, tasks))]
        client.post(f"/api/projects/{project}/import", rows)
    return project


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, tasks=10_000, runs=3, child=())
    if options.child:
        return child(*options.child)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with LocalServer() as server:
        project = filled(server, options.tasks, ANNOTATORS)
        for way in [*WAYS] * options.runs:
            command = [sys.executable, "-m", "tests.bench.service.label_studio_pull", "--child", way, server.url]
            done = subprocess.run(
                [*command, str(project)], input=server.token, stdout=subprocess.PIPE, text=True, check=True
            )
            found[way].append(json.loads(done.stdout))
    figures: dict[str, Any] = {
        way: {
            "seconds": float(np.median([run["seconds"] for run in runs])),
            "each": ", ".join(f"{run['seconds']:.2f}" for run in runs),
            "MB over the baseline": max(run["MB"] for run in runs),
        }
        for way, runs in found.items()
    }
    page = results.Page()
    page.tell(f"{options.tasks:,} tasks x {ANNOTATORS} annotations, median of {options.runs}")
    page.tell(*results.table(figures, 2))
    complete = all(run["rows"] == options.tasks * ANNOTATORS for way in ("pages", "pull") for run in found[way])
    page.held(
        results.at_most("pull / export", figures["pull"]["seconds"] / figures["export"]["seconds"], 1.3, ".2f"),
        results.at_most("pull: MB over the baseline", figures["pull"]["MB over the baseline"], 150, ".1f"),
        ("every annotation is there", str(complete), complete),
    )
    if options.save:
        page.save("label_studio_pull", figures, "service.label_studio_pull --save")


if __name__ == "__main__":
    main()
