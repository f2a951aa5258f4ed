"""`hitl demo`: 164 real annotators in the whole loop, with the embedded store.

Each run pulls, combines, plans and pushes; annotators who are asked answer as in 2008. The truth is hidden from the
loop and used only to score the result. It is compared to majority vote with the same number of labels, spread evenly.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import TablesSettings
from hitl.demo.comparison import HEADER, Comparison
from hitl.demo.recorded import QUESTION, RecordedPeople, rte, texts
from hitl.operations import Judgement
from hitl.report import write
from hitl.settings import BudgetSettings, PushSettings, Settings
from hitl.store import Store

BATCH = 100
EVERY = 4
TARGET = 0.9


def run(output: Path) -> None:
    """Run the demo, print the comparison, and write the report."""
    began = time.perf_counter()
    comparison = Comparison(rte())
    shown = texts()
    people = RecordedPeople(comparison.recorded.annotations, shown)
    print(f"{comparison.recorded.annotations!r}")
    print(
        f"The policy asks; the recorded annotator answers. The policy does not see the truth.\n\n{HEADER}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="hitl-demo-") as folder:
        judgement = _loop(comparison, people, f"sqlite:///{folder}/hitl.db")
    print(comparison.summary())
    write(comparison.report(judgement, shown, "hitl demo: recognising textual entailment", "hitl demo"), output)
    print(f"\nreport: {output.resolve()}   ({time.perf_counter() - began:.0f} s)")


def _loop(comparison: Comparison, people: RecordedPeople, url: str) -> Judgement:
    settings = Settings(
        name="rte",
        source=TablesSettings(path="recorded"),
        budget=BudgetSettings(open_questions=BATCH, target_confidence=TARGET),
        push=PushSettings(consensus=False, order=False, labels_wanted=False),
    )
    crew = people.crew()
    with Store(url) as store:
        while True:
            before = people.spent
            judgement = cycle.run(settings, store, people, crew=crew).judgement
            comparison.add(before, judgement.results[QUESTION])
            ended = people.spent == before
            if ended or len(comparison.spent) % EVERY == 2:
                print(comparison.row(len(judgement.plan.done)), flush=True)
            elif sys.stderr.isatty():
                print(f"{before:>8,} labels", end="\r", file=sys.stderr, flush=True)
            if ended:
                return judgement
