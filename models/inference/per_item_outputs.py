"""Model predictions about one item relative to those about any item, and how probable it is that they inform.

    f_mnj  =  log p_m[n, j] / S_n  -  log mean_n p_m[n, j]^(1 / S_n)

A model may reproduce the class shares of the labels it was trained on, which are as wrong as these labels and carry no
information about an item. So models are compared with annotators by f, which is 0 for a model that predicts the same
for every item.

    P(m informs)  =  P0 B_m / (P0 B_m + 1 - P0)         B_m  =  E_u[ p(labels | u f_m) ] / p(labels | u = 0)

u ~ N(mean, M^2 / PRECISION), u > 0, as `unsupervised_pool` expects it; other models have their fitted weights, and
annotators err evenly. Weights are multiplied by the probability that the model informs, u_m P(m informs), their mean
over both cases. A model that carries no information gets some weight by chance, and more of it with fewer labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import expit, log_softmax, logit, logsumexp

from hitl.annotations import Floats
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference.unsupervised_pool import (
    LEAST_WEIGHT,
    PRECISION,
    Part,
    PoolWeights,
    correlated,
    even_errors,
    learned,
    usual_weight,
)
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import observe

BEFOREHAND = 0.9
"""P0, the prior probability that a given model informs."""

GRID: Floats = np.arange(1, 31, dtype=np.float64) / 20
"""Weights u over which the expectation is taken."""


def weights_per_item(labeled: Part, predicted: Callable[[], Part], prior: LogTemperature) -> PoolWeights:
    """Do steps 1 and 2 of `unsupervised_pool` with features f, weights multiplied by the probability to inform."""
    labeled = less_what_is_always_said(labeled)
    weight_m, accuracy_k = learned(labeled.evidence, labeled.feature_mnj, prior)
    annotations = labeled.evidence.annotations
    message_nj = kernels.messages(annotations, even_errors(annotations, accuracy_k))
    chance_m = probability_informative(labeled, message_nj, weight_m, usual_weight(prior), PRECISION / weight_m.size**2)
    del labeled
    weight_m = np.maximum(weight_m * chance_m, LEAST_WEIGHT)
    return correlated(less_what_is_always_said(predicted()), weight_m, accuracy_k)


def less_what_is_always_said(part: Part) -> Part:
    """Return the same items with features f."""
    feature_mnj = part.feature_mnj.copy()
    for said_nj, predicts_n in zip(feature_mnj, part.predicts_nm.T, strict=True):
        if predicts_n.any():
            said_nj[predicts_n] -= np.log(np.exp(said_nj[predicts_n]).mean(axis=0))
    return replace(part, feature_mnj=feature_mnj)


def probability_informative(part: Part, message_nj: Floats, weight_m: Floats, mean: float, precision: float) -> Floats:
    """Return (M,) P(m informs).

    Inputs are features f, log likelihoods (N, J) of labels, weights (M,), and the prior mean and precision of each.
    """
    message_nj = observe(message_nj.copy(), part.evidence)
    pooled_nj = np.einsum("m,mnj->nj", weight_m, part.feature_mnj)
    log_prior_u = -precision / 2 * (GRID - mean) ** 2
    log_prior_u -= logsumexp(log_prior_u)
    log_bayes_m = []
    for weight, feature_nj in zip(weight_m, part.feature_mnj, strict=True):
        others_nj = pooled_nj - weight * feature_nj
        found_u = np.array([_log_p(message_nj, others_nj + u * feature_nj) for u in (0.0, *GRID)])
        log_bayes_m.append(logsumexp(log_prior_u + found_u[1:]) - found_u[0])
    chance_m: Floats = expit(logit(BEFOREHAND) + np.array(log_bayes_m))
    return chance_m


def _log_p(message_nj: Floats, log_prior_nj: Floats) -> float:
    return float(logsumexp(log_softmax(log_prior_nj, axis=1) + message_nj, axis=1).sum())
