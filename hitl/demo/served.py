"""`hitl demo --serve`: a project to view in a browser while recorded annotators keep labeling.

The 800 items start with two recorded labels each. Then every second a few questions of the plan are answered with other
recorded labels of their items. No platform is needed, because the project is a folder of tables.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hitl.demo.recorded import rte, texts
from hitl.store import Store

FIRST, A_SECOND = 2, 2
"""Number of labels per item at the start, and number of questions answered per second."""

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


class AnnotatorThread(threading.Thread):
    """Thread that answers the questions of the last plan with recorded labels, until stopped or no labels are left."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="hitl demo", daemon=True)
        self._file = folder / "labels" / "annotations.csv"
        self._store = Store(f"sqlite:///{folder / 'hitl.db'}")
        self._stopping = threading.Event()
        self._left = {item: rows[FIRST:] for item, rows in _recorded().items()}

    def run(self) -> None:
        """Answer A_SECOND questions every second."""
        answered: set[str] = set()
        while not self._stopping.wait(1.0) and any(self._left.values()):
            plan = self._store.plan("rte")
            asked = dict.fromkeys(str(ask.item) for ask in plan.asks) if plan is not None else {}
            items = [item for item in asked if item not in answered and self._left.get(item)][:A_SECOND]
            answered = answered | set(items) if items else set()  # the next plan may ask again
            with self._file.open("a", newline="") as file:
                csv.writer(file).writerows([*self._left[item].pop(0), time.time()] for item in items)

    def stop(self) -> None:
        """Stop answering."""
        self._stopping.set()
        self.join(5.0)
        self._store.close()


def make(folder: Path) -> Path:
    """Write the project into a new folder and return its hitl.toml."""
    labels, recorded = folder / "labels", _recorded()
    labels.mkdir(parents=True)
    start = time.time() - 60.0 * FIRST * len(recorded)
    rows = [row for turn in range(FIRST) for item in recorded for row in recorded[item][turn : turn + 1]]
    tables: dict[str, list[tuple[object, ...]]] = {
        "annotations.csv": [("item", "annotator", "label", "time")],
        "items.csv": [("item", "text", "hypothesis")],
    }
    tables["annotations.csv"] += [(*row, start + 60.0 * rank) for rank, row in enumerate(rows)]
    tables["items.csv"] += [(item, *content.values()) for item, content in texts().items()]
    for name, table in tables.items():
        with (labels / name).open("w", newline="") as file:
            csv.writer(file).writerows(table)
    config = folder / "hitl.toml"
    config.write_text(SETTINGS)
    return config


def run(folder: Path, serve: Callable[[Path], None]) -> None:
    """Create the project, run it once, and call `serve` while questions are answered."""
    from hitl import cycle
    from hitl.project import opened

    config = make(folder)
    with opened(config) as (settings, store, connector):
        cycle.run(settings, store, connector)
    annotator = AnnotatorThread(folder)
    annotator.start()
    try:
        serve(config)
    finally:
        annotator.stop()


def _recorded() -> dict[str, list[tuple[str, str, str]]]:
    """Return item -> its recorded answers, as tuples of item, annotator and label."""
    recorded: dict[str, list[tuple[str, str, str]]] = {}
    for row in rte().annotations.table().to_pylist():
        recorded.setdefault(row["item"], []).append((row["item"], row["annotator"], row["label"]))
    return recorded
