"""`hitl demo`: 164 real people through the whole loop, with the embedded store.

Each cycle pulls, combines, plans and pushes; whoever is asked answers what they answered in 2008. Nothing is told of
the truth: it scores the result. Beside it stands majority vote with the same number of labels, spread evenly.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hitl import cycle, score
from hitl.active.replay import spread_evenly
from hitl.annotations import Floats, Ints, Name
from hitl.cycle import Judgement
from hitl.demo.recorded import QUESTION, RecordedPeople, rte, texts
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.report import Curve, QuestionPage, Report, write
from hitl.settings import BudgetSettings, PushSettings, Settings, SourceSettings
from hitl.store import Store

BATCH = 100
SEEDS = 5
ROW = "{:>8} {:>10} {:>12} {:>16}"


def run(output: Path) -> None:
    """Run the demo, print the comparison, write the report."""
    began = time.perf_counter()
    recorded = rte()
    people = RecordedPeople(recorded.annotations, texts())
    print(f"{recorded.annotations!r}\nThe policy asks; the recorded person answers. Nobody tells it the truth.\n")
    print(ROW.format("labels", "items done", "hitl right", "majority right*"))
    with tempfile.TemporaryDirectory(prefix="hitl-demo-") as folder:
        spent, accuracy, judgement = _loop(recorded, people, f"sqlite:///{folder}/hitl.db")
    even = np.stack([_majority(recorded, spent, seed) for seed in range(SEEDS)])
    whole = score.accuracy(MajorityVote().fit(Evidence(recorded.annotations)).probabilities, _truth(recorded))
    print(f"* the same number of labels spread evenly over the items at random, mean of {SEEDS} draws")
    print(
        f"\nhitl:     {accuracy[-1]:.1%} right with {spent[-1]:,} labels"
        f"\nmajority: {even[:, -1].mean():.1%} right with {spent[-1]:,} labels, "
        f"{whole:.1%} with all {len(recorded.annotations):,}"
    )
    write(_report(recorded, judgement, spent, accuracy, even), output)
    print(f"\nreport: {output.resolve()}   ({time.perf_counter() - began:.0f} s)")


def _loop(recorded: Evidence, people: RecordedPeople, url: str) -> tuple[list[int], list[float], Judgement]:
    settings = Settings(
        name="rte",
        source=SourceSettings(kind="tables", path="recorded"),
        budget=BudgetSettings(labels=BATCH),
        push=PushSettings(consensus=False, order=False, labels_wanted=False),
    )
    spent: list[int] = []
    accuracy: list[float] = []
    crew = people.crew()
    with Store(url) as store:
        while True:
            before = people.spent
            judgement = cycle.run(settings, store, people, crew=crew).judgement
            spent.append(before)
            accuracy.append(score.accuracy(judgement.results[QUESTION].probabilities, _truth(recorded)))
            if len(spent) % 4 == 2 or people.spent == before:
                majority = np.mean([_majority(recorded, [before], seed)[0] for seed in range(SEEDS)])
                done = f"{len(judgement.plan.done)}/{recorded.annotations.n_items}"
                print(ROW.format(f"{before:,}", done, f"{accuracy[-1]:.1%}", f"{majority:.1%}"), flush=True)
            elif sys.stderr.isatty():
                print(f"{before:>8,} labels", end="\r", file=sys.stderr, flush=True)
            if people.spent == before:
                return spent, accuracy, judgement


def _truth(recorded: Evidence) -> Ints:
    assert recorded.truth is not None
    return recorded.truth


def _majority(recorded: Evidence, spent: list[int], seed: int) -> Floats:
    return spread_evenly(recorded, MajorityVote(), spent, np.random.default_rng(seed))


def _report(recorded: Evidence, judgement: Judgement, spent: list[int], accuracy: list[float], even: Floats) -> Report:
    labels = np.array(spent, dtype=np.float64)
    curves = (
        Curve("hitl", labels, np.array(accuracy)),
        Curve("majority vote, spread evenly", labels, even.mean(axis=0), even.min(axis=0), even.max(axis=0)),
    )
    shown: dict[Name, str] = {item: f"{row['text']} — {row['hypothesis']}" for item, row in texts().items()}
    page = QuestionPage(
        "does the text entail the hypothesis?",
        judgement.evidence[QUESTION],
        judgement.results[QUESTION],
        shown,
        truth=_truth(recorded),
    )
    return Report(
        "hitl demo: recognising textual entailment",
        (page,),
        judgement.plan,
        curves,
        "Accuracy against labels spent",
        subtitle="164 real people of 2008 (Snow et al.), asked by hitl; the band is the range of 5 random spreads",
        command="hitl demo",
    )
