"""Information in one label: the mutual information of an item's class and an annotator's answer, in bits.

    I_k = sum_j p_j sum_l pi_k[j, l] log2( pi_k[j, l] / sum_i p_i pi_k[i, l] )        p: class shares, pi_k: confusion

0 if the answer does not depend on the class, at most the entropy of the shares.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from hitl.annotations import Floats


def information(confusion_kjl: Floats, share_j: Floats) -> Floats:
    """Return (K,) the bits that one label carries about the class; rows and shares sum to 1."""
    answer_kl = np.einsum("j,kjl->kl", share_j, confusion_kjl)
    within_k = np.einsum("j,kjl->k", share_j, xlogy(confusion_kjl, confusion_kjl))
    bits: Floats = (within_k - xlogy(answer_kl, answer_kl).sum(axis=1)) / np.log(2)
    return np.maximum(bits, 0.0)


def entropy(share_j: Floats) -> float:
    """Return the entropy of the class shares, in bits."""
    return float(-xlogy(share_j, share_j).sum() / np.log(2))
