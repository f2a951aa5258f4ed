"""Aggregators of crowd-kit beside the default combiner, on real crowds, whole and thinned; nobody sees the truth.

Each is run with its own settings and compared with the default on the very same labels, seed 0 of `honesty.crowds`. Of
a peer that gives labels without probabilities only the accuracy is compared. Left out, and named below the tables: a
peer that fails, KOS with more than two classes, all of them above MOST labels and those of SLOW above MOST_OF_SLOW.
A peer that gives the truth probability 0 pays 34.5 nats for it (`score.log_loss` cuts at 1e-15).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from hitl import score
from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench import results
from tests.bench.honesty.crowds import THINNED, WHOLE, Source
from tests.bench.honesty.scored import Row, beside, figures

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
LABELS = (*(f"{labels:g}" for labels in THINNED), WHOLE)
MOST = 30_000
"""Labels above which peers are left out."""
SLOW, MOST_OF_SLOW = ("GLAD", "MACE"), 3_000
"""Those that take ten seconds and more, and the labels above which they are left out."""

Absence = tuple[str, str, str, str]
"""(peer, reason, set, labels an item)."""


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


def scored(source: Source) -> tuple[list[Row], list[Absence]]:
    """The default and every peer on every thinning of one crowd."""
    rows: list[Row] = []
    absent: list[Absence] = []
    for labels, evidence in source.tables():
        annotations = evidence.annotations
        reasons = {peer: unfit(peer, annotations) for peer in PEERS}
        absent += [(peer, reason, source.name, labels) for peer, reason in reasons.items() if reason]
        asked = [peer for peer, reason in reasons.items() if not reason]
        if not asked:
            continue
        assert evidence.truth is not None
        known, truth = evidence.known, evidence.truth[evidence.known]
        where = (source.kind, source.group, source.name, labels, source.seed)
        ours = DefaultCombiner().fit(Evidence(annotations)).probabilities
        rows.append((*where, "default", *figures(ours[known], truth)))
        for peer in asked:
            try:
                p_nj = predicted(peer, annotations)[known]
            except Exception as error:  # whatever a peer raises
                absent.append((peer, f"failed: {type(error).__name__}", source.name, labels))
            else:
                scores = figures(p_nj, truth) if PEERS[peer] else (score.accuracy(p_nj, truth), *[np.nan] * 3)
                rows.append((*where, peer, *scores))
    return rows, absent


# -- compared ------------------------------------------------------------------------------------------------

COMPARED = ("accuracy", "log loss", "ECE")


def compared(pairs: pd.DataFrame) -> tuple[list[str], dict[str, Any], list[results.Bar]]:
    """Lines of a table for each thinning, figures (labels -> peer -> figure -> means and wins), and bars."""
    lines: list[str] = []
    bars: list[results.Bar] = []
    kept: dict[str, Any] = {}
    for labels in (labels for labels in LABELS if labels in set(pairs["labels"])):
        here, rows = pairs[pairs["labels"] == labels], {}
        which = "all labels" if labels == WHOLE else f"{labels} labels an item"
        for peer in (peer for peer in PEERS if peer in set(here["method"])):
            of_peer = here[here["method"] == peer]
            found, cells = {"sets": len(of_peer)}, {"sets": len(of_peer)}
            for name in (name for name in COMPARED if of_peer[name].notna().all()):
                theirs, ours = of_peer[name], of_peer[f"{name} of default"]
                better = int((ours > theirs if name == "accuracy" else ours < theirs).sum())
                found[name] = {"peer": float(theirs.mean()), "default": float(ours.mean()), "better on": better}
                cells |= {name: theirs.mean(), f"{name}, default": ours.mean(), f"on, {name}": better}
            kept.setdefault(labels, {})[peer], rows[peer] = found, cells
            bars.append(bar(which, peer, found))
        lines += ["", which, *results.table(rows, 4)]
    return lines, kept, bars


def bar(which: str, peer: str, found: Mapping[str, Any]) -> results.Bar:
    """Is the default better than a peer in log loss and ECE, or in accuracy where a peer gives no probabilities?"""
    names = [name for name in ("log loss", "ECE") if name in found]
    means = [(found[name]["default"], found[name]["peer"]) for name in names or ["accuracy"]]
    better = all(ours < theirs for ours, theirs in means) if names else means[0][0] > means[0][1]
    claim = f"mean log loss and ECE below {peer}'s" if names else f"mean accuracy above {peer}'s"
    return f"{which}: {claim}", ", ".join(f"{ours:.4f} / {theirs:.4f}" for ours, theirs in means), better


def absences(absent: Sequence[Absence]) -> list[str]:
    """A line for each peer and reason of absence, with the sets and their labels an item."""
    where: dict[tuple[str, str], dict[str, list[str]]] = {}
    for peer, reason, name, labels in absent:
        where.setdefault((peer, reason), {}).setdefault(name, []).append(labels)
    lines = [""]
    for (peer, reason), sets in sorted(where.items()):
        told = "; ".join(f"{name} {', '.join(sorted(sets[name], key=LABELS.index))}" for name in sorted(sets))
        lines.append(f"{peer} left out, {reason}: {told}")
    return lines


def compare(crowds: Sequence[Source], workers: int, save: bool) -> None:
    """Print the tables; `save`: also write docs/benchmarks/honesty_peers.*."""
    if not find_spec("crowdkit"):
        raise SystemExit("crowd-kit is not installed; make bench-peers brings an environment that has it")
    found = results.side_by_side(scored, crowds, workers)
    lines, figures, bars = compared(beside([row for rows, _ in found for row in rows], "default"))
    page = results.Page()
    page.tell(
        "crowd-kit's aggregators; beside each mean the default's on the same crowds, and on how many that is better;",
        "a truth that is given probability 0 costs 34.5 nats",
        *lines,
    )
    page.tell(*absences([absence for _, absent in found for absence in absent]))
    page.held(*bars)
    if save:
        page.save("honesty_peers", {"tables": figures}, "bench_honesty --peers --save")
