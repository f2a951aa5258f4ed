"""Gaussian process over features as the prior of two classes (Rodrigues 2014, section 3).

    f ~ GP(0, k)            p(z_n = 1 | f) = Phi(f(x_n))            messages L[n, j] = ln p(labels of n | z_n = j)

The beliefs combine the item's own labels with its cavity N(m, v), the evidence of all other items:

    q_n1 ∝ a_n Phi(m / sqrt(1 + v))      q_n0 ∝ b_n (1 - Phi(m / sqrt(1 + v)))      a = exp L[n, 1], b = exp L[n, 0]

(The marginal of f alone, as in eqs. 8 and 10, would shrink every annotator's accuracy towards chance.) The right-hand
sides sum to EP's Z_n, so the gradient of ln Z_EP in the annotator parameters equals the gradient of the expected log
likelihood under q, and the loop of `inference.em` increases ln Z_EP.

Items with equal messages for both classes have no site. They are predicted, and do not add to the N^3 cost.

The prior learns from the process at these sites (`Process`). At the fixed point of EP the gradient of ln Z_EP + log
density in the scale and lengths of the kernel equals the gradient with the sites held fixed, so no extra sweep is
needed. A turn is one call of `learn`. The first two turns maximize with the sites held fixed; later ones are
quasi-Newton steps (BFGS), which learn from previous moves how the sites respond. No turn lowers ln Z_EP + log density.
EP starts from the last sites, or from empty sites if the last ones no longer fit the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from hitl.annotations import Floats
from hitl.models.inference import expectation_propagation as ep
from hitl.models.inference.expectation_propagation import Likelihoods
from hitl.models.numerics.covariance import SquaredExponential
from hitl.models.priors import Mask, Posterior

OUTSIDE = 1e10
"""Penalty for a kernel under which the sites have no posterior."""

AT_SITES, EVALUATIONS = 2, 10
"""Number of turns with the sites held fixed, and maximum evaluations in each."""

FLAT = 0.2
"""Gradient below which the kernel is kept: the prior alone has curvature 1, so a move would gain at most half the
square of the gradient.
"""

FURTHEST, HALVINGS = 1.0, 4
"""Largest change of a log hyperparameter in one turn, because the sites fit nearby kernels only; and maximum number of
step sizes tried in a turn, each half the last.
"""

TRIAL, SETTLED = 2, 200
"""Maximum sweeps for a candidate kernel, which reveal nearly all its gain, and for the fixed point at the end."""

NO_CURVATURE = 1e-3
"""Smallest cosine between a move and the resulting fall of the gradient at which the inverse Hessian is updated."""


@dataclass(frozen=True, eq=False, slots=True)
class Process:
    """Gaussian process conditioned on likelihoods. The prior learns from it.

    Attributes:
        kernel: its covariance.
        rows: (R,) indices of the items with sites.
        x_rd, likelihoods, found: features, likelihoods and EP result of these items.
        l_rr: root of the covariance of these items.
        n_items: N, number of all items.
    """

    kernel: SquaredExponential
    rows: npt.NDArray[np.intp]
    x_rd: Floats
    likelihoods: Likelihoods
    found: ep.Propagated
    l_rr: Floats
    n_items: int

    @property
    def log_evidence(self) -> float:
        """ln Z_EP of the likelihoods."""
        return ep.log_evidence(self.found, self.likelihoods)

    @property
    def sites(self) -> Floats:
        """(2, C, N) sites of all items, 0 for items without a site."""
        sites = np.zeros((*self.found.sites.shape[:2], self.n_items))
        sites[:, :, self.rows] = self.found.sites
        return sites

    @property
    def collapsed(self) -> Floats:
        """(2, R) combined sites, nu and tau, of the items in `rows`."""
        return ep.collapsed(self.found.sites, self.likelihoods)

    def settled(self) -> Process:
        """Iterate EP to its fixed point."""
        return replace(self, found=ep.onwards(self.l_rr, self.likelihoods, self.found, sweeps=SETTLED))

    def latent(self, x_md: Floats) -> tuple[Floats, Floats]:
        """Return (M,) mean and variance of f at other points."""
        k_mr = self.kernel.between(x_md, self.x_rd)
        return ep.predicted(k_mr, self.kernel.variance, self.found.posterior, self.collapsed)

    def cavities(self, x_nd: Floats) -> tuple[Floats, Floats]:
        """Return (N,) mean and variance of f at all items, each without the site of its own messages."""
        return self._of_all(x_nd, self.found.tilted.mean[0], self.found.tilted.variance[0])

    def marginals(self, x_nd: Floats) -> tuple[Floats, Floats]:
        """Return (N,) mean and variance of f at all items, given all sites."""
        return self._of_all(x_nd, self.found.posterior.mean, self.found.posterior.variance)

    def _of_all(self, x_nd: Floats, mean_r: Floats, variance_r: Floats) -> tuple[Floats, Floats]:
        mean_n, variance_n = np.empty(self.n_items), np.empty(self.n_items)
        mean_n[self.rows], variance_n[self.rows] = mean_r, variance_r
        others = np.delete(np.arange(self.n_items), self.rows)
        mean_n[others], variance_n[others] = self.latent(x_nd[others])
        return mean_n, variance_n

    def gradient(self) -> Floats:
        """Return (1 + lengths,) gradient of ln Z_EP + log density in theta; exact at the fixed point of EP."""
        weight_rr = ep.gradient_weights(self.found.posterior, self.collapsed)
        of_evidence = self.kernel.gradient(self.x_rd, self.kernel.over(self.x_rd), weight_rr)
        return of_evidence + self.kernel.log_density_gradient()

    def at_these_sites(self, gradient: Floats) -> Turn:
        """Take a few BFGS steps with the sites held fixed; `gradient` is the gradient at the current kernel."""
        theta, sites = self.kernel.theta, self.collapsed
        value = ep.log_gaussian(self.found.posterior, sites) + self.kernel.log_density()
        turn = Turn(theta, gradient, np.eye(theta.size) / max(1.0, float(np.linalg.norm(gradient))))
        there = theta + turn.move
        for _ in range(EVALUATIONS):
            at_there, slope = at_sites(self.kernel.at(there), self.x_rd, sites)
            if at_there < value:
                there = (turn.theta + there) / 2
                continue
            turn, value = turn.onwards(there, slope), at_there
            if np.abs(slope).max() < FLAT:
                break
            there = np.clip(turn.theta + turn.move, theta - FURTHEST, theta + FURTHEST)
        return turn


@dataclass(frozen=True, eq=False, slots=True)
class Turn:
    """State of BFGS: theta, the gradient there, and the inverse of minus the Hessian, learned from `steps` moves."""

    theta: Floats
    gradient: Floats
    inverse: Floats
    steps: int = 0

    def onwards(self, theta: Floats, gradient: Floats) -> Turn:
        """Return the state at a new theta, with the inverse Hessian updated by the change of the gradient."""
        moved, fell = theta - self.theta, self.gradient - gradient
        along = float(moved @ fell)
        if along <= NO_CURVATURE * float(np.sqrt((moved @ moved) * (fell @ fell))):
            return Turn(theta, gradient, self.inverse, self.steps)
        # The first move sets the scale of the inverse in all directions (Nocedal & Wright 2006, eq. 6.20).
        before = self.inverse if self.steps else np.eye(theta.size) * along / float(fell @ fell)
        across = np.eye(theta.size) - np.outer(moved, fell) / along
        inverse = across @ before @ across.T + np.outer(moved, moved) / along
        return Turn(theta, gradient, inverse, self.steps + 1)

    @property
    def move(self) -> Floats:
        """Bounded quasi-Newton move."""
        return np.clip(self.inverse @ self.gradient, -FURTHEST, FURTHEST)


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """Latent Gaussian process with a probit link.

    Attributes:
        x_nd: (N, D) standardized features; NaN in the rows of items without features.
        kernel: its covariance.
        sites: (2, C, N) nu and tau from which EP starts: of the messages (C = 1), or of the messages and of observed
            classes 1 and 0 (C = 3).
        observed_nj: (N, 2) how often each class was observed as the truth of the item, in addition to the messages; or
            None.
        last: the last turn of the kernel; None before the first.
        held: True if `learn` leaves the kernel as it is.
        sweeps: maximum sweeps per posterior.
    """

    x_nd: Floats
    kernel: SquaredExponential
    sites: Floats
    observed_nj: Floats | None = None
    last: Turn | None = None
    held: bool = False
    sweeps: int = 3

    @classmethod
    def unlearned(cls, x_nd: Floats, ard: bool, observed_nj: Floats | None = None) -> Self:
        """Build a process with empty sites and the kernel at the mode of its prior."""
        kinds = 1 if observed_nj is None else 3
        kernel = SquaredExponential.expected(x_nd.shape[1], ard)
        return cls(x_nd, kernel, np.zeros((2, kinds, len(x_nd))), observed_nj)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        top_n = message_nj.max(axis=1)
        log_jn = (message_nj - top_n[:, None])[:, ::-1].T  # ln a and ln b, the larger of them 0
        process = self._process(self._likelihoods(log_jn, counted_n))
        q_nj = beliefs(message_nj, *process.cavities(self.x_nd))
        return Posterior(q_nj, process.log_evidence + float(np.sum(top_n, where=counted_n)), process)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> None:
        return None

    def learn(self, statistics: Process | None) -> Self:
        if statistics is None:
            return self
        stays = replace(self, sites=statistics.sites)
        if self.held or not statistics.rows.size:
            return stays
        turn, move = self._turn(statistics)
        if not move.any():
            return stays
        before = statistics.log_evidence + self.log_density()
        for power in range(HALVINGS):
            kernel = self.kernel.at(turn.theta + move / 2**power)
            moved = replace(stays, kernel=kernel, last=turn)
            process = replace(moved, sweeps=TRIAL)._process_of(statistics.rows, statistics.likelihoods)
            if process.log_evidence + moved.log_density() >= before:
                return replace(moved, sites=process.sites)
        return replace(stays, last=None)

    def _turn(self, statistics: Process) -> tuple[Turn, Floats]:
        """Return this turn and its move, by a quasi-Newton step or, in the first turns, with the sites held fixed.

        The move is 0 if the gradient is flat.
        """
        theta, gradient = self.kernel.theta, statistics.gradient()
        steps = 0 if self.last is None else self.last.steps
        if np.abs(gradient).max() < FLAT:
            return Turn(theta, gradient, np.eye(theta.size)), np.zeros_like(theta)
        if self.last is not None and steps >= AT_SITES:
            turn = self.last.onwards(theta, gradient)
            return turn, turn.move
        found = statistics.at_these_sites(gradient)
        return Turn(theta, gradient, found.inverse, steps + 1), found.theta - theta

    def log_density(self) -> float:
        return self.kernel.log_density()

    def _process(self, likelihoods: Likelihoods) -> Process:
        """Run a few sweeps from the present sites, over the items with a likelihood."""
        rows = np.flatnonzero((likelihoods.times > 0).any(axis=0))
        return self._process_of(rows, likelihoods.of(rows))

    def _process_of(self, rows: npt.NDArray[np.intp], likelihoods: Likelihoods) -> Process:
        l_rr = ep.root(self.kernel.over(self.x_nd[rows]))
        found = ep.propagate(l_rr, likelihoods, self.sites[:, :, rows], sweeps=self.sweeps)
        return Process(self.kernel, rows, self.x_nd[rows], likelihoods, found, l_rr, len(self.x_nd))

    def _likelihoods(self, log_jn: Floats, counted_n: Mask) -> Likelihoods:
        """Build the likelihoods of the messages ln a, ln b (2, N), and of observed classes."""
        informed_n = (log_jn[0] != log_jn[1]).astype(float)
        if self.observed_nj is None:
            return Likelihoods(log_jn[:1], log_jn[1:], (informed_n * counted_n)[None])
        none_n, sure_n = np.full(len(counted_n), -np.inf), np.zeros(len(counted_n))
        times = np.stack((informed_n, self.observed_nj[:, 1], self.observed_nj[:, 0])) * counted_n
        return Likelihoods(np.stack((log_jn[0], sure_n, none_n)), np.stack((log_jn[1], none_n, sure_n)), times)


def beliefs(message_nj: Floats, mean_n: Floats, variance_n: Floats) -> Floats:
    """Return (N, 2) beliefs from messages and each item's cavity. Where messages are equal, this is the prior, Phi."""
    eta_n = mean_n / np.sqrt(1 + variance_n)
    log_q_nj = message_nj + log_ndtr(np.stack((-eta_n, eta_n), axis=1))
    log_q_nj -= np.logaddexp(log_q_nj[:, :1], log_q_nj[:, 1:])
    return np.asarray(np.exp(log_q_nj))


def at_sites(kernel: SquaredExponential, x_nd: Floats, sites: Floats) -> tuple[float, Floats]:
    """Return ln Z_EP + log density up to a constant, at collapsed sites (2, N), and its gradient in theta."""
    k_nn = kernel.over(x_nd)
    posterior = ep.gaussian(ep.root(k_nn), sites)
    if posterior is None:
        return -OUTSIDE, np.zeros(kernel.theta.size)
    gradient = kernel.gradient(x_nd, k_nn, ep.gradient_weights(posterior, sites))
    return ep.log_gaussian(posterior, sites) + kernel.log_density(), gradient + kernel.log_density_gradient()
