"""Whether a classifier says more of the items than the shares of the classes do.

    r_nj(b)  proportional to  s_j (p_nj / s_j)^b                  b = 0: the shares; b = 1: the classifier as it is
    gain  =  max_b>=0  sum_nj q_nj log r_nj(b)  -  sum_nj q_nj log s_j

over the items that were trained on, each predicted out of fold, with beliefs q_n. Twice the gain is the likelihood
ratio of b: for a classifier that knows nothing it is above 4 in one of 44 cases (half a chi-square of one degree of
freedom, as b is not below 0). Such a classifier is left out: with it the annotators would be judged beside a model, and
their confidence corrected for its errors, for nothing.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from hitl.annotations import Floats

ENOUGH = 4.0
"""Twice the gain that shows that a classifier knows something: two standard errors."""

SHARPEST = 100.0
"""The largest b that is looked at."""


def informs(p_mj: Floats, q_mj: Floats) -> bool:
    """Whether predictions (M, J) say more of items with beliefs (M, J) than the shares of the classes."""
    return 2 * gain(p_mj, q_mj) > ENOUGH


def gain(p_mj: Floats, q_mj: Floats) -> float:
    """The gain in nats, >= 0."""
    log_s_j = np.log((q_mj.sum(axis=0) + 1) / (len(q_mj) + q_mj.shape[1]))
    x_mj = np.log(np.maximum(p_mj, np.finfo(float).tiny)) - log_s_j
    told = float(np.sum(q_mj * x_mj))

    def slope(b: float) -> float:
        log_r_mj = log_s_j + b * x_mj
        r_mj = np.exp(log_r_mj - logsumexp(log_r_mj, axis=1, keepdims=True))
        return told - float(np.sum(r_mj * x_mj))

    if slope(0.0) <= 0:
        return 0.0
    b = SHARPEST if slope(SHARPEST) > 0 else float(brentq(slope, 0.0, SHARPEST))
    return b * told - float(np.sum(logsumexp(log_s_j + b * x_mj, axis=1)))
