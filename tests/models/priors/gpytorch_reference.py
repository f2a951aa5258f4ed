"""The same process with gpytorch's own machinery: ApproximateGP, VariationalStrategy, VariationalELBO, NGD.

`CrowdLikelihood` is the likelihood of messages: log sum_j exp(L_nj) softmax_j(f_n), its expectation bounded as in
`hitl.models.priors.variational_gp`. A second implementation for tests and for the benchmark of what it costs.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from hitl.models.numerics.softmax_bound import tilted
from hitl.models.priors.covariance import JITTER, gpytorch
from hitl.models.priors.variational_gp import VariationalGP


class CrowdLikelihood(gpytorch.likelihoods.Likelihood):  # type: ignore[misc]
    """Messages (N, J) as the targets of a process with batch shape (J,)."""

    def expected_log_prob(self, target: Any, marginals: Any, *args: Any, **kwargs: Any) -> Any:
        mean_nj, variance_nj = marginals.mean.T, marginals.variance.T
        with torch.no_grad():
            _, a_nj = tilted(mean_nj, variance_nj)
        logits_nj = mean_nj + (0.5 - a_nj) * variance_nj  # the tilt held: where it is best, that changes no gradient
        bound_n = 0.5 * (a_nj**2 * variance_nj).sum(1) + torch.logsumexp(logits_nj, dim=1)
        return torch.logsumexp(target + mean_nj, dim=1) - bound_n

    def forward(self, function_samples: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class CrowdGP(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    """One whitened process a class, with a shared kernel and natural parameters."""

    def __init__(self, prior: VariationalGP) -> None:
        classes, size = prior.shift_jm.shape[0], len(prior.covariance.z_md)
        q = gpytorch.variational.NaturalVariationalDistribution(size, batch_shape=torch.Size([classes]))
        jitter = JITTER * float(prior.covariance.module.variance().detach())
        strategy = gpytorch.variational.VariationalStrategy(
            self, prior.covariance.z_md, q, learn_inducing_locations=False, jitter_val=jitter
        )
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), prior.covariance.module.kernel
        self.double()
        self.variational_strategy.variational_params_initialized.fill_(1)
        q.natural_vec.data = prior.shift_jm[:, :size].clone()
        q.natural_mat.data = -0.5 * prior.precision_jmm[:, :size, :size].clone()
        self.q = q

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def bound(model: CrowdGP, x_nd: Any, message_nj: Any) -> Any:
    """The evidence bound of all items, with the divergence in it."""
    objective = gpytorch.mlls.VariationalELBO(CrowdLikelihood(), model, num_data=len(x_nd))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model(x_nd)
        # VariationalELBO sums over the last axis of the expectations, and the divergence over classes is ours to sum
        expected = objective.likelihood.expected_log_prob(message_nj, fitted).sum()
        return expected - model.variational_strategy.kl_divergence().sum()


def natural_step(model: CrowdGP, x_nd: Any, message_nj: Any, step: float) -> None:
    """One step of gpytorch's NGD."""
    optimiser = gpytorch.optim.NGD(model.variational_parameters(), num_data=1, lr=step)
    optimiser.zero_grad()
    (-bound(model, x_nd, message_nj)).backward()
    optimiser.step()
