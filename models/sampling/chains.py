"""Chains of a sampler: settings, one random generator per chain, and diagnostics of mixing (Vehtari et al. 2021).

Draws x[c, s] of one quantity, C chains of S draws each; chains are cut in halves, draws replaced by normal scores:

    z     = Phi^-1((rank - 3/8) / (C S + 1/4))
    R-hat = sqrt(((n - 1)/n W + B/n) / W)      n draws a half chain, W variance within, B/n variance of the means
    ESS   = C S / tau,    tau = -1 + 2 sum_t (rho_2t + rho_2t+1), pairs falling and positive (Geyer 1992)

R-hat is the larger of that of the ranks (location) and that of the ranks of |x - median| (spread).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Mixing
from hitl.models.inference import warm_start
from hitl.models.numerics.checks import require_whole

MIXED_BELOW = 1.05
"""R-hat above which chains have not mixed. The stricter 1.01 is for thousands of effective draws of one quantity; with
many quantities and some hundreds of effective draws chance alone exceeds it."""

STILL = 1e-20
"""Variance of normal scores (about 1 for draws that differ) below which it is rounding."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Length of a sampler's chains.

    Attributes:
        chains: number of chains, each with its own start and seed.
        burn_in: first draws of each chain, which are discarded; a quarter as many with a `start`.
        draws: draws kept of each chain.
        thin: sweeps per draw.
        seed: seed of all random numbers.
    """

    chains: int = 4
    burn_in: int = 250
    draws: int = 1000
    thin: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for setting, least in (("chains", 1), ("burn_in", 0), ("draws", 4), ("thin", 1), ("seed", 0)):
            require_whole(setting, getattr(self, setting), least)

    def thrown_away(self, start: Consensus | None, annotations: Annotations) -> int:
        """Return the number of discarded draws, given the start."""
        return self.burn_in // 4 if warm_start.usable(start, annotations) else self.burn_in

    def run(self, chain: Callable[[np.random.Generator], _T]) -> list[_T]:
        """Run the compiled `chain` once per chain, each in a thread with its own generator."""
        seeds = np.random.SeedSequence(self.seed).spawn(self.chains)
        with ThreadPoolExecutor(max_workers=self.chains) as pool:
            return list(pool.map(chain, [np.random.default_rng(seed) for seed in seeds]))


def mixing(draws: Mapping[str, Floats]) -> Mixing:
    """Compute diagnostics from the (C, S) draws of each quantity; S >= 4."""
    chains, kept = next(iter(draws.values())).shape
    rhat = {name: split_rhat(values) for name, values in draws.items()}
    return Mixing(chains, kept, rhat, {name: effective_size(values) for name, values in draws.items()})


def split_rhat(draws_cs: Floats) -> float:
    """Return rank-normalised split R-hat, about 1 or more; infinite for halves that stand still at different values.

    Exactly 1 if all draws are equal.
    """
    folded = np.abs(draws_cs - np.median(draws_cs))
    return max(_rhat(_normal_scores(_halves(draws_cs))), _rhat(_normal_scores(_halves(folded))))


def effective_size(draws_cs: Floats) -> float:
    """Return the bulk effective sample size over all chains, in (0, C S log10(C S)]; C S if all draws are equal."""
    scores = _normal_scores(_halves(draws_cs))
    chains, n = scores.shape
    total = chains * n
    spectrum = np.fft.rfft(scores - scores.mean(axis=1, keepdims=True), 2 * n, axis=1)
    covariance_ct = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=1)[:, :n] / n
    within = float(covariance_ct[:, 0].mean()) * n / (n - 1)
    both = within * (n - 1) / n + float(scores.mean(axis=1).var(ddof=1))
    if both < STILL:
        return float(total)
    rho_t = 1 - (within - covariance_ct.mean(axis=0)) / both
    rho_t[0] = 1.0
    pairs = rho_t[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if negative.size else pairs)
    tau = max(-1 + 2 * float(pairs.sum()), 1 / np.log10(total))  # negative autocorrelation helps only so far
    return float(total / tau)


def _halves(draws_cs: Floats) -> Floats:
    """Return (2C, S // 2) first and last halves; the middle draw of an odd number is left out."""
    half = draws_cs.shape[1] // 2
    return np.concatenate((draws_cs[:, :half], draws_cs[:, draws_cs.shape[1] - half :]))


def _normal_scores(draws_cs: Floats) -> Floats:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    rank = rankdata(draws_cs, axis=None).reshape(draws_cs.shape)  # equal draws share their mean rank
    scores: Floats = ndtri((rank - 0.375) / (draws_cs.size + 0.25))
    return scores


def _rhat(scores_cn: Floats) -> float:
    n = scores_cn.shape[1]
    within = float(scores_cn.var(axis=1, ddof=1).mean())
    between = float(scores_cn.mean(axis=1).var(ddof=1))  # B / n
    if within < STILL:
        return 1.0 if between < STILL else float("inf")
    return float(np.sqrt((n - 1) / n + between / within))
