"""Dawid-Skene for linked items (Traganitis & Giannakis 2019, Algorithms 3 and 4): a field on a graph, confusion rows.

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )        l_nk | z_n = j ~ Cat(pi_k[j])

    E   q_n from the neighbors and the labels of n: see `graph_field`                             (eqs. 33, 34)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + smoothing                                                 (eq. 36)

starting from the votes. Items without labels are estimated from their neighbors. With `strength` 0 it is Dawid-Skene.
The paper's Algorithm 3 is `approximation="icm"` with a strength set by hand; without one it is learned.
"""

from __future__ import annotations

from dataclasses import dataclass

from hitl.annotations import Annotations
from hitl.models.annotators.confusion import PointRows, even_pseudo_counts
from hitl.models.graphs.learned_field import FieldMethod


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
