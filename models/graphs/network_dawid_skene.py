"""Dawid-Skene for linked items (Traganitis & Giannakis 2019, Algorithms 3 and 4): a field on a graph, confusion rows.

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )        l_nk | z_n = j ~ Cat(pi_k[j])

    E   q_n from the neighbors and the labels of n: see `graph_field`                             (eqs. 33, 34)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + smoothing                                                 (eq. 36)

starting from the votes. Items without labels are estimated from their neighbors. With `strength` 0 it is Dawid-Skene.
The paper's Algorithm 3 is `approximation="icm"` with a strength set by hand; without one it is learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.models.annotators import confusion
from hitl.models.annotators.confusion import Confusion
from hitl.models.graphs.learned_field import Estimate, FieldMethod
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True, slots=True)
class NetworkDawidSkene(FieldMethod):
    """Dawid-Skene whose true classes are a field on a graph.

    `smoothing` > 0 is the pseudo-count of each confusion cell; the other settings are those of `FieldMethod`.

    Example:
        >>> from scipy import sparse
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import NetworkDawidSkene
        >>> labels = Annotations.from_matrix([[0, 0], [0, 0], [-1, -1], [1, 1], [1, 1]])
        >>> links = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 1, 3], [1, 2, 4])), shape=(5, 5))
        >>> NetworkDawidSkene(strength=2).fit(Evidence(labels, graph=links + links.T)).labels.tolist()
        [0, 0, 0, 1, 1]
    """

    share_smoothing: float = 0.01
    smoothing: float = 0.01

    def __post_init__(self) -> None:
        FieldMethod.__post_init__(self)
        require_positive(self, "smoothing")

    def annotators_at_start(self, annotations: Annotations, start: Consensus | None) -> Confusion:
        """Return unlearned confusion rows; the first iteration learns them from the beliefs of `start`."""
        return Confusion.unlearned(self._pseudo_counts(annotations), annotations.n_annotators)

    def log_confusion(self, learned: Consensus, annotations: Annotations) -> Floats:
        """Return (K, L, J) log confusion rows."""
        return np.log(confusion.confusion_from(learned, annotations, self._pseudo_counts(annotations)))

    def report(self, annotations: Annotations, fitted: Estimate, share_j: Floats) -> AnnotatorReport:
        """Report expected counts and confusion rows."""
        return confusion.report(annotations, fitted.counts_klj, self._pseudo_counts(annotations), share_j)

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        return confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, self.smoothing)
