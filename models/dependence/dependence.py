"""Dependence between annotators: confidence that means what it says.

Given its class, people do not judge an item independently: an untypical item misleads them all alike. A posterior that
multiplies their likelihoods is then far too sure, and the more people, the more so. Let the log likelihood ratio of
one label between the item's two most probable classes be x = ±mu + u + e, with noise e of the annotator (variance
sigma^2) and a pull u that the item exerts on everybody, in proportion to how far the classes are apart (variance
c mu^2). Labels of one item are then correlated within their class by

    rho_nk = c delta_nk / (1 + c delta_nk)        delta_nk = (mu / sigma)^2

and m of them carry the evidence of m / T_n independent ones (the design effect of cluster sampling, Kish 1965):

    T_n = 1 + (m_n - 1) mean_k rho_nk             q_n  ∝  exp( ln q0_n / T_n + b )    for m_n > 0

with q0 the posterior under independence, share_j times the annotators' mean pi: exact for an item that taught nobody.
(With exp E ln pi, as in variational Bayes, one answer of a stranger among ten options would be certain.) delta is a
quarter of the symmetric divergence of the annotator's two confusion rows, sum_l (pi_jl - pi_j'l) ln(pi_jl / pi_j'l),
which is (2 mu / sigma)^2 for two Gaussians. Weak labels thus stay nearly as they are, while however many strong labels
agree, the odds stay within what the pull allows: rho = c delta would let T grow without bound with how strong they are.

Without truth b = 0, and c is as cautious as held-out labels can bear (`held_out`), and more so where answers to one
item agree beyond what the matrices explain (r, see `unexplained_correlation`):

    c = bearable sqrt(1 + 10 r)     within LOWEST and HIGHEST

These numbers come from real crowds; docs/benchmarks/accuracy.txt shows which, and how it does on simulated ones.

With truth for some items, ln c and the shift b (J,) are maximum a posteriori on these items, each judged by what was
learned without its own labels: ln c ~ N(ln of the above, SPREAD^2), b_j ~ N(0, SHIFT^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Correction
from hitl.evidence import Evidence
from hitl.models.dependence.held_out import bearable_strength
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.compiled import compiled
from hitl.models.numerics.kernels import messages

LOWEST, HIGHEST = 0.5, 2.0
SPREAD, SHIFT = 0.7, 1.0
NEGLIGIBLE = 1e-3
"""Beliefs below this do not count in the unexplained correlation."""

LEAST = 1e-3
"""What is left at least of a Dirichlet parameter when an item's own count is taken back."""


def estimated(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Correction:
    """The correction of a fit that learned Dirichlet posteriors `alpha_kjl` (K, J, L) and class shares (J,).

    Known truths of the evidence, which have taught that fit, set the strength and the shift.
    """
    strength = untold_strength(evidence, alpha_kjl, share_j)
    if not evidence.known.any():
        return Correction(strength, np.zeros(share_j.size))
    return _with_truth(evidence, alpha_kjl, share_j, strength)


def untold_strength(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> float:
    """The strength c, between LOWEST and HIGHEST, that the labels alone suggest."""
    annotations = evidence.annotations
    pi_kjl, log_pi_klj = _mean(alpha_kjl), _log_mean(alpha_kjl)
    log_q0_nj = messages(annotations, log_pi_klj) + np.log(share_j)
    delta_m = separations(annotations, log_q0_nj, pi_kjl)
    q_nj = clamp(softmax(log_q0_nj, axis=1), evidence)  # what taught, but for an anchor
    bearable = bearable_strength(annotations, log_q0_nj, q_nj, delta_m, alpha_kjl, log_pi_klj, share_j)
    unexplained = max(unexplained_correlation(annotations, q_nj, pi_kjl), 0.0)
    return float(min(max(bearable * np.sqrt(1 + 10 * unexplained), LOWEST), HIGHEST))


def corrected(annotations: Annotations, alpha_kjl: Floats, share_j: Floats, correction: Correction) -> Floats:
    """(N, J) beliefs after the correction; items without labels get the class shares."""
    log_q0_nj = _log_posterior(annotations, alpha_kjl, share_j)
    temperature_n = temperatures(annotations, log_q0_nj, _mean(alpha_kjl), correction.strength)
    shift_nj = np.where((annotations.labels_per_item > 0)[:, None], correction.shift, 0.0)
    beliefs: Floats = softmax(log_q0_nj / temperature_n[:, None] + shift_nj, axis=1)
    return beliefs


def temperatures(annotations: Annotations, log_q0_nj: Floats, pi_kjl: Floats, strength: float) -> Floats:
    """(N,) T_n >= 1: how many labels of item n carry the evidence of one independent label; 1 below two labels."""
    return _tempering(annotations, separations(annotations, log_q0_nj, pi_kjl), strength)[0]


def separations(annotations: Annotations, log_q0_nj: Floats, pi_kjl: Floats) -> Floats:
    """(M,) delta of each label >= 0: how far apart its annotator tells the item's two most probable classes."""
    delta_m = np.empty(len(annotations))
    log_pi_kjl = np.log(np.maximum(pi_kjl, np.finfo(float).tiny))
    log_q0_nj = np.ascontiguousarray(log_q0_nj)
    _separations(annotations.item_start, annotations.annotator, log_q0_nj, pi_kjl, log_pi_kjl, delta_m)
    return delta_m


def unexplained_correlation(annotations: Annotations, q_nj: Floats, pi_kjl: Floats) -> float:
    """Correlation of two answers to one item within its class, beyond what the confusion matrices say (1: all copy).

    sum_nj q_nj sum_{k != k'} e_nk · e_nk'  /  sum_nj q_nj (m_n - 1) sum_k E|e_nk|^2,   e_nk = onehot(l_nk) - pi_kj.

    0 in expectation for independent annotators; 0 where no item has two labels.
    """
    together, alone = _correlation(
        annotations.item_start,
        annotations.annotator,
        annotations.label,
        np.ascontiguousarray(q_nj),
        pi_kjl,
        (pi_kjl**2).sum(axis=2),
    )
    return float(together / alone) if alone > 0 else 0.0


def without_own_labels(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Floats:
    """(n, J) log posteriors of the items of known truth, each judged by what everybody showed on the other items.

    A known item has taught its annotators one whole count a label: that is taken back.
    """
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    k, truth_n = annotations.annotator, np.maximum(evidence.truth, 0)
    truth_m = truth_n[annotations.item]
    cell_m, total_m = alpha_kjl[k, truth_m, annotations.label], alpha_kjl.sum(axis=2)[k, truth_m]
    asked_m = annotations.item.astype(np.int64) * annotations.n_annotators + k
    left_m = np.maximum(cell_m - _alike(asked_m * annotations.n_options + annotations.label), LEAST)
    left_total_m = np.maximum(total_m - _alike(asked_m), left_m)
    change_m = np.log(left_m / left_total_m) - np.log(cell_m / total_m)
    log_q_nj = _log_posterior(annotations, alpha_kjl, share_j)
    log_q_nj[np.arange(truth_n.size), truth_n] += np.bincount(annotations.item, change_m, truth_n.size)
    held_out: Floats = log_q_nj[evidence.known]
    return held_out


def _alike(code_m: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(M,) how many have the same code: a pool may answer an item many times."""
    _, group_m, size = np.unique(code_m, return_inverse=True, return_counts=True)
    alike: npt.NDArray[np.int64] = size[group_m]
    return alike


def _with_truth(evidence: Evidence, alpha_kjl: Floats, share_j: Floats, strength: float) -> Correction:
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    labeled = (annotations.labels_per_item > 0)[evidence.known]
    rows = np.flatnonzero(evidence.known)[labeled]
    truth_n, log_q_nj = evidence.truth[rows], without_own_labels(evidence, alpha_kjl, share_j)[labeled]
    delta_m = separations(annotations, _log_posterior(annotations, alpha_kjl, share_j), _mean(alpha_kjl))

    def loss(theta: Floats) -> tuple[float, Floats]:
        """Minus the log posterior of theta = (ln(c / strength) / SPREAD, b / SHIFT), and its gradient."""
        temperature_n, slope_n = _tempering(annotations, delta_m, strength * np.exp(SPREAD * theta[0]))
        return _loss(theta, log_q_nj, truth_n, temperature_n[rows], slope_n[rows])

    theta = minimize(loss, np.zeros(1 + share_j.size), jac=True, method="L-BFGS-B").x
    return Correction(float(strength * np.exp(SPREAD * theta[0])), SHIFT * theta[1:])


def _loss(
    theta: Floats, log_q_nj: Floats, truth_n: Ints, temperature_n: Floats, slope_n: Floats
) -> tuple[float, Floats]:
    tempered_nj = log_q_nj / temperature_n[:, None]
    log_p_nj = log_softmax(tempered_nj + SHIFT * theta[1:], axis=1)
    excess_nj = np.exp(log_p_nj) - np.eye(log_q_nj.shape[1])[truth_n]
    by_log_c = -((excess_nj * tempered_nj).sum(axis=1) @ (slope_n / temperature_n))
    value = 0.5 * theta @ theta - log_p_nj[np.arange(truth_n.size), truth_n].sum()
    return float(value), theta + np.append(SPREAD * by_log_c, SHIFT * excess_nj.sum(axis=0))


def _tempering(annotations: Annotations, delta_m: Floats, strength: float) -> tuple[Floats, Floats]:
    """(N,) T_n and (N,) its derivative by ln c."""
    labels_n = annotations.labels_per_item
    others_n = np.maximum(labels_n - 1, 0) / np.maximum(labels_n, 1)
    rho_m = 1 - 1 / (1 + strength * delta_m)
    temperature_n = 1 + others_n * np.bincount(annotations.item, rho_m, labels_n.size)
    return temperature_n, others_n * np.bincount(annotations.item, rho_m * (1 - rho_m), labels_n.size)


def _log_posterior(annotations: Annotations, alpha_kjl: Floats, share_j: Floats) -> Floats:
    posterior: Floats = messages(annotations, _log_mean(alpha_kjl)) + np.log(share_j)
    return posterior


def _log_mean(alpha_kjl: Floats) -> Floats:
    """(K, L, J) log of the mean confusion matrices."""
    return np.ascontiguousarray(np.log(_mean(alpha_kjl)).transpose(0, 2, 1))


def _mean(alpha_kjl: Floats) -> Floats:
    """(K, J, L) mean confusion matrices."""
    mean: Floats = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    return mean


@compiled
def _separations(start: Any, annotator: Any, log_q: Any, pi: Any, log_pi: Any, out: Any) -> None:
    for n in range(log_q.shape[0]):
        if start[n] == start[n + 1]:
            continue
        first, second = _top_two(log_q[n])
        for row in range(start[n], start[n + 1]):
            p, other = pi[annotator[row], first], pi[annotator[row], second]
            log_p, log_other = log_pi[annotator[row], first], log_pi[annotator[row], second]
            divergence = 0.0
            for option in range(p.shape[0]):
                divergence += (p[option] - other[option]) * (log_p[option] - log_other[option])
            out[row] = divergence / 4


@compiled
def _top_two(values: Any) -> tuple[int, int]:
    first, second = 0, 1
    if values[1] > values[0]:
        first, second = 1, 0
    for j in range(2, values.shape[0]):
        if values[j] > values[first]:
            first, second = j, first
        elif values[j] > values[second]:
            second = j
    return first, second


@compiled
def _correlation(start: Any, annotator: Any, label: Any, q: Any, pi: Any, squared: Any) -> tuple[float, float]:
    together = alone = 0.0
    residual = np.empty(pi.shape[2])
    for n in range(q.shape[0]):
        labels = start[n + 1] - start[n]
        if labels < 2:
            continue
        for j in range(q.shape[1]):
            if q[n, j] < NEGLIGIBLE:
                continue
            residual[:] = 0.0
            own = variance = 0.0
            for row in range(start[n], start[n + 1]):
                k, option = annotator[row], label[row]
                for other in range(residual.shape[0]):
                    residual[other] -= pi[k, j, other]
                residual[option] += 1.0
                own += 1 - 2 * pi[k, j, option] + squared[k, j]
                variance += 1 - squared[k, j]
            together += q[n, j] * ((residual**2).sum() - own)
            alone += q[n, j] * (labels - 1) * variance
    return together, alone
