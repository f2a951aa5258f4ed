"""Messages from annotators, the log likelihoods of their labels, by the means of Dirichlet confusion rows.

L_nj  =  sum over labels (n, k, l) of ln ( alpha_kjl / sum over options of alpha_kj. )
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.design_effect import SMALLEST
from hitl.models.annotators.confusion import over_options
from hitl.models.numerics import kernels
from hitl.tables.shared_errors import SharedErrors, share_errors


def log_means(alpha_kjl: Floats) -> Floats:
    """Return (K, L, J) logarithms of the mean confusion matrices."""
    log_pi_klj = np.array(alpha_kjl.transpose(0, 2, 1), order="C")  # one table, changed in place: K J L may be large
    log_pi_klj /= over_options(log_pi_klj)[:, None]
    np.log(np.maximum(log_pi_klj, SMALLEST, out=log_pi_klj), out=log_pi_klj)
    return log_pi_klj


def messages(annotations: Annotations, alpha_kjl: Floats) -> Floats:
    """Return (N, J) messages about each item, given Dirichlet parameters (K, J, L)."""
    if share_errors(alpha_kjl):
        return _of_shared_errors(annotations, alpha_kjl)
    return kernels.messages(annotations, log_means(alpha_kjl))


def at_labels(
    alpha_kjl: Floats, k: npt.NDArray[np.int32], j: npt.NDArray[np.int32], option: npt.NDArray[np.int32]
) -> tuple[Floats, Floats]:
    """Return (M,) Dirichlet parameters of single answers, and (M,) the sums of their rows."""
    if share_errors(alpha_kjl):
        return alpha_kjl.at(k, j, option), alpha_kjl.weight_k[k]
    return alpha_kjl[k, j, option], alpha_kjl.sum(axis=2)[k, j]


def _of_shared_errors(annotations: Annotations, table: SharedErrors) -> Floats:
    wrong_k = np.log1p(-table.right_k)
    odds_m = (np.log(table.right_k) - wrong_k)[annotations.annotator]
    wrong_n = sums(annotations.item, wrong_k[annotations.annotator], annotations.n_items)
    return table.log_messages(by_item(annotations, np.ones(len(annotations))), wrong_n, by_item(annotations, odds_m))


def sums(code_m: npt.NDArray[np.int32], value_m: Floats, size: int) -> Floats:
    """Return (size,) sums of values (M,) by code."""
    return np.bincount(code_m, value_m, size).astype(np.float64)


def by_item(annotations: Annotations, value_m: Floats) -> sparse.csr_array:
    """Return (N, L) sums of values (M,) by item and label."""
    shape = annotations.n_items, annotations.n_options
    return sparse.csr_array(sparse.coo_array((value_m, (annotations.item, annotations.label)), shape=shape))
