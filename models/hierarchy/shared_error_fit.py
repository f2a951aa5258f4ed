"""Dawid–Skene for many classes: one accuracy per annotator, and errors distributed like the crowd's.

    pi_kjl = c_k                 l = j
             (1 - c_k) e_jl      else

because full matrices (K, J, L) would be much larger than the labels that they are learned from.

    c      the crowd's accuracy: Beta, `CROWD` labels at the expected accuracy
    c_k    an annotator's: Beta with strength S about c                                (S c + right_k) / (S + said_k)
    e_jl   the crowd's errors on class j: Dirichlet of strength a, even over l         (N_jl + a / (L - 1)) / (N_j + a)

with expected counts by beliefs q, in which item n has weight u_n (`counted`). S and a are learned as in `skills`, by
the marginal likelihood of all annotators and of all classes. Expectations and parameters alternate until beliefs
converge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.annotators.mean_rows import by_item, messages, sums
from hitl.models.hierarchy.counted import Weighed, WeighedShares
from hitl.models.hierarchy.skills import CROWD, EDGE, STRENGTHS, USUAL_ALIKE, beta_binomial, strength
from hitl.models.inference.observed_outputs import Observed
from hitl.models.numerics.clamping import observe
from hitl.models.numerics.special import log_gamma
from hitl.models.priors import Mask
from hitl.tables.shared_errors import SharedErrors, as_array

MANY_CLASSES, LARGE = 128, 2**22
"""Minimum number of classes, and of cells of full matrices, for annotators to have the same errors."""

SPARSE = 4
"""Number of labels per row of full matrices below which annotators have the same errors. More can teach single rows."""

LEAST = 1e-6
"""Largest belief, and count of an error, that is left out of the counts of errors."""

MOST_ITERATIONS, AT_REST = 200, 1e-6
"""Stopping rule: maximum iterations, and the mean change of an item's beliefs, summed over classes."""


def has_few_labels_for_its_classes(annotations: Annotations) -> bool:
    """Return True if full confusion matrices would be large, and labels too few for their size."""
    rows = annotations.n_annotators * annotations.n_options
    many = annotations.n_classes >= MANY_CLASSES and rows * annotations.n_classes >= LARGE
    return many and len(annotations) < SPARSE * rows


@dataclass(frozen=True, eq=False)
class SharedErrorFit:
    """Beliefs (N, J), class shares, the annotators' chances of answers, and the log evidence of each iteration."""

    q_nj: Floats
    prior: Observed[WeighedShares]
    chances: SharedErrors
    objective: tuple[float, ...]
    converged: bool

    def report(self, annotations: Annotations) -> AnnotatorReport:
        """Report the annotators."""
        chances = self.chances
        labels_k = annotations.labels_per_annotator
        alpha = SharedErrors(chances.right_k, labels_k.astype(np.float64) + CROWD, chances.even_j, chances.seen)
        return AnnotatorReport(
            names=annotations.annotators,
            classes=annotations.classes,
            options=annotations.options,
            concentration=as_array(alpha),
            confusion=as_array(chances),
            labels=labels_k,
            shares=self.prior.prior.share_j,
        )


def fit_shared_errors(
    evidence: Evidence,
    q_nj: Floats,
    prior: Observed[WeighedShares],
    weighed: Weighed,
    informative_n: Mask,
    accuracy: float,
) -> SharedErrorFit:
    """Fit from first beliefs (N, J), which are overwritten.

    `accuracy`: accuracy expected of annotators before any label is seen, in (0, 1).
    """
    labels = _Labels(evidence.annotations, weighed)
    trace: list[float] = []
    prior = prior.learn(prior.statistics(q_nj, informative_n))
    converged = False
    while not converged and len(trace) < MOST_ITERATIONS:
        chances = labels.learn(q_nj, accuracy)
        found = prior.posterior(observe(messages(evidence.annotations, as_array(chances)), evidence), informative_n)
        trace.append(found.log_evidence)
        q_nj -= found.q_nj
        moved = float(np.abs(q_nj, out=q_nj).sum()) / max(1, len(q_nj))
        q_nj, prior = found.q_nj, prior.learn(found.statistics)
        converged = moved < AT_REST
    return SharedErrorFit(q_nj, prior, labels.learn(q_nj, accuracy), tuple(trace), converged)


class _Labels:
    """Labels as sparse tables, from which parameters are learned given beliefs."""

    def __init__(self, annotations: Annotations, weighed: Weighed) -> None:
        self.annotations, self.weight_n = annotations, weighed.weight_n
        self.weight_m = weighed.weight_n[annotations.item]
        self.counts_nl = by_item(annotations, np.ones(len(annotations)))

    def learn(self, q_nj: Floats, accuracy: float) -> SharedErrors:
        a = self.annotations
        classes, options, annotators = a.n_classes, a.n_options, a.n_annotators
        of_class = a.label < classes
        right_m = np.where(of_class, q_nj[a.item, np.minimum(a.label, classes - 1)], 0.0) * self.weight_m
        right_k = sums(a.annotator, right_m, annotators)
        said_k = sums(a.annotator, self.weight_m, annotators)
        crowd = (CROWD * accuracy + right_k.sum()) / (CROWD + said_k.sum())
        crowd = float(np.clip(crowd, 1 / options + EDGE, 1 - EDGE))
        alike = strength(beta_binomial(np.full(annotators, crowd), right_k, said_k), USUAL_ALIKE)
        skill_k = np.clip((alike * crowd + right_k) / (alike + said_k), EDGE, 1 - EDGE)
        believed_nj = sparse.csr_array(np.where(q_nj > LEAST, q_nj, 0.0))
        errors = sparse.coo_array(believed_nj.T @ (sparse.diags_array(self.weight_n) @ self.counts_nl))
        wrong = (errors.row != errors.col) & (errors.data > LEAST)
        seen = sparse.csr_array((errors.data[wrong], (errors.row[wrong], errors.col[wrong])), shape=(classes, options))
        even, total_j = 1 / (options - 1), np.asarray(seen.sum(axis=1)).ravel()
        concentration = strength(_dirichlet_multinomial(seen.data, total_j, even))
        seen.data /= np.repeat(total_j + concentration, np.diff(seen.indptr))
        return SharedErrors(skill_k, np.ones(annotators), concentration * even / (total_j + concentration), seen)


def _dirichlet_multinomial(counts: Floats, total_j: Floats, even: float) -> Floats:
    """Return (S,) log likelihood of the crowd's errors at each strength of the grid, up to a constant."""
    alpha = STRENGTHS[:, None] * even
    inside = (log_gamma(alpha + counts) - log_gamma(alpha)).sum(axis=1)
    filled_j = total_j[total_j > 0]
    of_totals = log_gamma(STRENGTHS[:, None] + filled_j) - log_gamma(STRENGTHS[:, None])
    return np.asarray(inside - of_totals.sum(axis=1))
