"""Dawid-Skene for linked items (Traganitis & Giannakis 2019, Algorithms 3 and 4): a field on a graph x confusion rows.

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )        l_nk | z_n = j ~ Cat(pi_k[j])

    E   q_n by what the neighbours and the labels of n say: see `graph_field`                      (eqs. 33, 34)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + smoothing                                                 (eq. 36)

from the votes. An item without labels is judged by its neighbours. With `strength` 0 it is Dawid-Skene. The
paper's Algorithm 3 is `approximation="icm"` with a strength set by hand; without one it is learned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.annotators.confusion import Confusion
from hitl.models.combiner import require_given, used
from hitl.models.graphs import learned_field
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import beliefs_of
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.numerics.votes import shares


@dataclass(frozen=True, slots=True)
class NetworkDawidSkene:
    """Dawid-Skene whose true classes are a field on a graph.

    Attributes:
        strength: log odds that an edge of weight 1 adds for its two items to be of one class, >= 0; None: learned,
            for each class by itself.
        clear: probability that an item does not mislead: that it seems to annotators to be what it is, in (0, 1];
            None: learned with the strength; 1 where that is given, or where few labeled items are linked to each other.
        approximation: how beliefs pass along edges: "mean-field", "icm" (iterated conditional modes), or
            "belief-propagation", which is exact on trees.
        smoothing: pseudo-count of each confusion cell, > 0.
        share_smoothing: pseudo-items of each class, > 0.
        tolerance: an iteration that gains less, in nats an item, is the last.

    Example:
        >>> from scipy import sparse
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import NetworkDawidSkene
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [-1, -1], [1, 1], [1, 1]])
        >>> links = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 1, 3], [1, 2, 4])), shape=(5, 5))
        >>> NetworkDawidSkene(strength=2).fit(Evidence(labels, graph=links + links.T)).labels.tolist()
        [0, 0, 0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "graph"})
    needs: ClassVar[frozenset[str]] = frozenset({"graph"})

    strength: float | None = None
    clear: float | None = None
    approximation: str = "mean-field"
    smoothing: float = 0.01
    share_smoothing: float = 0.01
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "smoothing", "share_smoothing", "tolerance")
        require_counts(self, "max_iterations")
        learned_field.require_strength(self.strength)
        learned_field.require_clear(self.clear)
        learned_field.require_approximation(self.approximation)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned. Raises BadEvidence without a graph."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, pseudo_jl = evidence.annotations, self._pseudo_counts(evidence.annotations)
        outputs = Outputs.of(evidence)
        found = learned_field.fitted(
            evidence,
            self._settings,
            outputs.beside(learned_field.at_start(evidence, self._settings, start)),
            Confusion.unlearned(pseudo_jl, annotations.n_annotators),
            beliefs_of(evidence, start, learned_field.STRENGTH, partial(self._judged, evidence=evidence)),
        )
        seen = confusion.report(annotations, found.counts_klj, pseudo_jl, shares(found.q_nj))
        return learned_field.concluded(self, began, evidence, outputs, found, seen)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge the items of another graph, by the same or new annotators, with what was learned."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        annotations = evidence.annotations
        seen, pseudo_jl = learned_field.as_seen(consensus), self._pseudo_counts(annotations)
        pi_klj = confusion.confusion_from(seen, annotations, pseudo_jl)
        return learned_field.judged(consensus, evidence, np.log(pi_klj), self.approximation)

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        return confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing)

    @property
    def _settings(self) -> learned_field.Settings:
        return learned_field.Settings(
            self.strength, self.clear, self.share_smoothing, self.approximation, self.tolerance, self.max_iterations
        )
