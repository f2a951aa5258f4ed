"""Accuracy, log loss and ECE of annotators alone, the classifier alone, and both together, hitl beside CROWDLAB.

hitl and CROWDLAB are given the same labels and the same out-of-fold probabilities (`crowds`), and no truth. A seed
thins the labels, draws ties and splits the folds; on all labels it does the last two alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from hitl.annotations import Floats, Ints
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.registry import combiner
from tests.bench import results
from tests.bench.honesty.crowds import WHOLE, real, thinned
from tests.bench.honesty.scored import FIGURES
from tests.bench.honesty.scored import figures as of_probabilities
from tests.bench.human_and_model.crowdlab import crowdlab
from tests.bench.human_and_model.crowds import classified, majority_labels
from tests.reference_data import inputs

LABELS = ("1.2", "2", "3", WHOLE)
ALONE = ("majority", "dawid-skene", "default")
MODEL, BOTH, CROWDLAB, CALIBRATED = "model alone", "default with model", "CROWDLAB", "CROWDLAB calibrated"
METHODS = (*ALONE, MODEL, BOTH, CROWDLAB, CALIBRATED)
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Job:
    """One set and seed; plain values, for it travels to other processes."""

    name: str
    seed: int


def scored(job: Job) -> list[Row]:
    """(set, labels an item, seed, method, *FIGURES) of every method on every thinning."""
    whole, found = real(job.name), []
    there = len(whole.annotations) / whole.annotations.n_items
    for labels in LABELS:
        if labels != WHOLE and float(labels) >= there:
            continue
        rng = np.random.default_rng(job.seed)
        evidence = whole if labels == WHOLE else thinned(whole, float(labels), rng)
        assert evidence.truth is not None
        known, truth = evidence.known, evidence.truth[evidence.known]
        for method, (label_n, q_nj) in judged(job.name, Evidence(evidence.annotations), job.seed).items():
            own = None if label_n is None else label_n[known]
            found.append((job.name, labels, job.seed, method, *figures(q_nj[known], own, truth)))
    return found


def judged(name: str, bare: Evidence, seed: int) -> dict[str, tuple[Ints | None, Floats]]:
    """Method -> (N,) labels where these are its own, not the most probable class; (N, J) probabilities."""
    annotations = bare.annotations
    label_n = majority_labels(annotations, np.random.default_rng([seed, 1]))
    p_nj = classified(inputs(name, annotations.items), label_n, annotations.n_classes, seed)
    found: dict[str, tuple[Ints | None, Floats]] = {
        method: (None, combiner(method).fit(bare).probabilities) for method in ALONE
    }
    found[MODEL] = None, p_nj
    found[BOTH] = None, DefaultCombiner().fit(Evidence(annotations, {"classifier": p_nj})).probabilities
    return found | {CROWDLAB: crowdlab(annotations, p_nj), CALIBRATED: crowdlab(annotations, p_nj, calibrated=True)}


def figures(q_nj: Floats, label_n: Ints | None, truth: Ints) -> tuple[float, float, float, float]:
    """The FIGURES of n items of known truth; the accuracy is that of `label_n`, where the method has labels."""
    right, loss, error, over = of_probabilities(q_nj, truth)
    return right if label_n is None else float(np.mean(label_n == truth)), loss, error, over


# -- compared ------------------------------------------------------------------------------------------------


def tables(rows: Sequence[Row]) -> tuple[list[str], dict[str, Any], list[results.Bar]]:
    """Lines of a table for each set, figures (set -> labels -> method -> figure -> mean and sd), and bars."""
    frame = pd.DataFrame(rows, columns=["set", "labels", "seed", "method", *FIGURES])
    cells = frame.groupby(["set", "labels", "method"])[list(FIGURES)]
    mean, spread = cells.mean(), cells.std(ddof=1).fillna(0.0)
    lines: list[str] = []
    kept: dict[str, Any] = {}
    for name in dict.fromkeys(frame["set"]):
        told = {}
        for labels, method in product(LABELS, METHODS):
            if (key := (name, labels, method)) in mean.index:
                told[labels, method] = {f: f"{mean.loc[key, f]:.4f} ± {spread.loc[key, f]:.3f}" for f in FIGURES}
                kept.setdefault(name, {}).setdefault(labels, {})[method] = {
                    f: {"mean": float(mean.loc[key, f]), "sd": float(spread.loc[key, f])} for f in FIGURES
                }
        lines += ["", name, *results.table(told)]
    return lines, kept, bars(mean)


def bars(mean: pd.DataFrame) -> list[results.Bar]:
    """In the mean of sets and on each: accuracy above, log loss and ECE below CROWDLAB's; the model does no harm."""
    found: list[results.Bar] = []
    for labels in (labels for labels in LABELS if labels in mean.index.get_level_values("labels")):
        here = mean.xs(labels, level="labels")
        which = "all labels" if labels == WHOLE else f"{labels} labels an item"
        for other in (CROWDLAB, CALIBRATED):
            found += against(f"{which}, mean of sets", here.groupby("method").mean(), other)
        for name in sorted(set(here.index.get_level_values("set"))):
            found += against(f"{which}, {name}", here.loc[name], CROWDLAB)
            ours, alone = here.loc[(name, BOTH)], here.loc[(name, "default")]
            holds = ours["accuracy"] >= alone["accuracy"] and ours["log loss"] <= alone["log loss"]
            claim = f"{which}, {name}: the model does no harm (accuracy, log loss; people alone)"
            found.append((claim, beside(ours, alone, "accuracy", "log loss"), bool(holds)))
    return found


def against(which: str, methods: pd.DataFrame, other: str) -> list[results.Bar]:
    ours, theirs = methods.loc[BOTH], methods.loc[other]
    above, below = ours["accuracy"] > theirs["accuracy"], all(ours[f] < theirs[f] for f in ("log loss", "ECE"))
    return [
        (f"{which}: accuracy above {other}'s", beside(ours, theirs, "accuracy"), bool(above)),
        (f"{which}: log loss and ECE below {other}'s", beside(ours, theirs, "log loss", "ECE"), below),
    ]


def beside(ours: pd.Series[float], theirs: pd.Series[float], *figures: str) -> str:
    return ", ".join(f"{ours[figure]:.4f} / {theirs[figure]:.4f}" for figure in figures)
