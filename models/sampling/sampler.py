"""Samplers: settings of chains, averages over their draws, and diagnostics of mixing (Vehtari et al. 2021).

x[c, s] are draws of one quantity, from C chains of S draws each. Chains are cut in halves, and draws replaced by normal
scores:

    z     = Phi^-1((rank - 3/8) / (C S + 1/4))
    R-hat = sqrt(((n - 1)/n W + B/n) / W)      n draws per half chain, W variance within, B/n variance of means
    ESS   = C S / tau,    tau = -1 + 2 sum_t (rho_2t + rho_2t+1), pairs falling and positive (Geyer 1992)

R-hat is computed from the ranks of x (location) and from the ranks of |x - median| (spread); the larger one counts.

Probabilities of items are averages of p(t_n | labels, alpha, truths of the other items), not of drawn truths
(Rao-Blackwell). A row of an annotator's matrix is reported as the Dirichlet with the same means and the same sum of
variances.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Mixing
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded, used
from hitl.models.inference import warm_start
from hitl.models.inference.uncompared import keep_votes
from hitl.models.numerics.checks import require_whole
from hitl.models.numerics.clamping import clamp

MIXED_BELOW = 1.05
"""R-hat above which chains have not mixed. The stricter 1.01 is for thousands of effective draws of one quantity; with
many quantities and some hundreds of effective draws chance alone exceeds it."""

STILL = 1e-20
"""Variance of normal scores below which it is rounding error. It is about 1 for draws that differ."""

MONITORED = 20
"""Number of annotators whose accuracies are monitored: those with the most labels."""

_T = TypeVar("_T")


class Averages(NamedTuple):
    """Averages over the kept draws of all chains.

    Attributes:
        runs: sums over the draws of each chain.
        hard: prior probability that an item is hard.
        rows, q_rj, hard_r: indices of items with labels or ground truth, their class probabilities, and their
            probabilities to be hard.
        concentration_kjl: (K, J, L) Dirichlet parameters of the rows of the annotators' matrices.
        monitored: name -> (C, S) monitored draws, in addition to those of every sampler.
        dependence_kk: (K, K) correlation of right answers given the class, or None.
    """

    runs: Sequence[Any]
    hard: float
    rows: npt.NDArray[np.intp]
    q_rj: Floats
    hard_r: Floats
    concentration_kjl: Floats
    monitored: Mapping[str, Floats]
    dependence_kk: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler(ABC):
    """Method that samples several chains.

    Attributes:
        chains: number of chains, each with its own start and seed.
        burn_in: number of first draws of each chain that are discarded; a quarter of it with a `start`.
        draws: number of draws kept of each chain.
        thin: number of sweeps per draw.
        seed: seed of all random numbers.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    tables: ClassVar[int] = 16
    beliefs: ClassVar[int] = 10
    density: ClassVar[str]
    """Name of the monitored log density."""

    chains: int = 4
    burn_in: int = 250
    draws: int = 1000
    thin: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for setting, least in (("chains", 1), ("burn_in", 0), ("draws", 4), ("thin", 1), ("seed", 0)):
            require_whole(setting, getattr(self, setting), least)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Sample, starting from the votes or from `start`. `fit.converged` is True if the chains have mixed."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        runs, hard, rows, q_rj, hard_r, concentration_kjl, more, dependence_kk = self.sampled(evidence, start)
        annotations = evidence.annotations
        share_j = np.mean([sums.share_jd.mean(axis=1) for sums in runs], axis=0)
        share_j /= share_j.sum()
        q_nj, hard_n = np.tile(share_j, (annotations.n_items, 1)), np.full(annotations.n_items, hard)
        q_nj[rows], hard_n[rows] = q_rj, hard_r
        mixed = mixing({**monitored_draws(annotations, runs, self.density, hard), **more})
        return concluded(
            self,
            began,
            evidence,
            keep_votes(evidence, clamp(q_nj / q_nj.sum(axis=1, keepdims=True), evidence)),
            confusion.report_of(annotations, concentration_kjl, share_j, dependence=dependence_kk),
            objective=tuple(np.mean([sums.trace_r for sums in runs], axis=0).tolist()),
            converged=all(rhat < MIXED_BELOW for rhat in mixed.rhat.values()),
            mixing=mixed,
            difficulty=np.clip(hard_n, 0.0, 1.0) if hard < 1 else None,
        )

    @abstractmethod
    def sampled(self, evidence: Evidence, start: Consensus | None) -> Averages:
        """Run the chains and average over their kept draws."""

    def thrown_away(self, start: Consensus | None, annotations: Annotations) -> int:
        """Return the number of first draws to discard: fewer if `start` can be used."""
        return self.burn_in // 4 if warm_start.usable(start, annotations) else self.burn_in

    def run(self, chain: Callable[[np.random.Generator], _T]) -> list[_T]:
        """Run the compiled `chain` once per chain, each in a thread with its own generator."""
        seeds = np.random.SeedSequence(self.seed).spawn(self.chains)
        with ThreadPoolExecutor(max_workers=self.chains) as pool:
            return list(pool.map(chain, [np.random.default_rng(seed) for seed in seeds]))


def busiest(annotations: Annotations) -> npt.NDArray[np.intp]:
    """Return the codes of the MONITORED annotators with the most labels."""
    return np.argsort(-annotations.labels_per_annotator, kind="stable")[:MONITORED]


def accuracy_weights(annotations: Annotations) -> Floats:
    """Return (1 + A, K) weights of annotators in monitored accuracies: of all labels, and of each busiest annotator."""
    labels_k = annotations.labels_per_annotator
    return np.vstack((labels_k / max(1, labels_k.sum()), busiest(annotations)[:, None] == np.arange(labels_k.size)))


def monitored_draws(
    annotations: Annotations, runs: Sequence[Any], density: str, hard: float
) -> dict[str, npt.NDArray[np.float64]]:
    """Return name -> (C, S) draws of the log density (named `density`), the shares and the monitored accuracies."""
    draws = runs[0].hard_d.size
    monitored = {density: np.stack([sums.trace_r[-draws:] for sums in runs])}
    if hard < 1:
        monitored["hard items"] = np.stack([sums.hard_d for sums in runs])
    for j, name in enumerate(annotations.classes):
        monitored[f"share of {name}"] = np.stack([sums.share_jd[j] for sums in runs])
    for a, whose in enumerate(["", *(f" of {annotations.annotators[k]}" for k in busiest(annotations))]):
        monitored[f"accuracy{whose}"] = np.stack([sums.accuracy_ad[a] for sums in runs])
    return monitored


def total(runs: Sequence[Any], name: str) -> Floats:
    """Sum one statistic over the chains."""
    return np.asarray(np.sum([getattr(sums, name) for sums in runs], axis=0))


def matched(mean_kjl: Floats, square_kjl: Floats) -> Floats:
    """Return (K, J, L) Dirichlet parameters with these means and, summed over a row, these variances."""
    spread = np.maximum((square_kjl - mean_kjl**2).sum(axis=2, keepdims=True), 1e-12)
    strength = (mean_kjl * (1 - mean_kjl)).sum(axis=2, keepdims=True) / spread - 1
    concentration: Floats = mean_kjl * np.maximum(strength, 1e-3)
    return concentration


# -- mixing ----------------------------------------------------------------------------------------------------


def mixing(draws: Mapping[str, Floats]) -> Mixing:
    """Compute diagnostics from the (C, S) draws of each quantity; S >= 4."""
    chains, kept = next(iter(draws.values())).shape
    rhat = {name: split_rhat(values) for name, values in draws.items()}
    return Mixing(chains, kept, rhat, {name: effective_size(values) for name, values in draws.items()})


def split_rhat(draws_cs: Floats) -> float:
    """Return rank-normalized split R-hat, about 1 or more. It is infinite for constant halves with different values.

    It is exactly 1 if all draws are equal.
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
    tau = max(-1 + 2 * float(pairs.sum()), 1 / np.log10(total))  # limits the gain by negative autocorrelation
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
