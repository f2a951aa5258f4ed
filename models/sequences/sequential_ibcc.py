"""VB-IBCC for sequences: a Markov chain and confusion rows, all with Dirichlet posteriors, by variational Bayes.

    first, step_i ~ Dir(1)      z_t | z_{t-1} = i ~ Cat(step_i)      l_tk | z_t = j ~ Cat(pi_kj)      pi_kj ~ Dir(a_j)

The Bayesian counterpart of `sequential_dawid_skene`, with the annotators of VB-IBCC: their rows share a prior a, which
is learned, so that annotators with few labels are estimated from the others. The fit maximizes the evidence bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.combiner import require_given, used
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import begin
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.votes import shares
from hitl.models.priors.dirichlet_chain import DirichletChain
from hitl.models.sequences import learned_chain


@dataclass(frozen=True, slots=True)
class SequentialIBCC:
    """VB-IBCC whose true classes are a Markov chain.

    Attributes:
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0; if `shared`, the
            mode of their hyperprior.
        shared: learn the rows' prior from all annotators (empirical Bayes).
        step_smoothing: pseudo-count of each first class, and of each transition, > 0.
        tolerance: iterations stop when one gains less, in nats per item.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
        >>> sentence = np.stack((np.zeros(7, int), np.arange(7)), axis=1)
        >>> models.SequentialIBCC().fit(Evidence(labels, sequence=sentence)).labels.tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "sequence"})
    needs: ClassVar[frozenset[str]] = frozenset({"sequence"})

    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True
    step_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from the votes or from `start`. Raise BadEvidence without a sequence."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        outputs, sequences = Outputs.of(evidence), learned_chain.sequences_of(evidence)
        found = em.run_em(
            evidence,
            outputs.beside(DirichletChain.even(sequences, annotations.n_classes, self.step_smoothing)),
            self._kind(annotations).at_start(annotations, start),
            begin(evidence, start, partial(self._judged, evidence=evidence), needs=learned_chain.STEPS),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        people = self._kind(annotations).report(annotations, found, shares(found.q_nj))
        mean_rj = found.prior.prior.mean_rj
        chain = {learned_chain.FIRST: mean_rj[0], learned_chain.STEPS: mean_rj[1:]}
        return em.concluded(self, began, evidence, found, people, **outputs.kept(chain))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other sequences, by the same or new annotators, with the learned parameters."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> learned_chain.ChainPosterior:
        """Return the posterior over whole sequences from which `apply` takes its beliefs."""
        log_pi_klj = self._kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        return learned_chain.chain_posterior(consensus, evidence, log_pi_klj)

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        return self.chain_posterior(consensus, evidence).passed.q_nj

    def _kind(self, annotations: Annotations) -> DirichletRows:
        size = annotations.n_classes, annotations.n_options
        return DirichletRows(on_the_diagonal(*size, self.diagonal, self.off), self.shared)
