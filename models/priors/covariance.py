"""Covariance of a Gaussian process over features, by gpytorch's kernels, and its hyperparameters.

    k(x, x') = v exp( -1/2 sum_d (x_d - x'_d)^2 / l_d^2 )        x standardized, or embedded by a backbone

v is the variance, l_d the length scales: one for all D features, or one each (automatic relevance determination). Both
are at the mode of their posterior in the log. The prior of l_d depends on the number of features (Hvarfner, Hellsten &
Nardi 2024); that of v expects features to tell classes apart: with v = 10 the logits of two classes differ by 4.5, odds
of 90.

    log l_d ~ N(sqrt 2 + 1/2 log D, 3)        log v ~ N(log 10, 1)

A function is represented by its values at M inducing points z, whitened: with k(z, z) = L L^T,

    f(x) = w(x)^T u + e(x)        u ~ N(0, I)        w(x) = L^-1 k(z, x)        var e(x) = v - |w(x)|^2

Kernel parameters and backbone weights are one vector theta. Its gradient is a sum over items of the part
through k(z, x), and of the part through L^-1, which is summed first and goes through the factorization once.
"""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

import numpy as np

from hitl.errors import BadSettings
from hitl.models.predictors.predictor import required

torch: Any = required("torch", "a Gaussian process", "hitl-toolkit[gp]")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # gpytorch imports functions that torch has deprecated
    gpytorch: Any = required("gpytorch", "a Gaussian process", "hitl-toolkit[gp]")

JITTER = 1e-6
"""Value added to the diagonal of k(z, z), as a share of the variance."""

VARIANCE = 10.0

KERNEL_RATE, BACKBONE_RATE = 0.1, 0.01
"""Initial Adam step (Kingma & Ba 2015) of a log hyperparameter and of a backbone weight."""

MOMENTUM, MEMORY = 0.5, 0.9


class CovarianceModule(torch.nn.Module):  # type: ignore[misc]
    """Backbone and kernel, called with the name of a method so that `torch.func.functional_call` reaches all of it."""

    def __init__(self, n_features: int, ard: bool, backbone: Any | None = None) -> None:
        super().__init__()
        self.backbone = torch.nn.Identity() if backbone is None else backbone.double().eval()
        with torch.no_grad():
            n_features = self.backbone(torch.zeros((1, n_features), dtype=torch.float64)).shape[1]
        in_the_log = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=n_features if ard else None, lengthscale_constraint=in_the_log)
        self.kernel = gpytorch.kernels.ScaleKernel(rbf, outputscale_constraint=in_the_log).double()
        self.middle = math.sqrt(2) + 0.5 * math.log(n_features)
        rbf.initialize(lengthscale=math.exp(self.middle))
        self.kernel.initialize(outputscale=VARIANCE)

    def forward(self, wanted: str, *given: Any) -> Any:
        """Call the method named `wanted`."""
        return getattr(self, wanted)(*given)

    def embedded(self, x_nd: Any) -> Any:
        """Embed (n, D) rows by the backbone."""
        return self.backbone(x_nd)

    def between(self, x_nd: Any, z_md: Any) -> Any:
        """Return (n, M) covariances of embedded rows."""
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
        module: backbone and kernel.
        z_md: (M, D) inducing points, standardized, before the backbone.
        theta_p: (P,) log kernel parameters and weights, in the order of `module.named_parameters()`.
        moments_2p: (2, P) running mean and mean square of the gradients, for Adam.
        steps: steps taken.
    """

    module: CovarianceModule
    z_md: Any
    theta_p: Any
    moments_2p: Any
    steps: int = 0

    @classmethod
    def unlearned(cls, module: CovarianceModule, z_md: Any) -> Self:
        """Build the covariance with the module's parameters, on the device of the points."""
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
        """Take an Adam step up log evidence (with this gradient) plus log density; `rate` in (0, 1]."""
        theta_p = self.theta_p.detach().clone().requires_grad_()
        self.call(theta_p, "log_density").backward()
        gradient_p = gradient_p + theta_p.grad
        mean_p = MOMENTUM * self.moments_2p[0] + (1 - MOMENTUM) * gradient_p
        square_p = MEMORY * self.moments_2p[1] + (1 - MEMORY) * gradient_p**2
        steps = self.steps + 1
        size_p = mean_p / (1 - MOMENTUM**steps) / ((square_p / (1 - MEMORY**steps)).sqrt() + 1e-8)
        learned_p = self.theta_p + rate * self._rates() * size_p
        return replace(self, theta_p=learned_p, moments_2p=torch.stack((mean_p, square_p)), steps=steps)

    def _rates(self) -> Any:
        rates = [
            torch.full((parameter.numel(),), KERNEL_RATE if name.startswith("kernel.") else BACKBONE_RATE)
            for name, parameter in self.module.named_parameters()
        ]
        return torch.cat(rates).to(self.theta_p)


class Basis:
    """w(x) and var e(x) of feature rows at one theta, with the gradient in theta if it is learned.

    Gradients of scalars may be backpropagated through the rows; `gradient` then returns their sum.
    """

    def __init__(self, covariance: Covariance, learning: bool) -> None:
        self.covariance, self.learning = covariance, learning
        self.theta_p = covariance.theta_p.detach().clone().requires_grad_(learning)
        with torch.set_grad_enabled(learning):
            self._points = covariance.call(self.theta_p, "embedded", covariance.z_md)
            k_mm = covariance.call(self.theta_p, "between", self._points, self._points)
            eye_mm = torch.eye(len(k_mm), dtype=k_mm.dtype, device=k_mm.device)
            jitter = JITTER * covariance.call(self.theta_p, "variance")
            factor_mm = torch.linalg.cholesky(k_mm + jitter * eye_mm)
            self._inverse = torch.linalg.solve_triangular(factor_mm, eye_mm, upper=False)
        # Leaves of the rows' graphs: gradients are summed here and propagated to theta once. Without a backbone the
        # points do not depend on theta, and the kernel has its gradient in closed form.
        self.points_me = self._points.detach().requires_grad_(self._points.requires_grad)
        self.inverse_mm = self._inverse.detach().requires_grad_(learning)

    def rows(self, x_nd: Any) -> tuple[Any, Any]:
        """Return (n, M) w(x) and (n,) var e(x)."""
        with torch.set_grad_enabled(self.learning):
            embedded = self.covariance.call(self.theta_p, "embedded", x_nd)
            w_nm = self.covariance.call(self.theta_p, "between", embedded, self.points_me) @ self.inverse_mm.T
            rest_n = self.covariance.call(self.theta_p, "variance") - (w_nm * w_nm).sum(1)
            return w_nm, rest_n.clamp_min(0.0)

    def gradient(self) -> Any:
        """Return (P,) the gradient in theta of everything that was backpropagated."""
        ends = [(end, leaf.grad) for end, leaf in ((self._inverse, self.inverse_mm), (self._points, self.points_me))]
        ends = [(end, grad) for end, grad in ends if grad is not None and end.requires_grad]
        if ends:
            torch.autograd.backward([end for end, _ in ends], [grad for _, grad in ends])
        return torch.zeros_like(self.theta_p) if self.theta_p.grad is None else self.theta_p.grad.detach()


def backbone_of(given: Any, seed: int) -> Any:
    """Copy or build a module from a module, a callable or "package.module:name". Raise BadSettings for others."""
    if isinstance(given, str):
        module, _, name = given.partition(":")
        try:
            given = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise BadSettings(f"combine.options.backbone is {given!r}: {error}; expected package.module:name") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = deepcopy(given) if isinstance(given, torch.nn.Module) or not callable(given) else given()
    if not isinstance(made, torch.nn.Module):
        raise BadSettings(f"combine.options.backbone is a {type(made).__name__}; expected a torch module")
    return made


CANDIDATES = 20
"""Number of candidate items per inducing point."""

LLOYD = 10
"""Iterations of k-means. Few suffice, because inducing points only need to be spread like the items."""


def inducing_points(x_nd: Any, count: int, rng: np.random.Generator) -> Any:
    """Return (M, D) at most `count` points that represent the rows: all distinct rows if few enough, else k-means
    centers."""
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
