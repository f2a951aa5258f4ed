"""Methods with a Markov chain of true classes (Traganitis & Giannakis 2019; Simpson & Gurevych 2019).

    z_1 ~ Cat(first)      z_t | z_{t-1} = i ~ Cat(step[i])      l_tk | z_t = j ~ Cat(pi_k[j])

    E   q_t = p(z_t | all labels of the sequence), and the expected pairs, by forward and backward passes (eqs. 39-49)
    M   pi[k, j, l], first[j], step[i, j] ∝ expected counts + smoothing (Algorithm 1), or all with Dirichlet posteriors,
        by variational Bayes, in which the rows of the annotators share a learned prior a_j, as in VB-IBCC

Unlabeled items take part through their neighbors. If transitions do not depend on the previous class, the model is
Dawid-Skene, or VB-IBCC. In BSC-seq an annotator's answer depends on their previous answer,

    l_tk | z_t = j, l_{t-1,k} = h ~ Cat(pi_k[h, j])        pi_k[h, j] ~ Dir(a_j)

so it splits each annotator into L + 1 pseudo-annotators: one per previous label, and one for items at the beginning or
after an item that the annotator did not label. This models annotators who mark little and overlook entire names: an O
after an O carries less information than an O after a B. If all classes are O, B-kind and I-kind, then I-kind may only
follow B-kind or I-kind. The classes O, B and I are spans of a single type, which has no name.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorKind, dirichlet_confusion
from hitl.models.annotators.confusion import PointRows, even_pseudo_counts, on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.combiner import array_bytes, require_given, used_shards
from hitl.models.inference import em
from hitl.models.inference.engine import PerShard, Shards, Table
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.inference.warm_start import begin, require_learned, require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.special import digamma
from hitl.models.numerics.votes import smoothed
from hitl.models.priors.markov_chain import DirichletChain, MarkovChain, Sequences
from hitl.models.sequences.learned_chain import FIRST, STEPS, ChainPosterior, chain_posterior, sequences_of

AFTER = "after own labels"
"""Name of the (K (L + 1), L, J) Dirichlet parameters of each annotator after each of their labels, and after none."""

NO_ITEMS = Sequences(np.empty((0, 2), np.int64))


@dataclass(frozen=True, slots=True)
class ChainMethod(ABC):
    """Settings, fit and apply of methods with a chain.

    Attributes:
        step_smoothing: pseudo-count of each first class, and of each transition, > 0.
        tolerance: iterations stop when one gains less, in nats per item.
        max_iterations: maximum number of iterations.
    """

    tables: ClassVar[int] = 13
    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "sequence"})
    needs: ClassVar[frozenset[str]] = frozenset({"sequence"})
    starts_from: ClassVar[str] = STEPS
    """Parameter that a consensus must have for a fit to start from it."""

    step_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def chain(self, annotations: Annotations) -> MarkovChain | DirichletChain:
        """Return the chain before the first iteration, over no items."""

    @abstractmethod
    def kind(self, annotations: Annotations) -> AnnotatorKind:
        """Return the kind of annotators."""

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Iterate from the votes, or from `start`. Raise BadEvidence if the evidence has no sequences.

        All items of a sequence must be in one shard: a sequence split over two shards would count as two.
        """
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations, outputs = shards.annotations, Outputs.learned(shards)
        each: Shards = shards
        first: em.Beliefs | Floats = partial(self._first, start=start)
        if shards.table is not None:
            each = Table(self.by_answers(shards.table))
            first = self._first(shards.table, start)
        prior_on = partial(_prior_on, outputs=each.once(outputs.on), sequences=each.once(sequences_of))
        found = em.run_em(
            each,
            Observed(self.chain(annotations), None),
            self.kind(annotations).at_start(each.annotations, start),
            first,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            prior_on=prior_on,
        )
        log_pi_klj = found.annotators.log_pi_klj
        judge = partial(em.judge, prior=found.prior, log_pi_klj=log_pi_klj, prior_on=prior_on, least_labels=1)
        total_j = each.total(partial(_total, beliefs=PerShard(judge, each.table, found.q_nj)))
        people = self.report(annotations, found, smoothed(total_j, shards.size.counted(0)))
        mean_rj = found.prior.prior.mean_rj
        learned = {FIRST: mean_rj[0], STEPS: mean_rj[1:]} | self.learned_answers(found)
        return em.concluded(self, began, shards, found, people, **outputs.kept(learned))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other sequences, by the same or new annotators, with the learned parameters."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """Return the posterior over whole sequences from which `apply` takes its beliefs."""
        return chain_posterior(
            consensus, evidence, self.kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        )

    def by_answers(self, evidence: Evidence) -> Evidence:
        """Return the evidence with annotators who have one confusion matrix each, split if necessary."""
        return evidence

    def report(self, annotations: Annotations, found: Any, share_j: Floats) -> AnnotatorReport:
        """Report the annotators of an `EMResult`."""
        return self.kind(annotations).report(annotations, found, share_j)

    def learned_answers(self, found: Any) -> dict[str, Floats]:
        """Return parameters for a consensus besides those of the chain."""
        return {}

    def _first(self, evidence: Evidence, start: Consensus | None) -> Floats:
        """Return (N, J) first beliefs of iterations."""
        return begin(evidence, start, partial(self._judged, evidence=evidence), needs=self.starts_from)

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        return self.chain_posterior(consensus, evidence).passed.q_nj


@dataclass(frozen=True, slots=True)
class SequentialDawidSkene(ChainMethod):
    """Dawid-Skene whose true classes are a Markov chain.

    `smoothing` > 0 is the pseudo-count of each confusion cell; the other settings are those of `ChainMethod`.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
        >>> sentence = np.stack((np.zeros(7, int), np.arange(7)), axis=1)
        >>> models.SequentialDawidSkene().fit(Evidence(labels, sequence=sentence)).labels.tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    fits_shards: ClassVar[bool] = True

    smoothing: float = 0.01
    step_smoothing: float = 0.01

    def chain(self, annotations: Annotations) -> MarkovChain:
        """Return the uniform chain."""
        return MarkovChain.even(NO_ITEMS, annotations.n_classes, self.step_smoothing)

    def kind(self, annotations: Annotations) -> PointRows:
        """Return confusion rows at their posterior mode."""
        return PointRows(even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing))


@dataclass(frozen=True, slots=True)
class SequentialIBCC(ChainMethod):
    """VB-IBCC whose true classes are a Markov chain.

    Attributes:
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0; if `shared`, the
            mode of their hyperprior.
        shared: True to learn the rows' prior from all annotators (empirical Bayes).

    The other settings are those of `ChainMethod`.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
        >>> sentence = np.stack((np.zeros(7, int), np.arange(7)), axis=1)
        >>> models.SequentialIBCC().fit(Evidence(labels, sequence=sentence)).labels.tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True

    def chain(self, annotations: Annotations) -> DirichletChain:
        """Return the prior of first classes and transitions."""
        return DirichletChain.even(NO_ITEMS, annotations.n_classes, self.step_smoothing)

    def kind(self, annotations: Annotations) -> DirichletRows:
        """Return confusion rows with Dirichlet posteriors, as in VB-IBCC."""
        size = annotations.n_classes, annotations.n_options
        return DirichletRows(on_the_diagonal(*size, self.diagonal, self.off), self.shared)


@dataclass(frozen=True, slots=True)
class BSCSeq(ChainMethod):
    """Bayesian sequence combination with annotators who depend on their own last label.

    `diagonal` and `off` > 0 are the pseudo-counts of a right and of each other answer in a confusion row: the mode of
    the hyperprior of the rows' prior. The other settings are those of `ChainMethod`.

    Example:
        >>> import numpy as np
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [1, 1], [2, 2], [0, 0]] * 3, classes=["O", "B-X", "I-X"])
        >>> sentence = np.stack((np.zeros(12, int), np.arange(12)), axis=1)
        >>> models.BSCSeq().fit(Evidence(labels, sequence=sentence)).labels[:4].tolist()
        ['O', 'B-X', 'I-X', 'O']
    """

    starts_from: ClassVar[str] = AFTER

    diagonal: float = 2.0
    off: float = 1.0

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak: an annotator has a table (L, J) after each of L labels."""
        return array_bytes(evidence.annotations, 12 * evidence.annotations.n_options, 9)

    def chain(self, annotations: Annotations) -> DirichletChain:
        """Return the prior of first classes and transitions that spans allow."""
        allowed_rj = steps_of_spans(annotations.classes)
        return DirichletChain.even(NO_ITEMS, annotations.n_classes, self.step_smoothing, allowed_rj)

    def kind(self, annotations: Annotations) -> DirichletRows:
        """Return confusion rows with Dirichlet posteriors, the same prior after any label."""
        return DirichletRows(on_the_diagonal(annotations.n_classes, annotations.n_options, self.diagonal, self.off))

    def by_answers(self, evidence: Evidence) -> Evidence:
        """Split annotators by their previous label."""
        return replace(evidence, annotations=after_own_labels(evidence.annotations, sequences_of(evidence)))

    def report(self, annotations: Annotations, found: Any, share_j: Floats) -> AnnotatorReport:
        """Report each annotator by all their labels, whatever the previous one."""
        counts_klj = merged(found.annotators.counts_klj, annotations.n_options)
        return dirichlet_confusion.report(annotations, replace(found.annotators, counts_klj=counts_klj), share_j)

    def learned_answers(self, found: Any) -> dict[str, Floats]:
        """Return the Dirichlet parameters of the pseudo-annotators."""
        return {AFTER: np.ascontiguousarray(found.annotators.alpha_klj)}

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """Return the posterior over whole sequences from which `apply` takes its beliefs."""
        require_same_classes(consensus, evidence)
        require_learned(consensus, AFTER)
        log_pi_klj = self._log_answers(consensus, evidence.annotations)
        return chain_posterior(consensus, self.by_answers(evidence), log_pi_klj)

    def _log_answers(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """Return (K (L + 1), L, J) E ln pi of these annotators; new annotators get the learned prior."""
        alpha, prior_jl = consensus.parameters[AFTER], consensus.annotators.prior
        each = annotations.n_options + 1
        prior_jl = self.kind(annotations).hyper_jl if prior_jl is None else prior_jl
        alpha_khlj = np.tile(prior_jl.T, (annotations.n_annotators, each, 1, 1))
        place = {name: k for k, name in enumerate(consensus.annotators.names)}
        learned_khlj = alpha.reshape(-1, each, *alpha.shape[1:])
        for k, name in enumerate(annotations.annotators):
            if name in place:
                alpha_khlj[k] = learned_khlj[place[name]]
        expected: Floats = digamma(alpha_khlj) - digamma(alpha_khlj.sum(axis=2, keepdims=True))
        return expected.reshape(-1, *alpha.shape[1:])


def after_own_labels(annotations: Annotations, sequences: Sequences) -> Annotations:
    """Split annotators by their previous label: k (L + 1) + h is annotator k after label h, with h = L for none.

    Labels of the anonymous pool have no previous label. The new annotators are named by their numbers.
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


def steps_of_spans(classes: Sequence[object]) -> npt.NDArray[np.bool_] | None:
    """Return (1 + J, J) True for classes that may begin a sequence, and that may follow each class.

    I-X may only follow B-X or I-X, unless no class is B-X. B and I are spans of a type without a name. Return None
    unless every class is O, B-X, I-X, B or I.
    """
    parts = [re.fullmatch("O|([BI])(?:-(.+))?", str(name), re.DOTALL) for name in classes]
    if not all(parts):
        return None
    marks, kinds = (np.array([part[group] or "" if part else "" for part in parts]) for group in (1, 2))
    goes_on = (marks == "I") & np.isin(kinds, kinds[marks == "B"])
    return np.vstack((~goes_on, ~goes_on | ((marks != "")[:, None] & (kinds[:, None] == kinds))))


def _prior_on(
    prior: Observed[Any],
    evidence: Evidence,
    outputs: Callable[[Evidence], Outputs],
    sequences: Callable[[Evidence], Sequences],
) -> Observed[Any]:
    """Apply the chain to a shard's items, combined with the models."""
    return outputs(evidence).beside(replace(prior.prior, sequences=sequences(evidence)))


def _total(evidence: Evidence, beliefs: em.Beliefs) -> Floats:
    return np.asarray(beliefs(evidence).sum(axis=0))
