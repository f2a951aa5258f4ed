"""`hitl demo --serve`: a project in which recorded annotators go on labeling, to look at in a browser.

The 800 pairs of `rte` begin with two recorded labels each. Then somebody answers what the plan asks, a few questions
every second, by a recorded label of that item that was not given yet. No platform is needed: the project is a folder
of tables.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hitl.demo.recorded import rte, texts
from hitl.store import Store

FIRST = 2
"""Labels of each item at the beginning."""

A_SECOND = 2
"""Questions that are answered each second."""

SETTINGS = """name = "rte"
store = "sqlite:///hitl.db"

[source]
kind = "tables"
path = "labels"

[budget]
open_questions = 60
target_confidence = 0.9
max_labels = 10

[schedule]
after_annotations = 20
poll = "2s"
"""


class Answering(threading.Thread):
    """Somebody who labels: answers the questions of the last plan by what was recorded, until stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="hitl demo", daemon=True)
        self._file = folder / "labels" / "annotations.csv"
        self._store = Store(f"sqlite:///{folder / 'hitl.db'}")
        self._stopping = threading.Event()
        self._left = {item: rows[FIRST:] for item, rows in _recorded().items()}

    def run(self) -> None:
        """Answer until stopped, or until nothing recorded is left."""
        answered: set[str] = set()
        while not self._stopping.wait(1.0) and any(self._left.values()):
            plan = self._store.plan("rte")
            asked = [str(ask.item) for ask in plan.asks] if plan is not None else []
            fresh = [item for item in dict.fromkeys(asked) if item not in answered and self._left.get(item)]
            if not fresh:
                answered.clear()  # the next plan may ask again
                continue
            now = fresh[:A_SECOND]
            answered |= set(now)
            with self._file.open("a", newline="") as file:
                csv.writer(file).writerows([*self._left[item].pop(0), time.time()] for item in now)

    def stop(self) -> None:
        """Stop answering."""
        self._stopping.set()
        self.join(5.0)
        self._store.close()


def make(folder: Path) -> Path:
    """The project in a new folder; gives its hitl.toml."""
    labels = folder / "labels"
    labels.mkdir(parents=True)
    recorded = _recorded()
    start = time.time() - 60.0 * FIRST * len(recorded)
    rows = [row for turn in range(FIRST) for item in recorded for row in recorded[item][turn : turn + 1]]
    with (labels / "annotations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("item", "annotator", "label", "time"))
        writer.writerows([*row, start + 60.0 * rank] for rank, row in enumerate(rows))
    with (labels / "items.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("item", "text", "hypothesis"))
        writer.writerows([item, shown["text"], shown["hypothesis"]] for item, shown in texts().items())
    config = folder / "hitl.toml"
    config.write_text(SETTINGS)
    return config


def run(folder: Path, serve: Callable[[Path], None]) -> None:
    """Make the project, run its first cycle, and serve it while somebody labels."""
    from hitl import cycle
    from hitl.project import opened

    config = make(folder)
    with opened(config) as (settings, store, connector):
        cycle.run(settings, store, connector)
    somebody = Answering(folder)
    somebody.start()
    try:
        serve(config)
    finally:
        somebody.stop()


def _recorded() -> dict[str, list[tuple[str, str, str]]]:
    """Item -> what was recorded of it: item, annotator, label."""
    annotations = rte().annotations
    found: dict[str, list[tuple[str, str, str]]] = {str(name): [] for name in annotations.items}
    for n, k, label in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        item = str(annotations.items[n])
        found[item].append((item, str(annotations.annotators[k]), str(annotations.options[label])))
    return found
