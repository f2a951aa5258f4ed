"""CROWDLAB of cleanlab. It asks for a classifier; here that one predicts the shares of the labels for every item."""

from __future__ import annotations

from dataclasses import replace

import cleanlab.multiannotator  # noqa: F401  (if it is not installed, this file is left out)
import numpy as np

from hitl.annotations import Annotations, Floats
from tests.bench.human_and_model.crowdlab import crowdlab

PACKAGE = "cleanlab"


def fit(annotations: Annotations) -> Floats:
    if annotations.anonymous is not None:
        raise ValueError("no names of annotators")
    a, labeled = annotations, np.unique(annotations.item)  # cleanlab refuses items without labels
    dense = np.searchsorted(labeled, a.item).astype(np.int32)
    few = replace(a, item=dense, items=tuple(a.items[n] for n in labeled))
    share_j = np.bincount(a.label, minlength=a.n_classes) / len(a)
    p_nj = np.full((a.n_items, a.n_classes), 1 / a.n_classes)
    p_nj[labeled] = crowdlab(few, np.tile(share_j, (len(labeled), 1)))[1]
    return p_nj


METHODS = {"cleanlab CROWDLAB": fit}
