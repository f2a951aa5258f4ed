"""The design effect of a fit: estimated without truth, or from the items of known truth.

`hitl.design_effect` says what it does. Two things are estimated, by what the evidence holds:

**Annotators alone.** The log likelihood ratio of one label between the item's two most probable classes is
x = ±mu + u + e, with noise e of the annotator (variance sigma^2) and a pull u that the item exerts on all annotators,
in proportion to how far the classes are apart (variance s mu^2). Labels of one item are then correlated within their
class by rho = s delta / (1 + s delta), delta = (mu / sigma)^2: the ceiling is 1, half = 1 / s. delta is a quarter of
the symmetric divergence of the annotator's two confusion rows, sum_l (pi_jl - pi_j'l) ln(pi_jl / pi_j'l), which is
(2 mu / sigma)^2 for two Gaussians. Weak labels stay nearly as they are, and however many strong labels agree, the odds
stay within what the pull allows. The posterior under independence takes the mean of the matrices, exact for an item
that nothing was learned from. (By exp E ln pi one answer of a new annotator among ten options would be certain.)

Without truth the shift is 0, and s is as large as held-out labels bear (`held_out`), and larger where answers to one
item agree beyond what the matrices explain (r, `unexplained_correlation`):

    s = bearable sqrt(1 + 10 r)     within LOWEST and HIGHEST

These numbers were chosen on the public crowds of docs/benchmarks/accuracy.txt, which shows simulated ones as well. With
truth for some items ln s and the shift b (J,) are maximum a posteriori on these items, each judged without its own
labels: ln s ~ N(ln of the above, SPREAD^2), b_j ~ N(0, SHIFT^2).

**Annotators beside models.** How much one error tells of the next cannot be seen where each item has one or two labels:
rho is the same for all annotators (half = 0), EXPECTED without truth; with truth ln rho ~ N(ln EXPECTED, SPREAD^2), at
its mode. The residual temperature of the pool comes from `inference.unsupervised_pool`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.design_effect import SMALLEST, DesignEffect
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import confusion_from
from hitl.models.dependence.held_out import bearable_strength
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.compiled import compiled
from hitl.models.numerics.kernels import messages
from hitl.models.priors.calibrated import RESIDUAL

LOWEST, HIGHEST = 0.5, 2.0
SPREAD, SHIFT = 0.7, 1.0
EXPECTED = 0.4
LOWEST_RHO, HIGHEST_RHO = 0.01, 3.0

NEGLIGIBLE = 1e-3
"""Beliefs below this do not count in the unexplained correlation."""

LEAST = 1e-3
"""What is left at least of a Dirichlet parameter when an item's own count is taken back."""


@dataclass(frozen=True, eq=False)
class Independent:
    """The posterior as if labels were independent, and what a design effect takes of it.

    Attributes:
        annotations: the labels of N items.
        log_q0_nj: (N, J) log posterior under independence, up to a constant a row.
        pi_kjl: (K, J, L) confusion matrices; None where rho is the same for all annotators and asks for none.
        predicted_n: (N,) items that a model predicts.
    """

    annotations: Annotations
    log_q0_nj: Floats
    pi_kjl: Floats | None
    predicted_n: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, evidence: Evidence, pi_kjl: Floats, log_prior_nj: Floats) -> Independent:
        """From confusion matrices and the log prior, (N, J) or (1, J); known truth does not count."""
        log_q0_nj = messages(evidence.annotations, _by_label(pi_kjl)) + log_prior_nj
        return cls(evidence.annotations, log_q0_nj, pi_kjl, evidence.predicted)

    def rho_sum(self, effect: DesignEffect) -> Floats:
        """(N,) sum of rho over the labels of each item."""
        labels_n = self.annotations.labels_per_item
        if effect.half == 0:
            return effect.ceiling * labels_n.astype(np.float64)
        return _over_items(self.annotations, effect.rho(self.delta_m))

    def temperature(self, effect: DesignEffect) -> Floats:
        """(N,) T_n >= 1."""
        return effect.temperature(self.annotations.labels_per_item, self.predicted_n, self.rho_sum(effect))

    def tempered(self, effect: DesignEffect) -> Floats:
        """(N, J) beliefs."""
        labels_n = self.annotations.labels_per_item
        return effect.temper(self.log_q0_nj, labels_n, self.predicted_n, self.rho_sum(effect))

    @cached_property
    def delta_m(self) -> Floats:
        """(M,) separation of each label."""
        assert self.pi_kjl is not None
        return separations(self.annotations, self.log_q0_nj, self.pi_kjl)


# -- annotators alone ----------------------------------------------------------------------------------------


def of_annotators(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> DesignEffect:
    """The effect of a fit that learned Dirichlet posteriors `alpha_kjl` (K, J, L) and class shares (J,).

    Known truths of the evidence, which that fit has used, set its size and the shift.
    """
    strength = unsupervised_strength(evidence, alpha_kjl, share_j)
    if not evidence.known.any():
        return effect_of(strength, np.zeros(share_j.size))
    return _with_truth(evidence, alpha_kjl, share_j, strength)


def effect_of(strength: float, shift: Floats | None = None) -> DesignEffect:
    """The design effect of annotators alone with a pull of this strength s, >= 0."""
    return DesignEffect(1.0, 1 / strength, shift=shift) if strength else DesignEffect(shift=shift)


def unsupervised_strength(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> float:
    """The strength s, between LOWEST and HIGHEST, that the labels alone suggest."""
    annotations = evidence.annotations
    known = independent(annotations, alpha_kjl, share_j)
    assert known.pi_kjl is not None
    q_nj = clamp(softmax(known.log_q0_nj, axis=1), evidence)  # what the matrices were learned from, but for an anchor
    bearable = bearable_strength(
        annotations, known.log_q0_nj, q_nj, known.delta_m, alpha_kjl, _by_label(known.pi_kjl), share_j
    )
    unexplained = max(unexplained_correlation(annotations, q_nj, known.pi_kjl), 0.0)
    return float(min(max(bearable * np.sqrt(1 + 10 * unexplained), LOWEST), HIGHEST))


def independent(annotations: Annotations, alpha_kjl: Floats, share_j: Floats) -> Independent:
    """The posterior by the means of Dirichlet matrices and class shares, nothing predicted."""
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    return Independent.of(Evidence(annotations), pi_kjl, np.log(share_j))


def separations(annotations: Annotations, log_q0_nj: Floats, pi_kjl: Floats) -> Floats:
    """(M,) delta of each label >= 0: how far apart its annotator tells the item's two most probable classes."""
    delta_m = np.empty(len(annotations))
    log_pi_kjl = np.log(np.maximum(pi_kjl, np.finfo(float).tiny))
    log_q0_nj = np.ascontiguousarray(log_q0_nj)
    _separations(annotations.item_start, annotations.annotator, log_q0_nj, pi_kjl, log_pi_kjl, delta_m)
    return delta_m


def separation_of_classes(pi_kjl: Floats) -> Floats:
    """(K, J, J) delta of an answer of annotator k where these two classes are the most probable ones."""
    log_pi = np.log(np.maximum(pi_kjl, 1e-12))
    cross = np.einsum("kal,kbl->kab", pi_kjl, log_pi)
    own = np.einsum("kal,kal->ka", pi_kjl, log_pi)
    delta: Floats = (own[:, :, None] + own[:, None, :] - cross - cross.transpose(0, 2, 1)) / 4
    return delta


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
    """(n, J) log posteriors of the items of known truth, each judged by what annotators showed on the other items.

    A known item gave its annotators one whole count a label: that is taken back.
    """
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    k, truth_n = annotations.annotator, np.maximum(evidence.truth, 0)
    truth_m = truth_n[annotations.item]
    cell_m, total_m = alpha_kjl[k, truth_m, annotations.label], alpha_kjl.sum(axis=2)[k, truth_m]
    answered_m = annotations.item.astype(np.int64) * annotations.n_annotators + k
    left_m = np.maximum(cell_m - _alike(answered_m * annotations.n_options + annotations.label), LEAST)
    left_total_m = np.maximum(total_m - _alike(answered_m), left_m)
    change_m = np.log(left_m / left_total_m) - np.log(cell_m / total_m)
    log_q_nj = independent(annotations, alpha_kjl, share_j).log_q0_nj
    log_q_nj[np.arange(truth_n.size), truth_n] += np.bincount(annotations.item, change_m, truth_n.size)
    held_out: Floats = log_q_nj[evidence.known]
    return held_out


def _alike(code_m: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(M,) how many have the same code: a pool may answer an item many times."""
    _, group_m, size = np.unique(code_m, return_inverse=True, return_counts=True)
    alike: npt.NDArray[np.int64] = size[group_m]
    return alike


def _with_truth(evidence: Evidence, alpha_kjl: Floats, share_j: Floats, strength: float) -> DesignEffect:
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    labeled = (annotations.labels_per_item > 0)[evidence.known]
    rows = np.flatnonzero(evidence.known)[labeled]
    truth_n, log_q_nj = evidence.truth[rows], without_own_labels(evidence, alpha_kjl, share_j)[labeled]
    delta_m = independent(annotations, alpha_kjl, share_j).delta_m

    def loss(theta: Floats) -> tuple[float, Floats]:
        """Minus the log posterior of theta = (ln(s / strength) / SPREAD, b / SHIFT), and its gradient."""
        temperature_n, slope_n = _tempering(annotations, delta_m, strength * np.exp(SPREAD * theta[0]))
        return _loss(theta, log_q_nj, truth_n, temperature_n[rows], slope_n[rows])

    theta = minimize(loss, np.zeros(1 + share_j.size), jac=True, method="L-BFGS-B").x
    return effect_of(float(strength * np.exp(SPREAD * theta[0])), SHIFT * theta[1:])


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
    """(N,) T_n and (N,) its derivative by ln s."""
    effect, labels_n = effect_of(strength), annotations.labels_per_item
    rho_m, nothing = effect.rho(delta_m), np.zeros(labels_n.size, dtype=bool)
    rho_n, slope_n = _over_items(annotations, rho_m), _over_items(annotations, rho_m * (1 - rho_m))
    return effect.temperature(labels_n, nothing, rho_n), effect.temperature(labels_n, nothing, slope_n) - 1


def _over_items(annotations: Annotations, value_m: Floats) -> Floats:
    """(N,) sums over the labels of each item."""
    return np.asarray(np.bincount(annotations.item, value_m, annotations.n_items), dtype=np.float64)


def _by_label(pi_kjl: Floats) -> Floats:
    """(K, L, J) logarithms of confusion matrices."""
    return np.ascontiguousarray(np.log(np.maximum(pi_kjl, SMALLEST)).transpose(0, 2, 1))


# -- annotators beside models --------------------------------------------------------------------------------


def beside_models(evidence: Evidence, log_q0_nj: Floats, residual: float) -> DesignEffect:
    """rho by the items of known truth, if there are any; log_q0_nj (N, J) as if nothing were known."""
    known = np.flatnonzero(evidence.known)
    if not known.size:
        return DesignEffect(EXPECTED, residual=residual)
    assert evidence.truth is not None
    logits, truth = log_q0_nj[known], evidence.truth[known]
    labels_n, predicted_n = evidence.annotations.labels_per_item[known], evidence.predicted[known]

    def cost(log_rho: float) -> float:
        effect = DesignEffect(float(np.exp(log_rho)), residual=residual)
        temperature = effect.temperature(labels_n, predicted_n, effect.ceiling * labels_n.astype(np.float64))[:, None]
        log_p = log_softmax(logits / temperature, axis=1)[np.arange(known.size), truth]
        return float(((log_rho - np.log(EXPECTED)) / SPREAD) ** 2 / 2 - log_p.sum())

    bounds = (np.log(LOWEST_RHO), np.log(HIGHEST_RHO))
    return DesignEffect(float(np.exp(minimize_scalar(cost, bounds=bounds, method="bounded").x)), residual=residual)


def residual_temperature(consensus: Consensus) -> float:
    """What the models of a consensus still need where they alone judge an item, >= 1."""
    return float(consensus.parameters.get(RESIDUAL, np.array(1.0)))


def beliefs_for_gain(evidence: Evidence, consensus: Consensus) -> Floats:
    """(N, J) beliefs that take each answer as worth what a confusion matrix says, as the gain takes the next one.

    Beside models the design effect grows with the labels of an item: by tempered beliefs the same few items would be
    asked about again and again (CIFAR-10H: 99 % not reached with 11,000 labels, with these from 7,400). The models
    count as they do alone, at their residual temperature: surer, they would hide the items without labels (three
    networks: a tenth more labels).
    """
    effect, residual = consensus.design_effect, residual_temperature(consensus)
    if not evidence.probabilities or (effect.independent and residual == 1):
        return consensus.probabilities
    annotations, predicted_n = evidence.annotations, evidence.predicted
    pi_klj = confusion_from(consensus, annotations, np.ones((annotations.n_classes, annotations.n_options)))
    known = Independent(annotations, consensus.probabilities, pi_klj.transpose(0, 2, 1), predicted_n)
    labels_n = annotations.labels_per_item
    log_q0_nj = effect.untemper(consensus.probabilities, labels_n, predicted_n, known.rho_sum(effect))
    labels_nj = messages(annotations, np.log(np.maximum(pi_klj, SMALLEST)))
    models_nj = log_softmax(log_q0_nj, axis=1) - labels_nj
    beliefs: Floats = softmax(models_nj / np.where(predicted_n, residual, 1.0)[:, None] + labels_nj, axis=1)
    return beliefs


# -- loops ---------------------------------------------------------------------------------------------------


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
