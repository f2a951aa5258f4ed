"""Acquisition scores: the value of asking about an item, from beliefs q and confusion matrices pi.

A score that papers minimize is negated here, so items with larger scores always come first.

    entropy           H(q_n)                                         uncertainty of the label, in nats
    margin            second largest q_nj - largest q_nj             closeness of the two most probable classes
    least confidence  1 - max_j q_nj                                 probability that the label is wrong
    latent            - |mu_n| / sqrt(1 + sigma_n^2)                 closeness to a Gaussian process's decision boundary
    information       H(sum_j q_nj pi_j.) - sum_j q_nj H(pi_j.)      information in an answer about the truth, in nats
    accuracy          sum_l max_j q_nj pi_jl - max_j q_nj            right labels that an answer adds
    right             sum_j q_nj pi_kjj                              chance that annotator k would be right

For many items and annotators at once, with bounds: `expected_gain`. For diverse batches: `core_set`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled

LOG_2 = 0.6931471805599453


def entropy(probabilities: Floats) -> Floats:
    """Return (N,) Shannon entropy of each row in nats, in [0, log J]; exactly 0 at one-hot rows."""
    return np.asarray(-xlogy(probabilities, probabilities).sum(axis=1)) + 0.0


@compiled
def times_log(p: Floats) -> None:
    """Replace each p by p log p. Every p must be positive and not subnormal.

    With p = 2^e f, sqrt(1/2) <= f < sqrt(2), and z = (f - 1) / (f + 1), log p = e log 2 + 2 (z + z^3/3 + ...). Ten
    terms are accurate to the last bits. Unlike the math library's logarithm, this compiles to vector instructions,
    which halves the time to make a plan.
    """
    bits = p.view(np.int64)
    part = np.empty_like(p)
    part_bits = part.view(np.int64)
    for x in range(len(p)):
        exponent = (bits[x] - 0x3FE6A09E667F3BCD) >> 52
        part_bits[x] = bits[x] - (exponent << 52)
        z = (part[x] - 1.0) / (part[x] + 1.0)
        w = z * z
        series = 1 / 17 + w * (1 / 19)
        series = 1 / 13 + w * (1 / 15 + w * series)
        series = 1 / 9 + w * (1 / 11 + w * series)
        series = 1 / 5 + w * (1 / 7 + w * series)
        series = 1.0 + w * (1 / 3 + w * series)
        p[x] *= 2.0 * z * series + exponent * LOG_2


def margin(probabilities: Floats) -> Floats:
    """Return (N,) second largest less largest probability of each row, in [-1, 0]; 0 if two classes tie."""
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 0] - two[:, 1])


def least_confidence(probabilities: Floats) -> Floats:
    """Return (N,) probability that the most probable class is wrong, in [0, 1 - 1/J]."""
    return np.asarray(1.0 - probabilities.max(axis=1))


def latent_uncertainty(mean: Floats, variance: Floats) -> Floats:
    """Return (N,) - |mu| / sqrt(1 + sigma^2) of latent means and variances (Rodrigues 2014, eq. 11), at most 0."""
    return np.asarray(-np.abs(mean) / np.sqrt(1.0 + variance))


def expected_information_gain(probabilities: Floats, confusion: Floats) -> Floats:
    """Return (N,) expected information, in nats, in one answer, from beliefs (N, J) and a confusion matrix (J, L)."""
    answer = probabilities @ confusion
    gain = entropy(answer) - probabilities @ entropy(confusion)
    return np.maximum(gain, 0.0)


def expected_accuracy_gain(probabilities: Floats, confusion: Floats, answers: int = 1) -> Floats:
    """Return (N,) gain in the chance of a right label, in [0, 1 - 1/J], expected from `answers` >= 1 more answers.

    G_n = sum over a_1..m of  max_j q_nj prod_i pi[j, a_i]   -   max_j q_nj
    """
    joint_njs = probabilities[:, :, None]
    for _ in range(answers):
        joint_njs = (joint_njs[:, :, :, None] * confusion[None, :, None, :]).reshape(*probabilities.shape, -1)
    return np.asarray(np.maximum(joint_njs.max(axis=1).sum(axis=1) - probabilities.max(axis=1), 0.0))


def chance_right(probabilities: Floats, confusion: Floats) -> Floats:
    """Return (N, K) chance that annotator k answers item n with its true class (Rodrigues 2014, eq. 12)."""
    j = np.arange(probabilities.shape[1])
    return np.asarray(probabilities @ confusion[:, j, j].T)
