"""Several chains over networks of annotators, and averages over their draws; shared by DBCC and EDBCC."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from hitl.annotations import Floats, Names
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.combiner import array_bytes
from hitl.models.inference import warm_start
from hitl.models.numerics.checks import check_settings
from hitl.models.sampling import hamiltonian, network_chain, network_layout
from hitl.models.sampling.network_chain import Prior, Sums, blank_sums
from hitl.models.sampling.network_layout import Layout, Networks
from hitl.models.sampling.sampler import Averages, Sampler, accuracy_weights, matched, total

MONITORED = 20
"""Number of couplings that are monitored: the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkChains(Sampler):
    """Settings that DBCC and EDBCC share; those of the chains as in `Sampler`.

    Attributes:
        accuracy: expected accuracy of an annotator without couplings, in (0, 1); None: all answers are equally likely.
        answer_sd, coupling_sd: prior standard deviations of V and W, > 0.
        share_smoothing: number of pseudo-items of each class, > 0.
        exact_states: maximum size of a network's table, L to the number of annotators; a larger network is cut.
        group_states: maximum table size of the groups into which a network is cut.
    """

    density: ClassVar[str] = "log likelihood"

    accuracy: float | None = 0.75
    answer_sd: float = 1.0
    coupling_sd: float = 0.5
    share_smoothing: float = 1.0
    exact_states: int = 8192
    group_states: int = 256
    burn_in: int = 300
    draws: int = 500
    thin: int = 3

    def __post_init__(self) -> None:
        Sampler.__post_init__(self)
        check_settings(self)

    @abstractmethod
    def expected(self) -> Expected:
        """Return the expectations of annotators before they answer."""

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak: each chain has a metric (L, L) per annotator and class."""
        return array_bytes(evidence.annotations, 24 * evidence.annotations.n_options, 20)

    def sampled(self, evidence: Evidence, start: Consensus | None) -> Averages:
        """Run the chains and average over their kept draws."""
        annotations, expected = evidence.annotations, self.expected()
        burn_in, draws, thin = self.thrown_away(start, annotations), self.draws, self.thin
        groups, shared_kk = network_layout.groups(evidence, self.exact_states, self.group_states)
        layout = network_layout.layout(evidence, groups, shared_kk, easy=expected.hard < 1)
        prior = prior_of(layout.networks, expected, self.share_smoothing)
        weight_am = np.ascontiguousarray(accuracy_weights(annotations)[:, layout.member])
        unmet_jl = np.exp(_mean_logits(layout.networks, expected.accuracy))
        there = np.flatnonzero(layout.distinct_n >= 0)
        first = there[np.unique(layout.distinct_n[there], return_index=True)[1]]
        start_ij = warm_start.first_beliefs(evidence, start, unmet_jl)[first]

        def run(rng: np.random.Generator) -> Sums:
            sums = blank_sums(layout, len(weight_am), draws, burn_in + draws * thin)
            chain = network_chain.blank_state(layout, prior), hamiltonian.blank_tuning(layout.networks)
            network_chain.run_chain(rng, layout, prior, start_ij, weight_am, burn_in, thin, chain, sums)
            return sums

        runs = self.run(run)
        j, distinct = annotations.n_classes, layout.distinct_n[there]
        weight_ic = total(runs, "weight_ic")
        weight_ic /= weight_ic.sum(axis=1, keepdims=True)
        q_rj, hard_r = (weight_ic[:, :j] + weight_ic[:, j:])[distinct], weight_ic[:, :j].sum(axis=1)[distinct]
        place_k = np.argsort(layout.member)
        concentration_kjl = matched(*total(runs, "moment_rmjl")[:, place_k] / (draws * len(runs)))
        dependence_kk = dependence(layout, runs)[np.ix_(place_k, place_k)]
        couplings = largest_couplings(annotations.annotators, layout, runs)
        return Averages(runs, prior.hard, there, q_rj, hard_r, concentration_kjl, couplings, dependence_kk)


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectations of annotators before they answer.

    Attributes:
        accuracy: accuracy without couplings, in (0, 1); None: V has mean 0.
        answer_sd, coupling_sd: standard deviations of V and W.
        hard: probability that an item is hard, in (0, 1]; 1: all are.
        easy_accuracy, easy_sd: accuracy on easy items, and standard deviation of U.
    """

    accuracy: float | None
    answer_sd: float
    coupling_sd: float
    hard: float = 1.0
    easy_accuracy: float = 0.99
    easy_sd: float = 1.0


def prior_of(networks: Networks, expected: Expected, share_smoothing: float) -> Prior:
    """Return prior means and precisions of all parameters, network by network, with h and the shares' pseudo-items."""
    means, precisions = [], []
    accuracy: float | None
    for g in range(networks.member_start.size - 1):
        accuracy, sd = expected.easy_accuracy, expected.easy_sd
        if g < networks.n_groups:
            accuracy, sd = expected.accuracy, expected.answer_sd
        members, pairs = np.diff(networks.member_start)[g], np.diff(networks.pair_start)[g]
        mean_jd = np.tile(_mean_logits(networks, accuracy), (1, members))
        means += [mean_jd.ravel(), np.zeros(pairs)]
        precisions += [np.full(mean_jd.size, sd**-2.0), np.full(pairs, expected.coupling_sd**-2.0)]
    return Prior(np.concatenate(means), np.concatenate(precisions), float(expected.hard), float(share_smoothing))


def _mean_logits(networks: Networks, accuracy: float | None) -> Floats:
    """Return (J, L) logits that give an annotator without couplings this accuracy."""
    if accuracy is None:
        return np.zeros((networks.n_classes, networks.n_options))
    right = np.log(accuracy * (networks.n_options - 1) / (1 - accuracy))
    return on_the_diagonal(networks.n_classes, networks.n_options, right, 0.0)


def largest_couplings(names: Names, layout: Layout, runs: list[Sums]) -> dict[str, Floats]:
    """Return name -> (C, S) draws of the largest couplings."""
    networks, member = layout.networks, layout.member
    coupling_cpd = np.stack([sums.coupling_pd for sums in runs])
    start_p = np.repeat(networks.member_start[:-1], np.diff(networks.pair_start))
    first, second = member[start_p + networks.first_p], member[start_p + networks.second_p]
    largest = np.argsort(-np.abs(coupling_cpd.mean(axis=(0, 2))), kind="stable")[:MONITORED]
    return {f"coupling of {names[first[p]]} and {names[second[p]]}": coupling_cpd[:, p] for p in largest}


def dependence(layout: Layout, runs: list[Sums]) -> Floats:
    """Return (K, K) correlations of right answers given the class, with annotators in the order of the layout."""
    covariance_mm = np.sum([np.einsum("djm,djn->mn", sums.spread_djm, sums.spread_djm) for sums in runs], axis=0)
    start = layout.networks.member_start[: layout.networks.n_groups + 1].tolist()
    pairs = [(a, b) for m0, end in pairwise(start) for b in range(m0, end) for a in range(m0, b)]
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    within_y = total(runs, "covariance_y")
    covariance_mm[first, second] = within_y
    covariance_mm[second, first] = within_y
    variance_m = total(runs, "variance_m")
    correlation_mm: Floats = np.clip(covariance_mm / np.sqrt(np.outer(variance_m, variance_m)), -1.0, 1.0)
    np.fill_diagonal(correlation_mm, 1.0)
    return correlation_mm
