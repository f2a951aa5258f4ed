"""Dependent Bayesian classifier combination (Kim & Ghahramani 2012, section 3.2): people who answer alike.

    p ~ Dir(nu)    t_n ~ Cat(p)    V_kjl ~ N(mu_jl, answer_sd^2)    W_kk' ~ N(0, coupling_sd^2)
    p(answers of all | t_n = j) = exp( sum_k V_kj,l_nk + sum_{k<k'} W_kk' [l_nk = l_nk'] ) / Z_j     (eqs. 21, 24, 25)

W > 0 says that two annotators agree more often than the class explains: they copy, or fail alike. Several of them then
count for little more than one. The partition function Z is exact as long as the answers of all who share items can be
listed (`exact_states`); beyond, people who agree most beyond chance are put into groups (`group_states`) and W is 0
between groups (see `network_groups`). Annotators who did not answer an item are summed out, not ignored: they are part
of the network, so an annotator's confusion matrix is the same whoever else answered. The pool of people without ids
depends on nobody.

`accuracy` sets mu as in eq. 32; 1 / L gives the zero mean of eq. 24, with which nothing but known items tells the
classes apart. The likelihood hardly does: three copying annotators and a truth that they miss, or a truth that they
tell and three others who fail alike, explain the same answers equally well. Where few people label (a handful, all
connected) give truth for some items, as the paper does, or use EDBCC, whose easy items tell the difference. The paper's
sd of 3 makes this worse: with W so free the network explains what the classes should, so `coupling_sd` is small.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.checks import require_between, require_whole
from hitl.models.network_posterior import Expected, sampled


@dataclass(frozen=True, slots=True)
class DBCC:
    """Bayesian classifier combination with dependent annotators, by several chains.

    The result's `annotators.dependence` is the correlation of two annotators' errors given the class. What it keeps of
    the networks is too little to judge items it has not seen; there is no `apply`.

    Attributes:
        accuracy: expected chance of a right answer of somebody who depends on nobody, in (0, 1).
        answer_sd, coupling_sd: prior standard deviations of V and W, > 0 (3 in the paper).
        share_smoothing: pseudo-items of each class, > 0.
        exact_states: answers (L to the number of annotators) up to which all who share items are one network.
        group_states: answers of a group where that is too many.
        chains: number of chains, each with its own start and seed.
        burn_in: sweeps of each chain that are thrown away; a quarter of them when there is a `start` to begin from.
        draws: draws kept of each chain.
        thin: sweeps from one kept draw to the next.
        seed: what the chains' random numbers follow from.
    """

    accuracy: float = 0.75
    answer_sd: float = 1.0
    coupling_sd: float = 0.5
    share_smoothing: float = 1.0
    exact_states: int = 8192
    group_states: int = 256
    chains: int = 4
    burn_in: int = 300
    draws: int = 500
    thin: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        require_between("accuracy", self.accuracy, 0, 1)
        for setting in ("answer_sd", "coupling_sd", "share_smoothing"):
            require_between(setting, getattr(self, setting), 0)
        for setting, least in (("exact_states", 0), ("group_states", 0)):
            require_whole(setting, getattr(self, setting), least)
        for setting, least in (("chains", 1), ("burn_in", 0), ("draws", 4), ("thin", 1), ("seed", 0)):
            require_whole(setting, getattr(self, setting), least)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Sample from the votes, or from what `start` learned. `fit.converged` tells whether the chains have mixed."""
        began = time.perf_counter()
        found = sampled(
            evidence,
            Expected(self.accuracy, self.answer_sd, self.coupling_sd),
            start,
            share_smoothing=self.share_smoothing,
            exact_states=self.exact_states,
            group_states=self.group_states,
            chain_count=self.chains,
            burn_in=self.burn_in,
            draws=self.draws,
            thin=self.thin,
            seed=self.seed,
        )
        return found.consensus(evidence.annotations, "dbcc", asdict(self), time.perf_counter() - began)
