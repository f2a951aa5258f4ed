"""Prior of confusion rows, which shrinks them toward the crowd's behavior and the annotator's accuracy.

The hierarchy has three levels, each the prior of the next, so that matrices are only as detailed as labels support:

    crowd    c               one accuracy            Beta, `CROWD` labels at the expected accuracy, .75 by default
             mu_jl           how often class j is named correctly: Beta, `ROWS` labels at c; in the second reading G
                             how its errors are distributed: Dirichlet, one error for each other option
    person   c_k             one accuracy: Beta with strength S about e_k = sum_j (class mix of k) mu_jj
    row      pi_kj  ~  Dirichlet(R mu_kj)      mu_kj: row j of the crowd with its odds of being right
                                               multiplied by odds(c_k) / odds(e_k)

Each level is estimated by its posterior mean, given expected counts N_klj. The strengths S (how similar persons are),
G (how similar the recalls of classes are) and R (how similar a person's rows are to the crowd's) are geometric means
over the grid `STRENGTHS` of powers of two, weighted by the marginal likelihood of all persons, classes or rows
(Beta-binomial; R: Dirichlet-multinomial); ln S and ln G also have the prior N(ln 8, 1). A person with three labels is
estimated from the crowd, with thirty labels from their own accuracy, and with three thousand from their own rows.

Accuracies are over answers that are a class. How often an annotator gives another answer ("unsure") depends only on
the rows.

The crowd labels no class as another one more often than as itself: where it would, both chances are made equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats
from hitl.models.annotators.confusion import over_options
from hitl.models.numerics.special import log_gamma, log_gamma_rises

CROWD, ROWS = 20.0, 500.0
"""Number of pseudo-labels at the expected accuracy, and, in each class, at the crowd's accuracy. The recalls of real
crowds differ more (8 fits them best), and the second reading learns the number. Alone, for `ROWS` from 50 to
500 the mean log loss of thinned public crowds changes by .02 at most. With 100 the crowd's rows of rte collapse while
questions are chosen by uncertainty; with 300 and more they do not.
"""

STRENGTHS: Floats = np.exp2(np.arange(1, 8, dtype=np.float64))
"""Grid of strengths: numbers of pseudo-labels that the crowd adds to a person's own labels."""

USUAL_ALIKE = -((np.log(STRENGTHS) - np.log(8)) ** 2) / 2
"""Log prior of S over the grid."""

NEGLIGIBLE = 1e-15
"""Counts up to this size are left out of likelihoods. A million of them would add less than a thousandth."""

EDGE = 1e-3
"""Minimum distance of accuracies from 0 and 1."""


@dataclass(frozen=True, eq=False)
class Skills:
    """Expected rows of annotators, and of the crowd.

    Attributes:
        crowd_jl: (J, L) Dirichlet parameters of the rows of a new annotator.
        prior_klj: (K, L, J) prior Dirichlet parameters of the rows of each annotator.
    """

    crowd_jl: Floats
    prior_klj: Floats

    @classmethod
    def learned(cls, counts_klj: Floats, expected: float, recalls: float | None = ROWS) -> Skills:
        """Learn from expected counts (K, L, J).

        Args:
            expected: accuracy expected before any label is seen, in (0, 1).
            recalls: strength G of the prior of the crowd's recalls, in labels; None: learned.
        """
        options, classes = counts_klj.shape[1:]
        of_classes = counts_klj[:, :classes]
        right_k, said_kj = np.einsum("kjj->k", of_classes), over_options(of_classes)
        total_k = said_kj.sum(axis=1)
        accuracy = (CROWD * expected + right_k.sum()) / (CROWD + total_k.sum())
        accuracy = float(min(max(accuracy, 1 / options + EDGE), 1 - EDGE))
        counts_lj = counts_klj.sum(axis=0)
        if recalls is None:
            right_j, said_j = counts_lj[:classes].diagonal(), counts_lj.sum(axis=0)
            recalls = strength(beta_binomial(np.full(classes, accuracy), right_j, said_j), USUAL_ALIKE)
        crowd_lj = recalled(counts_lj, accuracy, recalls)
        hit_j = crowd_lj.diagonal() / crowd_lj[:classes].sum(axis=0)
        mix_kj = said_kj + 1e-9
        expected_k = np.clip(mix_kj @ hit_j / mix_kj.sum(axis=1), EDGE, 1 - EDGE)
        alike = strength(beta_binomial(expected_k, right_k, total_k), USUAL_ALIKE)
        skill_k = (alike * expected_k + right_k) / (alike + total_k)
        mean_klj = _at_skill(crowd_lj, _log_odds(skill_k) - _log_odds(expected_k))
        rows = strength(dirichlet_multinomial(mean_klj, counts_klj))
        mean_klj *= rows
        return cls(rows * crowd_lj.T, mean_klj)


def recalled(counts_lj: Floats, accuracy: float, strength: float) -> Floats:
    """Return (L, J) the crowd's chances of answers for each class. Columns sum to 1 and are largest at the diagonal.

    The recall of each class is Beta with `strength` labels at this accuracy.
    """
    classes = counts_lj.shape[1]
    right_j, wrong_lj = counts_lj[:classes].diagonal(), counts_lj + 1  # one error for each other option
    hit_j = (strength * accuracy + right_j) / (strength + counts_lj.sum(axis=0))
    np.fill_diagonal(wrong_lj[:classes], 0.0)
    rows_lj: Floats = wrong_lj * (1 - hit_j) / wrong_lj.sum(axis=0)
    np.fill_diagonal(rows_lj[:classes], np.maximum(hit_j, rows_lj.max(axis=0)))
    rows_lj /= rows_lj.sum(axis=0)
    return rows_lj


def _at_skill(crowd_lj: Floats, shift_k: Floats) -> Floats:
    """Return (K, L, J) the crowd's rows with `shift_k` added to the log odds of a right answer.

    Errors keep their proportions.
    """
    classes = crowd_lj.shape[1]
    diagonal = np.arange(classes)
    said_j = crowd_lj[:classes].sum(axis=0)
    hit_j = np.clip(crowd_lj.diagonal() / said_j, EDGE, 1 - EDGE)
    hit_kj = 1 / (1 + np.exp(-(_log_odds(hit_j) + shift_k[:, None])))
    errors_kj, right_kj = (1 - hit_kj) / (1 - hit_j), hit_kj * said_j
    wrong_j = said_j - crowd_lj.diagonal()
    total_kj = errors_kj * wrong_j + right_kj + crowd_lj[classes:].sum(axis=0)
    rows_klj = np.empty((len(shift_k), *crowd_lj.shape))
    np.multiply(crowd_lj[:classes], (errors_kj / total_kj)[:, None], out=rows_klj[:, :classes])
    np.multiply(crowd_lj[classes:], (1 / total_kj)[:, None], out=rows_klj[:, classes:])
    rows_klj[:, diagonal, diagonal] = right_kj / total_kj
    return rows_klj


def _log_odds(p: Floats) -> Floats:
    return np.asarray(np.log(p) - np.log1p(-p))


def strength(log_likelihood_s: Floats, log_prior: Floats | float = 0.0) -> float:
    """Return the geometric mean over the grid, weighted by these log likelihoods (S,)."""
    score = log_likelihood_s + log_prior
    weight = np.exp(score - score.max())
    return float(np.exp(weight @ np.log(STRENGTHS) / weight.sum()))


def beta_binomial(mean_k: Floats, right_k: Floats, total_k: Floats) -> Floats:
    """Return (S,) log likelihood of all annotators' right answers at each strength of the grid, up to a constant."""
    scale = STRENGTHS[:, None]
    a, b = scale * mean_k, scale * (1 - mean_k)
    raised = log_gamma(a + right_k) - log_gamma(a) + log_gamma(b + total_k - right_k) - log_gamma(b)
    raised -= log_gamma(scale + total_k)
    return np.asarray(raised.sum(axis=1) + len(mean_k) * log_gamma(STRENGTHS))


def dirichlet_multinomial(mean_klj: Floats, counts_klj: Floats) -> Floats:
    """Return (S,) log likelihood of all rows at each strength of the grid, up to a constant."""
    inside = log_gamma_rises(mean_klj, counts_klj, STRENGTHS, NEGLIGIBLE)
    total_kj = over_options(counts_klj)
    total_kj = total_kj[total_kj.any(axis=1)]
    totals = log_gamma(STRENGTHS[:, None, None] + total_kj).sum(axis=(1, 2))
    return np.asarray(inside - totals + total_kj.size * log_gamma(STRENGTHS))
