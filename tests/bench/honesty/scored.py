"""Scores of every method on one crowd, nobody having seen its truth, and of a few known items on the others.

A peer that gives labels without probabilities is scored by accuracy alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence.design_effect import EXPECTED, independent
from hitl.models.registry import combiner
from tests.bench.honesty.crowds import REAL, Source, real

METHODS = ("majority", "weighted-majority", "vb-ibcc", "default")
PEERS: Mapping[str, bool] = {
    "GLAD": True,
    "MACE": True,
    "Wawa": True,
    "ZeroBasedSkill": True,
    "KOS": False,
    "MMSR": False,
}
"""Aggregators of crowd-kit, and whether they give probabilities."""
MOST = 30_000
"""Labels above which peers are left out: some take minutes."""

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
    """Rows of COLUMNS, and why peers are absent: (peer, reason, set, labels an item)."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    absent: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, other: Scores) -> None:
        self.rows += other.rows
        self.absent += other.absent

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


def untold(source: Source, peers: Sequence[str]) -> Scores:
    """Every method on every thinning of one crowd; on real crowds the grid of rho too, and with seed 0 the peers."""
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
        if source.kind != REAL or source.seed:
            continue
        for peer in peers:
            reason = unfit(peer, evidence.annotations)
            if not reason:
                try:
                    p = predicted(peer, evidence.annotations)[known]
                except Exception as error:  # whatever a peer raises
                    reason = f"failed: {type(error).__name__}"
                else:
                    scores = figures(p, truth) if PEERS[peer] else (score.accuracy(p, truth), *[np.nan] * 3)
                    found.rows.append((*where, peer, *scores))
            if reason:
                found.absent.append((peer, reason, source.name, labels))
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


# -- peers ---------------------------------------------------------------------------------------------------


def installed() -> list[str]:
    """Peers that are here."""
    return list(PEERS) if find_spec("crowdkit") else []


def unfit(peer: str, annotations: Annotations) -> str:
    """Why a peer cannot be asked, or nothing."""
    if len(annotations) > MOST:
        return f"more than {MOST:,} labels"
    return "more than two classes" if peer == "KOS" and annotations.n_classes > 2 else ""


def predicted(peer: str, annotations: Annotations) -> Floats:
    """(N, J) probabilities of a peer with its own settings; even where it says nothing, 1 where it gives a label."""
    from crowdkit import aggregation
    from sklearn.base import BaseEstimator

    frame = annotations.table().to_pandas().rename(columns={"item": "task", "annotator": "worker"})
    made = getattr(aggregation, peer)()
    if not hasattr(made, "__sklearn_tags__"):  # crowd-kit 1.4 has not what scikit-learn asks of estimators since
        type(made).__sklearn_tags__ = lambda _: BaseEstimator().__sklearn_tags__()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = made.fit_predict_proba(frame) if PEERS[peer] else pd.get_dummies(made.fit_predict(frame)).astype(float)
    p_nj: Floats = table.reindex(index=list(annotations.items), columns=list(annotations.classes)).to_numpy(copy=True)
    p_nj = np.nan_to_num(p_nj)
    p_nj[p_nj.sum(axis=1) == 0] = 1.0
    return p_nj / p_nj.sum(axis=1, keepdims=True)
