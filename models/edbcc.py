"""Enhanced dependent Bayesian classifier combination (Kim & Ghahramani 2012, section 3.3): DBCC with easy items.

    s_n ~ Bernoulli(hard)    U_jl ~ N(mu_jl, easy_sd^2)
    answers of item n | t_n = j ~ DBCC's networks where s_n = 1, else each label ~ Cat(softmax U_j)      (eqs. 29-33)

U is the same for everybody: on easy items nearly all are right, independently of each other. So where all agree the
item is probably easy, and dependence is learned from hard items. A single s_n hangs on each d_n of the paper, which
therefore integrates out: `hard` = beta_1 / (beta_1 + beta_2), 0.5 in the paper.

The paper lets U vary widely (easy_sd 3) and grounds it by known items. Without any, easy items must stay easy, or the
two kinds of items turn into something else (on `rte` accuracy fell to 0.5): easy_sd is small here, which keeps
softmax(U) near `easy_accuracy`, as EBCC's fixed matrix is. Then easy items tell which of several explanations of the
answers is the truth: with some hundreds of items it mostly takes no known one to see through annotators who copy.
Where it does not work out (few items, copies of very poor answers) the chains as a rule disagree.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.checks import require_between, require_whole
from hitl.models.network_posterior import Expected, sampled


@dataclass(frozen=True, slots=True)
class EDBCC:
    """Bayesian classifier combination with dependent annotators and with easy and hard items, by several chains.

    The result's `difficulty` is the probability that an item is hard, `annotators.dependence` the correlation of two
    annotators' errors given the class. Both this and the confusion matrices speak of all items, easy and hard in the
    proportion found in each class. There is no `apply`, as for DBCC.

    Attributes:
        hard: prior probability that an item is hard, in (0, 1).
        easy_accuracy: expected chance of a right answer on an easy item, in (0, 1).
        easy_sd: prior standard deviation of U, > 0.
        accuracy: expected chance of a right answer, on a hard item, of somebody who depends on nobody, in (0, 1).
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

    hard: float = 0.5
    easy_accuracy: float = 0.99
    easy_sd: float = 0.1
    accuracy: float = 0.75
    answer_sd: float = 1.0
    coupling_sd: float = 1.0
    share_smoothing: float = 1.0
    exact_states: int = 8192
    group_states: int = 256
    chains: int = 4
    burn_in: int = 300
    draws: int = 500
    thin: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for setting in ("hard", "easy_accuracy", "accuracy"):
            require_between(setting, getattr(self, setting), 0, 1)
        for setting in ("easy_sd", "answer_sd", "coupling_sd", "share_smoothing"):
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
            Expected(self.accuracy, self.answer_sd, self.coupling_sd, self.hard, self.easy_accuracy, self.easy_sd),
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
        consensus = found.consensus(evidence.annotations, "edbcc", asdict(self), time.perf_counter() - began)
        return replace(consensus, difficulty=found.hard_n)
