"""Scores of methods without known truth: rows of COLUMNS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Floats, Ints
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from tests.bench.honesty.crowds import Source

METHODS = ("majority", "weighted-majority", "vb-ibcc", "default")
FIGURES = ("accuracy", "log loss", "ECE", "over")
"""`over` is mean confidence - accuracy."""
COLUMNS = ("kind", "group", "set", "labels", "seed", "method", *FIGURES)
Row = tuple[Any, ...]


def figures(probabilities: Floats, truth: Ints) -> tuple[float, float, float, float]:
    """The FIGURES, ECE over as many bins as `bench_accuracy.measure` has."""
    right = score.accuracy(probabilities, truth)
    bins = int(np.clip(len(truth) / 20, 5, 15))
    over = float(probabilities.max(axis=1).mean()) - right
    return right, score.log_loss(probabilities, truth), score.calibration_error(probabilities, truth, bins), over


def scored(source: Source) -> list[Row]:
    """Every method on every thinning of one crowd."""
    rows: list[Row] = []
    for labels, evidence in source.tables():
        assert evidence.truth is not None
        known, truth = evidence.known, evidence.truth[evidence.known]
        for method in METHODS:
            q_nj = combiner(method).fit(Evidence(evidence.annotations)).probabilities
            where = source.kind, source.group, source.name, labels, source.seed, method
            rows.append((*where, *figures(q_nj[known], truth)))
    return rows


def beside(rows: Sequence[Row], method: str) -> pd.DataFrame:
    """A row for each of the other methods, with the figures of `method` on the same labels ("accuracy of default")."""
    frame, same = pd.DataFrame(rows, columns=list(COLUMNS)), ["kind", "labels", "set", "seed"]
    ours = frame[frame["method"] == method].set_index(same)[list(FIGURES)].add_suffix(f" of {method}")
    return frame[frame["method"] != method].join(ours, on=same)
