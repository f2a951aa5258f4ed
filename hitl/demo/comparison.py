"""Accuracy over labels spent, compared to majority vote with the same number of labels spread evenly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hitl import score
from hitl.active.replay.replay import spread_evenly
from hitl.annotations import Floats, Ints, Name
from hitl.consensus import Consensus
from hitl.demo.recorded import QUESTION
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.operations import Judgement
from hitl.report import Curve, QuestionPage, Report
from hitl.report.stored import text_of

SEEDS = 5
ROW = "{:>8} {:>12} {:>12} {:>16}"
HEADER = ROW.format("labels", "items done", "hitl right", "majority right*")


@dataclass
class Comparison:
    """The course of a demo. `recorded` holds all answers and the truth, which is used only for scoring."""

    recorded: Evidence
    spent: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    @property
    def truth(self) -> Ints:
        """(N,) true answers."""
        assert self.recorded.truth is not None
        return self.recorded.truth

    def add(self, spent: int, consensus: Consensus) -> None:
        """Add a step: labels spent, and the consensus (items in the order of the recording)."""
        self.spent.append(spent)
        self.accuracy.append(score.accuracy(consensus.probabilities, self.truth))

    def majority(self, spent: list[int]) -> Floats:
        """Return (SEEDS, len(spent)) accuracy of majority vote with the same number of labels, spread evenly at
        random.
        """
        generators = [np.random.default_rng(seed) for seed in range(SEEDS)]
        return np.stack([spread_evenly(self.recorded, MajorityVote(), spent, rng) for rng in generators])

    def row(self, done: int) -> str:
        """Format the last step as a line under HEADER."""
        majority = self.majority(self.spent[-1:]).mean()
        items = f"{done}/{self.recorded.annotations.n_items}"
        return ROW.format(f"{self.spent[-1]:,}", items, f"{self.accuracy[-1]:.1%}", f"{majority:.1%}")

    def summary(self) -> str:
        """Describe the final result."""
        whole = score.accuracy(MajorityVote().fit(Evidence(self.recorded.annotations)).probabilities, self.truth)
        labels = self.spent[-1]
        return (
            f"* the same number of labels spread evenly over the items at random, mean of {SEEDS} draws\n\n"
            f"hitl:     {self.accuracy[-1]:.1%} right with {labels:,} labels\n"
            f"majority: {self.majority([labels]).mean():.1%} right with {labels:,} labels, "
            f"{whole:.1%} with all {len(self.recorded.annotations):,}"
        )

    def report(self, judgement: Judgement, items: Mapping[str, Mapping[str, str]], title: str, command: str) -> Report:
        """Return the page with both curves and the last consensus; `items` holds the texts of each item."""
        labels, even = np.array(self.spent, dtype=np.float64), self.majority(self.spent)
        curves = (
            Curve("hitl", labels, np.array(self.accuracy)),
            Curve("majority, evenly", labels, even.mean(axis=0), even.min(axis=0), even.max(axis=0)),
        )
        evidence, consensus = judgement.evidence[QUESTION], judgement.results[QUESTION]
        lines: dict[Name, str] = {item: text_of(content) for item, content in items.items()}
        page = QuestionPage("does the text entail the hypothesis?", evidence, consensus, lines, truth=self.truth)
        subtitle = f"real people of 2008 (Snow et al.), asked by hitl; the band is the range of {SEEDS} even spreads"
        heading = "Accuracy against labels spent"
        return Report(title, (page,), judgement.plan, curves, heading, subtitle=subtitle, command=command)
