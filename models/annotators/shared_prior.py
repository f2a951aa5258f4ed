"""Maximize the prior that all annotators share, by Newton steps; see `dirichlet_confusion`.

With u = ln a and row j of the prior a alone (rows do not depend on each other), the objective has

    gradient   a_l (s_l - c) + a0_l                         s_l = sum_k psi(N_kl + a_l) - psi(a_l)
    curvature  diag(a_l^2 s'_l + a_l (s_l - c)) - c' a a^T  c = sum_k psi(N_k. + A) - psi(A) + 1

A Newton step is taken if the curvature is negative definite, the step is not longer than LARGEST_STEP and no option
would exceed the diagonal. Otherwise a fixed-point step is taken, which never lowers the objective. If the slope
reverses and grows, the step went past the optimum by more than half its length, and it is undone. The
last step is a fixed-point step. The fixed point alone is slow: 5 steps per iteration of it made up two thirds of all
iterations.
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.models.annotators.confusion import over_options
from hitl.models.numerics.special import psi_sums

STEPS = 8
"""Maximum steps, each a pass over the counts."""

AT_REST = 1e-6
"""Change of ln a at which steps end."""

LARGEST_STEP = 1.0
"""Largest change of ln a in a Newton step."""


def fitted(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> Floats:
    """Return (J, L) the shared prior nearer to its maximum given counts (K, L, J)."""
    counts_kc, total_kj = counts_klj.reshape(len(counts_klj), -1), over_options(counts_klj)
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

    Options above the diagonal share its value.
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
