"""Expectation propagation for a Gaussian process observed through a probit and annotators.

    f ~ N(0, K)          p(labels of n | f_n) = a_n Phi(f_n) + b_n (1 - Phi(f_n))        (Rodrigues 2014, eq. 7)

a_n and b_n are the likelihoods of all labels of item n if it is or is not of the class. Each likelihood is replaced
by a site exp(nu_n f_n - tau_n f_n^2 / 2), so that the posterior is Gaussian, N(mu, Sigma), Sigma = (K^-1 + T)^-1,
T = diag(tau). A sweep finds for each item the cavity N(m, v), the posterior without its site, then the moments of
cavity x likelihood, and the site that gives the posterior these moments:

    eta   = m / sqrt(1 + v)                    Z = b + (a - b) Phi(eta)
    slope = d ln Z / dm  = (a - b) N(eta) / (Z sqrt(1 + v))
    curve = -d2 ln Z / dm2 = slope (slope + m / (1 + v))
    tau'  = curve / (1 - v curve)              nu' = (slope + m curve) / (1 - v curve)

These are the moments in the paper's supplement, in a form without differences of precisions. All sites move at once,
which takes one factorization per sweep, and only part of the way (damping). The fixed point is the same as if they
moved one by one. Near it a sweep is almost linear in the sites, so the last few sweeps predict it (Anderson 1965):

    g = argmin | r - dR g |            s <- s + d r - (dS + d dR) g           r: the move, d: damping

with dS, dR the differences of the last sites and moves, in standard deviations of the items.

The likelihood is not log-concave: tau is negative if labels contradict f, and then has no root. With K = L L' (pivoted,
L with as many columns as the rank of K)

    M = I + L' T L = C C'          V = C^-1 L'          Sigma = V' V          mu = Sigma nu

M is positive definite exactly when the posterior exists. A step to sites without a posterior is halved.

    ln Z_EP = sum_n [ ln Z_n + ln G(cavity_n) - ln G(marginal_n) ] - 1/2 ln |M| + 1/2 nu' mu
    ln G(nu, tau) = nu^2 / 2 tau - 1/2 ln tau                          (Rasmussen & Williams 2006, sec. 3.6)

which is the paper's ln Z_EP with its site normalizer corrected. At the fixed point its derivatives in the sites are 0,
so only the last two terms contribute to derivatives in parameters of K: with u = nu - T mu and R = T - T Sigma T,

    d ln Z_EP / d theta = 1/2 sum_nm (u_n u_m - R_nm) dK_nm / d theta

An item may have several sites: of kinds c that differ in (a, b), and w_c equal ones of a kind. A cavity leaves out one
site. Arrays of sites are (C, N).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, blas, cholesky, lapack
from scipy.special import log_ndtr

from hitl.annotations import Floats

RANK_TOLERANCE = 1e-9
"""Fraction of the largest variance below which the remainder of K is rounding error."""

DAMPING = 0.8
"""Fraction of the full move that sites make in a sweep; full moves overshoot."""

TOLERANCE = 1e-4
"""Move of a site, in standard deviations of its item, at which sweeps end."""

MEMORY, NEARLY_LINEAR = 4, 0.1
"""Number of past differences of sites and moves that predict the fixed point, and largest move, in standard deviations,
at which they do.
"""

LEAST_STEP = 1e-6
HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False, slots=True)
class Likelihoods:
    """ln a and ln b of the sites (C, N), -inf if a or b is 0, and `times` (C, N), the number w of equal sites."""

    log_a: Floats
    log_b: Floats
    times: Floats

    def of(self, rows: npt.NDArray[np.intp]) -> Likelihoods:
        """Select the sites of these items."""
        return Likelihoods(self.log_a[:, rows], self.log_b[:, rows], self.times[:, rows])


@dataclass(frozen=True, eq=False, slots=True)
class Gaussian:
    """Posterior N(mu, V'V): mean and marginal variance (N,), V (R, N), and ln |I + K T|."""

    mean: Floats
    variance: Floats
    v_rn: Floats
    log_determinant: float


@dataclass(frozen=True, eq=False, slots=True)
class Tilted:
    """Cavities (C, N) with the moments of cavity x likelihood: ln Z and its slope and curvature in the mean."""

    mean: Floats
    variance: Floats
    log_z: Floats
    slope: Floats
    curve: Floats


def moments(log_a: Floats, log_b: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ln Z, slope and curvature (-d2 ln Z / dm2) of a Phi(f) + b (1 - Phi(f)) under N(mean, variance)."""
    spread = 1 + variance
    eta = mean / np.sqrt(spread)
    log_z = np.logaddexp(log_a + log_ndtr(eta), log_b + log_ndtr(-eta))
    log_density = -0.5 * eta**2 - HALF_LOG_2PI - log_z
    slope = (np.exp(log_a + log_density) - np.exp(log_b + log_density)) / np.sqrt(spread)
    return log_z, slope, slope * (slope + mean / spread)


def root(k_nn: Floats) -> Floats:
    """Return (N, R) L with L L' = K to rounding, R the rank of K."""
    if not k_nn.size:
        return np.zeros((0, 0))
    packed, pivot, rank, _ = lapack.dpstrf(k_nn, tol=RANK_TOLERANCE * k_nn.diagonal().max(), lower=1)
    l_nr = np.empty((len(k_nn), rank), order="F")
    l_nr[pivot - 1] = np.tril(packed)[:, :rank]
    return l_nr


def gaussian(l_nr: Floats, sites: Floats) -> Gaussian | None:
    """Return the posterior of sites (2, N), nu and tau; None if it does not exist."""
    nu, tau = sites
    if not nu.size:
        return Gaussian(np.zeros(0), np.zeros(0), np.zeros((0, 0)), 0.0)
    up_nr, down_nr = (l_nr[part] * np.sqrt(np.abs(tau[part]))[:, None] for part in (tau > 0, tau < 0))
    m_rr = up_nr.T @ up_nr  # BLAS needs half a product for a matrix times its own transpose
    if len(down_nr):
        m_rr -= down_nr.T @ down_nr
    m_rr.flat[:: len(m_rr) + 1] += 1.0
    try:
        c_rr = cholesky(m_rr, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    v_rn = blas.dtrsm(1.0, c_rr, l_nr, side=1, lower=1, trans_a=1).T
    return Gaussian(
        (v_rn @ nu) @ v_rn, np.einsum("rn,rn->n", v_rn, v_rn), v_rn, 2 * float(np.log(c_rr.diagonal()).sum())
    )


@dataclass(frozen=True, eq=False, slots=True)
class Propagated:
    """Result of sweeps: sites (2, C, N), the posterior, the cavities, and the size of the last move."""

    sites: Floats
    posterior: Gaussian
    tilted: Tilted
    moved: float


def propagate(
    l_nr: Floats, likelihoods: Likelihoods, sites: Floats, *, sweeps: int, tolerance: float = TOLERANCE
) -> Propagated:
    """Sweep from these sites (2, C, N) until none moves by `tolerance` standard deviations, at most `sweeps` times.

    If the sites have no posterior under the present K, start from empty sites.
    """
    found = _at(l_nr, likelihoods, sites)
    if found is None:
        found = _at(l_nr, likelihoods, np.zeros_like(sites))
    assert found is not None
    return onwards(l_nr, likelihoods, found, sweeps=sweeps, tolerance=tolerance)


def onwards(
    l_nr: Floats, likelihoods: Likelihoods, found: Propagated, *, sweeps: int, tolerance: float = TOLERANCE
) -> Propagated:
    """Continue sweeping from a result, as `propagate` does."""
    past: list[tuple[Floats, Floats]] = []
    for _ in range(sweeps):
        if found.moved < tolerance:
            break
        found = _swept(l_nr, likelihoods, found, past)
    return found


def log_evidence(found: Propagated, likelihoods: Likelihoods) -> float:
    """Return ln Z_EP."""
    posterior, at = found.posterior, found.tilted
    part = at.mean**2 / at.variance - posterior.mean**2 / posterior.variance
    part += np.log(at.variance / posterior.variance)
    return float(np.sum(likelihoods.times * (at.log_z + 0.5 * part))) + log_gaussian(
        posterior, collapsed(found.sites, likelihoods)
    )


def log_gaussian(posterior: Gaussian, sites: Floats) -> float:
    """Return the terms of ln Z_EP that depend on K directly, from collapsed sites (2, N)."""
    return 0.5 * float(sites[0] @ posterior.mean) - 0.5 * posterior.log_determinant


def gradient_weights(posterior: Gaussian, sites: Floats) -> Floats:
    """Return (N, N) d ln Z_EP / dK, from collapsed sites (2, N)."""
    nu, tau = sites
    u = nu - tau * posterior.mean
    weight_nn = posterior.v_rn.T @ posterior.v_rn
    weight_nn *= tau
    weight_nn *= tau[:, None]
    weight_nn += np.outer(u, u)
    weight_nn.flat[:: len(tau) + 1] -= tau
    weight_nn *= 0.5
    return weight_nn


def collapsed(sites: Floats, likelihoods: Likelihoods) -> Floats:
    """Return (2, N) the sum of each item's sites."""
    return np.asarray(np.sum(likelihoods.times * sites, axis=1))


def predicted(k_mn: Floats, variance: float, posterior: Gaussian, sites: Floats) -> tuple[Floats, Floats]:
    """Return (M,) mean and variance of f at other points, given collapsed sites (2, N).

    `k_mn` (M, N) are the covariances of the points with the items of the sites, `variance` is their own. The mean is
    k_mn u, the variance is `variance` - k_mn R k_nm with R = T - T Sigma T.
    """
    nu, tau = sites
    scaled_mn = k_mn * tau
    reduction_m = np.einsum("mn,mn->m", scaled_mn, k_mn)
    reduction_m -= np.sum((scaled_mn @ posterior.v_rn.T) ** 2, axis=1)
    return k_mn @ (nu - tau * posterior.mean), np.maximum(variance - reduction_m, RANK_TOLERANCE * variance)


def _at(l_nr: Floats, likelihoods: Likelihoods, sites: Floats) -> Propagated | None:
    """Return posterior and cavities of these sites; None if the posterior or a cavity does not exist."""
    posterior = gaussian(l_nr, collapsed(sites, likelihoods))
    if posterior is None:
        return None
    precision = 1 / posterior.variance - sites[1]
    if not (precision > 0).all():
        return None
    variance = 1 / precision
    mean = variance * (posterior.mean / posterior.variance - sites[0])
    log_z, slope, curve = moments(likelihoods.log_a, likelihoods.log_b, mean, variance)
    return Propagated(sites, posterior, Tilted(mean, variance, log_z, slope, curve), np.inf)


def _swept(l_nr: Floats, likelihoods: Likelihoods, found: Propagated, past: list[tuple[Floats, Floats]]) -> Propagated:
    """Move all sites at once; `past` holds the last sites and moves. If no step is valid, return `found`, unmoved."""
    at = found.tilted
    left = 1 - at.variance * at.curve
    move = np.stack((at.slope + at.mean * at.curve, at.curve)) / left - found.sites
    move *= likelihoods.times > 0
    spread_n = np.sqrt(found.posterior.variance)
    scale = np.stack((spread_n, spread_n**2))[:, None]
    moved = float(np.max(np.abs(move) * scale, initial=0.0))
    past[:] = [*past[-MEMORY:], (found.sites, move)] if moved < NEARLY_LINEAR else []
    if len(past) > 1:
        there = _at(l_nr, likelihoods, found.sites + _looking_back(past, scale))
        if there is not None:
            return replace(there, moved=moved)
    step = DAMPING
    while step > LEAST_STEP:
        there = _at(l_nr, likelihoods, found.sites + step * move)
        if there is not None:
            return replace(there, moved=moved)
        step /= 2
    return replace(found, moved=0.0)


def _looking_back(past: list[tuple[Floats, Floats]], scale: Floats) -> Floats:
    """Return the step of sites (2, C, N) predicted by the last sites and moves."""
    sites, moves = (np.stack([one[part] for one in past]) for part in range(2))
    towards = np.diff(moves, axis=0)
    weighed = (towards * scale).reshape(len(towards), -1).T
    share = np.linalg.lstsq(weighed, (moves[-1] * scale).ravel(), rcond=1e-10)[0]
    return np.asarray(DAMPING * moves[-1] - np.tensordot(share, np.diff(sites, axis=0) + DAMPING * towards, axes=1))
