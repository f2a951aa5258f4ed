"""Annotator model with Dirichlet posteriors of confusion rows, and a learned prior that all annotators share.

    pi_kj ~ Dir(a_j)                  row j of all annotators' confusion matrices comes from one Dirichlet
    q(pi_kj) = Dir(a_j + N_kj)        E ln pi_kjl = psi(a_jl + N_kjl) - psi(A_j + N_kj.)    (Simpson 2011, 22, 23)

Empirical Bayes: a_jl ~ Gamma(a0_jl + 1, 1), whose mode is a0, and a is the maximum of

    sum_k [ ln B(a_j + N_kj) - ln B(a_j) ] + sum_l (a0_jl ln a_jl - a_jl)      subject to a_jj >= a_jl

(B the multivariate beta function, A_j = sum_l a_jl), by Minka's fixed point: with

    s_jl = a_jl sum_k [psi(N_kjl + a_jl) - psi(a_jl)] + a0_jl      c_j = sum_k [psi(N_kj. + A_j) - psi(A_j)] + 1

the step a_jl <- s_jl / c_j never lowers the objective. (For whole counts Minka bounds ln G(n + x) / G(x) by its tangent
in ln x. For fractional counts, x^2 (psi(n + x) - psi(x)) rises in x for every n > 0. So the objective lies above
k - b / x + a0 ln x - c x, which touches it at the current x. The step from x to x' = s / c raises this bound by
a0 (ln(x' / x) + x / x' - 1) >= 0.) The constraint means that no annotator is expected to be systematically wrong. To
satisfy it, the diagonal and the options that exceed it share their mean (pool adjacent violators). With this prior, an
annotator with three labels is estimated from the crowd, one with three thousand from their own labels.

In large tables the shared prior is learned by Newton steps. With u = ln a and row j of the prior a alone (rows do not
depend on each other), the objective has

    gradient   a_l (s_l - c) + a0_l                         s_l = sum_k psi(N_kl + a_l) - psi(a_l)
    curvature  diag(a_l^2 s'_l + a_l (s_l - c)) - c' a a^T  c = sum_k psi(N_k. + A) - psi(A) + 1

A Newton step is taken if the curvature is negative definite, the step is not longer than LARGEST_STEP and no option
would exceed the diagonal. Otherwise a fixed-point step is taken, which never lowers the objective. If the slope
reverses and grows, the Newton step went past the optimum by more than half its length, and a fixed-point step replaces
it. The last step is a fixed-point step. Fixed-point steps alone are slow: with 5 per iteration, they made up two thirds
of all iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.models.annotators import confusion
from hitl.models.inference import working_set
from hitl.models.numerics.special import digamma, log_gamma, psi_sums
from hitl.models.priors.shares import log_beta

SWEEPS = 5
"""Number of fixed-point sweeps per iteration. With 5 the prior keeps up with the beliefs, and a fit needs half as many
iterations as with 2.
"""

STEPS = 8
"""Maximum number of steps per iteration, each a pass over the counts, if Newton steps are used."""

AT_REST = 1e-6
"""Steps end when no ln a changes by this much."""

LARGEST_STEP = 1.0
"""Largest change of ln a in a Newton step."""


@dataclass(frozen=True, eq=False)
class DirichletConfusion:
    """Dirichlet posteriors of all confusion rows.

    Attributes:
        hyper_jl: (J, L) a0, the mode of the hyperprior.
        prior_jl: (J, L) a, the current shared prior.
        counts_klj: (K, L, J) expected counts of labels.
        shared: True if `learn` learns a; otherwise a stays at a0.
        newton: True if a is learned by Newton steps, which pay off for large tables.
    """

    hyper_jl: Floats
    prior_jl: Floats
    counts_klj: Floats
    shared: bool = True
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
        prior_jl = self.prior_jl
        if self.shared and self.newton:
            prior_jl = fitted(prior_jl, counts_klj, self.hyper_jl)
        for _ in range(SWEEPS if self.shared and not self.newton else 0):
            prior_jl = raised(prior_jl, counts_klj, self.hyper_jl)
        return replace(self, counts_klj=counts_klj, prior_jl=prior_jl)

    def log_density(self) -> float:
        alpha_klj = self.alpha_klj
        total_kj = confusion.over_options(alpha_klj)
        evidence = log_gamma(alpha_klj).sum() - log_gamma(total_kj).sum()
        evidence -= len(alpha_klj) * log_beta(self.prior_jl).sum()
        explained = np.einsum("klj,klj->", self.counts_klj, self.log_pi_klj)
        hyper = log_hyper_density(self.prior_jl, self.hyper_jl) if self.shared else 0.0
        return float(evidence - explained + hyper)


@dataclass(frozen=True, eq=False)
class DirichletRows:
    """Annotator model with Dirichlet posteriors of confusion rows; attributes as in `DirichletConfusion`."""

    hyper_jl: Floats
    shared: bool = True

    def at_start(self, annotations: Annotations, start: Consensus | None) -> DirichletConfusion:
        """Build all annotators at the shared prior, that of `start` if it has one and the same classes and options."""
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


def fitted(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> Floats:
    """Return (J, L) the shared prior after steps toward its maximum, given counts (K, L, J)."""
    counts_kc, total_kj = counts_klj.reshape(len(counts_klj), -1), confusion.over_options(counts_klj)
    here = _Rows(prior_jl, counts_kc, total_kj, hyper_jl)
    for _ in range(STEPS - 1):
        safe_jl = here.fixed_point()
        new_jl = here.stepped(safe_jl)
        moved_jl = np.log(new_jl / here.prior_jl)
        if np.abs(moved_jl).max() < AT_REST:
            break
        reached = _Rows(new_jl, counts_kc, total_kj, hyper_jl)
        beyond_j = (reached.gradient_jl * moved_jl).sum(axis=1) < -(here.gradient_jl * moved_jl).sum(axis=1)
        if beyond_j.any():
            reached = _Rows(np.where(beyond_j[:, None], safe_jl, new_jl), counts_kc, total_kj, hyper_jl)
        here = reached
    return here.fixed_point()


def largest_on_the_diagonal(gain_jl: Floats) -> Floats:
    """Return (J, L) the maximizer x of sum_l gain_l ln x_l - x_l subject to x_j >= x_l.

    Options that would exceed the diagonal share a value with it.
    """
    held = gain_jl.copy()
    for j in np.flatnonzero(gain_jl.max(axis=1) > gain_jl.diagonal()):
        row = held[j]
        others = np.delete(np.arange(row.size), j)
        order = others[np.argsort(-row[others], kind="stable")]
        pool = [j]
        for option in order:
            if row[option] <= row[pool].mean():
                break
            pool.append(int(option))
        row[pool] = row[pool].mean()
    return held


class _Rows:
    """Gradient and curvature of the objective at a prior."""

    def __init__(self, prior_jl: Floats, counts_kc: Floats, total_kj: Floats, hyper_jl: Floats) -> None:
        rise_c, slope_c = psi_sums(counts_kc, prior_jl.T.ravel())
        rise_j, self._slope_j = psi_sums(total_kj, prior_jl.sum(axis=1))
        self.prior_jl, self._hyper_jl, self._cost_j = prior_jl, hyper_jl, rise_j + 1
        self._rise_jl, self._slope_jl = (c.reshape(prior_jl.T.shape).T for c in (rise_c, slope_c))
        self.gradient_jl: Floats = prior_jl * (self._rise_jl - self._cost_j[:, None]) + hyper_jl

    def fixed_point(self) -> Floats:
        """Return (J, L) a after a fixed-point step."""
        best_jl: Floats = largest_on_the_diagonal(self.prior_jl * self._rise_jl + self._hyper_jl)
        return best_jl / self._cost_j[:, None]

    def stepped(self, safe_jl: Floats) -> Floats:
        """Return (J, L) a after a Newton step; `safe_jl` in rows without a valid one."""
        step_jl = self._newton()
        new_jl = self.prior_jl * np.exp(np.clip(step_jl, -LARGEST_STEP, LARGEST_STEP))
        short_j = (np.abs(step_jl) <= LARGEST_STEP).all(axis=1) & step_jl.any(axis=1)
        on_top_j = (new_jl <= new_jl.diagonal()[:, None]).all(axis=1)
        return np.where((short_j & on_top_j)[:, None], new_jl, safe_jl)

    def _newton(self) -> Floats:
        """Return (J, L) steps in ln a; 0 in rows whose curvature is not negative definite."""
        a_jl = self.prior_jl
        diagonal_jl = a_jl**2 * self._slope_jl + self.gradient_jl - self._hyper_jl
        bent = -self._slope_j[:, None, None] * a_jl[:, :, None] * a_jl[:, None, :]
        bent[:, np.arange(a_jl.shape[1]), np.arange(a_jl.shape[1])] += diagonal_jl
        concave_j = np.linalg.eigvalsh(bent).max(axis=1) < 0
        step_jl = np.zeros_like(a_jl)
        step_jl[concave_j] = -np.linalg.solve(bent[concave_j], self.gradient_jl[concave_j][:, :, None])[:, :, 0]
        return step_jl
