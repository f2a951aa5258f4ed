"""BSC-seq (Simpson & Gurevych 2019): a Markov chain, and annotators whose answer depends on their previous one.

    z_t | z_{t-1} = i ~ Cat(step_i)        l_tk | z_t = j, l_{t-1,k} = h ~ Cat(pi_k[h, j])        pi_k[h, j] ~ Dir(a_j)

By variational Bayes, like `sequential_ibcc` with K (L + 1) annotators (`annotators.previous_label`). The rows
share the prior a_j, learned from all annotators after all of their labels. If all classes are O, B-kind and I-kind,
I-kind follows B-kind or I-kind alone (`spans.steps_of_spans`).

This models annotators who mark little and overlook whole names: an O after an O says less than an O after a B.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import dirichlet_confusion
from hitl.models.annotators.previous_label import after_own_labels, merged
from hitl.models.combiner import require_given, used
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import beliefs_of, require_learned, require_same_classes
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.numerics.special import digamma
from hitl.models.numerics.votes import shares
from hitl.models.priors.dirichlet_chain import DirichletChain
from hitl.models.sequences import learned_chain
from hitl.models.sequences.spans import steps_of_spans
from hitl.models.vb_ibcc import VBIBCC

AFTER = "after own labels"
"""(K (L + 1), L, J) Dirichlet parameters of each annotator after each of their labels, and after none."""


@dataclass(frozen=True, slots=True)
class BSCSeq:
    """Bayesian sequence combination with annotators who depend on their own last label.

    Attributes:
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0: the mode of the
            hyperprior of the rows' prior, which is learned.
        step_smoothing: pseudo-count of each first class, and of each transition, > 0.
        tolerance: iterations stop when one gains less, in nats per item.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import BSCSeq
        >>> labels = Annotations.from_matrix([[0, 0], [1, 1], [2, 2], [0, 0]] * 3, classes=["O", "B-X", "I-X"])
        >>> sentence = np.stack((np.zeros(12, int), np.arange(12)), axis=1)
        >>> BSCSeq().fit(Evidence(labels, sequence=sentence)).labels[:4].tolist()
        [0, 1, 2, 0]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "sequence"})
    needs: ClassVar[frozenset[str]] = frozenset({"sequence"})

    diagonal: float = 2.0
    off: float = 1.0
    step_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "diagonal", "off", "step_smoothing", "tolerance")
        require_counts(self, "max_iterations")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from the votes or from `start`. Raise BadEvidence without a sequence."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, sequences = evidence.annotations, learned_chain.sequences_of(evidence)
        each = replace(evidence, annotations=after_own_labels(annotations, sequences))
        outputs = Outputs.of(evidence)
        j, allowed_rj = annotations.n_classes, steps_of_spans(annotations.classes)
        found = em.run_em(
            each,
            outputs.beside(DirichletChain.even(sequences, j, self.step_smoothing, allowed_rj)),
            self._rows.annotators_at_start(each.annotations, start),
            beliefs_of(evidence, start, AFTER, partial(self._judged, evidence=evidence)),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        people = replace(found.annotators, counts_klj=merged(found.annotators.counts_klj, annotations.n_options))
        report = dirichlet_confusion.report(annotations, people, shares(found.q_nj))
        mean_rj = found.prior.prior.mean_rj
        kept = {
            learned_chain.FIRST: mean_rj[0],
            learned_chain.STEPS: mean_rj[1:],
            AFTER: np.ascontiguousarray(found.annotators.alpha_klj),
        }
        return em.concluded(self, began, evidence, found, report, **outputs.kept(kept))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other sequences, by the same or new annotators, with the learned parameters."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> learned_chain.ChainPosterior:
        """Return the posterior over whole sequences from which `apply` takes its beliefs."""
        require_same_classes(consensus, evidence)
        require_learned(consensus, AFTER)
        each = replace(
            evidence, annotations=after_own_labels(evidence.annotations, learned_chain.sequences_of(evidence))
        )
        return learned_chain.chain_posterior(consensus, each, self._log_answers(consensus, evidence.annotations))

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        return self.chain_posterior(consensus, evidence).passed.q_nj

    def _log_answers(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """Return (K (L + 1), L, J) E ln pi of these annotators; new ones get the learned prior."""
        alpha = consensus.parameters[AFTER]
        each = annotations.n_options + 1
        prior_jl = (
            consensus.annotators.prior if consensus.annotators.prior is not None else self._rows.hyper(annotations)
        )
        alpha_khlj = np.tile(prior_jl.T, (annotations.n_annotators, each, 1, 1))
        place = {name: k for k, name in enumerate(consensus.annotators.names)}
        learned_khlj = alpha.reshape(-1, each, *alpha.shape[1:])
        for k, name in enumerate(annotations.annotators):
            if name in place:
                alpha_khlj[k] = learned_khlj[place[name]]
        expected: Floats = digamma(alpha_khlj) - digamma(alpha_khlj.sum(axis=2, keepdims=True))
        return expected.reshape(-1, *alpha.shape[1:])

    @property
    def _rows(self) -> VBIBCC:
        """Expected behavior of annotators after any of their labels."""
        return VBIBCC(self.diagonal, self.off)
