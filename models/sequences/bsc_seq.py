"""BSC-seq (Simpson & Gurevych 2019): a Markov chain, and annotators whose answer depends on their previous one.

    z_t | z_{t-1} = i ~ Cat(step_i)        l_tk | z_t = j, l_{t-1,k} = h ~ Cat(pi_k[h, j])        pi_k[h, j] ~ Dir(a_j)

By variational Bayes, like `sequential_ibcc` with K (L + 1) pseudo-annotators: each annotator is split into one per
previous label, and one for the beginning or after an item that they did not label (`after_own_labels`). The rows share
the prior a_j, learned from all annotators after all of their labels. If all classes are O, B-kind and I-kind, I-kind
follows B-kind or I-kind alone (`spans.steps_of_spans`).

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
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.combiner import require_given, used
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import begin, require_learned, require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.special import digamma
from hitl.models.numerics.votes import shares
from hitl.models.priors.dirichlet_chain import DirichletChain
from hitl.models.priors.markov_chain import Sequences
from hitl.models.sequences import learned_chain
from hitl.models.sequences.spans import steps_of_spans

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
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [1, 1], [2, 2], [0, 0]] * 3, classes=["O", "B-X", "I-X"])
        >>> sentence = np.stack((np.zeros(12, int), np.arange(12)), axis=1)
        >>> models.BSCSeq().fit(Evidence(labels, sequence=sentence)).labels[:4].tolist()
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
        check_settings(self)

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
            DirichletRows(self._hyper(annotations)).at_start(each.annotations, start),
            begin(evidence, start, partial(self._judged, evidence=evidence), needs=AFTER),
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
        prior_jl = consensus.annotators.prior if consensus.annotators.prior is not None else self._hyper(annotations)
        alpha_khlj = np.tile(prior_jl.T, (annotations.n_annotators, each, 1, 1))
        place = {name: k for k, name in enumerate(consensus.annotators.names)}
        learned_khlj = alpha.reshape(-1, each, *alpha.shape[1:])
        for k, name in enumerate(annotations.annotators):
            if name in place:
                alpha_khlj[k] = learned_khlj[place[name]]
        expected: Floats = digamma(alpha_khlj) - digamma(alpha_khlj.sum(axis=2, keepdims=True))
        return expected.reshape(-1, *alpha.shape[1:])

    def _hyper(self, annotations: Annotations) -> Floats:
        """Return (J, L) expected pseudo-counts of annotators after any of their labels."""
        return on_the_diagonal(annotations.n_classes, annotations.n_options, self.diagonal, self.off)


def after_own_labels(annotations: Annotations, sequences: Sequences) -> Annotations:
    """Split annotators by previous label: k (L + 1) + h has given label h before, with h = L for none.

    Labels without an annotator count as having no previous label. The new annotators are named by their numbers.
    """
    n_options = annotations.n_options
    rank_n = np.empty(annotations.n_items, dtype=np.int64)
    rank_n[sequences.rows] = np.arange(annotations.n_items)
    begins_n = np.ones(annotations.n_items, dtype=bool)
    begins_n[sequences.rows[1:]] = ~sequences.follows
    order = np.lexsort((rank_n[annotations.item], annotations.annotator))
    item, annotator, label = (column[order] for column in (annotations.item, annotations.annotator, annotations.label))
    next_to = (annotator[1:] == annotator[:-1]) & (np.diff(rank_n[item]) == 1) & ~begins_n[item[1:]]
    if annotations.anonymous is not None:
        next_to &= annotator[1:] != annotations.anonymous
    before = np.full(len(annotations), n_options, dtype=np.int32)
    before[order[1:][next_to]] = label[:-1][next_to]
    return replace(
        annotations,
        annotator=(annotations.annotator * (n_options + 1) + before).astype(np.int32),
        annotators=tuple(range(annotations.n_annotators * (n_options + 1))),
        anonymous=None if annotations.anonymous is None else annotations.anonymous * (n_options + 1) + n_options,
    )


def merged(counts_klj: Floats, n_options: int) -> Floats:
    """Merge counts (K (L + 1), L, J) of the pseudo-annotators into (K, L, J) counts per annotator."""
    return np.asarray(counts_klj.reshape(-1, n_options + 1, *counts_klj.shape[1:]).sum(axis=1))
