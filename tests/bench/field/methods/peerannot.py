"""Aggregation strategies of peerannot with their own settings, except PlantNet and TwoThird: they leave items open."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from peerannot.models import agg_strategies

from hitl.annotations import Annotations, Floats, Ints
from tests.bench.field.methods import Fit

PACKAGE = "peerannot"


def fit_of(name: str) -> Fit:
    def fit(annotations: Annotations) -> Floats | Ints:
        a = annotations
        if a.anonymous is not None:
            raise ValueError("no names of annotators")
        answers: dict[int, dict[int, int]] = {n: {} for n in np.unique(a.item).tolist()}
        for n, k, label in zip(a.item.tolist(), a.annotator.tolist(), a.label.tolist(), strict=True):
            answers[n][k] = label
        labeled = list(answers)  # peerannot numbers items and annotators without gaps
        place = {k: place for place, k in enumerate(np.unique(a.annotator).tolist())}
        dense = {i: {place[k]: j for k, j in answers[n].items()} for i, n in enumerate(labeled)}
        with TemporaryDirectory() as folder:
            files = {"dataset": Path(folder)} if name == "glad" else {}  # GLAD writes some
            made: Any = agg_strategies[name](dense, n_classes=a.n_classes, n_workers=len(place), **files)
            if hasattr(made, "run"):
                made.run()
            found = np.asarray(made.get_probas())
        if found.ndim == 1:
            label_n = np.zeros(a.n_items, np.int32)
            label_n[labeled] = found
            return label_n
        p_nj = np.full((a.n_items, a.n_classes), 1 / a.n_classes)
        p_nj[labeled] = found
        return p_nj

    return fit


NAMES = {
    "naive_soft": "NaiveSoft",
    "dawid_skene": "DawidSkene",
    "dawid_skene_clust": "DawidSkeneClust",
    "glad": "GLAD",
    "wds": "WDS",
    "iwmv": "IWMV",
    "wawa": "Wawa",
}
METHODS = {f"peerannot {shown}": fit_of(name) for name, shown in NAMES.items()}
