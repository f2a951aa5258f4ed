"""What annotators say of items by the means of their confusion rows, in whole tables or by factors.

    L_nj  =  sum over labels (n, k, l) of ln ( alpha_kjl / sum over options of alpha_kj. )

Of a table by factors only rows of options that an annotator has given are made, one annotator at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.design_effect import SMALLEST
from hitl.models.annotators.confusion import over_options
from hitl.models.numerics import kernels
from hitl.tables.factored_rows import FactoredTable, by_factors


def log_means(alpha_kjl: Floats) -> Floats:
    """(K, L, J) logarithms of the means of Dirichlet matrices."""
    log_pi_klj = np.array(alpha_kjl.transpose(0, 2, 1), order="C")  # one table, changed in place: K J L may be large
    log_pi_klj /= over_options(log_pi_klj)[:, None]
    np.log(np.maximum(log_pi_klj, SMALLEST, out=log_pi_klj), out=log_pi_klj)
    return log_pi_klj


def messages(annotations: Annotations, alpha_kjl: Floats) -> Floats:
    """(N, J) sums over the labels of each item, by Dirichlet parameters (K, J, L)."""
    if by_factors(alpha_kjl):
        return _of_factors(annotations, alpha_kjl)
    return kernels.messages(annotations, log_means(alpha_kjl))


def at_labels(
    alpha_kjl: Floats, k: npt.NDArray[np.int32], j: npt.NDArray[np.int32], option: npt.NDArray[np.int32]
) -> tuple[Floats, Floats]:
    """(m,) Dirichlet parameters of single answers, and (m,) the sums of their rows."""
    if by_factors(alpha_kjl):
        return alpha_kjl.at(k, j, option), alpha_kjl.totals()[k, j]
    return alpha_kjl[k, j, option], alpha_kjl.sum(axis=2)[k, j]


def _of_factors(annotations: Annotations, alpha: FactoredTable) -> Floats:
    message_nj = np.zeros((annotations.n_items, annotations.n_classes))
    totals_kj, (start, order) = alpha.totals(), annotations.by_annotator
    for k in range(annotations.n_annotators):
        own = order[start[k] : start[k + 1]]
        items, item_m = np.unique(annotations.item[own], return_inverse=True)
        options, option_m = np.unique(annotations.label[own], return_inverse=True)
        log_rows = alpha.rows(k, options) / totals_kj[k]
        np.log(np.maximum(log_rows, SMALLEST, out=log_rows), out=log_rows)
        given = sparse.csr_array((np.ones(len(own)), (item_m, option_m)), shape=(len(items), len(options)))
        message_nj[items] += given @ log_rows
    return message_nj
