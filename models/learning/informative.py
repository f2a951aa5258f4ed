"""Test whether a classifier says more about the items than the class shares do.

    r_nj(b)  proportional to  s_j (p_nj / s_j)^b                    b = 0: the shares; b = 1: the classifier as it is
    gain  =  max_b>=0  sum_n log sum_j r_nj(b) q_nj / s_j

over the items that were trained on, each predicted out of fold. Their beliefs q_nj are proportional to s_j times the
likelihood of their labels, so the gain is how much the log likelihood rises with r instead of s as truth prior.
Twice the gain is the likelihood ratio of b. For uninformative predictions it is above 4 in one of 44 cases: half a
chi-square of one degree of freedom, as b is not below 0. (Out of fold they are not quite independent; on real crowds
with noise as features it was one of 13, and cost nothing: docs/benchmarks/learn_noise.txt.) An uninformative classifier
is left out, because annotators would be estimated with it, and their confidence corrected for its errors, for nothing.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from hitl.annotations import Floats

ENOUGH = 4.0
"""Threshold of twice the gain above which a classifier is informative: two standard errors."""

SHARPNESS = 2.0 ** np.arange(-6, 7)
"""Grid of b to search."""


def is_informative(p_mj: Floats, q_mj: Floats) -> bool:
    """Return True if predictions (M, J) say more about items with beliefs (M, J) than the class shares do."""
    return 2 * gain(p_mj, q_mj) > ENOUGH


def gain(p_mj: Floats, q_mj: Floats) -> float:
    """Return the gain in nats, >= 0."""
    share_j = (q_mj.sum(axis=0) + 1) / (len(q_mj) + q_mj.shape[1])
    log_s_j, odds_mj = np.log(share_j), q_mj / share_j
    x_mj = np.log(np.maximum(p_mj, np.finfo(float).tiny)) - log_s_j

    def log_likelihood(b: float) -> float:
        r_mj = np.exp(log_softmax(log_s_j + b * x_mj, axis=1))
        likelihood_m = np.einsum("mj,mj->m", r_mj, odds_mj)
        return float(np.sum(np.log(np.maximum(likelihood_m, np.finfo(float).tiny))))

    tried = [log_likelihood(b) for b in SHARPNESS]
    best = int(np.argmax(tried))
    bounds = SHARPNESS[max(best - 1, 0)], SHARPNESS[min(best + 1, len(SHARPNESS) - 1)]
    nearby = -float(minimize_scalar(lambda b: -log_likelihood(b), bounds=bounds, method="bounded").fun)
    shares = log_likelihood(0.0)
    return max(tried[best], nearby, shares) - shares
