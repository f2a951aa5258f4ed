"""Dependence between annotators: confidence that means what it says.

Given its class, people do not judge an item independently: an untypical item misleads them all alike. A posterior that
multiplies their likelihoods is then far too sure, and the more people, the more so. Let the log likelihood ratio of
one label between the item's two most probable classes be x = ±mu + u + e, with noise e of the annotator (variance
sigma^2) and a pull u that the item exerts on everybody, in proportion to how far the classes are apart (variance
c mu^2). Labels of one item are then correlated within their class by

    rho_nk = c delta_nk / (1 + c delta_nk)        delta_nk = (mu / sigma)^2

and m of them carry the evidence of m / T_n independent ones (the design effect of cluster sampling, Kish 1965):

    T_n = 1 + (m_n - 1) mean_k rho_nk             q_n  ∝  exp( ln q0_n / T_n + b )    for m_n > 0

with q0 the posterior under independence. delta is a quarter of the symmetric divergence of the annotator's two
confusion rows, sum_l (pi_jl - pi_j'l) ln(pi_jl / pi_j'l), which is (2 mu / sigma)^2 for two Gaussians. Weak labels
thus stay nearly as they are, while however many strong labels agree, the odds stay within what the pull allows.

Without truth (b = 0), c = FIRST + SLOPE r, with r the correlation of answers within items that the annotator model
leaves unexplained (`unexplained_correlation`). r sees only a part: people who are all misled alike look right. What it
cannot see is FIRST, what is common to real crowds; docs/benchmarks has the sets and figures behind both numbers.

With truth for some items, ln c and the shift b (J,) are maximum a posteriori on these items, each judged by what was
learned without its own labels: ln c ~ N(ln of the above, SPREAD^2), b_j ~ N(0, SHIFT^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, log_softmax, softmax

from hitl.annotations import Annotations, Floats
from hitl.consensus import Correction
from hitl.evidence import Evidence
from hitl.models.compiled import compiled
from hitl.models.em import clamp
from hitl.models.kernels import messages

FIRST, SLOPE = 1.0, 10.0
SPREAD, SHIFT = 0.7, 0.7
NEGLIGIBLE = 1e-3
"""Beliefs below this do not count in the unexplained correlation."""

LEAST = 1e-3
"""What is left at least of a Dirichlet parameter when an item's own count is taken back."""

STEP = 1e-4
"""Of the central difference in ln c."""


def estimated(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Correction:
    """The correction of a fit that learned Dirichlet posteriors `alpha_kjl` (K, J, L) and class shares (J,).

    Known truths of the evidence, which have taught that fit, set the strength and the shift.
    """
    annotations = evidence.annotations
    log_q0_nj = _log_posterior(annotations, alpha_kjl, share_j)
    q_nj = clamp(softmax(log_q0_nj, axis=1), evidence)
    unexplained = unexplained_correlation(annotations, q_nj, _mean(alpha_kjl))
    strength = FIRST + SLOPE * max(unexplained, 0.0)
    if not evidence.known.any():
        return Correction(strength, np.zeros(share_j.size))
    return _with_truth(evidence, alpha_kjl, share_j, strength)


def corrected(annotations: Annotations, alpha_kjl: Floats, share_j: Floats, correction: Correction) -> Floats:
    """(N, J) beliefs after the correction; items without labels get the class shares."""
    log_q0_nj = _log_posterior(annotations, alpha_kjl, share_j)
    temperature_n = temperatures(annotations, log_q0_nj, _mean(alpha_kjl), correction.strength)
    shift_nj = np.where((annotations.labels_per_item > 0)[:, None], correction.shift, 0.0)
    beliefs: Floats = softmax(log_q0_nj / temperature_n[:, None] + shift_nj, axis=1)
    return beliefs


def temperatures(annotations: Annotations, log_q0_nj: Floats, pi_klj: Floats, strength: float) -> Floats:
    """(N,) T_n >= 1: how many labels of item n carry the evidence of one independent label; 1 below two labels."""
    out = np.empty(annotations.n_items)
    _temperatures(
        annotations.item_start, annotations.annotator, log_q0_nj, pi_klj, np.log(pi_klj), float(strength), out
    )
    return out


def unexplained_correlation(annotations: Annotations, q_nj: Floats, pi_klj: Floats) -> float:
    """Correlation, in [-1, 1], of two answers to one item within its class, beyond what the confusion matrices say.

    sum_nj q_nj sum_{k != k'} e_nk · e_nk'  /  sum_nj q_nj (m_n - 1) sum_k E|e_nk|^2,   e_nk = onehot(l_nk) - pi_kj.

    0 in expectation for independent annotators; 0 where no item has two labels.
    """
    together, alone = _correlation(
        annotations.item_start,
        annotations.annotator,
        annotations.label,
        np.ascontiguousarray(q_nj),
        pi_klj,
        (pi_klj**2).sum(axis=1),
    )
    return float(together / alone) if alone > 0 else 0.0


def without_own_labels(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Floats:
    """(n, J) log posteriors of the items of known truth, each judged by what everybody showed on the other items.

    A known item has taught its annotators one whole count a label: that is taken back.
    """
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    k, truth = annotations.annotator, evidence.truth[annotations.item]
    row = np.arange(len(annotations))
    cell, total = alpha_kjl[k, :, annotations.label], alpha_kjl.sum(axis=2)[k]
    cell[row, truth] = np.maximum(cell[row, truth] - 1, LEAST)
    total[row, truth] = np.maximum(total[row, truth] - 1, cell[row, truth])
    log_q = np.tile(np.log(share_j), (annotations.n_items, 1))
    np.add.at(log_q, annotations.item, digamma(cell) - digamma(total))
    held_out: Floats = log_q[evidence.known]
    return held_out


def _with_truth(evidence: Evidence, alpha_kjl: Floats, share_j: Floats, strength: float) -> Correction:
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    labeled = (annotations.labels_per_item > 0)[evidence.known]
    rows = np.flatnonzero(evidence.known)[labeled]
    truth, log_q = evidence.truth[rows], without_own_labels(evidence, alpha_kjl, share_j)[labeled]
    log_q0_nj, pi_klj = _log_posterior(annotations, alpha_kjl, share_j), _mean(alpha_kjl)

    def tempered(log_ratio: float) -> Floats:
        temperature_n = temperatures(annotations, log_q0_nj, pi_klj, strength * np.exp(log_ratio))
        cooled: Floats = log_q / temperature_n[rows, None]
        return cooled

    def loss(theta: Floats) -> tuple[float, Floats]:
        """Minus the log posterior of theta = (ln ratio / SPREAD, b / SHIFT), and its gradient."""
        log_p = log_softmax(tempered(SPREAD * theta[0]) + SHIFT * theta[1:], axis=1)
        excess = np.exp(log_p) - np.eye(share_j.size)[truth]
        slope = (tempered(SPREAD * theta[0] + STEP) - tempered(SPREAD * theta[0] - STEP)) / (2 * STEP)
        value = 0.5 * theta @ theta - log_p[np.arange(truth.size), truth].sum()
        return value, theta + np.append(SPREAD * (excess * slope).sum(), SHIFT * excess.sum(axis=0))

    theta = minimize(loss, np.zeros(1 + share_j.size), jac=True, method="L-BFGS-B").x
    return Correction(float(strength * np.exp(SPREAD * theta[0])), SHIFT * theta[1:])


def _log_posterior(annotations: Annotations, alpha_kjl: Floats, share_j: Floats) -> Floats:
    alpha_klj = alpha_kjl.transpose(0, 2, 1)
    log_pi_klj = digamma(alpha_klj) - digamma(alpha_klj.sum(axis=1, keepdims=True))
    posterior: Floats = messages(annotations, log_pi_klj) + np.log(share_j)
    return posterior


def _mean(alpha_kjl: Floats) -> Floats:
    """(K, L, J) mean confusion matrices."""
    return np.ascontiguousarray((alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)).transpose(0, 2, 1))


@compiled
def _temperatures(start: Any, annotator: Any, log_q: Any, pi: Any, log_pi: Any, strength: float, out: Any) -> None:
    for n in range(out.shape[0]):
        labels = start[n + 1] - start[n]
        out[n] = 1.0
        if labels < 2:
            continue
        first, second = _top_two(log_q[n])
        correlation = 0.0
        for row in range(start[n], start[n + 1]):
            p, log_p = pi[annotator[row]], log_pi[annotator[row]]
            divergence = 0.0
            for option in range(p.shape[0]):
                divergence += (p[option, first] - p[option, second]) * (log_p[option, first] - log_p[option, second])
            pull = strength * divergence / 4
            correlation += pull / (1 + pull)
        out[n] += (labels - 1) * correlation / labels


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
    residual = np.empty(pi.shape[1])
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
                    residual[other] -= pi[k, other, j]
                residual[option] += 1.0
                own += 1 - 2 * pi[k, option, j] + squared[k, j]
                variance += 1 - squared[k, j]
            together += q[n, j] * ((residual**2).sum() - own)
            alone += q[n, j] * (labels - 1) * variance
    return together, alone
