"""Pulling a whole project from MLflow and Phoenix against the bare listing of the same, on the same server.

    python -m tests.bench.service.trace_pull [--traces 10000] [--runs 3] [--save]

Traces have 5 answers each, by 5 people. Listing: the requests of a pull, their answers parsed as JSON and thrown away.
Pull: what `hitl pull` does, the pages saved in a new SQLite store. Again: the same once more, when nothing has changed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hitl import cycle
from hitl.platform import Connector
from hitl.store import Store
from tests.bench import results
from tests.connectors.mlflow import server as mlflow
from tests.connectors.phoenix import server as phoenix

PEOPLE = 5
MOST = 1.5
"""Time of a pull in terms of the listing's."""

Timed = tuple[Callable[[], Connector], Callable[[], int]]
"""What makes a connector, and the bare listing, which returns the number of answers."""


def label(n: int, k: int) -> str:
    """What person k says about trace n."""
    return ("yes", "no")[(n * 7 + k * 3) % 2]


def in_mlflow(server: mlflow.Server, traces: int) -> Timed:
    """An experiment with all traces and answers."""
    made = server.experiment("bench", 0, {"correct": {"categorical": {"options": ["yes", "no"]}}})
    made.traces.extend(f"tr-{n:032x}" for n in range(traces))
    where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": made.number}}
    now = {"create_time": "2026-01-01T00:00:00Z", "last_update_time": "2026-01-01T00:00:00Z"}

    def add(n: int) -> None:
        said = [
            {"assessment_name": "correct", "trace_id": made.traces[n], "feedback": {"value": label(n, k)}}
            | {"source": {"source_type": "HUMAN", "source_id": f"person{k}"}}
            | now
            for k in range(PEOPLE)
        ]
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + n))
        info = {"trace_id": made.traces[n], "trace_location": where, "request_time": when, "execution_duration": "1s"}
        info |= {"state": "OK", "request_preview": f"question {n}", "response_preview": f"answer {n}"}
        info |= {"trace_metadata": {}, "tags": {}, "assessments": said}
        server.call("POST", f"{mlflow.API}/traces", trace={"trace_info": info})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(traces)))

    def listing() -> int:
        answers, token = 0, ""
        while True:
            given = {"locations": [where], "max_results": 500, "order_by": ["timestamp_ms ASC"]}
            page = server.call(
                "POST", f"{mlflow.API}/traces/search", **given, **({"page_token": token} if token else {})
            )
            answers += sum(len(trace["assessments"]) for trace in page.get("traces", []))
            token = page.get("next_page_token", "")
            if not token:
                return answers

    return made.connect, listing


def in_phoenix(server: phoenix.Server, traces: int) -> Timed:
    """A project with all traces and answers."""
    made = server.project("bench", traces, {"correct": ["yes", "no"]})
    said = [
        {"span_id": made.traces[n], "name": "correct", "annotator_kind": "HUMAN", "identifier": f"person{k}"}
        | {"result": {"label": label(n, k)}}
        for n in range(traces)
        for k in range(PEOPLE)
    ]
    for start in range(0, len(said), 1000):
        server.call("POST", "/v1/span_annotations", {"sync": "true"}, data=said[start : start + 1000])
    path = f"/v1/projects/{made.name}"

    def listing() -> int:
        answers, more = 0, dict[str, Any]()
        while True:
            page = server.call("GET", f"{path}/spans", {"limit": 1000, "sort": "id", "order": "asc"} | more)
            ids = [span["context"]["span_id"] for span in page["data"] if not span["parent_id"]]
            for start in range(0, len(ids), 500):
                given = {"span_ids": ids[start : start + 500], "include_annotation_names": ["correct"], "limit": 10_000}
                answers += len(server.call("GET", f"{path}/span_annotations", given)["data"])
            if not page["next_cursor"]:
                return answers
            more = {"cursor": page["next_cursor"]}

    return made.connect, listing


def timed(made: Timed, folder: str, answers: int, runs: int) -> dict[str, list[float]]:
    """Seconds of each."""
    connect, listing = made
    times: dict[str, list[float]] = {"listing": [], "pull": [], "again": []}
    for run in range(runs):
        began = time.perf_counter()
        assert listing() == answers
        times["listing"].append(time.perf_counter() - began)
        with Store(f"sqlite:///{folder}/{run}.db") as store:
            for name in ("pull", "again"):
                began = time.perf_counter()
                with store.lease("bench") as lease:
                    summary = cycle.pull(lease, store, connect())
                times[name].append(time.perf_counter() - began)
                assert (summary.annotations == answers) == (name == "pull")
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, traces=10_000, runs=3)
    page, kept = results.Page(), {}
    page.tell(f"{options.traces:,} traces x {PEOPLE} answers, median of {options.runs} runs")
    servers: dict[str, tuple[Any, Any]] = {"MLflow": (mlflow, in_mlflow), "Phoenix": (phoenix, in_phoenix)}
    for name, (module, fill) in servers.items():
        with tempfile.TemporaryDirectory() as folder, module.running(Path(folder)) as server:
            times = timed(fill(server, options.traces), folder, PEOPLE * options.traces, options.runs)
        median = {what: float(np.median(each)) for what, each in times.items()}
        page.tell(
            *(f"{name:8} {what:8} {median[what]:6.2f} s  ({min(e):.2f} to {max(e):.2f})" for what, e in times.items())
        )
        ratio = median["pull"] / median["listing"]
        page.held((f"{name}: a first pull takes at most {MOST} x the bare listing", f"{ratio:.2f}", ratio <= MOST))
        kept[name] = median
    if options.save:
        page.save("trace_pull", kept, f"service.trace_pull --traces {options.traces} --save")


if __name__ == "__main__":
    main()
