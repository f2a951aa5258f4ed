"""Labels until every item is done: the default beside VB-IBCC, which assumes that annotators err independently.

Annotators err independently and can answer anything (`simulated_annotators`), in the cells of `crowds`. Both combiners
meet the same annotators, with the default policy and budget; a plan asks about a tenth of the items.

    equal accuracy    the lower of the two accuracies at the end
    labels to it      after which a combiner's labels are never less accurate again
    asked on          VB-IBCC that calls no item done until it has been given as many labels as the default
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from hitl.active.replay.replay import Replay, Track
from hitl.active.replay.simulated_annotators import SimulatedAnswers, SimulatedCrew
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner
from hitl.models.combiner import Combiner
from tests.bench import results
from tests.bench.honesty.crowds import CELLS, INDEPENDENT, Source

SHARED, PLAIN = "VB-IBCC", "plain VB-IBCC"
"""As it comes, with one prior that annotators share, learned from the labels; and with pseudo-counts 2 / 1."""
THEIRS = (SHARED, PLAIN)
BATCH = 10
"""A plan asks about one item in so many."""
SEEDS = {200: 3, 1000: 3, 5000: 1}
"""Items -> seeds, at most: large ones take long and differ little."""
ALIKE, LOST, MOST = 0.01, 0.10, 1.4
"""Accuracies at the end that differ by less are taken as equal; one that is so much lower is of no use; the bar."""
WHO = ("our", "their")
RATIOS = {
    "ratio": "to equal accuracy",
    "ratio, sound": f"to equal accuracy where it ends less than {100 * LOST:.0f} points lower",
    "ratio at done": "to done where both end within a point",
    "ratio asked on": "to done and its own, asked on, to the same accuracy",
}

Row = dict[str, Any]


def jobs(crowds: Sequence[Source]) -> list[tuple[Source, str]]:
    """The first seeds of the independent ones, large ones first, with each of THEIRS."""
    cells = [crowd for crowd in crowds if crowd.kind == INDEPENDENT and crowd.seed < SEEDS[CELLS[crowd.name][1]]]
    cells.sort(key=lambda crowd: -CELLS[crowd.name][1])
    return [(cell, theirs) for cell in cells for theirs in THEIRS]


def annotators(name: str, rng: np.random.Generator) -> SimulatedCrew:
    """Draw as many annotators of a cell as `crowds.cell` has, as good, their errors spread evenly."""
    classes, items, accuracy = CELLS[name]
    people = max(20, items // 20)
    right_k = rng.beta(10 * accuracy, 10 * (1 - accuracy), size=people)
    confusion = np.repeat(((1 - right_k) / (classes - 1))[:, None, None], classes, axis=1)
    confusion = np.repeat(confusion, classes, axis=2)
    confusion[:, np.arange(classes), np.arange(classes)] = right_k[:, None]
    return SimulatedCrew(tuple(range(people)), confusion)


def finished(job: tuple[Source, str]) -> Row:
    """Replay the default and one of THEIRS in a cell, and compare them."""
    cell, theirs = job
    budget = Budget(open_questions=CELLS[cell.name][1] // BATCH)
    other = VBIBCC(shared=theirs == SHARED)
    ours, end = (_replayed(cell, judge, budget) for judge in (DefaultCombiner(), other))
    on = _replayed(cell, other, replace(budget, target_confidence=1.0), int(ours.labels[-1]))
    return {"theirs": theirs, "cell": cell.name, "seed": cell.seed} | compared(ours, end, on)


def _replayed(cell: Source, judge: Combiner, budget: Budget, most: int | None = None) -> Track:
    classes, items, _ = CELLS[cell.name]
    rng = np.random.default_rng([cell.seed, zlib.crc32(cell.name.encode())])
    truth = rng.integers(classes, size=items).astype(np.int32)
    crew = annotators(cell.name, rng)
    names = tuple(range(classes))
    answers = SimulatedAnswers(crew, truth, tuple(range(items)), names, int(rng.integers(2**63)))
    known = Evidence(answers.revealed(), truth=truth)
    return Replay(judge, budget=budget, most_labels=most).run_with(answers, known, rng)


def compared(ours: Track, theirs: Track, on: Track) -> Row:
    """Labels and true accuracy of both at the end, and to equal accuracy; `on` is the second, asked on.

    asked on    labels of `on` to the accuracy that ours has at the end; None where it does not get there
    """
    final = float(ours.accuracy[-1])
    equal = min(final, float(theirs.accuracy[-1]))
    row: Row = {"equal accuracy": equal, "asked on": _labels_to(on, final)}
    for whose, track in zip(WHO, (ours, theirs), strict=True):
        row[f"{whose} labels"], row[f"{whose} accuracy"] = int(track.labels[-1]), float(track.accuracy[-1])
        row[f"{whose} to equal"] = _labels_to(track, equal)
    return row


def _labels_to(track: Track, accuracy: float) -> int | None:
    found = track.to_reach(accuracy)
    return None if found is None else found[0]


def to_done(rows: Sequence[Row]) -> pd.DataFrame:
    """Cells: means over seeds of `compared`, and of ratios: labels of the default in terms of the other's.

    ratio           to equal accuracy
    ratio, sound    the same where the other ends less than ten points below the default (NaN: nowhere)
    ratio at done   of all labels, where both end within a point of each other
    ratio asked on  all labels of the default, in terms of the other's, asked on, to the same accuracy; 1, which is more
                    than it is, where the other does not get there with as many labels
    sound, alike, gets there    shares of the seeds
    """
    frame = pd.DataFrame(rows)
    lead = frame["our accuracy"] - frame["their accuracy"]
    ratio, on = frame["our to equal"] / frame["their to equal"].clip(lower=1), frame["asked on"].astype(float)
    made = {
        "asked on": on,
        "ratio": ratio,
        "ratio, sound": ratio.where(lead < LOST),
        "ratio at done": (frame["our labels"] / frame["their labels"]).where(lead.abs() <= ALIKE),
        "ratio asked on": (frame["our labels"] / on.clip(lower=1)).fillna(1.0),
        "sound": (lead < LOST).astype(float),
        "alike": (lead.abs() <= ALIKE).astype(float),
        "gets there": on.notna().astype(float),
    }
    return frame.assign(**made).drop(columns="seed").groupby(["theirs", "cell"], sort=False).mean()


def table_of_cells(means: pd.DataFrame, theirs: str) -> list[str]:
    """A line for each cell: labels an item, true accuracies, ratios and shares of the seeds."""
    labels = [f"{who} {what}" for who in WHO for what in ("labels", "to equal")]
    items = [CELLS[str(cell)][1] for cell in means.index]
    frame = means.drop(columns="asked on").assign(**{name: means[name] / items for name in labels})
    title = f"every item done, independent annotators: labels an item and true accuracy, the default beside {theirs}"
    return ["", title, *results.table(frame)]


def bars(means: pd.DataFrame, theirs: str) -> list[results.Bar]:
    """At most MOST x the labels of one of THEIRS, in the mean over cells and in each cell."""
    found: list[results.Bar] = []
    for which, words in RATIOS.items():
        ratio = means[which].dropna()
        if len(ratio):
            claim = f"at most {MOST} x the labels of {theirs}, {words}"
            mean, most = float(ratio.mean()), float(ratio.max())
            found.append((f"{claim}, mean over {len(ratio)} cells", f"{mean:.2f}", mean <= MOST))
            found.append((f"{claim}, in each cell", f"most {most:.2f} at {ratio.idxmax()}", most <= MOST))
    return found
