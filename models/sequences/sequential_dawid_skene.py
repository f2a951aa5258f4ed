"""Dawid-Skene for sequences (Traganitis & Giannakis 2019, Algorithm 1): a Markov chain x confusion matrices, by EM.

    z_1 ~ Cat(first)      z_t | z_{t-1} = i ~ Cat(step[i])      l_tk | z_t = j ~ Cat(pi_k[j])

    E   q_t = p(z_t | all labels of the sequence), and the expected pairs, by forward and backward passes (eqs. 39-49)
    M   pi[k, j, l], first[j], step[i, j] ∝ expected counts + smoothing

An item takes part through its neighbours, labeled or not. With steps that do not depend on the class before it is
Dawid-Skene.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import FittedToShards, require_given, used
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.inference.over_shards import Beliefs, Judge, OverShards, concluded, used_of
from hitl.models.inference.passes import IN_TURN, Engine, first_of
from hitl.models.inference.warm_start import beliefs_of
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.numerics.votes import shares, smoothed
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from hitl.models.sequences import learned_chain


@dataclass(frozen=True, slots=True)
class SequentialDawidSkene:
    """Dawid-Skene whose true classes are a Markov chain.

    Attributes:
        smoothing: pseudo-count of each confusion cell, > 0.
        step_smoothing: pseudo-count of each class at the beginning, and of each step, > 0.
        tolerance: an iteration that gains less, in nats an item, is the last.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import SequentialDawidSkene
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
        >>> sentence = np.stack((np.zeros(7, int), np.arange(7)), axis=1)
        >>> SequentialDawidSkene().fit(Evidence(labels, sequence=sentence)).labels.tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "sequence"})
    needs: ClassVar[frozenset[str]] = frozenset({"sequence"})

    smoothing: float = 0.01
    step_smoothing: float = 0.01
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "smoothing", "step_smoothing", "tolerance")
        require_counts(self, "max_iterations")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned. Raises BadEvidence without a sequence."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, pseudo_jl = evidence.annotations, self._pseudo_counts(evidence.annotations)
        outputs, sequences = Outputs.of(evidence), learned_chain.sequences_of(evidence)
        found = em.maximise(
            evidence,
            outputs.beside(MarkovChain.even(sequences, annotations.n_classes, self.step_smoothing)),
            confusion.Confusion.unlearned(pseudo_jl, annotations.n_annotators),
            beliefs_of(evidence, start, learned_chain.STEPS, partial(self._judged, evidence=evidence)),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        people = confusion.report(annotations, found.counts_klj, pseudo_jl, shares(found.q_nj))
        chain = {learned_chain.FIRST: found.prior.prior.first_j, learned_chain.STEPS: found.prior.prior.step_ij}
        return em.concluded(self, began, evidence, found, people, **outputs.kept(chain))

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """EM over shards that hold whole sequences; see `Shardable`. One in two shards would count as two."""
        began = time.perf_counter()
        shards = used_of(self, shards)
        annotations = first_of(shards).annotations
        pseudo_jl, outputs = self._pseudo_counts(annotations), Outputs.over_shards(shards, engine)
        nothing = Sequences(np.empty((0, 2), np.int64))
        at = _OnShard(outputs)
        passes = OverShards(shards, engine, _First(self, start), at=at)
        found = passes.climb(
            Observed(MarkovChain.even(nothing, annotations.n_classes, self.step_smoothing), None),
            confusion.Confusion.unlearned(pseudo_jl, annotations.n_annotators),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        judge = Judge(found.prior, found.annotators.log_pi_klj, at, least_labels=1)
        share_j = smoothed(engine.total(_Total(judge), shards), passes.census.items)
        people = confusion.report(annotations, found.counts_klj, pseudo_jl, share_j)
        chain = {learned_chain.FIRST: found.prior.prior.first_j, learned_chain.STEPS: found.prior.prior.step_ij}
        kept = outputs.kept(chain) | {"objective": found.objective, "converged": found.converged}
        return concluded(self, began, annotations, people, passes.census.labels_k, judge, **kept)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other sequences, by the same or new annotators, with what was learned."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> learned_chain.ChainPosterior:
        """The posterior over whole sequences that `apply` takes its beliefs from."""
        return learned_chain.chain_posterior(consensus, evidence, self._log_answers(consensus, evidence.annotations))

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        return self.chain_posterior(consensus, evidence).passed.q_nj

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        return confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing)

    def _log_answers(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """(K, L, J) of these annotators; those not met by the prior."""
        log_pi_klj: Floats = np.log(confusion.confusion_from(consensus, annotations, self._pseudo_counts(annotations)))
        return log_pi_klj


# -- over shards ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _OnShard:
    """The chain, and what the models say, on a shard's items."""

    outputs: Outputs

    def __call__(self, prior: Observed[MarkovChain], evidence: Evidence) -> Observed[MarkovChain]:
        chain = replace(prior.prior, sequences=learned_chain.sequences_of(evidence))
        return self.outputs.on(evidence).beside(chain)


@dataclass(frozen=True, eq=False)
class _First:
    """(N, J) beliefs where iterations begin."""

    method: SequentialDawidSkene
    start: Consensus | None

    def __call__(self, evidence: Evidence) -> Floats:
        return beliefs_of(evidence, self.start, learned_chain.STEPS, partial(self.method._judged, evidence=evidence))


@dataclass(frozen=True, eq=False)
class _Total:
    """(J,) the sum of a shard's beliefs."""

    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Floats:
        total_j: Floats = self.beliefs(evidence).sum(axis=0)
        return total_j
