"""VB-IBCC for linked items: a field on a graph x confusion rows with Dirichlet posteriors, by variational Bayes.

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )
    l_nk | z_n = j ~ Cat(pi_kj)      pi_kj ~ Dir(a_j)

The Bayesian twin of `network_dawid_skene`, with the annotators of VB-IBCC: their rows share a prior a, which is
learned, so that annotators with few labels are judged by the others. The class shares are at their mode.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import dirichlet_confusion
from hitl.models.combiner import require_given, used
from hitl.models.graphs import learned_field
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import beliefs_of
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.numerics.votes import shares
from hitl.models.vb_ibcc import VBIBCC


@dataclass(frozen=True, slots=True)
class NetworkIBCC:
    """VB-IBCC whose true classes are a field on a graph.

    Attributes:
        strength: log odds that an edge of weight 1 adds for its two items to be of one class, >= 0; None: learned,
            for each class by itself.
        clear: probability that an item does not mislead: that it seems to annotators to be what it is, in (0, 1];
            None: learned with the strength; 1 where that is given, or where few labeled items are linked to each other.
        approximation: how beliefs pass along edges: "mean-field", "icm" (iterated conditional modes), or
            "belief-propagation", which is exact on trees.
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0; where `shared`, the
            mode of their hyper-prior.
        shared: learn the rows' prior from all annotators (empirical Bayes).
        share_smoothing: pseudo-items of each class, > 0.
        tolerance: an iteration that gains less, in nats an item, is the last.

    Example:
        >>> from scipy import sparse
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import NetworkIBCC
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [-1, -1], [1, 1], [1, 1]])
        >>> links = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 1, 3], [1, 2, 4])), shape=(5, 5))
        >>> NetworkIBCC(strength=2).fit(Evidence(labels, graph=links + links.T)).labels.tolist()
        [0, 0, 0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "graph"})
    needs: ClassVar[frozenset[str]] = frozenset({"graph"})

    strength: float | None = None
    clear: float | None = None
    approximation: str = "mean-field"
    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True
    share_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "diagonal", "off", "share_smoothing", "tolerance")
        require_counts(self, "max_iterations")
        learned_field.require_strength(self.strength)
        learned_field.require_clear(self.clear)
        learned_field.require_approximation(self.approximation)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Iterate from the votes, or from what `start` learned. Raises BadEvidence without a graph."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        outputs = Outputs.of(evidence)
        found = learned_field.fitted(
            evidence,
            self._settings,
            outputs.beside(learned_field.at_start(evidence, self._settings, start)),
            self._rows.annotators_at_start(annotations, start if start is None else learned_field.as_seen(start)),
            beliefs_of(evidence, start, learned_field.STRENGTH, partial(self._judged, evidence=evidence)),
        )
        seen = dirichlet_confusion.report(annotations, found.annotators, shares(found.q_nj))
        return learned_field.concluded(self, began, evidence, outputs, found, seen)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge the items of another graph, by the same or new annotators, with what was learned."""
        require_given(self, evidence, self.needs)
        return consensus.judging(evidence.annotations.items, self._judged(consensus, evidence))

    def _judged(self, consensus: Consensus, evidence: Evidence) -> Floats:
        log_pi_klj = self._rows.expected_log(learned_field.as_seen(consensus), evidence.annotations)
        return learned_field.judged(consensus, evidence, log_pi_klj, self.approximation)

    @property
    def _rows(self) -> VBIBCC:
        """What is expected of annotators."""
        return VBIBCC(self.diagonal, self.off, self.shared)

    @property
    def _settings(self) -> learned_field.Settings:
        return learned_field.Settings(
            self.strength, self.clear, self.share_smoothing, self.approximation, self.tolerance, self.max_iterations
        )
