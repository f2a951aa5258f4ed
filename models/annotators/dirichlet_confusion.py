"""Annotator model of confusion rows with Dirichlet posteriors, and a learned prior shared by all annotators.

    pi_kj ~ Dir(a_j)                  row j of all annotators' confusion matrices comes from one Dirichlet
    q(pi_kj) = Dir(a_j + N_kj)        E ln pi_kjl = psi(a_jl + N_kjl) - psi(A_j + N_kj.)    (Simpson 2011, 22, 23)

Empirical Bayes: a_jl ~ Gamma(a0_jl + 1, 1), whose mode is a0, and a is the maximum of

    sum_k [ ln B(a_j + N_kj) - ln B(a_j) ] + sum_l (a0_jl ln a_jl - a_jl)      subject to a_jj >= a_jl

(B the multivariate beta function, A_j = sum_l a_jl), by Minka's fixed point: with

    s_jl = a_jl sum_k [psi(N_kjl + a_jl) - psi(a_jl)] + a0_jl      c_j = sum_k [psi(N_kj. + A_j) - psi(A_j)] + 1

a_jl <- s_jl / c_j never lowers it. (For whole counts Minka bounds ln G(n + x) / G(x) by its tangent in ln x. For
expected ones, x^2 (psi(n + x) - psi(x)) rises in x for every n > 0: so the objective lies above k - b / x + a0 ln x -
c x, which touches it at the current x, and the step from x to x' = s / c gains at least a0 (ln(x' / x) + x / x' - 1)
>= 0 of that.) The constraint says that no annotator is expected to be systematically wrong; it holds exactly where the
options that exceed the diagonal share one value with it (pool adjacent violators). So an annotator with three labels
is estimated from the crowd, one with three thousand from their own labels.

Anchor: with weight w in [0, 1) everything is learned from (1 - w) N + w V, where V counts labels with shares of the
item's agreeing pairs of votes in place of beliefs. This is coordinate ascent of a bound in which every item counts
(1 - w) with its latent class, and w as if two agreeing annotators had been drawn and had known its class. So no class
can drift away from those who vote for it. Divided by (1 - w), the bound's parts are the usual ones and the densities
below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.models.annotators import confusion, shared_prior
from hitl.models.annotators.shared_prior import largest_on_the_diagonal as largest_on_the_diagonal
from hitl.models.inference import working_set
from hitl.models.numerics.special import digamma, log_gamma
from hitl.models.priors.shares import log_beta

SWEEPS = 5
"""Fixed-point sweeps per iteration; each raises the objective. With 5 the prior keeps up with the beliefs and needs
half the iterations that 2 take.
"""


@dataclass(frozen=True, eq=False)
class DirichletConfusion:
    """Dirichlet posteriors of all confusion rows.

    Attributes:
        hyper_jl: (J, L) a0, the mode of the hyperprior.
        prior_jl: (J, L) a, the current shared prior.
        counts_klj: (K, L, J) expected counts learned from, anchored.
        shared: True if `learn` learns a, else it stays at a0.
        anchor: w, weight of the votes in the counts, in [0, 1).
        votes_klj: (K, L, J) V, counts by the shares of agreeing pairs.
        newton: True if a is learned by Newton steps (`shared_prior`), which pay off for large tables.
    """

    hyper_jl: Floats
    prior_jl: Floats
    counts_klj: Floats
    shared: bool = True
    anchor: float = 0.0
    votes_klj: Floats | float = 0.0
    newton: bool = False

    @classmethod
    def unlearned(cls, hyper_jl: Floats, n_annotators: int, shared: bool = True) -> DirichletConfusion:
        """Build all annotators at the prior."""
        return cls(hyper_jl, hyper_jl, np.zeros((n_annotators, *hyper_jl.T.shape)), shared)

    @property
    def alpha_klj(self) -> Floats:
        """(K, L, J) Dirichlet parameters of the posteriors."""
        return np.asarray(self.counts_klj + self.prior_jl.T)

    @cached_property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) E ln pi (eq. 23)."""
        alpha_klj = self.alpha_klj
        return np.asarray(digamma(alpha_klj) - digamma(confusion.over_options(alpha_klj))[:, None])

    def learn(self, counts_klj: Floats) -> Self:
        learned_klj = (1 - self.anchor) * counts_klj + self.anchor * self.votes_klj if self.anchor else counts_klj
        prior_jl = self.prior_jl
        if self.shared and self.newton:
            prior_jl = shared_prior.fitted(prior_jl, learned_klj, self.hyper_jl)
        for _ in range(SWEEPS if self.shared and not self.newton else 0):
            prior_jl = raised(prior_jl, learned_klj, self.hyper_jl)
        return replace(self, counts_klj=learned_klj, prior_jl=prior_jl)

    def log_density(self) -> float:
        alpha_klj = self.alpha_klj
        total_kj = confusion.over_options(alpha_klj)
        evidence = log_gamma(alpha_klj).sum() - log_gamma(total_kj).sum()
        evidence -= len(alpha_klj) * log_beta(self.prior_jl).sum()
        latent_klj = self.counts_klj - self.anchor * self.votes_klj if self.anchor else self.counts_klj
        explained = np.einsum("klj,klj->", latent_klj, self.log_pi_klj)
        hyper = log_hyper_density(self.prior_jl, self.hyper_jl) if self.shared else 0.0
        return float((evidence - explained + hyper) / (1 - self.anchor))


@dataclass(frozen=True, eq=False)
class DirichletRows:
    """Kind of annotators with Dirichlet posteriors of confusion rows; `hyper_jl` and `shared` as in the model."""

    hyper_jl: Floats
    shared: bool = True

    def at_start(self, annotations: Annotations, start: Consensus | None) -> DirichletConfusion:
        """Build all annotators at the shared prior: that of `start` if it has the same classes and options."""
        people = DirichletConfusion.unlearned(self.hyper_jl, annotations.n_annotators, self.shared)
        people = replace(people, newton=working_set.is_large(len(annotations), people.counts_klj.size))
        if start is None or not confusion.same_codes(start.annotators, annotations.classes, annotations.options):
            return people
        learned_jl = start.annotators.prior if self.shared else None
        return people if learned_jl is None else replace(people, prior_jl=learned_jl)

    def log_pi(self, learned: Consensus, annotations: Annotations) -> Floats:
        """Return (K, L, J) E ln pi of these annotators from the learned parameters."""
        alpha_klj = learned_concentration(learned.annotators, self.hyper_jl, annotations).transpose(0, 2, 1)
        return np.asarray(digamma(alpha_klj) - digamma(alpha_klj.sum(axis=1, keepdims=True)))

    def report(self, annotations: Annotations, found: Any, share_j: Floats) -> AnnotatorReport:
        """Report the posteriors of annotators, and the shared prior for new annotators."""
        return report(annotations, found.annotators, share_j)


def report(annotations: Annotations, annotators: DirichletConfusion, share_j: Floats) -> AnnotatorReport:
    """Report the posteriors of annotators, and the shared prior for new annotators."""
    alpha_kjl = annotators.alpha_klj.transpose(0, 2, 1)
    return confusion.report_of(annotations, alpha_kjl, share_j, prior=annotators.prior_jl)


def learned_concentration(learned: AnnotatorReport, hyper_jl: Floats, annotations: Annotations) -> Floats:
    """Return (K, J, L) learned Dirichlet parameters; a new annotator gets the learned prior."""
    known = confusion.same_codes(learned, annotations.classes, annotations.options)
    unmet_jl = learned.prior if known and learned.prior is not None else hyper_jl
    return confusion.matched(learned, learned.concentration, unmet_jl, annotations)


def log_hyper_density(prior_jl: Floats, hyper_jl: Floats) -> float:
    """Return the log density of the shared prior, up to a constant."""
    return float((hyper_jl * np.log(prior_jl) - prior_jl).sum())


def raised(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> Floats:
    """Return (J, L) the shared prior after one fixed-point sweep, which never lowers its objective."""
    gained_jl = digamma(counts_klj + prior_jl.T).sum(axis=0).T - len(counts_klj) * digamma(prior_jl)
    total_j = prior_jl.sum(axis=1)
    cost_j = (digamma(confusion.over_options(counts_klj) + total_j) - digamma(total_j)).sum(axis=0) + 1
    return np.asarray(largest_on_the_diagonal(prior_jl * gained_jl + hyper_jl) / cost_j[:, None])
