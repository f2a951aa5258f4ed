"""Agreement among annotators beyond chance: coefficients for nominal labels, where annotators may skip items.

    c[n, l]    number of labels l on item n        m_n = sum_l c[n, l]        only items with m_n >= 2 count

    Krippendorff's alpha (Krippendorff 2011)    observed A = sum_n sum_l c_nl (c_nl - 1) / (m_n - 1) / sum_n m_n
                                                expected E = sum_l t_l (t_l - 1) / (t (t - 1)),  t_l = sum_n c_nl
    Fleiss' kappa (Fleiss 1971)                 A = mean_n sum_l c_nl (c_nl - 1) / (m_n (m_n - 1))
                                                E = sum_l (t_l / t)^2
    Cohen's kappa (Cohen 1960) of two annotators    A = share of their common items with the same label
                                                E = sum_l p(l of one) p(l of the other), over the common items

    coefficient = (A - E) / (1 - E)      1: always the same; 0: as by chance; below 0: less than chance

Alpha weights labels equally, Fleiss' kappa weights items equally. An option that is no class ("unsure") is an answer
like any other. If all labels are equal, the coefficients are undefined (NaN).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.models.analysis.proportions import Z95

LEAST_ITEMS = 5
"""Minimum number of items for an interval of alpha."""


@dataclass(frozen=True)
class Agreement:
    """Agreement among all annotators of a table.

    Attributes:
        items: number of items with two or more labels; no others are used.
        observed: probability that another label of the same item is equal, in [0, 1]; labels weigh equally.
        alpha: Krippendorff's alpha, <= 1.
        low, high: 95 % interval of alpha over draws of items (infinitesimal jackknife); NaN below LEAST_ITEMS.
        fleiss: Fleiss' kappa.
        cohen: mean of Cohen's kappa over pairs of annotators, weighted by their numbers of common items.
        pairs: number of these pairs.
    """

    items: int
    observed: float
    alpha: float
    low: float
    high: float
    fleiss: float
    cohen: float
    pairs: int


def agreement(annotations: Annotations) -> Agreement:
    """Return all coefficients of a table."""
    counts_nl = _counts(annotations)
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    _, shared, kappa = cohen_kappas(annotations)
    finite = np.isfinite(kappa)
    cohen = float(np.average(kappa[finite], weights=shared[finite])) if finite.any() else float("nan")
    observed, _ = _observed_and_expected(counts_nl)
    alpha = krippendorff_alpha(counts_nl)
    return Agreement(len(counts_nl), observed, *alpha, fleiss_kappa(counts_nl), cohen, int(finite.sum()))


def krippendorff_alpha(counts_nl: Floats) -> tuple[float, float, float]:
    """Return alpha of (N, L) label counts, and the low and high end of its 95 % interval, NaN where undefined.

    Items with fewer than two labels are ignored.
    """
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    observed, expected = _observed_and_expected(counts_nl)
    if not expected < 1:
        return float("nan"), float("nan"), float("nan")
    alpha = 1 - (1 - observed) / (1 - expected)
    if len(counts_nl) < LEAST_ITEMS:
        return alpha, float("nan"), float("nan")
    m_n, t_l = counts_nl.sum(axis=1), counts_nl.sum(axis=0)
    t = t_l.sum()
    by_observed_n = (_agreeing(counts_nl) - observed * m_n) / t
    by_expected_n = (counts_nl @ (2 * t_l - 1) - expected * (2 * t - 1) * m_n) / (t * (t - 1))
    influence_n = (by_observed_n - (1 - alpha) * by_expected_n) / (1 - expected)  # derivative of alpha by item weights
    half = Z95 * float(np.sqrt(np.sum(influence_n**2)))
    return alpha, max(-1.0, alpha - half), min(1.0, alpha + half)


def fleiss_kappa(counts_nl: Floats) -> float:
    """Return Fleiss' kappa of (N, L) label counts; items with fewer than two labels are ignored."""
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    if not len(counts_nl):
        return float("nan")
    t_l = counts_nl.sum(axis=0)
    observed, expected = float(np.mean(_agreeing(counts_nl) / counts_nl.sum(axis=1))), np.sum((t_l / t_l.sum()) ** 2)
    return float(_beyond_chance(observed, expected))


def cohen_kappas(
    annotations: Annotations, least_shared: int = 10, most_people: int = 500
) -> tuple[npt.NDArray[np.intp], Floats, Floats]:
    """Return (P, 2) pairs of annotators, (P,) numbers of their common items, and (P,) Cohen's kappa over these items.

    Pairs have at least `least_shared` common items. Only the `most_people` annotators with most labels are compared,
    without the pool of annotators without ids. Kappa is NaN where chance agreement is complete.
    """
    from scipy.sparse import csr_array

    many_k = annotations.labels_per_annotator.copy()
    if annotations.anonymous is not None:
        many_k[annotations.anonymous] = 0
    people = np.sort(np.argsort(-many_k, kind="stable")[:most_people])
    people = people[many_k[people] >= least_shared]
    place_k = np.full(annotations.n_annotators, -1)
    place_k[people] = np.arange(len(people))
    rows = np.flatnonzero(place_k[annotations.annotator] >= 0)
    k, n, label = place_k[annotations.annotator[rows]], annotations.item[rows], annotations.label[rows]
    shape = (len(people), annotations.n_items)
    labeled_kn = csr_array((np.ones(len(rows)), (k, n)), shape=shape)
    shared_kk = (labeled_kn @ labeled_kn.T).toarray()
    same_kk, chance_kk = np.zeros_like(shared_kk), np.zeros_like(shared_kk)
    for option in range(annotations.n_options):
        chosen = label == option
        chosen_kn = csr_array((np.ones(int(chosen.sum())), (k[chosen], n[chosen])), shape=shape)
        same_kk += (chosen_kn @ chosen_kn.T).toarray()
        times_kk = (chosen_kn @ labeled_kn.T).toarray()  # times that k chose the option on items that the other labeled
        chance_kk += times_kk * times_kk.T
    first, second = np.nonzero(np.triu(shared_kk >= least_shared, 1))
    shared = shared_kk[first, second]
    observed, expected = same_kk[first, second] / shared, chance_kk[first, second] / shared**2
    return people[np.stack((first, second), axis=1)], shared, _beyond_chance(observed, expected)


def agreement_with_others(annotations: Annotations) -> tuple[Floats, Floats]:
    """Return (K,) how often other labels of the same item equal an annotator's, and (K,) this agreement beyond chance.

    An annotator's labels on items with other labels weigh equally; NaN for annotators without such labels. Chance
    agreement follows from the answers of the annotator and of the others on these items.
    """
    counts_nl = _counts(annotations)
    m_n = counts_nl.sum(axis=1)
    rows = np.flatnonzero(m_n[annotations.item] >= 2)
    k, n, label = annotations.annotator[rows], annotations.item[rows], annotations.label[rows]
    people, options = annotations.n_annotators, annotations.n_options
    others = m_n[n] - 1
    cell = k * np.int64(options) + label
    same = np.bincount(k, weights=(counts_nl[n, label] - 1) / others, minlength=people)
    own_kl = np.bincount(cell, minlength=people * options).reshape(people, options)
    theirs_kl = -np.bincount(cell, weights=1 / others, minlength=people * options).reshape(people, options)
    for option in range(options):
        theirs_kl[:, option] += np.bincount(k, weights=counts_nl[n, option] / others, minlength=people)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own_kl.sum(axis=1)
        observed, expected = same / total, np.sum(own_kl * theirs_kl, axis=1) / total**2
    return observed, _beyond_chance(observed, expected)


def _counts(annotations: Annotations) -> Floats:
    """Return (N, L) the number of times each item got each label."""
    cell = annotations.item.astype(np.int64) * annotations.n_options + annotations.label
    size = annotations.n_items * annotations.n_options
    return np.bincount(cell, minlength=size).reshape(-1, annotations.n_options).astype(np.float64)


def _observed_and_expected(counts_nl: Floats) -> tuple[float, float]:
    """Return Krippendorff's observed and expected agreement; (NaN, NaN) without an item."""
    if not len(counts_nl):
        return float("nan"), float("nan")
    t_l = counts_nl.sum(axis=0)
    t = t_l.sum()
    return float(_agreeing(counts_nl).sum() / t), float(np.sum(t_l * (t_l - 1)) / (t * (t - 1)))


def _agreeing(counts_nl: Floats) -> Floats:
    """Return (N,) for each item the sum, over its labels, of the share of its other labels that are equal."""
    return np.asarray(np.sum(counts_nl * (counts_nl - 1), axis=1) / (counts_nl.sum(axis=1) - 1))


def _beyond_chance(observed: npt.ArrayLike, expected: npt.ArrayLike) -> Floats:
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)
