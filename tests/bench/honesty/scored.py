"""Scores of every method on one crowd, nobody having seen its truth, and of a few known items on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence.design_effect import EXPECTED, independent
from hitl.models.registry import combiner
from tests.bench.honesty.crowds import REAL, Source, real

METHODS = ("majority", "weighted-majority", "vb-ibcc", "default")
GRID = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
TEMPERED: Mapping[str, float] = {f"rho {rho:g}": rho for rho in GRID}
"""The default with another constant than EXPECTED, as if it were a method."""

TOLD = 30
KNOWN = f"{TOLD} known"
FIGURES = ("accuracy", "log loss", "ECE", "over")
"""`over` is mean confidence - accuracy."""
COLUMNS = ("kind", "group", "set", "labels", "seed", "method", *FIGURES)


@dataclass
class Scores:
    """Rows of COLUMNS."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, other: Scores) -> None:
        self.rows += other.rows

    def frame(self) -> pd.DataFrame:
        """One row a crowd, seed and method; `gap` is accuracy less that of majority vote on the same labels."""
        frame = pd.DataFrame(self.rows, columns=list(COLUMNS))
        same = ["kind", "set", "labels", "seed"]
        majority = frame[frame["method"] == "majority"].set_index(same)["accuracy"].rename("of majority")
        frame = frame.join(majority, on=same)
        return frame.assign(gap=frame["accuracy"] - frame["of majority"]).drop(columns="of majority")


def figures(probabilities: Floats, truth: Ints) -> tuple[float, float, float, float]:
    """The FIGURES, ECE over as many bins as `bench_accuracy.measure` has."""
    right = score.accuracy(probabilities, truth)
    bins = int(np.clip(len(truth) / 20, 5, 15))
    over = float(probabilities.max(axis=1).mean()) - right
    return right, score.log_loss(probabilities, truth), score.calibration_error(probabilities, truth, bins), over


def untold(source: Source) -> Scores:
    """Every method on every thinning of one crowd; on real crowds the grid of rho too."""
    found = Scores()
    for labels, evidence in source.tables():
        assert evidence.truth is not None
        bare, known, truth = Evidence(evidence.annotations), evidence.known, evidence.truth[evidence.known]
        where = (source.kind, source.group, source.name, labels, source.seed)
        for method in METHODS:
            consensus = combiner(method).fit(bare)
            found.rows.append((*where, method, *figures(consensus.probabilities[known], truth)))
            if method == "default" and source.kind == REAL:
                for name, rho in TEMPERED.items():
                    found.rows.append((*where, name, *figures(tempered(consensus, bare, rho)[known], truth)))
    return found


def told(source: Source) -> Scores:
    """Majority vote and the default on the rest of a whole real crowd, TOLD items drawn by the seed being known."""
    evidence = real(source.name)
    assert evidence.truth is not None
    gold = np.flatnonzero(evidence.known)
    shown = np.random.default_rng(source.seed).choice(gold, TOLD, replace=False)
    rest = np.setdiff1d(gold, shown)
    truth = np.full_like(evidence.truth, -1)
    truth[shown] = evidence.truth[shown]
    found = Scores()
    for method in ("majority", "default"):
        p = combiner(method).fit(replace(evidence, truth=truth)).probabilities[rest]
        where = (KNOWN, source.group, source.name, KNOWN, source.seed)
        found.rows.append((*where, method, *figures(p, evidence.truth[rest])))
    return found


def tempered(consensus: Consensus, bare: Evidence, rho: float) -> Floats:
    """(N, J) beliefs of the default if EXPECTED were rho: the fit is the same, only the correction another.

    Without known truth the design effect's rho is EXPECTED times the probability that annotators err together.
    """
    alpha_kjl = consensus.annotators.concentration
    assert alpha_kjl is not None
    effect = DesignEffect(rho * consensus.design_effect.rho / EXPECTED, echo=1.0)
    return independent(bare.annotations, alpha_kjl, consensus.class_shares).tempered(effect)
