"""Dawid-Skene and VB-IBCC for linked items: a field on a graph as truth prior (Traganitis & Giannakis 2019, section 5).

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )        l_nk | z_n = j ~ Cat(pi_k[j])

    E   q_n from the neighbors and the labels of n: see `graph_field`                             (eqs. 33, 34)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + smoothing                                                 (eq. 36)
        or pi_kj ~ Dir(a_j), by variational Bayes, with a prior a that the annotators share, as in VB-IBCC

Iterations start from the votes (Algorithms 3 and 4). Items without labels are predicted from their neighbors. With
`strength` 0 the methods are Dawid–Skene and VB-IBCC. The paper's Algorithm 3 is `approximation="icm"` with a strength
set by hand.

An item may mislead: annotators see an apparent class that is not its true class (`priors.apparent_classes`). How often
items mislead shows only once neighbors predict each other. So the field is fitted first as if no item misled, then
together with the frequency of misleading items, and the fit with the higher evidence is kept. If few labeled items are
linked to each other, no item is assumed to mislead. A consensus stores

    strength       (J,)   log odds that an edge of weight 1 adds for both its items to be of a class
    field_shares   (J,)   class shares without the effect of neighbors; `class_shares` are those of the items
    clear          ()     probability that an item does not mislead: annotators see its true class
    seen_shares    (J,)   shares of the apparent classes of misleading items
    seen           (K, J, L) Dirichlet parameters of answers about apparent classes; those of the consensus are about
                   true classes. Stored if `clear` is less than 1
    seen_prior     (J, L) prior of `seen`, for annotators without labels
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorKind
from hitl.models.annotators.confusion import PointRows, even_pseudo_counts, on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.combiner import require_given, used
from hitl.models.inference import em
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.inference.warm_start import begin, require_learned, require_same_classes, usable
from hitl.models.numerics.checks import at_least_0, chance, check_settings
from hitl.models.numerics.clamping import messages
from hitl.models.numerics.potts import Graph
from hitl.models.numerics.votes import shares
from hitl.models.priors.apparent_classes import ApparentClasses
from hitl.models.priors.graph_field import SWEEPS_ALONE, GraphField

STRENGTH, FIELD_SHARES, CLEAR = "strength", "field_shares", "clear"
SEEN_SHARES, SEEN, SEEN_PRIOR = "seen_shares", "seen", "seen_prior"

FIRST_CLEAR = 0.95
"""First value of `clear`. On a graph without information it stays near this. Chosen on simulated crowds and pubmed
among .7, .9, .95 and .99, which differ little."""

LEAST_CLEAR = 0.5
"""A fit with `clear` at or below this is rejected: labels would carry less information than neighbors, and the field
would be learned from itself."""

Prior = ApparentClasses[Observed[GraphField]]
Estimate = em.EMResult[Prior, Any]


@dataclass(frozen=True, slots=True)
class FieldMethod(ABC):
    """Base of methods whose true classes are a field on a graph.

    Attributes:
        strength: log odds that an edge of weight 1 adds for its two items to be of the same class, >= 0; None: learned,
            separately for each class.
        clear: probability that an item does not mislead: annotators see its true class, in (0, 1]; None: learned with
            the strength, or 1 if `strength` is set or few labeled items are linked to each other.
        approximation: how beliefs pass along edges: "mean-field", "icm" (iterated conditional modes), or
            "belief-propagation", which is exact on trees.
        share_smoothing: number of pseudo-items per class, > 0.
        tolerance: iterations stop when one gains less than this, in nats per item.
    """

    tables: ClassVar[int] = 16
    beliefs: ClassVar[int] = 24
    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "graph"})
    needs: ClassVar[frozenset[str]] = frozenset({"graph"})

    strength: float | None = None
    clear: float | None = None
    approximation: str = "mean-field"
    share_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self, strength=at_least_0)
        if self.clear is not None and self.clear != 1:
            chance("clear", self.clear)

    @abstractmethod
    def annotators(self, annotations: Annotations) -> AnnotatorKind:
        """Return the annotator model."""

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Iterate from the votes, or from `start`. Raise BadEvidence without a graph."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        outputs = Outputs.of(evidence)
        kind = self.annotators(evidence.annotations)
        annotators = kind.at_start(evidence.annotations, None if start is None else as_seen(start))
        q_nj = begin(evidence, start, partial(self._judged, evidence=evidence), needs=STRENGTH)
        fitted = self._fitted(evidence, outputs.beside(self._field(evidence, start)), annotators, q_nj)
        seen = kind.report(evidence.annotations, fitted, shares(fitted.q_nj))
        kept = outputs.kept(_parameters(fitted.prior, seen))
        if fitted.prior.clear < 1:
            message_nj = messages(evidence, fitted.annotators.log_pi_klj)
            fitted = replace(fitted, q_nj=fitted.prior.truths(message_nj))
            seen = _of_truths(seen, fitted.prior, shares(fitted.q_nj))
        return em.concluded(self, began, evidence, fitted, seen, **kept)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict the items of another graph, labeled by the same or new annotators, with the learned parameters."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        require_same_classes(consensus, evidence)
        require_learned(consensus, STRENGTH, FIELD_SHARES)
        kept, graph = consensus.parameters, Graph.of(evidence.graph)
        share_j, ways = kept[FIELD_SHARES], self.approximation
        field = GraphField(graph, kept[STRENGTH], share_j, approximation=ways, sweeps=SWEEPS_ALONE)
        prior = Outputs.of(evidence, consensus).beside(field)
        apparent = ApparentClasses(prior, kept.get(SEEN_SHARES, share_j), float(kept.get(CLEAR, 1.0)))
        log_pi_klj = self.annotators(evidence.annotations).log_pi(as_seen(consensus), evidence.annotations)
        return apparent.truths(messages(evidence, log_pi_klj))

    def _field(self, evidence: Evidence, start: Consensus | None) -> GraphField:
        """Return the field before the first iteration: the one of `start` if its classes and options are the same."""
        graph, n_classes = Graph.of(evidence.graph), evidence.annotations.n_classes
        field = GraphField.even(graph, n_classes, self.strength, self.share_smoothing, self.approximation)
        if start is None or STRENGTH not in start.parameters or not usable(start, evidence.annotations):
            return field
        kept = start.parameters
        strength_j = kept[STRENGTH] if self.strength is None else field.strength_j
        return replace(field, strength_j=strength_j, share_j=kept[FIELD_SHARES])

    def _fitted(self, evidence: Evidence, field: Observed[GraphField], annotators: Any, q_nj: Floats) -> Estimate:
        """Fit from beliefs about apparent classes, without and then with misleading items; return the better fit."""
        j = evidence.annotations.n_classes
        prior = ApparentClasses(field, np.full(j, 1 / j), 1.0 if self.clear is None else self.clear)
        plain = self._maximised(evidence, prior, annotators, q_nj)
        learned = plain.prior.prior.prior
        if self.clear is not None or self.strength is not None or not _predicts_neighbours(evidence, learned):
            return plain
        misleading = replace(plain.prior, clear=FIRST_CLEAR, share_j=learned.share_j, learned=True)
        begun = replace(plain.statistics, clear=FIRST_CLEAR * plain.statistics.items)
        going_on = Expected(plain.counts_klj, begun, 0.0)
        both = self._maximised(evidence, misleading, plain.annotators, plain.q_nj, going_on)
        likelier = both.objective[-1] > plain.objective[-1] and both.prior.clear > LEAST_CLEAR
        return both if likelier else plain

    def _maximised(
        self,
        evidence: Evidence,
        prior: Prior,
        annotators: Any,
        q_nj: Floats,
        begun: Expected | None = None,
    ) -> Estimate:
        """Run the loop. If long steps of the strengths lowered the objective, continue with short ones."""
        limits: dict[str, Any] = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        fitted = em.run_em(evidence, prior, annotators, q_nj, begun=begun, **limits)
        trace = fitted.objective
        enough = self.tolerance * evidence.annotations.n_items
        if len(trace) < 2 or trace[-1] > trace[-2] - enough or len(trace) >= self.max_iterations:
            return fitted
        field = fitted.prior.prior
        careful = replace(fitted.prior, prior=replace(field, prior=replace(field.prior, quickest=1.0)))
        going_on = Expected(fitted.counts_klj, fitted.statistics, 0.0)
        limits["max_iterations"] -= len(trace)
        more = em.run_em(evidence, careful, fitted.annotators, fitted.q_nj, begun=going_on, **limits)
        return replace(more, objective=(*trace, *more.objective))


@dataclass(frozen=True, slots=True)
class NetworkDawidSkene(FieldMethod):
    """Dawid-Skene whose true classes are a field on a graph.

    `smoothing` > 0 is the pseudo-count of each confusion cell; the other settings are those of `FieldMethod`.

    Example:
        >>> from scipy import sparse
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [-1, -1], [1, 1], [1, 1]])
        >>> links = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 1, 3], [1, 2, 4])), shape=(5, 5))
        >>> models.NetworkDawidSkene(strength=2).fit(Evidence(labels, graph=links + links.T)).labels.tolist()
        [0, 0, 0, 1, 1]
    """

    share_smoothing: float = 0.01
    smoothing: float = 0.01

    def annotators(self, annotations: Annotations) -> PointRows:
        """Return confusion rows at their posterior mode."""
        return PointRows(even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing))


@dataclass(frozen=True, slots=True)
class NetworkIBCC(FieldMethod):
    """VB-IBCC whose true classes are a field on a graph.

    Attributes:
        diagonal, off: pseudo-counts of the right answer and of each other answer in a confusion row, > 0; if `shared`,
            the mode of their hyperprior.
        shared: True to learn the rows' prior from all annotators (empirical Bayes).

    The other settings are those of `FieldMethod`.

    Example:
        >>> from scipy import sparse
        >>> from hitl import Annotations, Evidence, models
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [-1, -1], [1, 1], [1, 1]])
        >>> links = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 1, 3], [1, 2, 4])), shape=(5, 5))
        >>> models.NetworkIBCC(strength=2).fit(Evidence(labels, graph=links + links.T)).labels.tolist()
        [0, 0, 0, 1, 1]
    """

    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True

    def annotators(self, annotations: Annotations) -> DirichletRows:
        """Return confusion rows with Dirichlet posteriors, as in VB-IBCC."""
        size = annotations.n_classes, annotations.n_options
        return DirichletRows(on_the_diagonal(*size, self.diagonal, self.off), self.shared)


def as_seen(consensus: Consensus) -> Consensus:
    """Return the consensus with confusion matrices about apparent classes in place of true ones."""
    if SEEN not in consensus.parameters:
        return consensus
    kept = consensus.parameters
    pi_kjl = kept[SEEN] / kept[SEEN].sum(axis=2, keepdims=True)
    people = replace(consensus.annotators, concentration=kept[SEEN], confusion=pi_kjl, prior=kept.get(SEEN_PRIOR))
    return replace(consensus, annotators=people)


def _predicts_neighbours(evidence: Evidence, field: GraphField) -> bool:
    """Return True if most edges of labeled items lead to labeled items, and the strength of any class is above 0.

    An item without labels only returns its neighbors' beliefs to them, so it would seem to predict them.
    """
    labeled_n = (evidence.annotations.labels_per_item > 0).astype(np.float64)
    to_labeled, to_any = (
        float(labeled_n @ field.graph.sums(other_n[:, None])[:, 0]) for other_n in (labeled_n, np.ones_like(labeled_n))
    )
    return bool(field.strength_j.any() and 2 * to_labeled > to_any)


def _parameters(prior: Prior, seen: AnnotatorReport) -> dict[str, Floats]:
    field = prior.prior.prior
    kept = {STRENGTH: field.strength_j, FIELD_SHARES: field.share_j, CLEAR: np.array(prior.clear)}
    if prior.clear == 1:
        return kept
    kept |= {SEEN_SHARES: prior.share_j, SEEN: seen.concentration}
    return kept if seen.prior is None else kept | {SEEN_PRIOR: seen.prior}


def _of_truths(seen: AnnotatorReport, prior: Prior, share_j: Floats) -> AnnotatorReport:
    """Convert a report about apparent classes into one about true classes.

    Its matrices combine the chance that an item misleads with the chance of each answer about the apparent class.
    """
    step_jj = prior.clear * np.eye(len(prior.share_j)) + (1 - prior.clear) * prior.share_j

    def composed(alpha: Floats) -> Floats:
        total = alpha.sum(axis=-1, keepdims=True)
        return np.asarray(step_jj @ (alpha / total) * total)

    return replace(
        seen,
        concentration=composed(seen.concentration),
        confusion=step_jj @ seen.confusion,
        prior=None if seen.prior is None else composed(seen.prior),
        shares=share_j,
    )
