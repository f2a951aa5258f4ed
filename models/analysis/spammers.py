"""Find annotators who answer without looking: three ways to answer, compared annotator by annotator.

    works      pi[j] ~ Dir(a_j) for each class j           a learned from the crowd
    spams      pi[j] = phi for every j, phi ~ Dir(1/2)     answers carry no information about the class
    misleads   pi[j] ~ Dir(w_j), little mass on j          answers carry information, but are systematically wrong

    p(way | labels)  ∝  share[way] p(labels of k | way)

With q_nj the others' beliefs about the items (`leave_one_out`), the likelihood of a confusion matrix is prod_n sum_j
q_nj pi[j, l_n]. For spammers it is integrated over phi exactly (a Dirichlet-multinomial). For the other ways,
variational Bayes gives a lower bound (Simpson 2011, eqs. 14-22, for one annotator), which is exact if the others are
certain:

    r_nj ∝ q_nj exp E log pi[j, l_n],   pi[j] ~ Dir(a_j + sum_n r_nj 1[l_n = l])
    log p(labels | works)  >=  sum_n log sum_j q_nj exp E log pi[j, l_n]  -  sum_j KL(Dir(a_j + counts) || Dir(a_j))

A few rounds of EM over the annotators learn the shares of the three ways and the crowd's a (fixed point of Minka 2000,
anchored). Annotators who work also count as uninformative if their labels almost certainly carry little information.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln, logsumexp

from hitl.annotations import Annotations, Floats
from hitl.models.analysis.information import entropy, information
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.annotators.leave_one_out import Others, some_rows

WORKS, SPAMS, MISLEADS = 0, 1, 2
"""Columns of the ways to answer."""

SHARES, ANNOTATORS = np.array([0.88, 0.1, 0.02]), 10.0
"""Expected shares of the three ways, and the weight of that expectation, in annotators."""

ACCURACY, STRENGTH = 0.7, 4.0
"""Expected accuracy of annotators who work, and the weight of that expectation, in labels per class."""

ROUNDS = 6
"""Number of rounds of EM over all annotators."""

LEAST_INFORMATION = 0.02
"""A label with less than this share of the entropy of the class is uninformative.

With two equally frequent classes, this is an accuracy of 58 %.
"""

DRAWS = 200
"""Number of draws from the posterior of each matrix."""

ONE_ROW = 0.5
"""Dirichlet parameter of a spammer's row: random answers and always the same answer are both likely."""

MOST_LABELS, LEAST_LABELS, MOST_CELLS = 1000, 30, 30_000_000
"""Maximum number of labels used per annotator. It is lowered to bound memory, to LEAST_LABELS at least: labels times
classes of all annotators stay below MOST_CELLS.
"""

TINY = 1e-300
"""Added to gamma draws, which may all underflow to 0."""

ALMOST_ALWAYS = 0.9
"""A spammer who gives one answer at least this often is said to always give it; other spammers answer at random."""


@dataclass(frozen=True, eq=False)
class WaysToAnswer:
    """Estimated ways in which K annotators answer: working, spamming or misleading.

    Attributes:
        probability: (K, 3) probabilities of working, spamming and misleading; rows sum to 1. Annotators without labels
            have the shares of the crowd.
        answers: (K, L) frequency of each answer, whatever the class; rows sum to 1.
        shares: (3,) frequency of each way in this crowd; sums to 1.
        confusion: (K, J, L) confusion matrices by the others' beliefs, if the annotator works; rows sum to 1.
        uninformative: (K,) probability of spamming, or of working with less than LEAST_INFORMATION.
    """

    probability: Floats
    answers: Floats
    shares: Floats
    confusion: Floats
    uninformative: Floats

    @property
    def misleads(self) -> Floats:
        """(K,) probability of misleading."""
        return self.probability[:, MISLEADS]

    @property
    def favourite(self) -> npt.NDArray[np.int64]:
        """(K,) code of the answer given almost always, or -1."""
        return np.where(self.answers.max(axis=1, initial=0) >= ALMOST_ALWAYS, self.answers.argmax(axis=1), -1)


def compare_ways(annotations: Annotations, others: Others, share_j: Floats) -> WaysToAnswer:
    """Compare the three ways for each annotator, given class shares (J,); the anonymous pool stays at the prior."""
    j, options = annotations.n_classes, annotations.n_options
    rows = some_rows(
        annotations, max(min(MOST_LABELS, MOST_CELLS // max(1, annotations.n_annotators * j)), LEAST_LABELS)
    )
    crowd = Crowd(annotations, rows, others.beliefs(rows))
    expected_jl = on_the_diagonal(j, options, STRENGTH * ACCURACY, STRENGTH * (1 - ACCURACY) / (options - 1))
    misleading_jl = on_the_diagonal(j, options, 0.2 / (options - 1), 2.0 / (options - 1))
    spam_k = crowd.evidence_of_one_row()
    mislead_k, _ = crowd.evidence_of_matrices(misleading_jl, crowd.counts(crowd.q_mj), sweeps=8)
    share_w, working_jl, counts_cj = SHARES, expected_jl, crowd.counts(crowd.q_mj)
    for _ in range(ROUNDS):
        work_k, counts_cj = crowd.evidence_of_matrices(working_jl, counts_cj, sweeps=3)
        log_p_kw = np.stack([work_k, spam_k, mislead_k], axis=1) + np.log(share_w)
        p_kw = np.exp(log_p_kw - logsumexp(log_p_kw, axis=1, keepdims=True))
        share_w = ANNOTATORS * SHARES + p_kw[crowd.labels_k > 0].sum(axis=0)
        share_w /= share_w.sum()
        working_jl = crowd.prior(counts_cj, p_kw[:, WORKS], working_jl, expected_jl)
    posterior_kjl = crowd.posterior(working_jl, counts_cj)
    confusion_kjl = posterior_kjl / posterior_kjl.sum(axis=2, keepdims=True)
    in_vain_k = p_kw[:, WORKS] * _chance_of_little(posterior_kjl, confusion_kjl, share_j)
    return WaysToAnswer(p_kw, crowd.answers(), share_w, confusion_kjl, p_kw[:, SPAMS] + in_vain_k)


def _chance_of_little(posterior_kjl: Floats, mean_kjl: Floats, share_j: Floats) -> Floats:
    """Return (K,) the probability that labels carry less than LEAST_INFORMATION, given Dirichlet rows."""
    rng = np.random.default_rng(0)
    least = LEAST_INFORMATION * entropy(share_j)
    chance_k = np.zeros(len(posterior_kjl))
    doubtful = np.flatnonzero(information(mean_kjl, share_j) < 5 * least)  # draws tend to carry more than the mean
    for _ in range(DRAWS):
        drawn_kjl = rng.standard_gamma(posterior_kjl[doubtful]) + TINY
        drawn_kjl /= drawn_kjl.sum(axis=2, keepdims=True)
        chance_k[doubtful] += information(drawn_kjl, share_j) < least
    return chance_k / DRAWS


class Crowd:
    """Labels in use, with the others' beliefs. Counts cover the C observed pairs of annotator and answer, not K x L."""

    def __init__(self, annotations: Annotations, rows: npt.NDArray[np.intp], q_mj: Floats) -> None:
        self.q_mj = q_mj
        self._annotators, self._options = annotations.n_annotators, annotations.n_options
        cell_m = annotations.annotator[rows] * np.int64(self._options) + annotations.label[rows]
        cell_c, self._pair_m = np.unique(cell_m, return_inverse=True)
        self._k_c, self._l_c = np.divmod(cell_c, max(1, self._options))
        self._k_m = self._k_c[self._pair_m]
        answers = np.bincount(cell_m, minlength=self._annotators * self._options)
        self._answers_kl = answers.reshape(self._annotators, self._options).astype(np.float64)
        self.labels_k = self._answers_kl.sum(axis=1)

    def counts(self, r_mj: Floats) -> Floats:
        """Return (C, J) expected labels by class."""
        return _summed(self._pair_m, r_mj, len(self._k_c))

    def answers(self) -> Floats:
        """Return (K, L) the posterior mean of a spammer's one row."""
        raised = self._answers_kl + ONE_ROW
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def posterior(self, a_jl: Floats, counts_cj: Floats) -> Floats:
        """Return (K, J, L) Dirichlet parameters of all matrices."""
        posterior_kjl = np.repeat(a_jl[None], self._annotators, axis=0)
        posterior_kjl[self._k_c, :, self._l_c] += counts_cj
        return posterior_kjl

    def evidence_of_one_row(self) -> Floats:
        """Return (K,) the log probability of the labels if the annotator spams, with the row integrated out."""
        one_l = np.full(self._options, ONE_ROW)
        raised_kl = self._answers_kl + one_l
        raised = gammaln(raised_kl).sum(axis=1) - gammaln(raised_kl.sum(axis=1))
        return np.asarray(raised - gammaln(one_l).sum() + gammaln(one_l.sum()))

    def evidence_of_matrices(self, a_jl: Floats, counts_cj: Floats, sweeps: int) -> tuple[Floats, Floats]:
        """Return (K,) the bound on the log probability of the labels if rows ~ Dir(a_j), and (C, J) expected counts.

        Sweeps start at `counts_cj`; each raises the bound.
        """
        a_cj, total_j = a_jl.T[self._l_c], a_jl.sum(axis=1)
        for _ in range(sweeps):
            labels_kj = _summed(self._k_c, counts_cj, self._annotators)
            log_pi_cj = digamma(a_cj + counts_cj) - digamma(total_j + labels_kj)[self._k_c]
            r_mj = self.q_mj * np.exp(log_pi_cj)[self._pair_m]
            p_m = r_mj.sum(axis=1)
            fit_k = np.bincount(self._k_m, weights=np.log(p_m), minlength=self._annotators)
            moved_cj = counts_cj * log_pi_cj + gammaln(a_cj) - gammaln(a_cj + counts_cj)
            divergence_k = np.sum(gammaln(total_j + labels_kj) - gammaln(total_j), axis=1)
            divergence_k += np.bincount(self._k_c, weights=moved_cj.sum(axis=1), minlength=self._annotators)
            bound_k = fit_k - divergence_k
            counts_cj = self.counts(r_mj / p_m[:, None])
        return bound_k, counts_cj

    def prior(self, counts_cj: Floats, weight_k: Floats, a_jl: Floats, anchor_jl: Floats, sweeps: int = 2) -> Floats:
        """Return (J, L) Dirichlet parameters of the rows of weighted annotators, by Minka's fixed point from `a_jl`.

        `anchor_jl` regularizes them: without labels they equal the anchor.
        """
        labels_kj = _summed(self._k_c, counts_cj, self._annotators)
        for _ in range(sweeps):
            a_cj, total_j = a_jl.T[self._l_c], a_jl.sum(axis=1)
            gained_cj = weight_k[self._k_c, None] * (digamma(a_cj + counts_cj) - digamma(a_cj))
            up_jl = _summed(self._l_c, gained_cj, self._options).T
            down_j = np.einsum("k,kj->j", weight_k, digamma(labels_kj + total_j) - digamma(total_j))
            a_jl = (a_jl * up_jl + anchor_jl) / (down_j + 1)[:, None]
        return a_jl


def _summed(group_m: npt.NDArray[Any], values_mj: Floats, groups: int) -> Floats:
    """Return (groups, J) sums of the rows of each group."""
    return np.stack([np.bincount(group_m, weights=column, minlength=groups) for column in values_mj.T], axis=1)
