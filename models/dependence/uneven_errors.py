"""Whether annotators err together, told by how their errors lie.

Labels cannot tell a misleading item from a careless annotator: if all who look at it take a leopard for a jaguar, they
agree, and each predicts the other (on real crowds, labels that are held out are predicted best as if all erred
independently, and confidence is then far too high). But items that mislead leave a trace. They mislead from some
classes to some others, so that errors gather there; carelessness spreads evenly. Of twenty public crowds nineteen have
uneven errors. What this cannot see are misleading items that send all classes alike to all others.

    uneven    c_j ~ Beta(g c, g (1 - c))                            classes differ in how often they are recognised,
              errors of class j ~ Dirichlet(h s_l / (1 - s_j))      and in what they are taken for
    even      c_j = c,  errors of class j are l with s_l / (1 - s_j)

    P(together) = P0 B / (P0 B + 1 - P0)       B = Bayes factor of uneven against even

with g and h, each by itself, drawn from `UNEVENNESS`. The careless name all classes alike, s_l = 1 / J, or each as
often as it is named at all, s_l ~ labels + 1: either half of the times. Where nobody names a class, or by mistake, the
first alone would take the gap for uneven errors.

Counts are expected ones of all annotators, and an item with m labels counts (m - 2) / m of its labels: two are spent on
its class and on whether the first is right. So a thin table says nothing, and P stays P0. However even errors are, P is
LEAST at least.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import expit, gammaln, logit, logsumexp

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.numerics.sureness import Rows
from hitl.models.numerics.votes import labels_of_a_class

BEFOREHAND = 0.9
"""P0: of twenty public crowds with named annotators nineteen have uneven errors."""

LEAST = 0.12
"""What is left of P at least: errors that lie evenly may be shared all the same, and then nothing would tell."""

UNEVENNESS = np.array([3.0, 10.0, 30.0, 100.0])
"""Values of g and h, in labels: from very uneven to nearly even."""


def together(evidence: Evidence, q_nj: Floats) -> float:
    """Probability that annotators err together, in [LEAST, 1], by beliefs (N, J)."""
    return together_by(crowd_counts(evidence, q_nj))


def together_by(counts_lj: Floats) -> float:
    """The same by the counts of the crowd, which of shards add up."""
    return max(float(expit(logit(BEFOREHAND) + log_bayes_factor(counts_lj))), LEAST)


def crowd_counts(evidence: Evidence, q_nj: Floats) -> Floats:
    """(J, J) how often items of class j (column) were called l (row), weighed; answers that are no class left out."""
    annotations, classes = evidence.annotations, q_nj.shape[1]
    labels_n = labels_of_a_class(annotations)
    weight_n = np.where(evidence.known, 1.0, np.maximum(labels_n - 2, 0) / np.maximum(labels_n, 1))
    crowd = Rows(annotations.item_start, annotations.label, 1, annotations.n_options, classes)
    return kernels.counts(crowd, q_nj, weight_n)[0, :classes]


def log_bayes_factor(counts_lj: Floats) -> float:
    """ln p(counts | uneven) - ln p(counts | even); 0 without counts."""
    right_j, total_j = counts_lj.diagonal(), counts_lj.sum(axis=0)
    wrong_j = total_j - right_j
    hit = float((right_j.sum() + 7.5) / (total_j.sum() + 10))
    even = float(right_j.sum() * np.log(hit) + wrong_j.sum() * np.log1p(-hit))
    found = _mean_over(lambda g: _beta_binomial(g * hit, g * (1 - hit), right_j, wrong_j)) - even
    if len(right_j) > 2:
        found += _in_what_they_are_taken_for(counts_lj)
    return float(found)


def _in_what_they_are_taken_for(counts_lj: Floats) -> float:
    """ln p(errors | uneven) - ln p(errors | even)."""
    errors_lj, named_l = counts_lj.copy(), counts_lj.sum(axis=1)
    np.fill_diagonal(errors_lj, 0.0)  # nothing counted adds nothing to the likelihood
    uneven, even = [], []
    for weight_l in (np.ones_like(named_l), named_l + 1):
        share_l = weight_l / weight_l.sum()
        share_lj = share_l[:, None] / (1 - share_l)
        uneven.append(_mean_over(partial(_dirichlet_multinomial, share_lj, errors_lj)))
        even.append(float((errors_lj * np.log(share_lj)).sum()))
    return float(logsumexp(uneven) - logsumexp(even))


def _mean_over(log_likelihood: Callable[[float], float]) -> float:
    return float(logsumexp([log_likelihood(float(value)) for value in UNEVENNESS]) - np.log(UNEVENNESS.size))


def _beta_binomial(a: float, b: float, right_j: Floats, wrong_j: Floats) -> float:
    raised = gammaln(a + right_j) - gammaln(a) + gammaln(b + wrong_j) - gammaln(b)
    return float((raised - gammaln(a + b + right_j + wrong_j) + gammaln(a + b)).sum())


def _dirichlet_multinomial(share_lj: Floats, errors_lj: Floats, strength: float) -> float:
    """Log likelihood of the errors of each class (column), which are expected in these shares; none on the diagonal."""
    alpha_lj = strength * share_lj
    inside = (gammaln(alpha_lj + errors_lj) - gammaln(alpha_lj)).sum()
    return float(inside - (gammaln(strength + errors_lj.sum(axis=0)) - gammaln(strength)).sum())
