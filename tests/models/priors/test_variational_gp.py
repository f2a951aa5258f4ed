"""The Gaussian process prior: its bound against the exact evidence, its gradients, its optimum, and gpytorch's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import norm, qmc

from hitl.annotations import Floats
from hitl.models.priors import Posterior, variational_gp
from hitl.models.priors.covariance import JITTER, CovarianceModule, inducing_points
from hitl.models.priors.variational_gp import CONSTANT, Inputs, VariationalGP
from tests.models.priors.gpytorch_reference import CrowdGP, bound, natural_step


def process(n: int = 6, d: int = 2, j: int = 3, *, count: int = 100, held: bool = True, seed: int = 0) -> VariationalGP:
    """A process over random items, held at hyper-parameters that matter."""
    rng = np.random.default_rng(seed)
    inputs = Inputs.standardised(rng.normal(size=(n, d)))
    prior = VariationalGP.unlearned(inputs, CovarianceModule(d, ard=True), j, count, "cpu", rng)
    theta_p = torch.from_numpy(np.log([2.0, *np.linspace(1.0, 1.5, d)]))
    return replace(prior, covariance=prior.covariance.at(theta_p), rate=0.0 if held else 1.0)


def messages(n: int, j: int, seed: int = 1) -> Floats:
    message_nj: Floats = 1.5 * np.random.default_rng(seed).normal(size=(n, j))
    return message_nj


def judged(prior: VariationalGP, message_nj: Floats) -> Posterior:
    return prior.posterior(message_nj.copy(), np.ones(len(message_nj), dtype=bool))


def objective(prior: VariationalGP, message_nj: Floats) -> float:
    return judged(prior, message_nj).log_evidence + prior.log_density() - prior.covariance.log_density()


def climbed(prior: VariationalGP, message_nj: Floats, steps: int = 100) -> VariationalGP:
    for _ in range(steps):
        prior = prior.learn(judged(prior, message_nj).statistics)
    return prior


def mean_of(prior: VariationalGP) -> Any:
    return torch.linalg.solve(prior.precision_jmm, prior.shift_jm[..., None])[..., 0]


def with_mean(prior: VariationalGP, m_jm: Any) -> VariationalGP:
    return replace(prior, shift_jm=(prior.precision_jmm @ m_jm[..., None])[..., 0])


# -- the bound -----------------------------------------------------------------------------------------------


def exact_evidence(prior: VariationalGP, message_nj: Floats) -> tuple[float, Floats]:
    """log p(messages) and beliefs (N, J), by quasi-Monte Carlo over all functions at the items, from the prior."""
    n, j = message_nj.shape
    x_nd, _ = prior.inputs.tensors(slice(None), prior.shift_jm)
    with torch.no_grad():
        k_nn = prior.covariance.call(prior.covariance.theta_p, "between", x_nd, x_nd).numpy() + CONSTANT**2
    root = np.linalg.cholesky(k_nn + 1e-10 * np.eye(n))
    draws = norm.ppf(qmc.Sobol(n * j, rng=np.random.default_rng(0)).random(2**14).clip(1e-12, 1 - 1e-12))
    f_tnj = np.einsum("nm,tmj->tnj", root, draws.reshape(-1, n, j))
    log_prior_tnj = f_tnj - logsumexp(f_tnj, axis=2, keepdims=True)
    log_t = logsumexp(log_prior_tnj + message_nj, axis=2).sum(axis=1)
    q_tnj = softmax(log_prior_tnj + message_nj, axis=2)
    return float(logsumexp(log_t) - np.log(len(log_t))), np.einsum("t,tnj->nj", softmax(log_t), q_tnj)


@pytest.mark.parametrize(("n", "j"), [(3, 2), (2, 3)])
@pytest.mark.parametrize(("strength", "near"), [(np.inf, 0.2), (8.0, 0.2), (1.5, 0.6)])
def test_the_bound_is_below_the_exact_evidence_and_near(n: int, j: int, strength: float, near: float) -> None:
    """Nearer where labels say more: it takes truths and functions, and the functions of classes, for independent."""
    prior, message_nj = process(n, j=j), strength * messages(n, j, 2) / 1.5 if strength < np.inf else known(n, j)
    found = climbed(prior, message_nj)
    exact, q_nj = exact_evidence(found, message_nj)
    gap = exact - objective(found, message_nj)
    assert -0.01 < gap < near * n
    assert gap < 0.7 * (exact - objective(prior, message_nj))
    np.testing.assert_allclose(judged(found, message_nj).q_nj, q_nj, atol=0.07 if strength > 2 else 0.35)


def known(n: int, j: int) -> Floats:
    message_nj: Floats = np.where(np.eye(j)[np.arange(n) % j] > 0, 0.0, -np.inf)
    return message_nj


def test_half_of_that_is_the_bound_on_log_sum_exp() -> None:
    """By quadrature in its place the bound would be a tenth of a nat higher an item, where so little is known."""
    message_nj = known(3, 2)
    prior = climbed(process(3, j=2), message_nj)
    mean_nj, variance_nj = prior.latent().values()
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    difference_n, spread_n = mean_nj[:, 1] - mean_nj[:, 0], np.sqrt(variance_nj.sum(axis=1))
    expected_n = mean_nj[:, 0] + np.logaddexp(0, difference_n[:, None] + spread_n[:, None] * x) @ weight / weight.sum()
    by_quadrature = float((logsumexp(mean_nj + message_nj, axis=1) - expected_n).sum())
    assert 0 <= by_quadrature - judged(prior, message_nj).log_evidence < 0.3


def test_nothing_nearby_is_better() -> None:
    """At the top every other mean or precision has a lower bound."""
    prior, message_nj = process(), messages(6, 3)
    top = climbed(prior, message_nj, 200)
    best, rng = objective(top, message_nj), np.random.default_rng(2)
    for _ in range(20):
        other = with_mean(top, mean_of(top) + torch.from_numpy(0.02 * rng.normal(size=top.shift_jm.shape)))
        assert objective(other, message_nj) < best
        factor = np.linalg.cholesky(top.precision_jmm.numpy())
        factor *= np.exp(0.02 * np.tril(rng.normal(size=factor.shape)))
        wider = with_mean(
            replace(top, precision_jmm=torch.from_numpy(factor @ factor.transpose(0, 2, 1))), mean_of(top)
        )
        assert objective(wider, message_nj) < best


# -- gradients -----------------------------------------------------------------------------------------------


def test_the_gradient_in_the_mean_is_that_of_finite_differences() -> None:
    message_nj = messages(6, 3)
    prior = climbed(process(count=4), message_nj, 2)
    sums, m_jm = judged(prior, message_nj).statistics, mean_of(prior)
    gradient_jm = sums.shift_jm - (sums.precision_jmm @ m_jm[..., None])[..., 0] - m_jm
    for j, m in ((0, 0), (1, 3), (2, 4)):
        step = torch.zeros_like(m_jm)
        step[j, m] = 1e-5
        there, back = (objective(with_mean(prior, m_jm + sign * step), message_nj) for sign in (1, -1))
        np.testing.assert_allclose(float(gradient_jm[j, m]), (there - back) / 2e-5, atol=1e-6)


def test_the_gradient_in_the_hyper_parameters_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    inputs, message_nj = Inputs.standardised(rng.normal(size=(8, 2))), messages(8, 3)
    prior = VariationalGP.unlearned(inputs, CovarianceModule(2, True), 3, 4, "cpu", rng)
    prior = climbed(replace(prior, rate=0.0), message_nj, 3)
    learning = replace(prior, rate=1.0)
    gradient_p = judged(learning, message_nj).statistics.gradient_p
    theta_p = prior.covariance.theta_p
    for p in range(len(theta_p)):
        step = torch.zeros_like(theta_p)
        step[p] = 1e-5
        there, back = (
            judged(replace(prior, covariance=prior.covariance.at(theta_p + sign * step)), message_nj).log_evidence
            for sign in (1, -1)
        )
        np.testing.assert_allclose(float(gradient_p[p]), (there - back) / 2e-5, atol=2e-5)


@pytest.mark.parametrize("j", [2, 3])
def test_the_closed_gradient_and_one_covariance_for_two_classes_are_those_of_torch(j: int) -> None:
    """The bound written out, each class with its own S, differentiated by torch through all of it."""
    prior, message_nj = climbed(process(9, j=j, count=5), messages(9, j), 4), messages(9, j)
    prior = replace(prior, rate=1.0)
    found = judged(prior, message_nj)
    theta_p = prior.covariance.theta_p.clone().requires_grad_()
    x_nd, _ = prior.inputs.tensors(slice(None), prior.shift_jm)
    z_md = prior.covariance.z_md
    variance = prior.covariance.call(theta_p, "variance")
    k_mm = prior.covariance.call(theta_p, "between", z_md, z_md) + JITTER * variance * torch.eye(len(z_md)).double()
    w_nm = torch.linalg.solve(torch.linalg.cholesky(k_mm), prior.covariance.call(theta_p, "between", z_md, x_nd)).T
    rest_n = variance - (w_nm**2).sum(1)
    own_n2 = CONSTANT * torch.tensor([1.0, 0.0]).double().repeat(9, 1)
    w_nm = torch.cat((w_nm, own_n2), dim=1)
    mu_nj = w_nm @ mean_of(prior).T
    s_nj = rest_n[:, None] + torch.einsum("nm,jmk,nk->nj", w_nm, torch.linalg.inv(prior.precision_jmm), w_nm)
    bound_n, a_nj = variational_gp.tilted(mu_nj.detach(), s_nj.detach())
    upper_n = 0.5 * (a_nj**2 * s_nj).sum(1) + torch.logsumexp(mu_nj + (0.5 - a_nj) * s_nj, dim=1)
    np.testing.assert_allclose(upper_n.detach(), bound_n, atol=1e-9)
    bound = (torch.logsumexp(torch.from_numpy(message_nj) + mu_nj, dim=1) - upper_n).sum()
    bound.backward()
    np.testing.assert_allclose(found.log_evidence, bound.item(), atol=1e-9)
    np.testing.assert_allclose(found.statistics.gradient_p, theta_p.grad, rtol=1e-5, atol=1e-7)
    weight_nj = a_nj * (1 - a_nj)
    np.testing.assert_allclose(
        found.statistics.precision_jmm, torch.einsum("nj,nm,nk->jmk", weight_nj, w_nm, w_nm).detach(), atol=1e-9
    )


# -- statistics ----------------------------------------------------------------------------------------------


def test_statistics_of_shards_add_up_with_their_gradients() -> None:
    prior, message_nj = process(held=False), messages(6, 3)
    whole = judged(prior, message_nj)
    parts = [judged(prior.over(rows), message_nj[rows]) for rows in (slice(0, 2), slice(2, 6))]
    added = parts[0].statistics + parts[1].statistics
    np.testing.assert_allclose(added.precision_jmm, whole.statistics.precision_jmm, atol=1e-12)
    np.testing.assert_allclose(added.shift_jm, whole.statistics.shift_jm, atol=1e-12)
    np.testing.assert_allclose(added.gradient_p, whole.statistics.gradient_p, atol=1e-10)
    np.testing.assert_allclose(sum(part.log_evidence for part in parts), whole.log_evidence)
    assert added.items == 6


# -- items without features, models --------------------------------------------------------------------------


def test_items_without_features_have_class_shares_of_their_own() -> None:
    rng = np.random.default_rng(4)
    features = rng.normal(size=(400, 2))
    features[:300] = np.nan
    truth = np.where(np.arange(400) < 300, rng.choice(3, p=[0.7, 0.2, 0.1], size=400), 2)
    message_nj = np.where(np.eye(3)[truth] > 0, 0.0, -np.inf)
    message_nj[:50] = 0.0
    counted_n = np.arange(400) >= 50
    prior = replace(
        VariationalGP.unlearned(Inputs.standardised(features), CovarianceModule(2, False), 3, 20, "cpu", rng), rate=0.0
    )
    for _ in range(60):
        prior = prior.learn(prior.posterior(message_nj.copy(), counted_n).statistics)
    q_nj = prior.posterior(message_nj.copy(), counted_n).q_nj
    shares = np.bincount(truth[50:300], minlength=3) / 250
    np.testing.assert_allclose(q_nj[:50], np.tile(shares, (50, 1)), atol=0.01)
    assert np.ptp(prior.latent()["latent mean"][:300], axis=0).max() == 0


def test_what_models_say_is_a_message_beside_their_class_shares() -> None:
    rng = np.random.default_rng(5)
    pool_nj = np.log(rng.dirichlet([4.0, 2.0, 1.0], size=6))
    pool_nj[0] = np.nan
    prior = process()
    beside = replace(prior, inputs=Inputs.standardised(prior.inputs.features, pool_nj))
    message_nj = messages(6, 3)
    mean_j = np.exp(pool_nj[1:]).sum(axis=0) + 1 / 3
    heard_nj = np.vstack((np.zeros(3), pool_nj[1:] - np.log(mean_j / mean_j.sum())))
    one, other = judged(beside, message_nj), judged(prior, message_nj + heard_nj)
    np.testing.assert_allclose(one.q_nj, other.q_nj, atol=1e-12)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-12)


def test_inducing_points_are_the_rows_or_lie_among_them() -> None:
    rng = np.random.default_rng(6)
    x_nd = torch.from_numpy(rng.normal(size=(500, 2)))
    few = inducing_points(torch.cat((x_nd[:5], x_nd[:5])), 5, rng)
    np.testing.assert_allclose(few, torch.unique(x_nd[:5], dim=0))
    many = inducing_points(x_nd, 20, rng)
    assert many.shape == (20, 2)
    nearest = torch.cdist(x_nd, many).amin(dim=1)
    assert nearest.mean() < 0.9 * torch.cdist(x_nd, x_nd[:20]).amin(dim=1).mean()


# -- gpytorch's own machinery --------------------------------------------------------------------------------


@pytest.fixture
def no_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variational_gp, "CONSTANT", 0.0)


@pytest.mark.usefixtures("no_constants")
def test_bound_marginals_and_natural_steps_are_those_of_gpytorch() -> None:
    prior, message_nj = process(12, count=5), messages(12, 3)
    prior = replace(prior, step=0.3)
    for _ in range(3):
        prior = prior.learn(judged(prior, message_nj).statistics)
    prior.covariance.module.kernel.initialize(outputscale=2.0)
    prior.covariance.module.kernel.base_kernel.initialize(lengthscale=torch.tensor([1.0, 1.5]).double())
    model = CrowdGP(prior)
    x_nd, _ = prior.inputs.tensors(slice(None), prior.shift_jm)
    fitted, here = model(x_nd), prior.latent()
    np.testing.assert_allclose(fitted.mean.T.detach(), here["latent mean"], atol=1e-6)
    near = 4 * JITTER * 2.0  # which gpytorch adds to the variance of the items too
    np.testing.assert_allclose(fitted.variance.T.detach(), here["latent variance"], atol=near)
    theirs = bound(model, x_nd, torch.from_numpy(message_nj)).item()
    np.testing.assert_allclose(theirs, objective(prior, message_nj), atol=1e-3)
    natural_step(model, x_nd, torch.from_numpy(message_nj), 0.3)
    learned = prior.learn(judged(prior, message_nj).statistics)
    np.testing.assert_allclose(model.q.natural_vec.detach(), learned.shift_jm[:, :5], atol=1e-4)
    np.testing.assert_allclose(-2 * model.q.natural_mat.detach(), learned.precision_jmm[:, :5, :5], atol=1e-4)
