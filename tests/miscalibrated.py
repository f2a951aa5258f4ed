"""A model that is honest until somebody bends its probabilities."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from hitl.annotations import Floats, Ints


def honest(rng: np.random.Generator, n: int, classes: int, spread: float = 2.0) -> tuple[Floats, Ints]:
    """(N, J) probabilities that mean what they say, and (N,) truths drawn from them."""
    p = softmax(spread * rng.normal(size=(n, classes)), axis=1)
    truth = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return p, np.minimum(truth, classes - 1)


def bent(p: Floats, slope: Floats | float, shift: Floats | float = 0.0) -> Floats:
    """(N, J) softmax(slope * log p + shift), nothing below 1e-12 (what smaller probabilities are read as)."""
    q = np.maximum(softmax(np.log(p) * slope + shift, axis=1), 1.1e-12)
    return q / q.sum(axis=1, keepdims=True)
