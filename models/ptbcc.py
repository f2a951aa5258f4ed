"""PTBCC (Chen, Feng & Zhang 2025, arXiv 2508.02123): all annotators share two prototypes of confusion matrices.

    z_n ~ Cat(p)      x_nk ~ Cat(w_k)      l_nk | z_n = j, x_nk = s ~ Cat(v_sj)
    p ~ Dir(nu_0)     w_k ~ Dir(b_k)       v_sj ~ Dir(a_sj)

Every label follows one of the prototypes, and annotators differ only in how often they follow each. So an annotator
with few labels needs an estimate of one number and not of J x (L - 1). Let v0 be the prototypes at the start: the first
gives the right answer `diagonal` times as often as each wrong one, the second gives each wrong answer `adverse` times
as often as the right one. With C_kjl the votes' expected counts of labels, the priors are, after the paper,

    a_sjl = 0.5 v0_sjl sum_k C_kjl + v0_sjl      b_ks = 0.4 sum_jl v0_sjl C_kjl + 1 / 2      nu_0j = votes for j + 1

Variational Bayes with q(z, x) q(p) q(w) q(v): the pair (z_n, x_nk) has one joint posterior, and x is summed out,

    ln pi_kjl = ln sum_s exp(E ln w_ks + E ln v_sjl)             an annotator model of `inference.loop`
    r_skjl    = exp(E ln w_ks + E ln v_sjl) / pi_kjl             share of prototype s in these labels
    q(w_k) = Dir(b_k + sum_jl r_skjl C_kjl)                      q(v_sj) = Dir(a_sj + sum_k r_skjl C_kjl)

The objective is the bound: log evidence under exp(E ln p) and pi, less the divergences of q(p), q(w), q(v) from the
priors. Departures from the paper:

- It assumes q(z) q(x) (eqs. 7-14), so that a label's prototype depends on the mean belief about the item. The joint
  posterior has a higher bound for the same model and needs no value per label. It is not more accurate: on 18 public
  sets the mean accuracy is .808, and .811 with q(z) q(x), which reproduces the published figures.
- Its x has the same mean-field form in a; here a vote for j counts for prototype s by v0_sj alone. Votes are smoothed.
- The last terms of a, b and nu_0 are added, because without them annotators without labels have no prior.
- Three or four prototypes, which the paper tries as well, are less accurate there, and are left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import used_shards
from hitl.models.inference import em, uncompared, warm_start
from hitl.models.inference.engine import Shards, Sums
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.special import digamma
from hitl.models.numerics.votes import voted
from hitl.models.priors.shares import DirichletShares, log_beta

OF_WEIGHTS, OF_ROWS = 0.4, 0.5
"""Factors with which the votes enter the priors of the weights and of the prototypes."""

PROTOTYPES, WEIGHTS = "prototypes", "weights"
"""Names of the consensus parameters: (2, J, L) expected prototypes and (K, 2) expected weights of each annotator."""


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Dirichlet posteriors of the prototypes' rows and of the annotators' weights.

    Attributes:
        weight_prior_ks, row_prior_slj: (K, S) b and (S, L, J) a, the parameters of the priors.
        weight_ks, row_slj: parameters of the posteriors.
    """

    weight_prior_ks: Floats
    row_prior_slj: Floats
    weight_ks: Floats
    row_slj: Floats

    @classmethod
    def voted(cls, counts_klj: Floats, first_slj: Floats) -> Self:
        """Build prototypes at priors from counts of labels by the votes (K, L, J) and first prototypes (S, L, J)."""
        weight_ks = OF_WEIGHTS * np.einsum("klj,slj->ks", counts_klj, first_slj) + 1 / len(first_slj)
        row_slj = first_slj * (OF_ROWS * counts_klj.sum(axis=0) + 1)
        return cls(weight_ks, row_slj, weight_ks, row_slj)

    @cached_property
    def log_weight_ks(self) -> Floats:
        """(K, S) E ln w."""
        return np.asarray(digamma(self.weight_ks) - digamma(self.weight_ks.sum(axis=1, keepdims=True)))

    @cached_property
    def log_row_slj(self) -> Floats:
        """(S, L, J) E ln v."""
        return np.asarray(digamma(self.row_slj) - digamma(self.row_slj.sum(axis=1, keepdims=True)))

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) log probability of each answer, the prototype summed out."""
        return np.asarray(np.logaddexp(*(self._log_joint(s) for s in range(2))))

    def _log_joint(self, s: int) -> Floats:
        """Return (K, L, J) log probability of prototype s and each answer."""
        return np.asarray(self.log_weight_ks[:, s, None, None] + self.log_row_slj[s])

    def learn(self, counts_klj: Floats) -> Self:
        """Return the posteriors that maximize the bound, given expected counts (K, L, J)."""
        log_pi_klj = self.log_pi_klj
        parts = [counts_klj * np.exp(self._log_joint(s) - log_pi_klj) for s in range(2)]
        weight_ks = self.weight_prior_ks + np.stack([np.einsum("klj->k", part) for part in parts], axis=1)
        row_slj = self.row_prior_slj + np.stack([part.sum(axis=0) for part in parts])
        return replace(self, weight_ks=weight_ks, row_slj=row_slj)

    def log_density(self) -> float:
        """Return minus the divergence of the posteriors from the priors."""
        rows, row_prior = self.row_slj.swapaxes(1, 2), self.row_prior_slj.swapaxes(1, 2)
        evidence = (log_beta(rows) - log_beta(row_prior)).sum()
        evidence += (log_beta(self.weight_ks) - log_beta(self.weight_prior_ks)).sum()
        explained = ((self.row_slj - self.row_prior_slj) * self.log_row_slj).sum()
        return float(evidence - explained - ((self.weight_ks - self.weight_prior_ks) * self.log_weight_ks).sum())

    def report(self, shards: Shards, counts_klj: Floats, share_j: Floats) -> AnnotatorReport:
        """Report annotators by the matrices of the fit, each row with the weight of its labels and of one more."""
        pi_kjl = np.exp(self.log_pi_klj).transpose(0, 2, 1)
        pi_kjl /= pi_kjl.sum(axis=2, keepdims=True)
        seen_kj = confusion.over_options(counts_klj) + 1
        return confusion.report_of(shards.annotations, seen_kj[:, :, None] * pi_kjl, share_j)


@dataclass(frozen=True, slots=True)
class PTBCC:
    """Bayesian classifier combination with two confusion matrices that all annotators share.

    The result's `parameters` are the expected "prototypes" (2, J, L), and the "weights" (K, 2) with which each
    annotator follows them.

    Attributes:
        diagonal: how many times as likely as each wrong answer the right one is in the first prototype at the start,
            > 0.
        adverse: how many times as likely as the right answer each wrong one is in the second, > 0.
        least_labels: minimum number of labels of an item to learn from it, unless its truth is known.
        tolerance: iterations stop when one gains less than this, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.PTBCC().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    tables: ClassVar[int] = 9
    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    diagonal: float = 5.0
    adverse: float = 1.35
    least_labels: int = 1
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from the votes or from `start`."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        first_slj = self._first(shards.annotations.n_classes, shards.annotations.n_options)
        counts_klj, votes_j = shards.total(_votes)
        people = Prototypes.voted(counts_klj, first_slj)
        found = uncompared.run_em(
            shards,
            DirichletShares(votes_j + 1, votes_j + 1),
            people,
            partial(warm_start.first_beliefs, start=start, unmet_jl=first_slj[0].T),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        report = found.annotators.report(shards, found.counts_klj, found.prior.share_j)
        rows, weights = found.annotators.row_slj.swapaxes(1, 2), found.annotators.weight_ks
        parameters = {
            PROTOTYPES: rows / rows.sum(axis=2, keepdims=True),
            WEIGHTS: weights / weights.sum(axis=1, keepdims=True),
        }
        return em.concluded(self, began, shards, found, report, parameters=parameters)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, labeled by the same annotators or by new ones, who answer like the crowd's mean."""
        first_jl = self._first(evidence.annotations.n_classes, evidence.annotations.n_options)[0].T
        unmet_jl = confusion.crowd_rows(consensus.annotators, evidence.annotations, first_jl)
        return warm_start.applied(consensus, evidence, unmet_jl)

    def _first(self, n_classes: int, n_options: int) -> Floats:
        """Return (2, L, J) the prototypes at the start."""
        weights = (self.diagonal, 1.0), (1.0, self.adverse)
        first = np.stack([confusion.on_the_diagonal(n_classes, n_options, *each).T for each in weights])
        return np.asarray(first / first.sum(axis=1, keepdims=True))


def _votes(evidence: Evidence) -> Sums:
    """Return counts (K, L, J) of labels and numbers (J,) of items by the votes; items without labels do not count."""
    votes_nj = voted(evidence)
    counted_n = em.informative(evidence, 1)
    return Sums((kernels.counts(evidence.annotations, votes_nj), kernels.totals(votes_nj, counted_n)))
