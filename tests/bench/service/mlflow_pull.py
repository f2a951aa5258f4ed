"""Pulling a whole experiment from MLflow against the bare listing of its traces, on the same server.

    python -m tests.bench.service.mlflow_pull [--traces 10000] [--runs 3] [--save]

Traces have 5 answers each, by 5 people. Listing: the requests of a pull, their answers parsed as JSON and thrown away.
Pull: what `hitl pull` does, the pages saved in a new SQLite store. Again: the same once more, when nothing has changed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hitl import cycle
from hitl.connectors.mlflow import MLflow
from hitl.store import Store
from tests.bench import results
from tests.connectors.mlflow.server import API, Experiment, running

PEOPLE = 5
MOST = 1.5
"""Time of a pull in terms of the listing's."""


def fill(made: Experiment) -> None:
    """Add all traces with their answers."""
    where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": made.number}}
    now = "2026-01-01T00:00:00Z"

    def add(n: int) -> None:
        said = [
            {
                **{
                    "assessment_name": "correct",
                    "trace_id": made.traces[n],
                    "create_time": now,
                    "last_update_time": now,
                },
                **{"source": {"source_type": "HUMAN", "source_id": f"person{k}"}},
                **{"feedback": {"value": ("yes", "no")[(n * 7 + k * 3) % 2]}},
            }
            for k in range(PEOPLE)
        ]
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + n))
        info = {"trace_id": made.traces[n], "trace_location": where, "request_time": when, "execution_duration": "1s"}
        info |= {"state": "OK", "request_preview": f"question {n}", "response_preview": f"answer {n}"}
        info |= {"trace_metadata": {}, "tags": {}, "assessments": said}
        made.server.call("POST", f"{API}/traces", trace={"trace_info": info})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(len(made.traces))))


def listing(connector: MLflow) -> int:
    """Number of traces listed."""
    number, token = 0, None
    while True:
        traces, token = connector.client.traces(connector.experiment, token)
        number += len(traces)
        if token is None:
            return number


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, traces=10_000, runs=3)
    times: dict[str, list[float]] = {"listing": [], "pull": [], "again": []}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        made = server.experiment("bench", 0, {"correct": {"categorical": {"options": ["yes", "no"]}}})
        made.traces.extend(f"tr-{n:032x}" for n in range(options.traces))
        fill(made)
        for run in range(options.runs):
            connector = made.connect()
            began = time.perf_counter()
            assert listing(connector) == options.traces
            times["listing"].append(time.perf_counter() - began)
            with Store(f"sqlite:///{folder}/{run}.db") as store:
                for name in ("pull", "again"):
                    began = time.perf_counter()
                    with store.lease("bench") as lease:
                        summary = cycle.pull(lease, store, made.connect())
                    times[name].append(time.perf_counter() - began)
                    assert (summary.annotations == PEOPLE * options.traces) == (name == "pull")
    page, median = results.Page(), {name: float(np.median(each)) for name, each in times.items()}
    page.tell(
        f"{options.traces:,} traces x {PEOPLE} answers, median of {options.runs} runs",
        *(f"{name:8} {median[name]:6.2f} s  ({min(each):.2f} to {max(each):.2f})" for name, each in times.items()),
    )
    ratio = median["pull"] / median["listing"]
    page.held((f"a first pull takes at most {MOST} x the bare listing", f"{ratio:.2f}", ratio <= MOST))
    if options.save:
        page.save("mlflow_pull", median, f"service.mlflow_pull --traces {options.traces} --save")


if __name__ == "__main__":
    main()
