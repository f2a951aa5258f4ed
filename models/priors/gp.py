"""A Gaussian process over features as the prior of two classes (Rodrigues 2014, section 3).

    f ~ GP(0, k)            p(z_n = 1 | f) = Phi(f(x_n))            z_n given the messages: L[n, 1] and L[n, 0]

The beliefs contain the item's own labels: they are those of its cavity N(m, v), what all other items say of it,

    q_n1 ∝ a_n Phi(m / sqrt(1 + v))      q_n0 ∝ b_n (1 - Phi(m / sqrt(1 + v)))      a = exp L[n, 1], b = exp L[n, 0]

(eqs. 8 and 10 with the marginal of f alone shrink everybody's accuracy towards chance). Summed over z that is EP's own
Z_n, so that the gradient of ln Z_EP in what annotators are like is that of the expected log likelihood under q: the
loop of `inference.em` climbs it.

Items whose messages are flat have no site. They are predicted, and take no part in the N^3.

What it learns from are the sites: natural parameters, which add up. At given sites the scale and lengths of the kernel
maximise ln Z_EP + their log density, a few steps of L-BFGS at a time; at the fixed point of EP that has the same
gradient. EP begins from the same sites when the messages or the kernel have moved a little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_ndtr

from hitl.annotations import Floats
from hitl.models.inference import expectation_propagation as ep
from hitl.models.inference.expectation_propagation import Likelihoods
from hitl.models.numerics.covariance import SquaredExponential
from hitl.models.priors import Mask, Posterior

OUTSIDE = 1e10
"""What a kernel is worth less with which these sites have no posterior."""

EVALUATIONS = 10
"""Most evaluations of one turn of learning."""

FLAT = 0.1
"""Gradient, in nats, at which a kernel is left as it is: what a move could gain is less by another such factor."""

FURTHEST = 1.0
"""How far a turn moves a logarithm at most: the sites fit nearby kernels only."""

HALVINGS = 4
"""How often a move that lowers the evidence is halved before the kernel stays as it is."""


@dataclass(frozen=True, eq=False, slots=True)
class Process:
    """The process given likelihoods: what a posterior found, and what the prior learns from.

    Attributes:
        kernel: its covariance.
        rows: the items that have sites, with features `x_rd`.
        likelihoods, found: of these items.
        l_rr: root of their covariance.
        n_items: N, of all items.
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
        """(2, C, N) of all items, 0 where there is none."""
        sites = np.zeros((*self.found.sites.shape[:2], self.n_items))
        sites[:, :, self.rows] = self.found.sites
        return sites

    @property
    def collapsed(self) -> Floats:
        """(2, rows) all sites of an item as one."""
        return ep.collapsed(self.found.sites, self.likelihoods)

    def latent(self, x_md: Floats) -> tuple[Floats, Floats]:
        """(M,) mean and variance of f at other points."""
        k_mr = self.kernel.between(x_md, self.x_rd)
        return ep.predicted(k_mr, self.kernel.variance, self.found.posterior, self.collapsed)

    def cavities(self, x_nd: Floats) -> tuple[Floats, Floats]:
        """(N,) mean and variance of f of all items, given everything but their own messages."""
        return self._of_all(x_nd, self.found.tilted.mean[0], self.found.tilted.variance[0])

    def marginals(self, x_nd: Floats) -> tuple[Floats, Floats]:
        """(N,) mean and variance of f of all items, given everything."""
        return self._of_all(x_nd, self.found.posterior.mean, self.found.posterior.variance)

    def _of_all(self, x_nd: Floats, mean_r: Floats, variance_r: Floats) -> tuple[Floats, Floats]:
        mean_n, variance_n = np.empty(self.n_items), np.empty(self.n_items)
        mean_n[self.rows], variance_n[self.rows] = mean_r, variance_r
        others = np.delete(np.arange(self.n_items), self.rows)
        mean_n[others], variance_n[others] = self.latent(x_nd[others])
        return mean_n, variance_n

    def nearer(self) -> Floats:
        """The logarithms of the kernel after a few steps of L-BFGS at these sites."""
        theta, sites = self.kernel.theta, self.collapsed

        def falls(theta: Floats) -> tuple[float, Floats]:
            value, gradient = at_sites(self.kernel.at(theta), self.x_rd, sites)
            return -value, -gradient

        bounds = [(one - FURTHEST, one + FURTHEST) for one in theta]
        options = {"maxfun": EVALUATIONS, "gtol": FLAT}
        found: Floats = minimize(falls, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A turn of learning: where it began and where the sites found there point."""

    theta: Floats
    move: Floats

    def tries(self, last: Step | None) -> Iterator[Floats]:
        """Moves to try: the secant of this step and the last one (Anderson 1965, depth 1), this one, shorter ones."""
        if last is not None:
            turned = self.move - last.move
            if (squared := float(turned @ turned)) > 0:
                share = float(self.move @ turned) / squared
                yield np.clip(self.move - share * (self.theta - last.theta + turned), -FURTHEST, FURTHEST)
        yield from (self.move / 2**power for power in range(HALVINGS))


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A latent Gaussian process through a probit.

    Attributes:
        x_nd: (N, D) features, standardised; NaN in the rows of items without.
        kernel: its covariance.
        sites: (2, C, N) nu and tau where EP begins: of the messages (C = 1), and of class 1 and class 0 seen.
        observed_nj: (N, 2) how often each class was seen as the truth of the item, beside the messages; or None.
        held: whether `learn` leaves the kernel as it is.
        sweeps: most sweeps of one posterior.
    """

    x_nd: Floats
    kernel: SquaredExponential
    sites: Floats
    observed_nj: Floats | None = None
    last: Step | None = None
    held: bool = False
    sweeps: int = 3

    @classmethod
    def unlearned(cls, x_nd: Floats, ard: bool, observed_nj: Floats | None = None) -> Self:
        """No sites, and the kernel that is expected."""
        kinds = 1 if observed_nj is None else 3
        kernel = SquaredExponential.expected(x_nd.shape[1], ard)
        return cls(x_nd, kernel, np.zeros((2, kinds, len(x_nd))), observed_nj)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Beliefs; a few sweeps of EP over the items that count and have labels or known truth."""
        top_n = message_nj.max(axis=1)
        log_jn = (message_nj - top_n[:, None])[:, ::-1].T  # ln a and ln b, the larger of them 0
        process = self._process(self._likelihoods(log_jn, counted_n))
        q_nj = beliefs(message_nj, *process.cavities(self.x_nd))
        return Posterior(q_nj, process.log_evidence + float(np.sum(top_n, where=counted_n)), process)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> None:
        """None: beliefs that come from elsewhere have no sites."""
        return None

    def learn(self, statistics: Process | None) -> Self:
        """The sites found, and a kernel nearer to the one of largest evidence; it never lowers the evidence."""
        if statistics is None:
            return self
        stays = replace(self, sites=statistics.sites)
        if self.held or not statistics.rows.size:
            return stays
        before, theta = statistics.log_evidence + self.log_density(), self.kernel.theta
        step = Step(theta, statistics.nearer() - theta)
        if not step.move.any():
            return stays
        for move in step.tries(self.last):
            moved = replace(stays, kernel=self.kernel.at(theta + move), last=step)
            process = moved._process_of(statistics.rows, statistics.likelihoods)
            if process.log_evidence + moved.log_density() >= before:
                return replace(moved, sites=process.sites)
        return stays

    def log_density(self) -> float:
        """Log density of scale and lengths, up to a constant."""
        return self.kernel.log_density()

    def _process(self, likelihoods: Likelihoods) -> Process:
        """After a few sweeps from the sites there are; only items that something is said of have one."""
        rows = np.flatnonzero((likelihoods.times > 0).any(axis=0))
        return self._process_of(rows, likelihoods.of(rows))

    def _process_of(self, rows: npt.NDArray[np.intp], likelihoods: Likelihoods) -> Process:
        l_rr = ep.root(self.kernel.over(self.x_nd[rows]))
        found = ep.propagate(l_rr, likelihoods, self.sites[:, :, rows], sweeps=self.sweeps)
        return Process(self.kernel, rows, self.x_nd[rows], likelihoods, found, l_rr, len(self.x_nd))

    def _likelihoods(self, log_jn: Floats, counted_n: Mask) -> Likelihoods:
        """Of the messages ln a, ln b (2, N), and of classes seen."""
        informed_n = (log_jn[0] != log_jn[1]).astype(float)
        if self.observed_nj is None:
            return Likelihoods(log_jn[:1], log_jn[1:], (informed_n * counted_n)[None])
        none_n, sure_n = np.full(len(counted_n), -np.inf), np.zeros(len(counted_n))
        times = np.stack((informed_n, self.observed_nj[:, 1], self.observed_nj[:, 0])) * counted_n
        return Likelihoods(np.stack((log_jn[0], sure_n, none_n)), np.stack((log_jn[1], none_n, sure_n)), times)


def beliefs(message_nj: Floats, mean_n: Floats, variance_n: Floats) -> Floats:
    """(N, 2) beliefs given messages and what all else says of f (N,); flat messages: the chance Phi of either class."""
    eta_n = mean_n / np.sqrt(1 + variance_n)
    log_q_nj = message_nj + log_ndtr(np.stack((-eta_n, eta_n), axis=1))
    log_q_nj -= np.logaddexp(log_q_nj[:, :1], log_q_nj[:, 1:])
    return np.asarray(np.exp(log_q_nj))


def at_sites(kernel: SquaredExponential, x_nd: Floats, sites: Floats) -> tuple[float, Floats]:
    """ln Z_EP + log density up to a constant, at collapsed sites (2, N), and its gradient in the logarithms."""
    k_nn = kernel.over(x_nd)
    posterior = ep.gaussian(ep.root(k_nn), sites)
    if posterior is None:
        return -OUTSIDE, np.zeros(kernel.theta.size)
    gradient = kernel.gradient(x_nd, k_nn, ep.gradient_weights(posterior, sites))
    return ep.log_gaussian(posterior, sites) + kernel.log_density(), gradient + kernel.log_density_gradient()
