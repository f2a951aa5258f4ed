"""Acquisition scores: how much is gained by asking. Pure functions of beliefs and confusion matrices."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from hitl.annotations import Floats


def entropy(probabilities: Floats) -> Floats:
    """(N,) Shannon entropy of each row in nats, in [0, log J]; exactly 0 at one-hot rows."""
    return np.asarray(-xlogy(probabilities, probabilities).sum(axis=1)) + 0.0


def expected_information_gain(probabilities: Floats, confusion: Floats) -> Floats:
    """(N,) expected information of one more answer about each item, in nats, in [0, log min(J, L)].

    The mutual information of truth and answer under beliefs q (N, J) and a confusion matrix pi (J, L):

        I_n = H( sum_j q_nj pi_j. )  -  sum_j q_nj H(pi_j.)
    """
    answer = probabilities @ confusion
    gain = entropy(answer) - probabilities @ entropy(confusion)
    return np.maximum(gain, 0.0)


def chance_right(probabilities: Floats, confusion: Floats) -> Floats:
    """(N, K) chance that annotator k answers item n with its true class (Rodrigues 2014, eq. 12).

    sum_j q_nj pi[k, j, j]        probabilities (N, J), confusion (K, J, L)
    """
    j = np.arange(probabilities.shape[1])
    right: Floats = probabilities @ confusion[:, j, j].T
    return right


def crew_confusion(confusion: Floats, weight: Floats) -> Floats:
    """(J, L) confusion matrix of somebody drawn from the crew with probability proportional to `weight` (K,)."""
    share = weight / weight.sum()
    mean: Floats = np.einsum("k,kjl->jl", share, confusion)
    return mean
