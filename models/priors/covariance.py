"""Covariance of a Gaussian process over features, by gpytorch's kernels, and its hyperparameters.

    k(x, x') = v exp( -1/2 sum_d (x_d - x'_d)^2 / l_d^2 )        x standardized

v is the variance, l_d the length scales: one for all D features, or one per feature (automatic relevance
determination). Their logarithms are at the posterior mode. The prior of l_d depends on the number of features
(Hvarfner, Hellsten & Nardi 2024). The prior of v expects that features separate the classes: with v = 10 the logits of
two classes typically differ by 4.5, which means odds of 90.

    log l_d ~ N(sqrt 2 + 1/2 log D, 3)        log v ~ N(log 10, 1)

A function is represented by its values at M inducing points z, whitened: with k(z, z) = L L^T,

    f(x) = w(x)^T u + e(x)        u ~ N(0, I)        w(x) = L^-1 k(z, x)        var e(x) = v - |w(x)|^2

theta is the vector of the log kernel parameters. The gradient in theta has two parts, both summed over items: through
k(z, x), and through L^-1. The latter is summed first, and then propagated through the factorization once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hitl.models.predictors.predictor import required

torch: Any = required("torch", "a Gaussian process", "hitl-toolkit[gp]")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # gpytorch imports functions that torch has deprecated
    gpytorch: Any = required("gpytorch", "a Gaussian process", "hitl-toolkit[gp]")

JITTER = 1e-6
"""Value added to the diagonal of k(z, z), as a fraction of the variance."""

VARIANCE = 10.0

RATE = 0.1
"""Initial Adam step (Kingma & Ba 2015) of a log hyperparameter."""

MOMENTUM, MEMORY = 0.5, 0.9


class CovarianceModule(torch.nn.Module):  # type: ignore[misc]
    """Kernel. `forward` takes the name of a method, so that `torch.func.functional_call` can call each of them."""

    def __init__(self, n_features: int, ard: bool) -> None:
        super().__init__()
        in_the_log = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=n_features if ard else None, lengthscale_constraint=in_the_log)
        self.kernel = gpytorch.kernels.ScaleKernel(rbf, outputscale_constraint=in_the_log).double()
        self.middle = math.sqrt(2) + 0.5 * math.log(n_features)
        rbf.initialize(lengthscale=math.exp(self.middle))
        self.kernel.initialize(outputscale=VARIANCE)

    def forward(self, wanted: str, *given: Any) -> Any:
        """Call the method named `wanted`."""
        return getattr(self, wanted)(*given)

    def between(self, x_nd: Any, z_md: Any) -> Any:
        """Return (n, M) covariances of items, from their features (n, D), with points (M, D)."""
        return self.kernel(x_nd, z_md).to_dense()

    def variance(self) -> Any:
        """Return the variance v."""
        return self.kernel.outputscale

    def log_density(self) -> Any:
        log_length = self.kernel.base_kernel.lengthscale.log()
        log_variance = self.kernel.outputscale.log()
        return -((log_length - self.middle) ** 2).sum() / 6 - (log_variance - math.log(VARIANCE)) ** 2 / 2


@dataclass(frozen=True, eq=False)
class Covariance:
    """Covariance at hyperparameters theta.

    Attributes:
        module: the kernel.
        z_md: (M, D) inducing points, standardized.
        theta_p: (P,) log kernel parameters, in the order of `module.named_parameters()`.
        moments_2p: (2, P) running mean and mean square of the gradients, for Adam.
        steps: number of Adam steps taken.
    """

    module: CovarianceModule
    z_md: Any
    theta_p: Any
    moments_2p: Any
    steps: int = 0

    @classmethod
    def unlearned(cls, module: CovarianceModule, z_md: Any) -> Self:
        """Build the covariance with the module's present parameters, on the device of the points."""
        module.to(z_md.device)
        theta_p = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()
        return cls(module, z_md, theta_p, torch.zeros((2, theta_p.numel()), dtype=theta_p.dtype, device=z_md.device))

    def at(self, theta_p: Any) -> Self:
        """Return the covariance at other hyperparameters."""
        return replace(self, theta_p=theta_p)

    def call(self, theta_p: Any, wanted: str, *given: Any) -> Any:
        """Call a method of the module at theta."""
        parameters, begin = {}, 0
        for name, parameter in self.module.named_parameters():
            parameters[name] = theta_p[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
        return torch.func.functional_call(self.module, parameters, (wanted, *given))

    def log_density(self) -> float:
        with torch.no_grad():
            return float(self.call(self.theta_p, "log_density"))

    def ascended(self, gradient_p: Any, rate: float) -> Self:
        """Take an Adam step up log evidence, whose gradient is `gradient_p`, plus log density.

        `rate` in (0, 1] scales the step.
        """
        theta_p = self.theta_p.detach().clone().requires_grad_()
        self.call(theta_p, "log_density").backward()
        gradient_p = gradient_p + theta_p.grad
        mean_p = MOMENTUM * self.moments_2p[0] + (1 - MOMENTUM) * gradient_p
        square_p = MEMORY * self.moments_2p[1] + (1 - MEMORY) * gradient_p**2
        steps = self.steps + 1
        size_p = mean_p / (1 - MOMENTUM**steps) / ((square_p / (1 - MEMORY**steps)).sqrt() + 1e-8)
        learned_p = self.theta_p + rate * RATE * size_p
        return replace(self, theta_p=learned_p, moments_2p=torch.stack((mean_p, square_p)), steps=steps)


class Basis:
    """Function from features x to w(x) and var e(x), at one theta.

    If `learning`, gradients may be backpropagated through the results of `rows`. `gradient` then returns their sum in
    theta.
    """

    def __init__(self, covariance: Covariance, learning: bool) -> None:
        self.covariance, self.learning = covariance, learning
        self.theta_p = covariance.theta_p.detach().clone().requires_grad_(learning)
        with torch.set_grad_enabled(learning):
            k_mm = covariance.call(self.theta_p, "between", covariance.z_md, covariance.z_md)
            eye_mm = torch.eye(len(k_mm), dtype=k_mm.dtype, device=k_mm.device)
            jitter = JITTER * covariance.call(self.theta_p, "variance")
            factor_mm = torch.linalg.cholesky(k_mm + jitter * eye_mm)
            self._inverse = torch.linalg.solve_triangular(factor_mm, eye_mm, upper=False)
        # A leaf of the rows' graphs: gradients are summed here and propagated to theta once.
        self.inverse_mm = self._inverse.detach().requires_grad_(learning)

    def rows(self, x_nd: Any) -> tuple[Any, Any]:
        """Return (n, M) w(x) and (n,) var e(x)."""
        with torch.set_grad_enabled(self.learning):
            w_nm = self.covariance.call(self.theta_p, "between", x_nd, self.covariance.z_md) @ self.inverse_mm.T
            rest_n = self.covariance.call(self.theta_p, "variance") - (w_nm * w_nm).sum(1)
            return w_nm, rest_n.clamp_min(0.0)

    def gradient(self) -> Any:
        """Return (P,) the sum of all gradients that were backpropagated, in theta."""
        if self.inverse_mm.grad is not None and self._inverse.requires_grad:
            torch.autograd.backward([self._inverse], [self.inverse_mm.grad])
        return torch.zeros_like(self.theta_p) if self.theta_p.grad is None else self.theta_p.grad.detach()


CANDIDATES = 20
"""Maximum number of items, per inducing point, from which the points are computed. More items are sampled."""

LLOYD = 10
"""Number of k-means iterations. A few suffice, because inducing points only need to be spread like the items."""


def inducing_points(x_nd: Any, count: int, rng: np.random.Generator) -> Any:
    """Return (M, D) points that represent the rows: the distinct rows if at most `count`, else `count` k-means centers.

    `rng` draws the rows where k-means starts.
    """
    distinct_nd = torch.unique(x_nd, dim=0)
    if len(distinct_nd) <= count:
        return distinct_nd
    center_md = distinct_nd[torch.from_numpy(rng.choice(len(distinct_nd), count, replace=False)).to(x_nd.device)]
    for _ in range(LLOYD):
        nearest_n = torch.cdist(x_nd, center_md).argmin(dim=1)
        size_m1 = torch.bincount(nearest_n, minlength=count).to(x_nd)[:, None]
        sum_md = torch.zeros_like(center_md).index_add_(0, nearest_n, x_nd)
        center_md = torch.where(size_m1 > 0, sum_md / size_m1.clamp_min(1.0), center_md)
    return center_md
