"""Dawid-Skene for sequences (Traganitis & Giannakis 2019, Algorithm 1): a Markov chain and confusion matrices, by EM.

    z_1 ~ Cat(first)      z_t | z_{t-1} = i ~ Cat(step[i])      l_tk | z_t = j ~ Cat(pi_k[j])

    E   q_t = p(z_t | all labels of the sequence), and the expected pairs, by forward and backward passes (eqs. 39-49)
    M   pi[k, j, l], first[j], step[i, j] ∝ expected counts + smoothing

Unlabeled items take part through their neighbors. If transitions do not depend on the class before, it is
Dawid-Skene.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import PointRows, even_pseudo_counts
from hitl.models.combiner import require_given, used_shards
from hitl.models.inference import em
from hitl.models.inference.engine import PerShard, Shards
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.inference.warm_start import begin
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.votes import smoothed
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from hitl.models.sequences import learned_chain


@dataclass(frozen=True, slots=True)
class SequentialDawidSkene:
    """Dawid-Skene whose true classes are a Markov chain.

    Attributes:
        smoothing: pseudo-count of each confusion cell, > 0.
        step_smoothing: pseudo-count of each first class, and of each transition, > 0.
        tolerance: EM stops at an iteration that gains less, in nats per item.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
        >>> sentence = np.stack((np.zeros(7, int), np.arange(7)), axis=1)
        >>> models.SequentialDawidSkene().fit(Evidence(labels, sequence=sentence)).labels.tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "sequence"})
    needs: ClassVar[frozenset[str]] = frozenset({"sequence"})
    fits_shards: ClassVar[bool] = True

    smoothing: float = 0.01
    step_smoothing: float = 0.01
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Run EM from the votes, or from `start`. Raise BadEvidence without a sequence.

        Each sequence must be wholly in one shard: one split over two shards would count as two.
        """
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations = shards.annotations
        kind, outputs = self._kind(annotations), Outputs.learned(shards)
        nothing = Sequences(np.empty((0, 2), np.int64))
        sequences = shards.once(learned_chain.sequences_of)
        prior_on = partial(_prior_on, outputs=shards.once(outputs.on), sequences=sequences)
        found = em.run_em(
            shards,
            Observed(MarkovChain.even(nothing, annotations.n_classes, self.step_smoothing), None),
            kind.at_start(annotations, None),
            partial(self._first, start=start),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            prior_on=prior_on,
        )
        log_pi_klj = found.annotators.log_pi_klj
        judge = partial(em.judge, prior=found.prior, log_pi_klj=log_pi_klj, prior_on=prior_on, least_labels=1)
        total_j = shards.total(partial(_total, beliefs=PerShard(judge, shards.table, found.q_nj)))
        share_j = smoothed(total_j, shards.size.counted(0))
        people = kind.report(annotations, found, share_j)
        chain = {learned_chain.FIRST: found.prior.prior.first_j, learned_chain.STEPS: found.prior.prior.step_ij}
        return em.concluded(self, began, shards, found, people, **outputs.kept(chain))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other sequences, by the same or new annotators, with the learned parameters."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> learned_chain.ChainPosterior:
        """Return the posterior over whole sequences from which `apply` takes its beliefs."""
        log_pi_klj = self._kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        return learned_chain.chain_posterior(consensus, evidence, log_pi_klj)

    def _first(self, evidence: Evidence, start: Consensus | None) -> Floats:
        """Return (N, J) first beliefs of iterations."""
        return begin(evidence, start, partial(self._judged, evidence=evidence), needs=learned_chain.STEPS)

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        return self.chain_posterior(consensus, evidence).passed.q_nj

    def _kind(self, annotations: Annotations) -> PointRows:
        return PointRows(even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing))


def _prior_on(
    prior: Observed[MarkovChain],
    evidence: Evidence,
    outputs: Callable[[Evidence], Outputs],
    sequences: Callable[[Evidence], Sequences],
) -> Observed[MarkovChain]:
    """Apply the chain to a shard's items, combined with the models."""
    return outputs(evidence).beside(replace(prior.prior, sequences=sequences(evidence)))


def _total(evidence: Evidence, beliefs: em.Beliefs) -> Floats:
    return np.asarray(beliefs(evidence).sum(axis=0))
