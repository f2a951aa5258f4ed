"""Detect whether annotators err together from how their errors are distributed.

Agreement does not distinguish misleading items from careless annotators: if everyone mistakes a leopard for a jaguar,
they agree, and their labels predict each other. (On real crowds, a model of independent errors predicts held-out labels
best, yet its confidence is far too high.) But misleading items leave a trace. They turn some classes into some others,
so errors gather there, while careless errors spread evenly. Nineteen of twenty public crowds have uneven errors. Items
that mislead from every class to all others alike cannot be detected this way.

    uneven    c_j ~ Beta(g c, g (1 - c))                      classes differ in how often they are recognized,
              errors of class j ~ Dirichlet(h / (J - 1))      and in what they are mistaken for
    even      c_j = c,  errors of class j each 1 / (J - 1)

with g and h drawn independently from `UNEVENNESS`, and c = (right + 7.5) / (labels + 10). The counts are expected
counts over all annotators. An item of unknown truth with m labels counts (m - 2) / m of its labels, because two are
spent on its class and on whether the first is right. So a table with at most two labels per item carries no
information.

The targets of errors are compared among classes with at least LEAST_RIGHT right labels. A class that annotators never
name, or name only by accident, has no items. That no errors go there looks uneven, but carries no information.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, logsumexp

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.numerics.kernels import Rows
from hitl.models.numerics.votes import labels_of_a_class

LEAST_RIGHT = 1.0
"""Minimum expected number of right labels of a class. With less than one, nothing shows that it has items."""

UNEVENNESS = np.array([3.0, 10.0, 30.0, 100.0])
"""Values of g and h, in labels: from very uneven to nearly even."""


def crowd_counts(evidence: Evidence, q_nj: Floats) -> Floats:
    """Return (J, J) weighted counts: items of class j (column) were labeled l (row); non-class answers are left out."""
    annotations, classes = evidence.annotations, q_nj.shape[1]
    labels_n = labels_of_a_class(annotations)
    weight_n = np.where(evidence.known, 1.0, np.maximum(labels_n - 2, 0) / np.maximum(labels_n, 1))
    crowd = Rows(annotations.item_start, annotations.label, 1, annotations.n_options, classes)
    return kernels.counts(crowd, q_nj, weight_n)[0, :classes]


def log_bayes_factor(counts_lj: Floats) -> float:
    """Return ln p(counts | uneven) - ln p(counts | even); 0 without counts."""
    right_j, total_j = counts_lj.diagonal(), counts_lj.sum(axis=0)
    wrong_j = total_j - right_j
    hit = float((right_j.sum() + 7.5) / (total_j.sum() + 10))
    even = float(right_j.sum() * np.log(hit) + wrong_j.sum() * np.log1p(-hit))
    found = _mean_over(lambda g: _beta_binomial(g * hit, g * (1 - hit), right_j, wrong_j)) - even
    has_items_j = right_j >= LEAST_RIGHT
    return float(found + _of_where_errors_go(counts_lj[np.ix_(has_items_j, has_items_j)]))


def _of_where_errors_go(counts_lj: Floats) -> float:
    """Return ln p(errors | uneven) - ln p(errors | even) of the targets of errors; 0 with fewer than three classes."""
    others = len(counts_lj) - 1
    if others < 2:
        return 0.0
    errors_lj = counts_lj.copy()
    np.fill_diagonal(errors_lj, 0.0)  # an empty count adds nothing to the likelihood
    even = float(-errors_lj.sum() * np.log(others))
    uneven = _mean_over(lambda h: _dirichlet_multinomial(h / others, errors_lj))
    return uneven - even


def _mean_over(log_likelihood: Callable[[float], float]) -> float:
    return float(logsumexp([log_likelihood(float(value)) for value in UNEVENNESS]) - np.log(UNEVENNESS.size))


def _beta_binomial(a: float, b: float, right_j: Floats, wrong_j: Floats) -> float:
    raised = gammaln(a + right_j) - gammaln(a) + gammaln(b + wrong_j) - gammaln(b)
    return float((raised - gammaln(a + b + right_j + wrong_j) + gammaln(a + b)).sum())


def _dirichlet_multinomial(alpha: float, errors_lj: Floats) -> float:
    """Return the log likelihood of the errors, summed over classes (columns); the diagonal of the counts is 0."""
    total = alpha * (len(errors_lj) - 1)
    inside = (gammaln(alpha + errors_lj) - gammaln(alpha)).sum()
    return float(inside - (gammaln(total + errors_lj.sum(axis=0)) - gammaln(total)).sum())
