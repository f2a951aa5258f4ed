"""Acquisition scores: how much is gained by asking. Pure functions of beliefs and confusion matrices.

What a paper asks about first where it is smallest is negated here: the larger a score, the sooner.

    entropy           H(q_n)                                         how open the label is, in nats
    margin            second best q_nj - best q_nj                   how close the two best classes are
    least confidence  1 - max_j q_nj                                 how likely the label is wrong
    latent            - |mu_n| / sqrt(1 + sigma_n^2)                 how near a Gaussian process is to its boundary
    information       H(sum_j q_nj pi_j.) - sum_j q_nj H(pi_j.)      nats an answer tells of the truth
    accuracy          sum_l max_j q_nj pi_jl - max_j q_nj            right labels an answer brings
    right             sum_j q_nj pi_kjj                              whether annotator k would be right

For many items and annotators at once, with bounds: `expected_gain`. For batches that are not all alike: `core_set`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from hitl.annotations import Floats


def entropy(probabilities: Floats) -> Floats:
    """(N,) Shannon entropy of each row in nats, in [0, log J]; exactly 0 at one-hot rows."""
    return np.asarray(-xlogy(probabilities, probabilities).sum(axis=1)) + 0.0


def margin(probabilities: Floats) -> Floats:
    """(N,) second largest less largest probability of each row, in [-1, 0]; 0 where two classes are equally good."""
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    gap: Floats = two[:, 0] - two[:, 1]
    return gap


def least_confidence(probabilities: Floats) -> Floats:
    """(N,) probability that the most probable class is wrong, in [0, 1 - 1/J]."""
    return np.asarray(1.0 - probabilities.max(axis=1))


def latent_uncertainty(mean: Floats, variance: Floats) -> Floats:
    """(N,) - |mu| / sqrt(1 + sigma^2), in (-inf, 0], of latent means (N,) and variances (N,), sigma^2 >= 0.

    Rodrigues 2014, eq. 11, which asks where |mu| / sqrt(1 + sigma^2) is smallest (printed without the square). Under a
    probit link the class is known with probability Phi of that; 0 at the boundary, and nearer to it where the process
    knows less.
    """
    return np.asarray(-np.abs(mean) / np.sqrt(1.0 + variance))


def expected_information_gain(probabilities: Floats, confusion: Floats) -> Floats:
    """(N,) expected information of one more answer about each item, in nats, in [0, log min(J, L)].

    The mutual information of truth and answer under beliefs q (N, J) and a confusion matrix pi (J, L):

        I_n = H( sum_j q_nj pi_j. )  -  sum_j q_nj H(pi_j.)
    """
    answer = probabilities @ confusion
    gain = entropy(answer) - probabilities @ entropy(confusion)
    return np.maximum(gain, 0.0)


def expected_accuracy_gain(probabilities: Floats, confusion: Floats, answers: int = 1) -> Floats:
    """(N,) by how much `answers` (>= 1) independent answers raise the chance of a right label, in [0, 1 - 1/J].

    Under beliefs q (N, J) and a confusion matrix pi (J, L), over all sequences of answers a_1..m:

        G_n = sum over a_1..m of  max_j q_nj prod_i pi[j, a_i]   -   max_j q_nj
    """
    joint_njs = probabilities[:, :, None]
    for _ in range(answers):
        joint_njs = (joint_njs[:, :, :, None] * confusion[None, :, None, :]).reshape(*probabilities.shape, -1)
    gain: Floats = np.maximum(joint_njs.max(axis=1).sum(axis=1) - probabilities.max(axis=1), 0.0)
    return gain


def accuracy_gain_per_cost(probabilities: Floats, confusion: Floats, cost: Floats, answers: int = 1) -> Floats:
    """(N, K) expected gain in right labels for each unit of cost, the best of up to `answers` answers of annotator k.

    max over m <= answers of G_nk(m) / (m cost_k)        confusion (K, J, L), cost (K,) > 0
    """
    rate = [
        np.max([expected_accuracy_gain(probabilities, pi_jl, m) / m for m in range(1, answers + 1)], axis=0)
        for pi_jl in confusion
    ]
    per_cost: Floats = np.stack(rate, axis=1) / cost
    return per_cost


def chance_right(probabilities: Floats, confusion: Floats) -> Floats:
    """(N, K) chance that annotator k answers item n with its true class (Rodrigues 2014, eq. 12).

    sum_j q_nj pi[k, j, j]        probabilities (N, J), confusion (K, J, L)

    With matrices of `hitl.active.by_others` the annotator's own labels have no part in it.
    """
    j = np.arange(probabilities.shape[1])
    right: Floats = probabilities @ confusion[:, j, j].T
    return right
