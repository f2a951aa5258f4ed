"""Design effect of a fit, estimated without truth or from the items with ground truth.

`hitl.design_effect` defines it: q_n  ∝  exp( ln q0_n / T_n + b ). Items are predicted by labels, class shares, and
models.

Let P be the probability that annotators err together at all, and e the expected excess of their correlation if they do
(`replicas`). Without known truth, rho is rho_0 = P (UNTRACED_RHO + e), and the shift is 0. With known truth, ln rho and
the shift b (J,) are maximum a posteriori estimates on the items of known truth, each predicted by confusion matrices
that did not learn from it:

    ln rho ~ N(ln rho_0, s^2)      s^2 = SPREAD^2 + (ln P)^2      b_j ~ N(0, SHIFT^2)

s^2 depends on P because doubt about whether annotators err together is also doubt about how much. The posterior under
independence uses the means of the Dirichlet matrices, which is exact for an item that nothing was learned from. (With
exp E ln pi, one answer of a new annotator among ten options would be certain.) `echo` is 1 because annotators were
learned from one another.

With models of informativeness k (`observed_outputs`), rho_0 = k BESIDE_MODELS + (1 - k) P (UNTRACED_RHO + e). In place
of P, s^2 has the ratio of rho_0 to its value at P = 1. The shift is b_j ~ N(0, (SHIFT (1 - k))^2). The residual
temperature is 1 + k (t - 1) with t that of the pool (`inference.unsupervised_pool`). The models act as one more
annotator of an item and replace the echo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.design_effect import SMALLEST, DesignEffect
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import confusion_from
from hitl.models.annotators.mean_rows import at_labels, messages
from hitl.models.dependence.replicas import Dependence
from hitl.models.inference.engine import Rows
from hitl.models.inference.observed_outputs import MODEL_INFORMATIVENESS, Outputs
from hitl.models.numerics import kernels
from hitl.models.priors.calibrated import RESIDUAL

UNTRACED_RHO = 0.3
"""rho of annotators who err together without an excess over replicas."""

BESIDE_MODELS = 0.4
SPREAD, SHIFT = 0.7, 1.0

LEAST = 1e-3
"""Minimum Dirichlet parameter after an item's own counts are subtracted."""


@dataclass(frozen=True, eq=False)
class Independent:
    """Posterior as if labels were independent, and what a design effect needs to temper it.

    Attributes:
        annotations: the labels of N items.
        log_q0_nj: (N, J) log posterior under independence, up to a constant per row.
        predicted_n: (N,) True for items that a model predicts.
    """

    annotations: Annotations
    log_q0_nj: Floats
    predicted_n: npt.NDArray[np.bool_]

    def tempered(self, effect: DesignEffect) -> Floats:
        """Return (N, J) tempered beliefs."""
        return effect.temper(self.log_q0_nj, self.annotations.labels_per_item, self.predicted_n)


@dataclass(frozen=True, eq=False)
class KnownItems(Rows):
    """Items with ground truth, predicted without it.

    Attributes:
        log_q_nj: (n, J) log posterior under independence, up to a constant per row.
        truth_n: (n,) class codes.
        labels_n: (n,) numbers of labels.
        predicted_n: (n,) True if models predict them.
    """

    log_q_nj: Floats
    truth_n: Ints
    labels_n: npt.NDArray[np.int64]
    predicted_n: npt.NDArray[np.bool_]

    def log_probability(self, effect: DesignEffect) -> float:
        """Return the log probability of the known truths under this effect, in nats."""
        q_nj = effect.temper(self.log_q_nj, self.labels_n, self.predicted_n)
        return float(np.log(np.maximum(q_nj[np.arange(self.truth_n.size), self.truth_n], SMALLEST)).sum())


def of_crowd(dependence: Dependence, outputs: Outputs, known: KnownItems | None, n_classes: int) -> DesignEffect:
    """Estimate the effect from how annotators err together and, unless `known` is None, from `held_out` items."""
    informativeness = outputs.informativeness
    expected, together = (
        informativeness * BESIDE_MODELS + (1 - informativeness) * p * (UNTRACED_RHO + dependence.excess)
        for p in (dependence.chance, 1.0)
    )
    begun = DesignEffect(expected, echo=1.0, residual=outputs.residual)
    if known is None:
        return begun
    spread = float(np.hypot(SPREAD, np.log(expected / together)))
    sd = np.array([spread, *np.full(n_classes, SHIFT * (1 - informativeness))])
    loss = partial(_loss, known=known, begun=begun, sd=sd)
    theta = sd * minimize(loss, np.zeros(sd.size), jac=True, method="L-BFGS-B").x
    return replace(begun, rho=expected * float(np.exp(theta[0])), shift=theta[1:])


def independent(
    annotations: Annotations, alpha_kjl: Floats, share_j: Floats, outputs: Outputs | None = None
) -> Independent:
    """Return the posterior under independence, by mean confusion matrices, class shares and models.

    Ground truth is ignored.
    """
    log_q0_nj = messages(annotations, alpha_kjl)
    log_q0_nj += np.log(share_j)
    said_nj, predicted_n = (None, None) if outputs is None else (outputs.log_likelihood(), outputs.predicted_n)
    if said_nj is None or predicted_n is None:
        return Independent(annotations, log_q0_nj, np.zeros(annotations.n_items, dtype=bool))
    log_q0_nj += said_nj
    return Independent(annotations, log_q0_nj, predicted_n)


def held_out(evidence: Evidence, alpha_kjl: Floats, share_j: Floats, outputs: Outputs) -> KnownItems:
    """Return the items with ground truth that have labels, each predicted by matrices that did not learn from it."""
    assert evidence.truth is not None
    outputs = outputs.on(evidence)
    labels_n = evidence.annotations.labels_per_item
    rows = np.flatnonzero(evidence.known & (labels_n > 0))
    log_q_nj = without_own_labels(evidence, alpha_kjl, share_j, outputs)[labels_n[evidence.known] > 0]
    return KnownItems(log_q_nj, evidence.truth[rows], labels_n[rows], evidence.predicted[rows])


def without_own_labels(
    evidence: Evidence, alpha_kjl: Floats, share_j: Floats, outputs: Outputs | None = None
) -> Floats:
    """Return (n, J) log posteriors of the items with ground truth, each by matrices that did not learn from it.

    A known item added one count per label to the matrices of its annotators. These counts are subtracted.
    """
    assert evidence.truth is not None
    annotations = evidence.annotations.select(evidence.known[evidence.annotations.item])
    k, truth_n = annotations.annotator, np.maximum(evidence.truth, 0)
    truth_m = truth_n[annotations.item]
    cell_m, total_m = at_labels(alpha_kjl, k, truth_m, annotations.label)
    answered_m = annotations.item.astype(np.int64) * annotations.n_annotators + k
    left_m = np.maximum(cell_m - _alike(answered_m * annotations.n_options + annotations.label), LEAST)
    left_total_m = np.maximum(total_m - _alike(answered_m), left_m)
    change_m = np.log(left_m / left_total_m) - np.log(cell_m / total_m)
    log_q_nj = independent(annotations, alpha_kjl, share_j, outputs).log_q0_nj
    log_q_nj[np.arange(truth_n.size), truth_n] += np.bincount(annotations.item, change_m, truth_n.size)
    return np.asarray(log_q_nj[evidence.known])


def _alike(code_m: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (M,) how often each code occurs; the pool of annotators without ids may answer an item many times."""
    _, group_m, size = np.unique(code_m, return_inverse=True, return_counts=True)
    return np.asarray(size[group_m])


def _loss(theta: Floats, known: KnownItems, begun: DesignEffect, sd: Floats) -> tuple[float, Floats]:
    """Return minus the log posterior of theta = (ln(rho / expected rho), b) / sd, and its gradient."""
    log_times, shift_j = sd[0] * theta[0], sd[1:] * theta[1:]
    log_p, by_log_rho, excess_j = _fit(known, begun, float(np.exp(log_times)), shift_j)
    gradient = sd * np.append(by_log_rho, excess_j)
    return float(0.5 * theta @ theta - log_p), theta + gradient


def _fit(known: KnownItems, begun: DesignEffect, times: float, shift_j: Floats) -> tuple[float, float, Floats]:
    """Return the log probability with ground truth, in nats, with `times` the expected rho and this shift (J,).

    Also return the derivatives of minus that: in ln rho, and (J,) in the shift (sum of probability minus truth).
    """
    alone_n = np.where(known.predicted_n, begun.residual, 1.0)
    excess_n = times * (begun.temperature(known.labels_n, known.predicted_n) - alone_n)  # grows with rho
    tempered_nj = known.log_q_nj / (alone_n + excess_n)[:, None]
    log_p_nj = log_softmax(tempered_nj + shift_j, axis=1)
    excess_nj = np.exp(log_p_nj) - np.eye(shift_j.size)[known.truth_n]
    by_log_rho = -((excess_nj * tempered_nj).sum(axis=1) @ (excess_n / (alone_n + excess_n)))
    log_p = log_p_nj[np.arange(known.truth_n.size), known.truth_n].sum()
    return float(log_p), float(by_log_rho), excess_nj.sum(axis=0)


def residual_temperature(consensus: Consensus) -> float:
    """Return the temperature >= 1 that the models of a consensus need if they alone predict an item."""
    informativeness = float(consensus.parameters.get(MODEL_INFORMATIVENESS, np.array(1.0)))
    return 1 + informativeness * (float(consensus.parameters.get(RESIDUAL, np.array(1.0))) - 1)


def beliefs_for_gain(evidence: Evidence, consensus: Consensus) -> Floats:
    """Return (N, J) beliefs for computing the gain of the next label.

    Labels count by their annotators' confusion matrices, untempered, as the next label does. With models, the design
    effect grows with the labels of an item, so with tempered beliefs the same few items would be asked about again and
    again (CIFAR-10H: 99 % is not reached with 11,000 labels, but with 7,400 by these beliefs). Models count at the
    residual temperature that they need alone. If they were more confident, items without labels would seem done (with
    three networks, a tenth more labels were needed).
    """
    effect, residual = consensus.design_effect, residual_temperature(consensus)
    if not evidence.probabilities or (effect.independent and residual == 1):
        return consensus.probabilities
    annotations, predicted_n = evidence.annotations, evidence.predicted
    pi_klj = confusion_from(consensus, annotations, np.ones((annotations.n_classes, annotations.n_options)))
    log_q0_nj = effect.untemper(consensus.probabilities, annotations.labels_per_item, predicted_n)
    labels_nj = kernels.messages(annotations, np.log(np.maximum(pi_klj, SMALLEST)))
    models_nj = log_softmax(log_q0_nj, axis=1) - labels_nj
    return np.asarray(softmax(models_nj / np.where(predicted_n, residual, 1.0)[:, None] + labels_nj, axis=1))
