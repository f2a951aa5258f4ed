"""Aggregators of crowd-kit beside the default combiner, on real crowds, whole and thinned; nobody sees the truth.

Each is run with its own settings and compared with the default on the very same labels, seed 0 of `honesty.crowds`. Of
a peer that gives labels without probabilities only the accuracy is compared. Left out, and named below the tables: a
peer that fails, KOS with more than two classes, all of them above MOST labels and those of SLOW above MOST_OF_SLOW.
A peer that gives the truth probability 0 pays 34.5 nats for it (`score.log_loss` cuts at 1e-15).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench.honesty.crowds import THINNED, WHOLE, Source
from tests.bench.honesty.scored import COLUMNS, FIGURES, figures

PEERS: Mapping[str, bool] = {
    "MajorityVote": True,
    "Wawa": True,
    "ZeroBasedSkill": True,
    "DawidSkene": True,
    "OneCoinDawidSkene": True,
    "GLAD": True,
    "MACE": True,
    "KOS": False,
    "MMSR": False,
}
"""Aggregators of crowd-kit, and whether they give probabilities."""
MOST = 30_000
"""Labels above which peers are left out."""
SLOW, MOST_OF_SLOW = ("GLAD", "MACE"), 3_000
"""Those that take ten seconds and more, and the labels above which they are left out."""

Absence = tuple[str, str, str, str]
"""(peer, reason, set, labels an item)."""
Bars = list[tuple[str, str, bool]]


@dataclass
class Beside:
    """Rows of COLUMNS, and why peers are absent."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    absent: list[Absence] = field(default_factory=list)

    def add(self, other: Beside) -> None:
        self.rows += other.rows
        self.absent += other.absent


def installed() -> list[str]:
    """Peers that are here."""
    return list(PEERS) if find_spec("crowdkit") else []


def unfit(peer: str, annotations: Annotations) -> str:
    """Why a peer cannot be asked, or nothing."""
    most = MOST_OF_SLOW if peer in SLOW else MOST
    if len(annotations) > most:
        return f"more than {most:,} labels"
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
    return aligned(table, annotations)


def aligned(table: pd.DataFrame, annotations: Annotations) -> Floats:
    """(N, J) a peer's table of items x classes in the order of the annotations; even where it says nothing."""
    p_nj: Floats = table.reindex(index=list(annotations.items), columns=list(annotations.classes)).to_numpy(copy=True)
    p_nj = np.nan_to_num(p_nj)
    p_nj[p_nj.sum(axis=1) == 0] = 1.0
    return p_nj / p_nj.sum(axis=1, keepdims=True)


def beside(source: Source, peers: Sequence[str]) -> Beside:
    """The default and every peer on every thinning of one crowd."""
    found = Beside()
    for labels, evidence in source.tables():
        annotations = evidence.annotations
        reasons = {peer: unfit(peer, annotations) for peer in peers}
        found.absent += [(peer, reason, source.name, labels) for peer, reason in reasons.items() if reason]
        asked = [peer for peer, reason in reasons.items() if not reason]
        if not asked:
            continue
        assert evidence.truth is not None
        known, truth = evidence.known, evidence.truth[evidence.known]
        where = (source.kind, source.group, source.name, labels, source.seed)
        ours = DefaultCombiner().fit(Evidence(annotations)).probabilities
        found.rows.append((*where, "default", *figures(ours[known], truth)))
        for peer in asked:
            try:
                p_nj = predicted(peer, annotations)[known]
            except Exception as error:  # whatever a peer raises
                found.absent.append((peer, f"failed: {type(error).__name__}", source.name, labels))
            else:
                scores = figures(p_nj, truth) if PEERS[peer] else (score.accuracy(p_nj, truth), *[np.nan] * 3)
                found.rows.append((*where, peer, *scores))
    return found


# -- compared ------------------------------------------------------------------------------------------------

COMPARED = ("accuracy", "log loss", "ECE")


def paired(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """A row for each peer and crowd: FIGURES, and those of the default on the same labels (" of default")."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    same = ["labels", "set", "seed"]
    ours = frame[frame["method"] == "default"].set_index(same)[list(FIGURES)].add_suffix(" of default")
    return frame[frame["method"] != "default"].join(ours, on=same)


def compared(pairs: pd.DataFrame) -> tuple[list[str], dict[str, Any], Bars]:
    """Lines of a table for each thinning, its figures (labels -> peer -> figure), and whether the default is better."""
    lines: list[str] = []
    kept: dict[str, Any] = {}
    bars: Bars = []
    for labels in (*(f"{labels:g}" for labels in THINNED), WHOLE):
        here = pairs[pairs["labels"] == labels]
        if here.empty:
            continue
        lines += ["", f"{_which(labels):22s}sets" + "".join(f"{name:>10s} default  on" for name in COMPARED)]
        kept[labels] = {}
        for peer in (peer for peer in PEERS if peer in set(here["method"])):
            figures = kept[labels][peer] = _means(here[here["method"] == peer])
            lines.append(f"{peer:22s}{figures['sets']:4d}" + "".join(_cell(figures, name) for name in COMPARED))
            bars.append(_bar(labels, peer, figures))
    return lines, kept, bars


def _means(of_peer: pd.DataFrame) -> dict[str, Any]:
    """Means over the sets of a peer, its own and the default's, and on how many of them the default is better."""
    found: dict[str, Any] = {"sets": len(of_peer)}
    for name in COMPARED:
        theirs, ours = of_peer[name], of_peer[f"{name} of default"]
        if theirs.notna().all():
            better = ours > theirs if name == "accuracy" else ours < theirs
            found[name] = {"peer": float(theirs.mean()), "default": float(ours.mean()), "better on": int(better.sum())}
    return found


def _cell(figures: Mapping[str, Any], name: str) -> str:
    if name not in figures:
        return f"{'-':>10s}{'-':>8s}{'-':>4s}"
    kept = figures[name]
    return f"{kept['peer']:10.4f}{kept['default']:8.4f}{kept['better on']:4d}"


def _bar(labels: str, peer: str, figures: Mapping[str, Any]) -> tuple[str, str, bool]:
    names = [name for name in ("log loss", "ECE") if name in figures]
    if not names:
        accuracy = figures["accuracy"]
        told = f"{accuracy['default']:.4f} / {accuracy['peer']:.4f}"
        return f"{_which(labels)}: mean accuracy above {peer}'s", told, accuracy["default"] > accuracy["peer"]
    told = ", ".join(f"{figures[name]['default']:.4f} / {figures[name]['peer']:.4f}" for name in names)
    holds = all(figures[name]["default"] < figures[name]["peer"] for name in names)
    return f"{_which(labels)}: mean log loss and ECE below {peer}'s", told, holds


def _which(labels: str) -> str:
    return "all labels" if labels == WHOLE else f"{labels} labels an item"


def absences(absent: Sequence[Absence]) -> list[str]:
    """Why peers are absent: a line for each peer and reason, with the sets and their labels an item."""
    order = [*(f"{labels:g}" for labels in THINNED), WHOLE]
    where: dict[tuple[str, str], dict[str, list[str]]] = {}
    for peer, reason, name, labels in absent:
        where.setdefault((peer, reason), {}).setdefault(name, []).append(labels)
    lines = []
    for (peer, reason), sets in sorted(where.items()):
        told = "; ".join(f"{name} {', '.join(sorted(sets[name], key=order.index))}" for name in sorted(sets))
        lines.append(f"{peer} left out, {reason}: {told}")
    return ["", *lines] if lines else []
