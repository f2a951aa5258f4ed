"""Scores of every method on one crowd, without known truth or beside a few known items: rows of COLUMNS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.default import DEPENDENCE
from hitl.models.dependence.design_effect import independent
from hitl.models.registry import combiner
from tests.bench.honesty.crowds import REAL, Source

METHODS = ("majority", "weighted-majority", "vb-ibcc", "ptbcc", "glad", "mace", "default")
TEMPERED: Mapping[str, float] = {f"rho {rho:g}": rho for rho in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)}
"""The default with another constant than UNTRACED_RHO, as if it were a method."""
N_KNOWN = 30
KNOWN = f"{N_KNOWN} known"
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
    """Score every method on every thinning of one crowd; on real crowds also the default with each rho of TEMPERED."""
    rows: list[Row] = []
    for labels, evidence in source.tables():
        assert evidence.truth is not None
        bare, known, truth = Evidence(evidence.annotations), evidence.known, evidence.truth[evidence.known]
        fits = {method: combiner(method).fit(bare) for method in METHODS}
        beliefs = {method: consensus.probabilities for method, consensus in fits.items()}
        if source.kind == REAL:
            beliefs |= {name: tempered(fits["default"], bare, rho) for name, rho in TEMPERED.items()}
        where = source.kind, source.group, source.name, labels, source.seed
        rows += [(*where, method, *figures(q_nj[known], truth)) for method, q_nj in beliefs.items()]
    return rows


def tempered(consensus: Consensus, bare: Evidence, rho: float) -> Floats:
    """Return (N, J) beliefs of the default if UNTRACED_RHO were rho: the same fit with another correction.

    Without known truth the design effect's rho is P (UNTRACED_RHO + e), by which P and e the consensus says.
    """
    alpha_kjl = consensus.annotators.concentration
    assert alpha_kjl is not None
    chance, excess, _ = consensus.parameters[DEPENDENCE]
    effect = DesignEffect(chance * (rho + excess), echo=1.0)
    return independent(bare.annotations, alpha_kjl, consensus.class_shares).tempered(effect)


def scored_with_known(source: Source) -> list[Row]:
    """Score majority vote and the default on a whole crowd without N_KNOWN items, drawn by the seed and known."""
    evidence = source.whole()
    assert evidence.truth is not None
    gold = np.flatnonzero(evidence.known)
    shown = np.random.default_rng(source.seed).choice(gold, N_KNOWN, replace=False)
    rest, truth = np.setdiff1d(gold, shown), np.full_like(evidence.truth, -1)
    truth[shown] = evidence.truth[shown]
    rows: list[Row] = []
    for method in ("majority", "default"):
        q_nj = combiner(method).fit(replace(evidence, truth=truth)).probabilities[rest]
        kind = KNOWN if source.kind == REAL else source.kind
        where = kind, source.group, source.name, KNOWN, source.seed, method
        rows.append((*where, *figures(q_nj, evidence.truth[rest])))
    return rows


def beside(rows: Sequence[Row], method: str) -> pd.DataFrame:
    """A row for each of the other methods, with the figures of `method` on the same labels ("accuracy of default")."""
    frame, same = pd.DataFrame(rows, columns=list(COLUMNS)), ["kind", "labels", "set", "seed"]
    ours = frame[frame["method"] == method].set_index(same)[list(FIGURES)].add_suffix(f" of {method}")
    return frame[frame["method"] != method].join(ours, on=same)
