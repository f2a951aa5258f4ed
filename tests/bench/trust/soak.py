"""Memory of `hitl serve` over many runs: `python -m tests.bench.trust.soak --runs 400 --items 300 --save`.

A real process serves a project of tables with 3 labels per item. Before each run ten labels change, so that a run has
something to do and the project does not grow. After each run the pages are read. Memory is that of the process (VmRSS):
the last tenth of the runs is compared with the third tenth, because caches and pools are filled until then.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import numpy as np

from tests.bench import results
from tests.service.web.processes import log_in, serving
from tests.service.web.served import Crowd

LIMIT = 1.05
"""Maximum memory of the last runs, as a multiple of that after the warm-up."""
CHANGED, SECRET, SECONDS = 10, "of the soak test", 120
CLASSES = ("cat", "dog", "fox")
PAGES = ("", "/items", "/items/i7", "/annotators", "/annotators/p1", "/team", "/models", "/plan", "/runs")
SCHEDULE = '[schedule]\nwebhook = "127.0.0.1:1"\npoll = "1h"\ndebounce = 0.05\n'


def labels(rng: np.random.Generator, items: int) -> list[tuple[str, str, str]]:
    """Three labels per item, by 9 annotators who are right four times of five."""
    truth = rng.integers(3, size=items)
    rows = []
    for n in range(items):
        for k in range(3):
            label = truth[n] if rng.random() < 0.8 else rng.integers(3)
            rows.append((f"i{n}", f"p{(n + 3 * k + n // 9) % 9}", CLASSES[label]))
    return rows


@contextmanager
def soaked(folder: Path, items: int) -> Iterator[tuple[Path, httpx.Client, int]]:
    """Serve such a project: its annotations, a client who is logged in, and the number of the process."""
    rng = np.random.default_rng(0)
    crowd = Crowd(labels(rng, items), crew=[f"p{k}" for k in range(9)])
    config = crowd.written(folder)
    config.write_text(config.read_text() + SCHEDULE)
    with (
        serving(folder, "serve", secrets={"HITL_WEBHOOK_SECRET": SECRET}) as (address, said, process),
        closing(log_in(address, said)) as client,
    ):
        yield folder / "labels" / "annotations.csv", client, process.pid


def change(path: Path, run: int) -> None:
    """Give ten labels another class, others in each run."""
    lines = path.read_text().splitlines()
    for place in range(1 + run % 97, len(lines), len(lines) // CHANGED)[:CHANGED]:
        head, _, label = lines[place].rpartition(",")
        lines[place] = f"{head},{CLASSES[(CLASSES.index(label) + 1) % 3]}"
    path.write_text("\n".join(lines) + "\n")


def runs_of(client: httpx.Client) -> int:
    """Number of the last run that pages show."""
    rows = client.get("/projects/p/runs?format=json").raise_for_status().json()["rows"]
    return max((int(row["cycle"]) for row in rows), default=0)


def memory_after_runs(folder: Path, items: int, runs: int, seconds: float) -> list[float]:
    """Megabytes of memory of the service after each run; fewer runs if the time is over."""
    found, start = list[float](), time.monotonic()
    with soaked(folder, items) as (path, client, pid):
        while len(found) < runs and time.monotonic() < start + seconds:
            before, began = runs_of(client), time.monotonic()
            change(path, len(found))
            client.post("/webhook/p", headers={"X-Hitl-Secret": SECRET}, json={"action": "ANNOTATION_UPDATED"})
            while runs_of(client) == before:
                assert time.monotonic() < began + SECONDS, "no run came"
                time.sleep(0.02)
            for page in PAGES:
                client.get(f"/projects/p{page}").raise_for_status()
            found.append(results.memory("VmRSS", pid) / 1e6)
            print(f"{len(found):4d} {time.monotonic() - began:5.1f} s {found[-1]:7.1f} MB", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print memory over the runs; with --save also write docs/benchmarks/trust_soak.*."""
    options = results.options(__doc__, arguments, items=300, runs=400, minutes=60.0)
    with tempfile.TemporaryDirectory() as folder:
        megabytes = memory_after_runs(Path(folder), options.items, options.runs, 60 * options.minutes)
    runs = len(megabytes)
    tenth, page = max(1, runs // 10), results.Page()
    page.tell(f"hitl serve, {options.items:,} items with 3 labels each, {runs} runs", "run    MB")
    page.tell(*(f"{n + 1:4d} {megabytes[n]:5.0f}" for n in range(tenth - 1, runs, tenth)))
    warm, last = (float(np.median(some)) for some in (megabytes[2 * tenth : 3 * tenth], megabytes[-tenth:]))
    page.held(results.at_most(f"memory of the last {tenth} runs over that after {2 * tenth} runs", last / warm, LIMIT))
    if options.save:
        command = f"trust.soak --items {options.items} --runs {options.runs} --save"
        page.save("trust_soak", {"items": options.items, "megabytes": megabytes}, command)
    return int(last > LIMIT * warm)


if __name__ == "__main__":
    sys.exit(main())
