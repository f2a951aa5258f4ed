"""VB-IBCC for linked items: a field on a graph, and confusion rows with Dirichlet posteriors, by variational Bayes.

    p(z) ∝ prod_n p[z_n] exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )
    l_nk | z_n = j ~ Cat(pi_kj)      pi_kj ~ Dir(a_j)

The Bayesian counterpart of `network_dawid_skene`, with the annotators of VB-IBCC: their rows share a prior a, which is
learned, so that annotators with few labels are estimated from the others. The class shares are at their mode.
"""

from __future__ import annotations

from dataclasses import dataclass

from hitl.annotations import Annotations
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.graphs.learned_field import FieldMethod


@dataclass(frozen=True, slots=True)
class NetworkIBCC(FieldMethod):
    """VB-IBCC whose true classes are a field on a graph.

    Attributes:
        diagonal, off: pseudo-counts of a right and of any other answer in a confusion row, > 0; if `shared`, the mode
            of their hyper-prior.
        shared: learn the rows' prior from all annotators (empirical Bayes).

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
