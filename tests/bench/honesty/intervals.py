"""How often the intervals of the default hold what is true: a project's accuracy, and that of each annotator.

project      the true accuracy of the items whose truth is recorded, in the interval that the same items expect
annotators   of those with ten labels or more on such items: their share of right answers there, in their interval;
             widths beside those of an exact binomial interval that knows the truth (Jeffreys)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import beta

from hitl import score
from hitl.active.stopping.rules import PRIOR_ERRORS, accuracy_interval
from hitl.annotations import Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench.honesty.crowds import Source

FEWEST = 10
DOUBTS = (2.0, 4.0, 20.0)
"""Values of PRIOR_ERRORS that are compared."""

Row = dict[str, float | str]


def covered(source: Source) -> list[Row]:
    """A row for each thinning of a crowd."""
    return [
        {"kind": source.kind, "labels": labels, "set": source.name} | _of_table(evidence)
        for labels, evidence in source.tables()
    ]


def _of_table(evidence: Evidence) -> Row:
    consensus, known, truth = DefaultCombiner().fit(Evidence(evidence.annotations)), evidence.known, evidence.truth
    assert truth is not None
    right = score.accuracy(consensus.probabilities[known], truth[known])
    found: Row = {}
    for doubt in DOUBTS:
        _, low, high = accuracy_interval(1 - consensus.confidence[known], 1.0, 1 / doubt)
        found |= {f"in {doubt:g}": float(low - 1e-9 <= right <= high + 1e-9), f"below {doubt:g}": float(right < low)}
    return found | _of_annotators(evidence, consensus, truth)


def _of_annotators(evidence: Evidence, consensus: Consensus, truth: Ints) -> Row:
    a = evidence.annotations
    judged = evidence.known[a.item]
    labels = np.bincount(a.annotator, judged, a.n_annotators)
    right = np.bincount(a.annotator, judged & (truth[a.item] == a.label), a.n_annotators)
    some = labels >= FEWEST
    if not some.any():
        return {"annotators in": np.nan, "width": np.nan}
    low, high = consensus.annotators.interval
    share, n, r = right[some] / labels[some], labels[some], right[some]
    exact = beta.ppf(0.975, r + 0.5, n - r + 0.5) - beta.ppf(0.025, r + 0.5, n - r + 0.5)
    inside = (low[some] <= share) & (share <= high[some])
    return {"annotators in": float(inside.mean()), "width": float((high - low)[some].mean() / exact.mean())}


def table(rows: Sequence[Row]) -> list[str]:
    """Lines: kinds x labels, means over the sets of the means over seeds."""
    frame = pd.DataFrame(rows)
    means = frame.groupby(["kind", "labels", "set"]).mean().groupby(["kind", "labels"]).mean()
    lines = ["", "share of intervals that hold the truth (a: PRIOR_ERRORS; it is " + f"{PRIOR_ERRORS:g})"]
    lines.append(
        f"{'':15s}labels" + "".join(f"  a={d:<3g} (truth below)" for d in DOUBTS) + "  annotators  width/exact"
    )
    for (kind, labels), mean in means.iterrows():
        project = "".join(f"  {mean[f'in {d:g}']:5.2f} {mean[f'below {d:g}']:13.2f}" for d in DOUBTS)
        lines.append(f"{kind:15s}{labels:>6s}{project}{mean['annotators in']:12.2f}{mean['width']:13.2f}")
    every = frame[frame["kind"] == "real"].groupby(["labels", "set"]).mean(numeric_only=True).mean()
    if every.notna().any():
        lines.append("all real tables  " + "; ".join(f" a={d:g}: {every[f'in {d:g}']:.3f}" for d in DOUBTS))
    return lines
