"""Averages over the draws of several chains, and their mixing.

Probabilities of items are averages of p(t_n | labels, alpha, truths of the other items), not of drawn truths
(Rao-Blackwell). A row of an annotator's matrix is reported as the Dirichlet with the same means and sum of variances.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded, used
from hitl.models.inference import warm_start
from hitl.models.numerics.checks import require_between
from hitl.models.numerics.clamping import clamp
from hitl.models.sampling import chains, gibbs
from hitl.models.sampling.chains import Chains

if TYPE_CHECKING:
    from hitl.models.sampling import network_chain

    Sums = gibbs.Sums | network_chain.Sums

MONITORED = 20
"""Number of annotators whose accuracies are monitored, those with most labels."""

LARGEST = 1e9
"""Largest pseudo-count; beyond it sums would lose the counts."""


class Averages(NamedTuple):
    """Averages over the kept draws of all chains.

    Attributes:
        runs, hard: the chains, and the prior chance that an item is hard.
        rows, q_rj, hard_r: items with labels or known truth, their probabilities and chances to be hard.
        concentration_kjl: rows of the annotators' matrices as Dirichlets.
        monitored: name -> (C, S) draws that are monitored besides those that every sampler has.
        dependence_kk: correlation of right answers given the class, or None.
    """

    runs: Sequence[Sums]
    hard: float
    rows: npt.NDArray[np.intp]
    q_rj: Floats
    hard_r: Floats
    concentration_kjl: Floats
    monitored: Mapping[str, Floats]
    dependence_kk: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler(Chains, ABC):
    """Method that samples several chains; settings as in `Chains`."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    density: ClassVar[str]
    """Name of the monitored log density."""

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
        mixing = chains.mixing({**monitored_draws(annotations, runs, self.density, hard), **more})
        return concluded(
            self,
            began,
            evidence,
            clamp(q_nj / q_nj.sum(axis=1, keepdims=True), evidence),
            confusion.report_of(annotations, concentration_kjl, share_j, dependence=dependence_kk),
            objective=tuple(np.mean([sums.trace_r for sums in runs], axis=0).tolist()),
            converged=all(rhat < chains.MIXED_BELOW for rhat in mixing.rhat.values()),
            mixing=mixing,
            difficulty=np.clip(hard_n, 0.0, 1.0) if hard < 1 else None,
        )

    @abstractmethod
    def sampled(self, evidence: Evidence, start: Consensus | None) -> Averages:
        """Run the chains and average over their kept draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsChains(Sampler):
    """Settings that GibbsIBCC and EBCC share; those of the chains as in `Chains`.

    Attributes:
        diagonal, off: prior mean of the Dirichlet parameter of a right and of any other answer, > 0.
        share_smoothing: pseudo-items of each class, > 0.
    """

    density: ClassVar[str] = "log joint"

    diagonal: float = 8.0
    off: float = 1.0
    share_smoothing: float = 1.0

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        for setting in ("diagonal", "off", "share_smoothing"):
            require_between(setting, getattr(self, setting), 0, LARGEST)

    @abstractmethod
    def prior(self, annotations: Annotations) -> gibbs.Prior:
        """Return the prior of the parameters."""

    def sampled(self, evidence: Evidence, start: Consensus | None) -> Averages:
        """Run the chains and average over their kept draws."""
        annotations, prior = evidence.annotations, self.prior(evidence.annotations)
        burn_in, draws = self.thrown_away(start, annotations), self.draws
        shape = (annotations.n_items, annotations.n_annotators, annotations.n_classes, annotations.n_options)
        table = known_table(evidence)
        weight_ak = accuracy_weights(annotations)
        start_nj = warm_start.first_beliefs(evidence, start, prior.mean_jl)

        def run(rng: np.random.Generator) -> gibbs.Sums:
            sums = gibbs.blank_sums(*shape, len(weight_ak), draws, burn_in + draws)
            state = gibbs.blank_state(*shape)
            gibbs.run_chain(rng, table, prior, start_nj, weight_ak, burn_in, self.thin, state, sums)
            return sums

        runs = self.run(run)
        rows = table.informative
        mean = {name: total(runs, name) / (draws * len(runs)) for name in ("q_nj", "hard_n", "mean_kjl", "square_kjl")}
        concentration_kjl = matched(mean["mean_kjl"], mean["square_kjl"])
        return Averages(runs, prior.hard, rows, mean["q_nj"][rows], mean["hard_n"][rows], concentration_kjl, {})


def all_hard(annotations: Annotations, diagonal: float, off: float, smoothing: float) -> gibbs.Prior:
    """Return the prior of IBCC, in which every item is hard."""
    mean_jl = confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, diagonal, off)
    return gibbs.Prior(np.full(annotations.n_classes, float(smoothing)), mean_jl, np.ones_like(mean_jl), 1.0)


def known_table(evidence: Evidence) -> gibbs.Table:
    """Build the table a chain runs over."""
    a = evidence.annotations
    assert evidence.truth is not None
    informative = np.flatnonzero((a.labels_per_item > 0) | evidence.known).astype(np.int64)
    repeated_n = np.zeros(a.n_items, dtype=np.bool_)
    repeated_n[a.item[1:][(np.diff(a.item) == 0) & (np.diff(a.annotator) == 0)]] = True
    return gibbs.Table(a.item_start, a.annotator, a.label, evidence.truth, informative, repeated_n)


def accuracy_weights(annotations: Annotations) -> Floats:
    """Return (1 + A, K) weights of the monitored accuracies: of all labels, and of each of the busiest annotators."""
    labels_k = annotations.labels_per_annotator
    return np.vstack((labels_k / max(1, labels_k.sum()), busiest(annotations)[:, None] == np.arange(labels_k.size)))


def busiest(annotations: Annotations) -> npt.NDArray[np.intp]:
    """Return the codes of the MONITORED annotators with most labels."""
    return np.argsort(-annotations.labels_per_annotator, kind="stable")[:MONITORED]


def monitored_draws(
    annotations: Annotations, runs: Sequence[Sums], density: str, hard: float
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


def total(runs: Sequence[Sums], name: str) -> Floats:
    """Sum one statistic over the chains."""
    return np.asarray(np.sum([getattr(sums, name) for sums in runs], axis=0))


def matched(mean_kjl: Floats, square_kjl: Floats) -> Floats:
    """Return (K, J, L) Dirichlet parameters with these means and, summed over a row, these variances."""
    spread = np.maximum((square_kjl - mean_kjl**2).sum(axis=2, keepdims=True), 1e-12)
    strength = (mean_kjl * (1 - mean_kjl)).sum(axis=2, keepdims=True) / spread - 1
    concentration: Floats = mean_kjl * np.maximum(strength, 1e-3)
    return concentration
