"""Upper bound on E log sum_i exp f_i for independent Gaussians f_i (Knowles & Minka 2011, "tilted" bound).

For any a, with f_i ~ N(mu_i, s_i) and s_i the variance,

    E log sum_i exp f_i  =  sum_i a_i mu_i + E log sum_i exp(f_i - sum_k a_k f_k)            (then Jensen)
                        <=  1/2 sum_i a_i^2 s_i + log sum_i exp(mu_i + (1/2 - a_i) s_i)  =:  B(a)

B is convex in a. At its minimum a = softmax(mu + (1/2 - a) s). There dB / da = 0, so the other derivatives are simple:

    dB / dmu_i = a_i        dB / ds_i = 1/2 a_i (1 - a_i)

a is found by Newton's method. With pi = softmax(mu + (1/2 - a) s), h_i = 1 / (1 + s_i pi_i) and v = a - pi the step is

    a_i  <-  a_i - h_i (v_i + pi_i c)        c = sum_i pi_i s_i h_i v_i / (1 - sum_i pi_i^2 s_i h_i)

(the Hessian is a diagonal less a rank-one term), which stays finite where s_i = 0. If a step changes the logits by d
(largest less smallest change), it is multiplied by log(1 + d) / d: log-sum-exp is self-concordant in the general sense
of Sun & Tran-Dinh 2019 (nu = 2), so such steps always descend. Near the minimum they are full Newton steps.
"""

from __future__ import annotations

from typing import Any

from hitl.models.predictors.predictor import required

torch: Any = required("torch", "a Gaussian process", "hitl-toolkit[gp]")

NEWTON_STEPS = 40
"""Maximum number of steps. Five are enough for variances up to 10, eight up to 30. B(a) is a bound after any number."""

ENOUGH = 1e-11
"""Change of a below which the search ends."""


def tilted(mean_nj: Any, variance_nj: Any) -> tuple[Any, Any]:
    """Return (N,) bounds on E log sum_j exp f_nj and (N, J) tilts a, from tensors (N, J) of means and variances >= 0.

    Rows of a sum to 1 and are the derivative of the bound in the means, even if the search ended early.
    """
    # Halfway between the minimum for small variances, softmax(mu), and that for large ones, which is nearly uniform.
    a_nj = torch.softmax(mean_nj / (1 + variance_nj.amax(1, keepdim=True) / 4), dim=1)
    for _ in range(NEWTON_STEPS):
        step_nj = _newton_step(mean_nj, variance_nj, a_nj)
        a_nj = a_nj - step_nj
        if not step_nj.numel() or float(step_nj.abs().amax()) < ENOUGH:
            break
    logits_nj = mean_nj + (0.5 - a_nj) * variance_nj
    return 0.5 * (a_nj * a_nj * variance_nj).sum(1) + torch.logsumexp(logits_nj, dim=1), logits_nj.softmax(1)


def _newton_step(mean_nj: Any, variance_nj: Any, a_nj: Any) -> Any:
    pi_nj = torch.softmax(mean_nj + (0.5 - a_nj) * variance_nj, dim=1)
    h_nj = 1 / (1 + variance_nj * pi_nj)
    v_nj = a_nj - pi_nj
    # 1 - sum pi^2 s h = sum pi h because pi sums to 1; this form adds only positive terms
    c_n1 = (pi_nj * variance_nj * h_nj * v_nj).sum(1, keepdim=True) / (pi_nj * h_nj).sum(1, keepdim=True)
    step_nj = h_nj * (v_nj + pi_nj * c_n1)
    moved_nj = variance_nj * step_nj
    d_n1 = moved_nj.amax(1, keepdim=True) - moved_nj.amin(1, keepdim=True)
    return step_nj * torch.where(d_n1 > 1e-9, torch.log1p(d_n1) / d_n1, 1.0)
