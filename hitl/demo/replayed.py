"""`hitl demo`: runs with the recorded answers of 164 real annotators, and an SQLite store.

Each run pulls, combines, plans and pushes; annotators who are asked answer as in 2008. The truth is hidden from the
runs and used only for scoring. The accuracy is compared to that of a majority vote with the same number of labels,
spread evenly over the items.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hitl import cycle, score
from hitl.active.replay.replay import spread_evenly
from hitl.annotations import Floats, Name
from hitl.connectors.tables import TablesSettings
from hitl.consensus import Consensus
from hitl.demo.recorded import QUESTION, RecordedPeople, rte, texts
from hitl.evidence import Evidence
from hitl.formatting import percent
from hitl.models.majority import MajorityVote
from hitl.operations import Judgement
from hitl.report import Curve, QuestionPage, Report, write
from hitl.report.stored import text_of
from hitl.settings import BudgetSettings, PushSettings, Settings
from hitl.store import Store

BATCH, EVERY, TARGET = 100, 4, 0.9
SEEDS = 5
ROW = "{:>8} {:>12} {:>12} {:>16}"
HEADER = ROW.format("labels", "items done", "hitl right", "majority right*")


@dataclass
class Comparison:
    """Accuracy after each step, to be compared to that of a majority vote.

    Attributes:
        recorded: all answers, and the truth, which is used only for scoring.
        spent: number of labels at each step.
        accuracy: share of right labels at each step, in [0, 1].
    """

    recorded: Evidence
    spent: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def add(self, spent: int, consensus: Consensus) -> None:
        """Add a step: number of labels, and the consensus with the items in the order of `recorded`."""
        self.spent.append(spent)
        self.accuracy.append(self._accuracy_of(consensus))

    def _accuracy_of(self, consensus: Consensus) -> float:
        assert self.recorded.truth is not None
        return score.accuracy(consensus.probabilities, self.recorded.truth)

    def majority(self, spent: list[int]) -> Floats:
        """Return (SEEDS, len(spent)) accuracies of a majority vote over these numbers of labels, spread evenly."""
        generators = [np.random.default_rng(seed) for seed in range(SEEDS)]
        return np.stack([spread_evenly(self.recorded, MajorityVote(), spent, rng) for rng in generators])

    def row(self, done: int) -> str:
        """Format the last step as a line under HEADER."""
        majority, items = self.majority(self.spent[-1:]).mean(), f"{done}/{self.recorded.annotations.n_items}"
        return ROW.format(f"{self.spent[-1]:,}", items, percent(self.accuracy[-1]), percent(majority))

    def summary(self) -> str:
        """Describe the final result."""
        whole = self._accuracy_of(MajorityVote().fit(Evidence(self.recorded.annotations)))
        labels = self.spent[-1]
        return (
            f"* the same number of labels spread evenly over the items at random, mean of {SEEDS} draws\n\n"
            f"hitl:     {percent(self.accuracy[-1])} right with {labels:,} labels\n"
            f"majority: {percent(self.majority([labels]).mean())} right with {labels:,} labels, "
            f"{percent(whole)} with all {len(self.recorded.annotations):,}"
        )

    def report(self, judgement: Judgement, items: Mapping[str, Mapping[str, str]], title: str, command: str) -> Report:
        """Return a report with both curves and the last consensus. `items`: item -> its texts."""
        labels, even = np.array(self.spent, dtype=np.float64), self.majority(self.spent)
        curves = (
            Curve("hitl", labels, np.array(self.accuracy)),
            Curve("majority, evenly", labels, even.mean(axis=0), even.min(axis=0), even.max(axis=0)),
        )
        evidence, consensus = judgement.evidence[QUESTION], judgement.results[QUESTION]
        lines: dict[Name, str] = {item: text_of(content) for item, content in items.items()}
        asked, truth = "does the text entail the hypothesis?", self.recorded.truth
        page = QuestionPage(asked, evidence, consensus, lines, truth=truth)
        subtitle = f"real people of 2008 (Snow et al.), asked by hitl; the band is the range of {SEEDS} even spreads"
        return Report(title, (page,), judgement.plan, curves, subtitle=subtitle, command=command)


def run(output: Path) -> None:
    """Run the demo, print the comparison, and write the report."""
    began, comparison, shown = time.perf_counter(), Comparison(rte()), texts()
    people = RecordedPeople(comparison.recorded.annotations, shown)
    print(f"{comparison.recorded.annotations!r}")
    print(
        f"The policy asks; the recorded annotator answers. The policy does not see the truth.\n\n{HEADER}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="hitl-demo-") as folder, Store(f"sqlite:///{folder}/hitl.db") as store:
        judgement = _loop(comparison, people, store)
    print(comparison.summary())
    write(comparison.report(judgement, shown, "hitl demo: recognising textual entailment", "hitl demo"), output)
    print(f"\nreport: {output.resolve()}   ({time.perf_counter() - began:.0f} s)")


def _loop(comparison: Comparison, people: RecordedPeople, store: Store) -> Judgement:
    settings = Settings(
        name="rte",
        source=TablesSettings(path="recorded"),
        budget=BudgetSettings(open_questions=BATCH, target_confidence=TARGET),
        push=PushSettings(consensus=False, order=False, labels_wanted=False),
    )
    crew = people.crew()
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
