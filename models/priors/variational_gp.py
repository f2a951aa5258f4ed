"""Gaussian process over features as truth prior, by variational inference with inducing points.

    f_j(x) = c_j + g_j(x)      c_j ~ N(0, pi^2 / 6), g_j ~ GP(0, k)      for every class j
    z_n | f ~ softmax(f_1(x_n), ..., f_J(x_n))

At items without features f_j is another constant c_j, which acts as a class share. (The variance of c is the variance
of the logarithm of a share under a flat Dirichlet prior.) Model probabilities are messages like those from annotators:
o_nj is the log probability of the models' pool, less the log of its mean over the items, because f already contains
class shares. o_nj is 0 where all models abstain.

Constants and inducing values (see `covariance`) are one vector u_j ~ N(0, I), and f_nj = w_n^T u_j + e_nj. With
q(u_j) = N(m_j, S_j) the marginal of f_nj has mean mu_nj = w_n^T m_j and variance s_nj = var e_n + w_n^T S_j w_n.
With messages L[n, j] that include o, the log evidence is at least (Jensen over z and u, and `numerics.softmax_bound`)

    sum_n [ log sum_j exp(L_nj + mu_nj) - B(mu_n, s_n) ]  -  sum_j KL(q(u_j) || p(u_j))

with beliefs q_nj = softmax_j(L_nj + mu_nj). The derivatives of the sum are q_nj - a_nj in mu_nj and
-1/2 a_nj (1 - a_nj) in s_nj, a the tilt of B. So q(u_j) is stationary where its natural parameters are

    S_j^-1 = I + sum_n a_nj (1 - a_nj) w_n w_n^T
    S_j^-1 m_j = sum_n [ q_nj - a_nj + a_nj (1 - a_nj) w_n^T m_j ] w_n

The sums are the statistics, which add up over shards. A step of natural-gradient ascent (Khan & Lin 2017) goes at most
halfway to them: if two classes compete for an item, full steps of both would overshoot by a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.inference.engine import Additive
from hitl.models.numerics.softmax_bound import tilted
from hitl.models.numerics.votes import shares
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.covariance import CANDIDATES, Basis, Covariance, CovarianceModule, inducing_points, torch

CONSTANT = math.pi / math.sqrt(6)
"""Standard deviation of the constants."""

LARGEST_STEP = 0.5
SAMPLED_STEP = 0.2
"""Step sizes toward the statistics of all items, and of a sample. With the latter about the last five samples count."""

MEAN, VARIANCE = "latent mean", "latent variance"
CENTER, SCALE, POINTS, THETA = "gp center", "gp scale", "gp inducing points", "gp hyper-parameters"
PRECISION, SHIFT, SHARES = "gp precision", "gp shift", "gp log shares of models"
"""Names of parameters in a consensus: of the functions at its items, and of the process."""

CHUNK = 2**24
"""Maximum number of cells, items x classes x M, in the tables of a chunk of items."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Features and models' probabilities of the items.

    Attributes:
        features: (N, D), rows of NaN for items without features.
        pool_nj: (N, J) log probabilities of the pool of models, rows of NaN where all abstain; None without models.
        center_d, scale_d: (D,) means and standard deviations by which features are standardized.
        log_share_j: (J,) log mean of the pool over the items of the fit; 0 without models.
    """

    features: Floats
    pool_nj: Floats | None
    center_d: Floats
    scale_d: Floats
    log_share_j: Floats | float = 0.0

    @classmethod
    def standardised(cls, features: Floats, pool_nj: Floats | None = None) -> Self:
        """Build inputs standardized by the items with features, with shares from the items that a model predicts."""
        there = features[~np.isnan(features).any(axis=1)]
        center_d, scale_d = np.zeros(features.shape[1]), np.ones(features.shape[1])
        if len(there):
            center_d, scale_d = there.mean(axis=0), there.std(axis=0)
        log_share_j = 0.0 if pool_nj is None else np.log(shares(np.exp(pool_nj[~np.isnan(pool_nj[:, 0])])))
        return cls(features, pool_nj, center_d, np.where(scale_d > 0, scale_d, 1.0), log_share_j)

    def over(self, rows: Any) -> Self:
        pool_nj = None if self.pool_nj is None else self.pool_nj[rows]
        return replace(self, features=self.features[rows], pool_nj=pool_nj)

    def __len__(self) -> int:
        return len(self.features)

    def tensors(self, rows: slice, like: Any) -> tuple[Any, Any]:
        """Return (n, D) standardized features, 0 if missing, and (n,) 1 if present, else 0."""
        x_nd = (self.features[rows] - self.center_d) / self.scale_d
        there_n = ~np.isnan(x_nd).any(axis=1)
        x_nd[~there_n] = 0.0
        return torch.from_numpy(x_nd).to(like), torch.from_numpy(there_n).to(like)

    def heard(self, message_nj: Floats, rows: slice) -> Floats:
        """Return (n, J) messages of these rows, including those of models."""
        if self.pool_nj is None:
            return message_nj[rows]
        return message_nj[rows] + np.nan_to_num(self.pool_nj[rows] - self.log_share_j)


@dataclass(frozen=True, eq=False)
class GPStatistics(Additive):
    """Sums over `items` items of the natural parameters, and the gradient of the bound in the hyperparameters.

    Statistics add up over shards.
    """

    precision_jmm: Any
    shift_jm: Any
    gradient_p: Any
    items: float

    def standing_for(self, items: float) -> GPStatistics:
        """Scale the statistics of a sample to this many items."""
        share = items / max(self.items, 1)
        return GPStatistics(
            share * self.precision_jmm, share * self.shift_jm, share * self.gradient_p, share * self.items
        )


@dataclass(frozen=True, eq=False)
class VariationalGP:
    """Gaussian process prior over J classes.

    Attributes:
        inputs: features and model probabilities of the items.
        covariance: covariance at its hyperparameters, with M - 2 inducing points.
        precision_jmm, shift_jm: (J, M, M) S^-1 and (J, M) S^-1 m of q(u_j). Axis M holds the inducing values, the
            constant of items with features, and the constant of items without.
        step: step size of `learn` toward the statistics, in (0, 1/2].
        rate: fraction of the full step size for hyperparameters, in [0, 1]; 0 keeps them fixed.
    """

    inputs: Inputs
    covariance: Covariance
    precision_jmm: Any
    shift_jm: Any
    step: float = LARGEST_STEP
    rate: float = 1.0

    @classmethod
    def unlearned(
        cls, inputs: Inputs, module: CovarianceModule, n_classes: int, count: int, device: str, rng: np.random.Generator
    ) -> Self:
        """Build the prior with q(u) = p(u) and at most `count` inducing points."""
        like = torch.zeros((), dtype=torch.float64, device=device)
        rows = np.flatnonzero(~np.isnan(inputs.features).any(axis=1))
        if rows.size > CANDIDATES * count:
            rows = np.sort(rng.choice(rows, CANDIDATES * count, replace=False))
        z_md = inducing_points(inputs.over(rows).tensors(slice(None), like)[0], count, rng)
        eye_mm = torch.eye(len(z_md) + 2).to(like)
        covariance = Covariance.unlearned(module, z_md)
        return cls(inputs, covariance, eye_mm.repeat(n_classes, 1, 1), eye_mm.new_zeros((n_classes, len(eye_mm))))

    @classmethod
    def restored(
        cls,
        parameters: Mapping[str, Floats],
        features: Floats,
        pool_nj: Floats | None,
        module: CovarianceModule,
        device: str,
    ) -> Self:
        """Restore the process from `parameters`, over these items."""
        z_md, theta_p, precision_jmm, shift_jm = (
            torch.from_numpy(np.array(parameters[name])).to(device) for name in (POINTS, THETA, PRECISION, SHIFT)
        )
        inputs = Inputs(features, pool_nj, *(parameters[name] for name in (CENTER, SCALE, SHARES)))
        return cls(inputs, Covariance.unlearned(module, z_md).at(theta_p), precision_jmm, shift_jm)

    @property
    def parameters(self) -> dict[str, Floats]:
        """Parameters in a consensus, by name."""
        tensors = {POINTS: self.covariance.z_md, THETA: self.covariance.theta_p}
        tensors |= {PRECISION: self.precision_jmm, SHIFT: self.shift_jm}
        kept: dict[str, Floats] = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        log_share_j = np.asarray(self.inputs.log_share_j)
        return kept | {CENTER: self.inputs.center_d, SCALE: self.inputs.scale_d, SHARES: log_share_j}

    def over(self, rows: Any) -> Self:
        return replace(self, inputs=self.inputs.over(rows))

    def paced(self, sampled: bool, rate: float) -> Self:
        return replace(self, step=SAMPLED_STEP if sampled else LARGEST_STEP, rate=rate)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        message_nj = np.asarray(message_nj)
        found = _Sums(self)
        log_evidence = 0.0
        for rows in self._chunks():
            mu_nj, s_nj, add = found.marginals(rows)
            logits_nj = mu_nj + torch.from_numpy(self.inputs.heard(message_nj, rows)).to(mu_nj)
            bound_n, a_nj = tilted(mu_nj, s_nj)
            count_n = torch.from_numpy(counted_n[rows]).to(self.shift_jm)
            log_evidence += float((count_n * (torch.logsumexp(logits_nj, dim=1) - bound_n)).sum())
            q_nj = torch.softmax(logits_nj, dim=1)
            add(q_nj, a_nj, count_n)
            message_nj[rows] = q_nj.cpu().numpy()
        return Posterior(message_nj, log_evidence, found.statistics())

    def statistics(self, q_nj: Floats, counted_n: Mask) -> GPStatistics:
        found = _Sums(self)
        for rows in self._chunks():
            mu_nj, s_nj, add = found.marginals(rows)
            _, a_nj = tilted(mu_nj, s_nj)
            beliefs_nj, count_n = (torch.from_numpy(part[rows]).to(self.shift_jm) for part in (q_nj, counted_n))
            add(beliefs_nj, a_nj, count_n)
        return found.statistics()

    def latent(self) -> dict[str, Floats]:
        """Return MEAN and VARIANCE -> (N, J) means and variances of the functions at the items."""
        found = _Sums(self.paced(False, 0.0))
        parts = [found.marginals(rows)[:2] for rows in self._chunks()]
        mean_nj, variance_nj = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return {MEAN: mean_nj, VARIANCE: variance_nj}

    def learn(self, statistics: GPStatistics) -> Self:
        """Take a natural-gradient step of q(u) and, unless `rate` is 0, a gradient step of the hyperparameters."""
        size = self.shift_jm.shape[1]
        eye_mm = torch.eye(size, dtype=self.shift_jm.dtype, device=self.shift_jm.device)
        learned = replace(
            self,
            precision_jmm=torch.lerp(self.precision_jmm, eye_mm + statistics.precision_jmm, self.step),
            shift_jm=torch.lerp(self.shift_jm, statistics.shift_jm, self.step),
        )
        if not self.rate:
            return learned
        return replace(learned, covariance=self.covariance.ascended(statistics.gradient_p, self.rate))

    def log_density(self) -> float:
        factor_jmm = torch.linalg.cholesky(self.precision_jmm)
        m_jm = torch.cholesky_solve(self.shift_jm[..., None], factor_jmm)[..., 0]
        s_jmm = torch.cholesky_inverse(factor_jmm)
        trace = s_jmm.diagonal(dim1=1, dim2=2).sum()
        log_det = 2 * factor_jmm.diagonal(dim1=1, dim2=2).log().sum()
        divergence = 0.5 * (trace + (m_jm * m_jm).sum() - m_jm.numel() + log_det)
        return self.covariance.log_density() - float(divergence)

    def _chunks(self) -> Iterator[slice]:
        size = max(1, CHUNK // self.shift_jm.numel())
        return (slice(begin, begin + size) for begin in range(0, len(self.inputs), size))


class _Sums:
    """Pass over the items: computes the marginals of chunks, and sums up the statistics.

    With products v_nj = S_j w_n the variances are s_nj = var e_n + w_n^T v_nj, and the gradient of the bound in w_n is

        sum_j [ (q_nj - a_nj) m_j  -  a_nj (1 - a_nj) v_nj ]

    so torch differentiates only up to w_n, and no product is computed twice. With two classes a_n0 (1 - a_n0) =
    a_n1 (1 - a_n1), so S_0 = S_1, which is stored once.
    """

    def __init__(self, prior: VariationalGP) -> None:
        self.prior, self.learning = prior, prior.rate > 0
        self.basis = Basis(prior.covariance, self.learning)
        n_classes = len(prior.precision_jmm)
        alike = n_classes == 2 and bool(torch.equal(prior.precision_jmm[0], prior.precision_jmm[1]))
        self.kinds = 1 if alike else n_classes
        factor_jmm = torch.linalg.cholesky(prior.precision_jmm[: self.kinds])
        self.m_jm = torch.cholesky_solve(prior.shift_jm[..., None], factor_jmm.expand_as(prior.precision_jmm))[..., 0]
        covariance_jmm = torch.cholesky_inverse(factor_jmm)
        self.covariance_mjm = covariance_jmm.transpose(0, 1).reshape(len(covariance_jmm[0]), -1)
        self.precision_jmm = torch.zeros_like(covariance_jmm)
        self.shift_jm = torch.zeros_like(prior.shift_jm)
        self.items = 0.0

    def marginals(self, rows: slice) -> tuple[Any, Any, Any]:
        """Return (n, J) means and variances, and a function of beliefs, tilts and weights that adds to the sums."""
        inputs = self.prior.inputs
        x_nd, there_n = inputs.tensors(rows, self.shift_jm)
        given_nm, rest_n = self.basis.rows(x_nd)
        own_n1 = CONSTANT * there_n[:, None]
        w_nm = torch.cat((given_nm.detach() * there_n[:, None], own_n1, CONSTANT - own_n1), dim=1)
        mu_nj = w_nm @ self.m_jm.T
        v_njm = (w_nm @ self.covariance_mjm).view(len(w_nm), self.kinds, -1)
        spread_nj = torch.bmm(v_njm, w_nm[:, :, None])[..., 0].clamp_min(0.0)
        s_nj = ((rest_n.detach() * there_n)[:, None] + spread_nj).expand_as(mu_nj)

        def add(q_nj: Any, a_nj: Any, count_n: Any) -> None:
            gradient_nj, curvature_nj = (count_n[:, None] * part for part in (q_nj - a_nj, a_nj * (1 - a_nj)))
            curvature_nj = curvature_nj[:, : self.kinds]
            for precision_mm, curvature_n in zip(self.precision_jmm, curvature_nj.T, strict=True):
                precision_mm.addmm_((curvature_n[:, None] * w_nm).T, w_nm)
            self.shift_jm += (gradient_nj + curvature_nj * mu_nj).T @ w_nm
            self.items += float(count_n.sum())
            if self.learning:
                each = len(self.shift_jm) // self.kinds  # classes per stored matrix
                downwards_nm = torch.bmm(each * curvature_nj[:, None], v_njm)[:, 0]
                slope_nm = (gradient_nj @ self.m_jm - downwards_nm)[:, :-2] * there_n[:, None]
                slope_n = -0.5 * each * curvature_nj.sum(1) * there_n
                torch.autograd.backward([given_nm, rest_n], [slope_nm, slope_n])

        return mu_nj, s_nj, add

    def statistics(self) -> GPStatistics:
        precision_jmm = self.precision_jmm.expand_as(self.prior.precision_jmm)
        return GPStatistics(precision_jmm, self.shift_jm, self.basis.gradient(), self.items)


def fits(parameters: Mapping[str, Floats], n_features: int, module: CovarianceModule) -> bool:
    """Return True if parameters in a consensus match this number of features and this kernel."""
    if not {CENTER, THETA} <= parameters.keys():
        return False
    size = sum(parameter.numel() for parameter in module.parameters())
    return len(parameters[CENTER]) == n_features and len(parameters[THETA]) == size
