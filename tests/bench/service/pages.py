"""How long the pages of a large project take at the server, and what memory they need.

    python -m tests.bench.service.pages --items 1000000 --labels 10 --annotators 10000 --save [--folder F]

A project over tables, one cycle, then every page is asked for REPEATS times through a real server on this machine.
The bar: 300 ms at the server for each page, 4 GB. `--folder` keeps the project, for a second run without the cycle.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv

from tests.bench import results

REPEATS = 7
PAGES = {
    "projects": "/",
    "overview": "/projects/p",
    "items": "/projects/p/items",
    "items, page 1000": "/projects/p/items?page=1000",
    "items, contested": "/projects/p/items?show=contested",
    "items, changed first": "/projects/p/items?sort=change",
    "items, done": "/projects/p/items?show=done&sort=surest",
    "items, most labels": "/projects/p/items?sort=labels",
    "items, of one annotator": "/projects/p/items?annotator=p17&said=c1&label=c2",
    "items, text": "/projects/p/items?q=number+77",
    "item": "/projects/p/items/4711",
    "annotators": "/projects/p/annotators",
    "annotators, by name": "/projects/p/annotators?sort=name",
    "annotators, one name": "/projects/p/annotators?q=p17",
    "annotator": "/projects/p/annotators/p17",
    "team": "/projects/p/team",
    "models": "/projects/p/models",
    "plan": "/projects/p/plan",
    "runs": "/projects/p/runs",
    "items, JSON": "/projects/p/items?format=json&size=1000",
    "metrics": "/metrics",
}

SETTINGS = """name = "p"
store = "sqlite:///hitl.db"

[source]
kind = "tables"
path = "d"

[limits]
rows = 200000000

[budget]
open_questions = 1000
target_confidence = 0.95
max_labels = 20
"""

NAME, PASSWORD = "ann", "a long password"
"""Who may do everything there."""

SERVER = """
import sys
from pathlib import Path
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.roles import Role
from hitl.service.web import server
config, port, told = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
(told.parent / "access.db").unlink(missing_ok=True)
accounts = Accounts(f"sqlite:///{told.parent}/access.db")
accounts.add_user(sys.argv[4], sys.argv[5], Role.ADMIN)
told.write_text(accounts.create_token("bench", Role.ADMIN))
accounts.close()
server.serve([config], "127.0.0.1", port, access=f"sqlite:///{told.parent}/access.db", scheduler=False, say=
             lambda line: None)
"""


def write(folder: Path, n: int, labels: int, annotators: int) -> None:
    """A project of n items with so many labels each; annotators differ in how much they label, as they do."""
    (folder / "d").mkdir(parents=True)
    rng = np.random.default_rng(0)
    truth, item = rng.integers(4, size=n), np.repeat(np.arange(n), labels)
    share = rng.gamma(0.7, size=annotators)
    first = rng.choice(annotators, size=n, p=share / share.sum())
    annotator = (np.repeat(first, labels) + np.tile(np.arange(labels) * 37, n)) % annotators
    right = rng.beta(8, 3, size=annotators)
    label = np.where(rng.random(labels * n) < right[annotator], truth[item], rng.integers(4, size=labels * n))
    named = {"item": item, "annotator": np.char.add("p", annotator.astype(str))}
    when = 1.7e9 + rng.random(labels * n) * 1e6
    table = pa.table({**named, "label": np.char.add("c", label.astype(str)), "time": when.round()})
    pyarrow.csv.write_csv(table, folder / "d" / "annotations.csv")
    texts = [f"this is the text of number {k}" for k in range(n)]
    pyarrow.csv.write_csv(pa.table({"item": np.arange(n), "text": texts}), folder / "d" / "items.csv")
    (folder / "hitl.toml").write_text(SETTINGS)


def cycle(folder: Path) -> float:
    """Run a cycle; its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "hitl", "run"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


@contextmanager
def served(folder: Path, port: int) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """The project behind a server in a process of its own, when it is ready: a program that may do all, the process."""
    told = folder / "token"
    told.unlink(missing_ok=True)
    arguments = [sys.executable, "-c", SERVER, str(folder / "hitl.toml"), str(port), str(told), NAME, PASSWORD]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(arguments, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            _wait(client, process)
            client.headers.update({"Authorization": f"Bearer {told.read_text()}", "Accept": "text/html"})
            yield client, process
    finally:
        process.terminate()
        process.wait(30)


def measure(folder: Path, port: int) -> list[str]:
    """Milliseconds of each page at the server: median and worst."""
    start = time.perf_counter()
    with served(folder, port) as (client, process):
        ready = time.perf_counter() - start
        lines = [f"ready after {ready:.0f} s", "", f"{'page':26}{'median ms':>12}{'worst ms':>12}{'kB':>10}"]
        for name, path in PAGES.items():
            took, size = _asked(client, path)
            lines.append(f"{name:26}{np.median(took):>12.0f}{max(took):>12.0f}{size / 1e3:>10.0f}")
        lines += ["", f"memory: {_memory(process.pid):.2f} GB, {_memory(process.pid, 'VmHWM'):.2f} GB at most"]
    return lines


def _wait(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if process.poll() is not None:
            raise SystemExit("the server ended; see the log in the folder")
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server was not ready in ten minutes")


def _asked(client: httpx.Client, path: str) -> tuple[list[float], int]:
    took, size = [], 0
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer = client.get(path)
        took.append((time.perf_counter() - start) * 1e3)
        answer.raise_for_status()
        size = len(answer.content)
    return took, size


def _memory(pid: int, what: str = "VmRSS") -> float:
    """Gigabytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(what))) / 1e6


def of_command_line(
    doc: str | None, port: int, measured: Callable[[Path, int], tuple[list[str], Any]], name: str
) -> None:
    """Make the project that is asked for, measure, print, and save what the command line says."""
    given = results.options(doc, None, items=100_000, labels=10, annotators=10_000, port=port, folder=None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given.folder or temporary)
        lines = [f"{given.items:,} items, {given.items * given.labels:,} labels, {given.annotators:,} annotators"]
        if not (folder / "hitl.toml").exists():
            write(folder, given.items, given.labels, given.annotators)
            lines.append(f"first cycle: {cycle(folder):.0f} s")
        found, figures = measured(folder, given.port)
        lines += found
    print("\n".join(lines))
    if given.save:
        results.save(f"service_{name}", lines, figures, f"service.{name} --items {given.items} --save")


def main() -> None:
    """As the first lines say."""
    of_command_line(__doc__, 8533, lambda folder, port: (measure(folder, port), {}), "pages")


if __name__ == "__main__":
    main()
