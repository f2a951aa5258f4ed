"""CROWDLAB of cleanlab. It asks for a classifier; here that one predicts the shares of the labels for every item."""

from __future__ import annotations

import cleanlab.multiannotator  # noqa: F401  (if it is not installed, this file is left out)
import numpy as np

from hitl.annotations import Annotations, Floats
from tests.bench.human_and_model.crowdlab import crowdlab

PACKAGE = "cleanlab"


def fit(annotations: Annotations) -> Floats:
    if annotations.anonymous is not None:
        raise ValueError("no names of annotators")
    share_j = np.bincount(annotations.label, minlength=annotations.n_classes) / len(annotations)
    return crowdlab(annotations, np.tile(share_j, (annotations.n_items, 1)))[1]


METHODS = {"cleanlab CROWDLAB": fit}
