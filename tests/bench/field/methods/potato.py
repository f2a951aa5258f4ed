"""Potato's item response model and MACE, as its server runs them."""

from __future__ import annotations

import numpy as np
from potato.mace import MACEAlgorithm
from potato.psychometrics.irt import IRTModel

from hitl.annotations import Annotations, Floats

PACKAGE = "potato-annotation"


def irt(annotations: Annotations) -> Floats:
    a = annotations
    model = IRTModel().fit(list(zip(a.item.tolist(), a.annotator.tolist(), a.label.tolist(), strict=True)))
    p_nj = np.full((a.n_items, a.n_classes), 1 / a.n_classes)
    for n in model.item_ids():
        found = model.posterior(n)
        p_nj[n] = [found.get(j, 0.0) for j in range(a.n_classes)]
    return p_nj


def mace(annotations: Annotations) -> Floats:
    a = annotations
    label_nk = np.full((a.n_items, a.n_annotators), -1)
    label_nk[a.item, a.annotator] = a.label
    made = MACEAlgorithm(a.n_annotators, a.n_classes, a.n_items, seed=0)
    p_nj: Floats = np.asarray(made.fit(label_nk)[2])
    return p_nj


METHODS = {"Potato IRT": irt, "Potato MACE": mace}
