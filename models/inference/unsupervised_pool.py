"""Temperatures of a pool of models without truth, from how models agree with annotators and with each other.

Labels identify temperatures only weakly. In full P+L-EM annotators and models explain one another: confusion matrices
bend to whatever the models predict (a model with permuted classes becomes a perfect match), and since both err on the
same items, annotators seem better and models worse than they are. So models are compared with annotators who err
evenly,

    p(l_nk | z_n = j) = a_k for l = j, else (1 - a_k) / (L - 1)      p(z_n = j)  ∝  exp( sum_m u_m ln p_m[n, j] / S_n )

by expectation-maximization, which starts from beliefs by the labels alone, in three steps. S_n of the M models predict
item n. The temperature of a pool is expected to be ln T ~ N(mu, sd^2) (`LogTemperature`; by default mu = .45, sd = .5).

1.  Weights u_m >= 0 and accuracies a_k, at their mode. The prior of u_m is N(.8 exp(-mu), M^2 / PRECISION). The crowd's
    accuracy counts as if it had been right RIGHT times and wrong WRONG times, so that disagreement is blamed on the
    model until labels prove otherwise. a_k starts from the crowd's accuracy, counted as OWN labels. u takes Newton
    steps, with the curvature of a log-linear pool.
2.  The correlation of the models' errors. The error of a model on an item is the belief in all classes but its most
    probable one. All items that models predict count, labeled or not, and PRIOR_ITEMS more with a correlation of 1/2.
3.  The temperature T of the whole pool. Its confidence by step 1, 1 / T* = mean_n sum_m u_m / S_n, is too low, but
    rarely by more than a factor BIAS. If several models are worth D independent ones, it is too low by another factor
    D = (sum_m u_m)^2 / (u' R u), with R the correlations of step 2, because annotators err with all of them. The
    weights of the pool already contain D, so T is the temperature in [T* / BIAS, D T*] that is nearest to exp(mu).
    Items of known truth, if there are any, then correct T by a factor s at its mode, with the prior ln s ~ N(0, sd^2).

The pool is then D T* / T times as sure as the labels suggest. This is the right weight beside annotators, who err with
it, but alone the pool is too sure. Its residual temperature is the square root of that factor, divided by s, and >= 1.

`weights_per_item` compares models with annotators by what a model says about an item relative to all items,

    f_mnj  =  log p_m[n, j] / S_n  -  log mean_n p_m[n, j]^(1 / S_n)

because a model may reproduce the class shares of the labels it was trained on, which are as wrong as these labels and
carry no information about an item. f is 0 for a model that predicts the same for every item. The weight u_m is
multiplied by P(m informs), the probability that model m is informative at all, which gives its mean over both cases.
Otherwise a model without information would get weight by chance, the more the fewer labels there are.

    P(m informs)  =  P0 B_m / (P0 B_m + 1 - P0)         B_m  =  E_u[ p(labels | u f_m) ] / p(labels | u = 0)

with u > 0 as in step 1; other models have their fitted weights, and annotators err evenly.

docs/decisions.md lists the data sets on which these numbers were chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_softmax, logit, logsumexp, softmax

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature, best_temperatures, pool_weights
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, observe
from hitl.models.numerics.votes import answered
from hitl.models.priors.calibrated import Calibrated

PRECISION = 20.0
RIGHT, WRONG, OWN = 38.0, 2.0, 10.0
PRIOR_ITEMS = 10.0
BIAS = 1.4
ENOUGH = 50_000
"""Maximum number of items to learn from. A larger set is sampled at even spacing."""

ROUNDS, TOLERANCE = 40, 1e-5
LARGEST_STEP = 0.2
LEAST_WEIGHT = 1e-6

BEFOREHAND = 0.9
"""P0, the prior probability that a given model is informative."""

GRID: Floats = np.arange(1, 31, dtype=np.float64) / 20
"""Grid of weights u for the expectation in B_m."""


@dataclass(frozen=True, eq=False)
class PoolWeights:
    """Result of steps 1 and 2: weights u_m (M,), correlation of errors (M, M), and accuracies a_k (K,)."""

    weight_m: Floats
    correlation_mm: Floats
    accuracy_k: Floats


def informative(evidence: Evidence) -> npt.NDArray[np.bool_]:
    """Return (N,) True for items that a model predicts and that have a label or ground truth."""
    return evidence.predicted & ((evidence.annotations.labels_per_item > 0) | evidence.known)


def chosen(among: int, of_all: int) -> npt.NDArray[np.intp]:
    """Return which of the `among` items of a shard to learn from, if all shards together have `of_all`.

    These are all items if `of_all` is at most ENOUGH, otherwise a part of ENOUGH items, evenly spaced.
    """
    return np.arange(among) if of_all <= ENOUGH else np.linspace(0, among - 1, ENOUGH * among // of_all).astype(np.intp)


def weights_by(labeled: Part, predicted: Callable[[], Part], prior: LogTemperature) -> PoolWeights:
    """Do step 1 on labeled items, and step 2 on all predicted items, by the models' own beliefs if there are no labels.

    Step 2 needs unlabeled items, because labels are often requested where models disagree. On these items errors look
    far less correlated than they are.
    """
    weight_m, accuracy_k = learned(labeled.evidence, labeled.feature_mnj, prior)
    del labeled
    return correlated(predicted(), weight_m, accuracy_k)


def weights_per_item(labeled: Part, predicted: Callable[[], Part], prior: LogTemperature) -> PoolWeights:
    """Do steps 1 and 2 with features f, and multiply weights by the probability that the model is informative."""
    labeled = less_what_is_always_said(labeled)
    weight_m, accuracy_k = learned(labeled.evidence, labeled.feature_mnj, prior)
    annotations = labeled.evidence.annotations
    message_nj = kernels.messages(annotations, even_errors(annotations, accuracy_k))
    chance_m = probability_informative(labeled, message_nj, weight_m, usual_weight(prior), PRECISION / weight_m.size**2)
    del labeled
    weight_m = np.maximum(weight_m * chance_m, LEAST_WEIGHT)
    return correlated(less_what_is_always_said(predicted()), weight_m, accuracy_k)


def less_what_is_always_said(part: Part) -> Part:
    """Return the same items with features f: relative to what each model says about all items."""
    feature_mnj = part.feature_mnj.copy()
    for said_nj, predicts_n in zip(feature_mnj, part.predicts_nm.T, strict=True):
        if predicts_n.any():
            said_nj[predicts_n] -= np.log(np.exp(said_nj[predicts_n]).mean(axis=0))
    return replace(part, feature_mnj=feature_mnj)


def probability_informative(part: Part, message_nj: Floats, weight_m: Floats, mean: float, precision: float) -> Floats:
    """Return (M,) P(m informs).

    Inputs are features f, log likelihoods (N, J) of labels, weights (M,), and the prior mean and precision of a weight.
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
    return np.asarray(expit(logit(BEFOREHAND) + np.array(log_bayes_m)))


def correlated(part: Part, weight_m: Floats, accuracy_k: Floats) -> PoolWeights:
    """Do step 2 on predicted items."""
    q_nj = _beliefs(part.evidence, weight_m, part.feature_mnj, accuracy_k)
    return PoolWeights(weight_m, error_correlation(part.feature_mnj, part.predicts_nm, q_nj), accuracy_k)


def learned(evidence: Evidence, feature_mnj: Floats, prior: LogTemperature) -> tuple[Floats, Floats]:
    """Do step 1 on these items: return u_m and a_k. Features (M, N, J) are log p_m / S_n, 0 where a model abstains."""
    annotations, n_models = evidence.annotations, len(feature_mnj)
    mean = usual_weight(prior)
    weight_m: Floats = np.full(n_models, mean)
    accuracy_k = unmet(annotations.n_annotators)
    q_nj = _beliefs(evidence, np.zeros(n_models), feature_mnj, accuracy_k)
    for _ in range(ROUNDS):
        before_m, before_k = weight_m, accuracy_k
        accuracy_k = _accuracies(answered(annotations, q_nj)[0][:, :2])
        for _ in range(2):
            weight_m = newton_step(weight_m, feature_mnj, q_nj, mean, PRECISION / n_models**2)
        q_nj = _beliefs(evidence, weight_m, feature_mnj, accuracy_k)
        if max(np.abs(weight_m - before_m).max(), np.abs(accuracy_k - before_k).max(initial=0.0)) < TOLERANCE:
            break
    return weight_m, accuracy_k


def usual_weight(prior: LogTemperature) -> float:
    """Return the prior mean of a model's weight u."""
    return 0.8 / prior.mode


def newton_step(weight_m: Floats, feature_mnj: Floats, q_nj: Floats, mean: float, precision: float) -> Floats:
    """Return (M,) weights after a Newton step.

    The maximized objective is sum_n sum_j q_nj ln p_nj - precision / 2 sum_m (u_m - mean)^2, for u >= 0.
    """
    n_models = weight_m.size
    gradient_m, curvature_mm = kernels.pool_moments(feature_mnj, q_nj, weight_m)
    gradient_m -= precision * (weight_m - mean)
    curvature_mm += precision * np.eye(n_models)
    held = (weight_m <= LEAST_WEIGHT) & (gradient_m <= 0)
    step_m = np.zeros(n_models)
    free = np.flatnonzero(~held)
    step_m[free] = np.linalg.solve(curvature_mm[np.ix_(free, free)], gradient_m[free])
    largest = LARGEST_STEP * n_models
    return np.asarray(np.maximum(weight_m + np.clip(step_m, -largest, largest), LEAST_WEIGHT))


def error_correlation(feature_mnj: Floats, predicts_nm: npt.NDArray[np.bool_], q_nj: Floats) -> Floats:
    """Return (M, M) correlations of errors e_nm = 1 - q_nj, j the top class of m, over the items that both predict."""
    n_models = len(feature_mnj)
    top_mn = feature_mnj.argmax(axis=2)
    error_mn = 1 - np.take_along_axis(q_nj, top_mn.T, axis=1).T
    correlation_mm = np.eye(n_models)
    for m in range(n_models):
        for other in range(m):
            both = np.flatnonzero(predicts_nm[:, m] & predicts_nm[:, other])
            one, two = (error_mn[k, both] - error_mn[k, both].mean() if both.size else both for k in (m, other))
            size = np.sqrt(np.sum(one * one) * np.sum(two * two))
            found = np.sum(one * two) / size if size > 0 else 0.0
            shrunk = (both.size * max(found, 0.0) + PRIOR_ITEMS / 2) / (both.size + PRIOR_ITEMS)
            correlation_mm[m, other] = correlation_mm[other, m] = shrunk
    return correlation_mm


def even_errors(annotations: Annotations, accuracy_k: Floats) -> Floats:
    """Return (K, L, J) log probabilities of answers by annotators who err evenly.

    An answer that is no class carries no information.
    """
    j, options = annotations.n_classes, annotations.n_options
    wrong_k = np.log((1 - accuracy_k) / (options - 1))
    log_pi_klj = np.repeat(np.repeat(wrong_k[:, None, None], options, axis=1), j, axis=2)
    log_pi_klj[:, np.arange(j), np.arange(j)] = np.log(accuracy_k)[:, None]
    return log_pi_klj


def tempered(pool: Calibrated, predicts_nm: npt.NDArray[np.bool_], weights: PoolWeights) -> Calibrated:
    """Do step 3 without truth; `predicts_nm` (N, M) marks which models predict each item that step 1 learned from."""
    sure = float(np.mean(predicts_nm @ weights.weight_m / predicts_nm.sum(axis=1)))
    pooled_nm = pool_weights(predicts_nm, 1 / weights.weight_m, weights.correlation_mm)
    several = float(np.mean(pooled_nm.sum(axis=1))) / sure
    temperature = min(max(pool.prior.mode, 1 / (BIAS * sure)), several / sure)
    residual = float(np.sqrt(max(several / (sure * temperature), 1.0)))
    return pool.at(temperature * sure / weights.weight_m, weights.correlation_mm, residual)


def known_outputs(evidence: Evidence, pool: Calibrated) -> Likelihood:
    """Select the predicted items with ground truth, treating the pool as one model."""
    assert evidence.truth is not None
    known = np.flatnonzero(evidence.known & ~pool.abstained_n)
    log_p_nj = pool.log_prior()[known]
    return Likelihood.of(log_p_nj[None], np.eye(log_p_nj.shape[1])[evidence.truth[known]])


def by_truth(pool: Calibrated, known: Likelihood) -> Calibrated:
    """Correct the temperatures by the items with ground truth (`known_outputs`), as the end of step 3."""
    (off,) = best_temperatures(known, 1, LogTemperature(0.0, pool.prior.sd))
    residual = max(pool.residual / float(off), 1.0)
    return pool.at(pool.temperature_m * off, pool.correlation_mm, residual)


@dataclass(frozen=True, eq=False)
class Part:
    """Subset of items.

    Attributes:
        evidence: labels and ground truth.
        feature_mnj: (M, N, J) log p_m / S_n, 0 where a model abstains; or f.
        predicts_nm: (N, M) True where model m predicts item n.
    """

    evidence: Evidence
    feature_mnj: Floats
    predicts_nm: npt.NDArray[np.bool_]


Weigh = Callable[[Part, Callable[[], Part], LogTemperature], PoolWeights]
"""Labeled items, a function that returns the predicted items, and the prior -> result of steps 1 and 2."""


def _beliefs(evidence: Evidence, weight_m: Floats, feature_mnj: Floats, accuracy_k: Floats) -> Floats:
    logits_nj = kernels.messages(evidence.annotations, even_errors(evidence.annotations, accuracy_k))
    logits_nj += np.einsum("m,mnj->nj", weight_m, feature_mnj)
    return clamp(softmax(logits_nj, axis=1), evidence)


def unmet(n_annotators: int) -> Floats:
    """Return (K,) accuracies of annotators without any data."""
    return _accuracies(np.zeros((n_annotators, 2)))


def _accuracies(right_and_wrong_k2: Floats) -> Floats:
    """Return (K,) accuracies: the crowd's, counted as OWN labels, updated by each annotator's labels."""
    right, wrong = right_and_wrong_k2.sum(axis=0) + np.array([RIGHT, WRONG])
    crowd = right / (right + wrong)
    own_k = (right_and_wrong_k2[:, 0] + OWN * crowd) / (right_and_wrong_k2.sum(axis=1) + OWN)
    return np.asarray(np.clip(own_k, 0.01, 0.995))


def _log_p(message_nj: Floats, log_prior_nj: Floats) -> float:
    return float(logsumexp(log_softmax(log_prior_nj, axis=1) + message_nj, axis=1).sum())
