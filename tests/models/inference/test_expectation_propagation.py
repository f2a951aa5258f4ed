"""Moments by quadrature; marginals and evidence by dense integration; EP one by one as in the textbook ends alike."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from hitl.annotations import Floats
from hitl.models.inference import expectation_propagation as ep
from hitl.models.inference.expectation_propagation import Likelihoods
from hitl.models.numerics.covariance import SquaredExponential

LIKELIHOODS = [(1.0, 0.0), (0.0, 1.0), (1.0, 0.3), (0.02, 1.0), (0.7, 0.7), (1.0, 1e-6)]


def likelihood(a: Floats | float, b: Floats | float, f: Floats | float) -> Floats:
    return np.asarray(b + (np.asarray(a) - b) * ndtr(f))


@pytest.mark.parametrize(("a", "b"), LIKELIHOODS)
@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (1.3, 0.2), (-2.0, 9.0), (4.0, 2.0)])
def test_moments_are_those_of_quadrature(a: float, b: float, mean: float, variance: float) -> None:
    """Rodrigues 2014, section 3.2, to 1e-9."""

    def moment(power: int) -> float:
        def integrand(f: float) -> float:
            return f**power * float(likelihood(a, b, f)) * norm.pdf(f, mean, np.sqrt(variance))

        edges = mean + np.sqrt(variance) * np.linspace(-12, 12, 9)
        return sum(quad(integrand, low, high, epsabs=1e-14)[0] for low, high in pairwise(edges))

    z, first, second = (moment(power) for power in range(3))
    with np.errstate(divide="ignore"):
        log_z, slope, curve = ep.moments(np.log([a]), np.log([b]), np.array([mean]), np.array([variance]))
    assert abs(np.exp(log_z[0]) / z - 1) < 1e-9
    assert abs(mean + variance * slope[0] - first / z) < 1e-9
    assert abs(variance - variance**2 * curve[0] - (second / z - (first / z) ** 2)) < 1e-8 * max(1, variance)


def test_moments_are_finite_where_the_probit_is_nothing() -> None:
    log_z, slope, curve = ep.moments(np.zeros(1), np.full(1, -np.inf), np.array([-60.0]), np.array([0.5]))
    assert np.isfinite([log_z, slope, curve]).all()
    assert -60 + 0.5 * slope[0] < -35  # the variance left is positive, and the mean moves towards the label
    assert 0 < 1 - 0.5 * curve[0] < 1


def problem(seed: int, n: int, scale: float = 1.5) -> tuple[Floats, Likelihoods]:
    """A covariance and the likelihoods of contradicting labels; a quarter of the items has known truth."""
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential.expected(2, False).at(np.array([np.log(scale), 0.0]))
    log_ab = rng.normal(scale=2.0, size=(2, n))
    log_ab -= log_ab.max(axis=0)
    log_ab[rng.integers(2, size=n // 4), np.arange(n // 4)] = -np.inf
    log_ab[:, : n // 4] = np.where(np.isinf(log_ab[:, : n // 4]), -np.inf, 0.0)
    return kernel.over(rng.normal(size=(n, 2))), Likelihoods(log_ab[:1], log_ab[1:], np.ones((1, n)))


def settled(k_nn: Floats, likelihoods: Likelihoods) -> ep.Propagated:
    sites = np.zeros((2, *likelihoods.times.shape))
    return ep.propagate(ep.root(k_nn), likelihoods, sites, sweeps=500, tolerance=1e-12)


def one_by_one(k_nn: Floats, likelihoods: Likelihoods, sweeps: int = 60) -> tuple[Floats, Floats, Floats]:
    """(N,) mean, (N, N) covariance and (2, N) sites of EP as Rasmussen & Williams 2006, alg. 3.5: rank-one updates."""
    mu, sigma = np.zeros(len(k_nn)), k_nn.copy()
    sites = np.zeros((2, len(k_nn)))
    for _ in range(sweeps):
        for n in range(len(k_nn)):
            tau_out = 1 / sigma[n, n] - sites[1, n]
            nu_out = mu[n] / sigma[n, n] - sites[0, n]
            m, v = nu_out / tau_out, 1 / tau_out
            eta = m / np.sqrt(1 + v)
            a, b = np.exp(likelihoods.log_a[0, n]), np.exp(likelihoods.log_b[0, n])
            z = b + (a - b) * ndtr(eta)
            pull = (a - b) * norm.pdf(eta) / z  # the paper's moments, as printed
            mean = m + v * pull / np.sqrt(1 + v)
            variance = v - v**2 / (1 + v) * (eta * pull + pull**2)
            tau = 1 / variance - tau_out
            change = tau - sites[1, n]
            sites[:, n] = mean / variance - nu_out, tau
            column = sigma[:, n].copy()
            sigma -= change / (1 + change * column[n]) * np.outer(column, column)
            mu = sigma @ sites[0]
        sigma = np.linalg.inv(np.linalg.inv(k_nn) + np.diag(sites[1]))
        mu = sigma @ sites[0]
    return mu, sigma, sites


@pytest.mark.parametrize("seed", range(3))
def test_all_at_once_ends_where_one_by_one_ends(seed: int) -> None:
    k_nn, likelihoods = problem(seed, 16)
    found = settled(k_nn, likelihoods)
    mu, sigma, sites = one_by_one(k_nn, likelihoods)
    assert (sites[1] < 0).any(), "no site has a negative precision: the case is too easy"
    np.testing.assert_allclose(found.sites[:, 0], sites, atol=1e-7)
    np.testing.assert_allclose(found.posterior.mean, mu, atol=1e-7)
    np.testing.assert_allclose(found.posterior.variance, sigma.diagonal(), atol=1e-7)


def test_looking_back_saves_sweeps_and_ends_at_the_same_point(monkeypatch: pytest.MonkeyPatch) -> None:
    k_nn, likelihoods = problem(1, 60)
    l_nr, none = ep.root(k_nn), np.zeros((2, *likelihoods.times.shape))

    def sweeps_needed() -> tuple[int, ep.Propagated]:
        found, count = ep.propagate(l_nr, likelihoods, none, sweeps=0), 0
        while found.moved >= 1e-8 and count < 500:
            count += 1
            found = ep.propagate(l_nr, likelihoods, none, sweeps=count, tolerance=1e-8)
        return count, found

    quick, found = sweeps_needed()
    monkeypatch.setattr(ep, "NEARLY_LINEAR", 0.0)
    slow, plain = sweeps_needed()
    assert quick <= 0.7 * slow
    np.testing.assert_allclose(found.posterior.mean, plain.posterior.mean, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_evidence_is_the_product_of_the_papers_sites(seed: int) -> None:
    """Sites with the right normaliser (papers/notes.md), integrated against the prior."""
    k_nn, likelihoods = problem(seed, 12)
    found = settled(k_nn, likelihoods)
    at, (nu, tau) = found.tilted, found.sites[:, 0]
    m, v, centre, width = at.mean[0], at.variance[0], nu / tau, 1 / tau
    total = v + width  # negative where a site's precision is
    log_z_n = at.log_z[0] + 0.5 * np.log(2 * np.pi * np.abs(total)) + 0.5 * (m - centre) ** 2 / total
    spread = k_nn + np.diag(width)
    assert np.linalg.slogdet(spread)[0] == np.prod(np.sign(total))
    log_gaussian = -0.5 * (len(nu) * np.log(2 * np.pi) + np.linalg.slogdet(spread)[1])
    log_gaussian -= 0.5 * centre @ np.linalg.solve(spread, centre)
    assert np.isclose(ep.log_evidence(found, likelihoods), log_z_n.sum() + log_gaussian, atol=1e-8)


def dense(k_nn: Floats, likelihoods: Likelihoods, points: int = 30) -> tuple[float, Floats, Floats]:
    """ln Z, means and variances by Gauss-Hermite quadrature over all items at once."""
    node, weight = np.polynomial.hermite_e.hermegauss(points)
    g = np.array(list(product(node, repeat=len(k_nn))))
    w = np.prod(np.array(list(product(weight, repeat=len(k_nn)))), axis=1) / np.sqrt(2 * np.pi) ** len(k_nn)
    f = g @ np.linalg.cholesky(k_nn).T
    for a, b, times in zip(np.exp(likelihoods.log_a), np.exp(likelihoods.log_b), likelihoods.times, strict=True):
        w = w * np.prod(likelihood(a, b, f) ** times, axis=1)
    mean = w @ f / w.sum()
    return float(np.log(w.sum())), mean, w @ f**2 / w.sum() - mean**2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_marginals_are_near_those_of_dense_integration(n: int) -> None:
    """Exact for one item; EP is an approximation for more."""
    for seed in range(4):
        k_nn, likelihoods = problem(seed, n, scale=1.0)
        log_z, mean, variance = dense(k_nn, likelihoods)
        found = settled(k_nn, likelihoods)
        near = 1e-6 if n == 1 else 0.03
        assert abs(ep.log_evidence(found, likelihoods) - log_z) < near
        np.testing.assert_allclose(found.posterior.mean, mean, atol=near)
        np.testing.assert_allclose(found.posterior.variance, variance, rtol=near)


@pytest.mark.parametrize("ard", [False, True])
def test_the_gradient_of_the_evidence_is_that_of_differences(ard: bool) -> None:
    rng = np.random.default_rng(3)
    x_nd = rng.normal(size=(14, 2))
    _, likelihoods = problem(1, 14)
    kernel = SquaredExponential.expected(2, ard)
    kernel = kernel.at(kernel.theta + 0.2)

    def evidence(theta: Floats) -> float:
        return ep.log_evidence(settled(kernel.at(theta).over(x_nd), likelihoods), likelihoods)

    found = settled(kernel.over(x_nd), likelihoods)
    weights = ep.gradient_weights(found.posterior, ep.collapsed(found.sites, likelihoods))
    gradient = kernel.gradient(x_nd, kernel.over(x_nd), weights)
    for p, step in enumerate(1e-4 * np.eye(kernel.theta.size)):
        numeric = (evidence(kernel.theta + step) - evidence(kernel.theta - step)) / 2e-4
        assert np.isclose(gradient[p], numeric, rtol=1e-5, atol=1e-6)


def test_two_kinds_of_sites_are_repeated_points() -> None:
    """3 and 2 labels at a place: EP over 5 points there, without their N^3."""
    rng = np.random.default_rng(4)
    kernel = SquaredExponential.expected(2, False)
    x_nd, times = rng.normal(size=(4, 2)), np.array([[3.0, 0, 1, 2], [2.0, 1, 4, 0]])
    none, sure = np.full(4, -np.inf), np.zeros(4)
    together = settled(kernel.over(x_nd), Likelihoods(np.stack((sure, none)), np.stack((none, sure)), times))
    place = [(n, kind) for kind in (0, 1) for n in range(4) for _ in range(int(times[kind, n]))]
    at, kind = np.array(place).T
    k_mm = kernel.over(x_nd)[np.ix_(at, at)]
    apart_by = Likelihoods(
        np.where(kind == 0, 0.0, -np.inf)[None], np.where(kind == 1, 0.0, -np.inf)[None], np.ones((1, len(at)))
    )
    apart = settled(k_mm, apart_by)
    np.testing.assert_allclose(apart.posterior.mean, together.posterior.mean[at], atol=1e-6)
    np.testing.assert_allclose(apart.posterior.variance, together.posterior.variance[at], atol=1e-6)
    both = Likelihoods(np.stack((sure, none)), np.stack((none, sure)), times)
    assert np.isclose(ep.log_evidence(apart, apart_by), ep.log_evidence(together, both), atol=1e-6)


def test_prediction_is_that_of_a_site_that_says_nothing() -> None:
    k_nn, likelihoods = problem(2, 10)
    silent = likelihoods.times.copy()
    silent[0, 7:] = 0
    all_of_them = settled(k_nn, Likelihoods(likelihoods.log_a, likelihoods.log_b, silent))
    rows, others = np.arange(7), np.arange(7, 10)
    found = settled(k_nn[:7, :7], likelihoods.of(rows))
    mean, variance = ep.predicted(
        k_nn[np.ix_(others, rows)], k_nn[0, 0], found.posterior, ep.collapsed(found.sites, likelihoods.of(rows))
    )
    np.testing.assert_allclose(mean, all_of_them.posterior.mean[others], atol=1e-8)
    np.testing.assert_allclose(variance, all_of_them.posterior.variance[others], atol=1e-8)


def test_sites_that_do_not_fit_are_left() -> None:
    """Precisions so negative that there is no posterior: it begins from none, and ends where it would have."""
    k_nn, likelihoods = problem(0, 8)
    sites = np.stack((np.zeros((1, 8)), np.full((1, 8), -5.0)))
    assert ep.gaussian(ep.root(k_nn), sites[:, 0]) is None
    found = ep.propagate(ep.root(k_nn), likelihoods, sites, sweeps=500, tolerance=1e-12)
    np.testing.assert_allclose(found.sites, settled(k_nn, likelihoods).sites, atol=1e-8)


def test_points_that_are_the_same_are_no_error() -> None:
    """K has rank 2 of 20."""
    k_nn = SquaredExponential.expected(1, False).over(np.repeat([[0.0], [3.0]], 10, axis=0))
    _, likelihoods = problem(5, 20)
    assert ep.root(k_nn).shape == (20, 2)
    found = settled(k_nn, likelihoods)
    assert np.isfinite(found.posterior.mean).all()
    assert np.isfinite(ep.log_evidence(found, likelihoods))
