"""Objects that every annotator overlooked, such as spans of a text that nobody marked.

    N_d ~ Poisson(rho n_d)           objects in a text of size n_d
    m_d = prod_k miss_k              chance that all annotators of text d overlook an object, independently
    seen_d ~ Poisson(rho n_d (1 - m_d)), unseen_d ~ Poisson(rho n_d m_d), independent of each other
    rho ~ Gamma(1 + S, L)            posterior with a uniform prior; S = sum_d seen_d, L = sum_d n_d (1 - m_d)
    p(nothing overlooked) = E exp(-rho n_d m_d) = (L / (L + n_d m_d))^(1 + S)

A text without an answer has m_d = 1; a text whose objects are known has m_d = 0. Misses are learned from objects that
at least one annotator marked, so they are slightly underestimated if texts have few annotators.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport


def misses(report: AnnotatorReport) -> Floats:
    """Return (K,) chance that an annotator answers class 0, "nothing", for an object of another class."""
    return np.asarray(report.confusion[:, 1:, 0] @ shares_of_kinds(report))


def shares_of_kinds(report: AnnotatorReport) -> Floats:
    """Return (J - 1,) shares of the classes other than "nothing", which sum to 1. If all are 0, they become uniform."""
    share_h = report.shares[1:]
    total = float(share_h.sum())
    return share_h / total if total > 0 else np.full(len(share_h), 1 / len(share_h))


def chance_of_none(
    seen_d: Floats, size_d: Floats, known_d: npt.NDArray[np.bool_], answer_a2: npt.NDArray[np.int64], miss_k: Floats
) -> Floats:
    """Return (D,) probability that nothing was overlooked, from expected objects seen (D,) and text sizes (D,).

    `known_d` (D,): True for texts whose objects are known. `answer_a2` (A, 2): text and annotator of each answer.
    `miss_k` (K,): as from `misses`.
    """
    document_a, annotator_a = answer_a2.T
    with np.errstate(divide="ignore"):
        log_miss = np.bincount(document_a, weights=np.log(miss_k)[annotator_a], minlength=len(size_d))
    m_d = np.where(known_d, 0.0, np.exp(log_miss))
    looked = float((size_d * (1 - m_d)).sum())
    open_d = size_d * m_d
    with np.errstate(divide="ignore", invalid="ignore"):
        none: Floats = np.exp((1 + seen_d.sum()) * (np.log(looked) - np.log(looked + open_d)))
    return np.where(open_d > 0, none, 1.0)
