"""Pulling a whole project from Label Studio against its own JSON export, on the same server.

    python -m tests.bench.bench_label_studio_pull

Data: 10,000 tasks with 5 annotations each, by 5 people. Export: the bare HTTP download of
`export?exportType=JSON&download_all_tasks=true`, read to its end and thrown away. Pages: every page made into rows
and thrown away. Pull: what `hitl pull` does, the pages saved in a new SQLite store. Three runs each, in turns, each
in a process of its own; memory is the highest resident set over what the process held after importing the client.
Limits: pull <= 1.3 x export, and < 150 MB. Caveat: client and server share two cores here; over a network the
server's share weighs more, and all do alike.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import results

TASKS, ANNOTATORS, RUNS, BATCH = 10_000, 5, 3, 1_000
RATIO, MEGABYTES = 1.3, 150.0
CONFIG = """<View><Text name="text" value="$text"/><Choices name="sentiment" toName="text">
<Choice value="good"/><Choice value="bad"/><Choice value="mixed"/></Choices></View>"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill a server, measure, print a table; ends with status 1 when a limit is broken."""
    options = results.options(__doc__, arguments)
    lines, figures, good = report(measure_all())
    print("\n".join(lines))
    if options.save:
        results.save("label_studio_pull", lines, figures)
    if not good:
        sys.exit(1)


def measure_all() -> dict[str, list[dict[str, float]]]:
    """The runs of each way, in turns."""
    from hitl.connectors.label_studio import LabelStudio
    from hitl.connectors.label_studio.server import LocalServer

    measured: dict[str, list[dict[str, float]]] = {"export": [], "pages": [], "pull": []}
    with LocalServer() as server:
        people = [int(server.sign_up(f"annotator{k}@example.com", "a-long-password").id) for k in range(ANNOTATORS)]
        project = LabelStudio.create_project(server.url, server.token, "bench", CONFIG)
        fill(server.url, server.token, project, people)
        for _ in range(RUNS):
            for what in measured:
                measured[what].append(measure(what, server.url, server.token, project))
    return measured


def fill(url: str, token: str, project: int, people: list[int]) -> None:
    """Import the tasks with their annotations."""
    from hitl.connectors.label_studio.client import Client

    client = Client(url, token)
    for start in range(0, TASKS, BATCH):
        rows = [task(number, people) for number in range(start, start + BATCH)]
        client.post(f"/api/projects/{project}/import", rows)


def task(number: int, people: list[int]) -> dict[str, Any]:
    """One task with an answer of each person."""
    answers = [
        {
            "completed_by": person,
            "ground_truth": False,
            "lead_time": 4.2 + k,
            "result": [
                {
                    "from_name": "sentiment",
                    "to_name": "text",
                    "type": "choices",
                    "value": {"choices": [("good", "bad", "mixed")[(number * 7 + k * 3) % 3]]},
                }
            ],
        }
        for k, person in enumerate(people)
    ]
    return {
        "data": {"text": f"Sentence number {number} about something that somebody has to judge."},
        "annotations": answers,
    }


def measure(what: str, url: str, token: str, project: int) -> dict[str, float]:
    """{"seconds", "megabytes", "rows"} of one run in a fresh process."""
    command = [sys.executable, "-m", "tests.bench.bench_label_studio_pull", "--run", what, url, str(project)]
    done = subprocess.run(command, input=token, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run(what: str, url: str, project: int) -> None:
    """The child process: one run, its figures on standard output. The token comes on standard input."""
    token = sys.stdin.read().strip()
    work = {"export": export, "pages": pages, "pull": pull}[what](url, token, project)
    before = memory("VmRSS")
    start = time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "megabytes": max(memory("VmHWM") - before, 0.0), "rows": rows}))


def export(url: str, token: str, project: int) -> Callable[[], int]:
    """The bare download; rows are bytes."""
    import httpx

    def work() -> int:
        parameters = {"exportType": "JSON", "download_all_tasks": "true"}
        headers = {"Authorization": f"Token {token}", "Accept-Encoding": "identity"}
        path = f"{url}/api/projects/{project}/export"
        with httpx.stream("GET", path, params=parameters, headers=headers, timeout=600) as response:
            response.raise_for_status()
            return sum(len(chunk) for chunk in response.iter_bytes())

    return work


def pull(url: str, token: str, project: int) -> Callable[[], int]:
    """`hitl pull` into a new store; rows are the annotations stored."""
    import label_studio_sdk  # noqa: F401

    from hitl import cycle
    from hitl.connectors.label_studio import LabelStudio
    from hitl.store import Store

    connector = LabelStudio(url, token, project)

    def work() -> int:
        with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/hitl.db") as store:
            with store.lease("bench") as lease:
                cycle.pull(lease, store, connector)
            return store.counts("bench")["annotations"]

    return work


def pages(url: str, token: str, project: int) -> Callable[[], int]:
    """All pages of our connector; rows are annotations."""
    import label_studio_sdk  # noqa: F401

    from hitl.connectors.label_studio import LabelStudio

    connector = LabelStudio(url, token, project)

    def work() -> int:
        return sum(len(page.annotations) for page in connector.pull(None))

    return work


def memory(name: str) -> float:
    """VmRSS or VmHWM of this process in megabytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")


def report(measured: dict[str, list[dict[str, float]]]) -> tuple[list[str], dict[str, float], bool]:
    """The table, its figures, and whether the limits are kept."""
    seconds = {what: statistics.median(one["seconds"] for one in runs) for what, runs in measured.items()}
    peak = {what: max(one["megabytes"] for one in runs) for what, runs in measured.items()}
    ratio = seconds["pull"] / seconds["export"]
    lines = [f"{TASKS:,} tasks x {ANNOTATORS} annotations, median of {RUNS}"]
    for what, runs in measured.items():
        each = ", ".join(f"{one['seconds']:.2f}" for one in runs)
        lines.append(f"  {what:8} {seconds[what]:6.2f} s  ({each})  {peak[what]:6.1f} MB over the baseline")
    lines.append(f"  pull / export = {ratio:.2f} (limit {RATIO}); memory limit {MEGABYTES:.0f} MB")
    complete = all(one["rows"] == TASKS * ANNOTATORS for one in measured["pull"])
    figures = {"export seconds": seconds["export"], "pull seconds": seconds["pull"], "ratio": ratio}
    figures |= {"pull megabytes": peak["pull"]}
    return lines, figures, complete and ratio <= RATIO and peak["pull"] < MEGABYTES


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--run":
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
