"""How much annotators agree, beyond what chance alone would give: coefficients of nominal labels with gaps.

    c[n, l]    labels l on item n        m_n = sum_l c[n, l]        only items with m_n >= 2 count

    Krippendorff's alpha (Krippendorff 2011)    observed A = sum_n sum_l c_nl (c_nl - 1) / (m_n - 1) / sum_n m_n
                                                expected E = sum_l t_l (t_l - 1) / (t (t - 1)),  t_l = sum_n c_nl
    Fleiss' kappa (Fleiss 1971)                 A = mean_n sum_l c_nl (c_nl - 1) / (m_n (m_n - 1))
                                                E = sum_l (t_l / t)^2
    Cohen's kappa (Cohen 1960) of two annotators    A = share of their common items with the same label
                                                E = sum_l p(l of one) p(l of the other), over the common items

    coefficient = (A - E) / (1 - E)      1: always the same; 0: as by chance; below 0: less than chance

Alpha weighs every label alike, Fleiss' kappa every item; Fleiss' own form needs equally many labels an item, this one
equals it there. An option that is no class ("unsure") is an answer like any other. Where every annotator always says
the same, chance agrees too and nothing is defined: NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.models.analysis.proportions import Z95

LEAST_ITEMS = 5
"""Items below which draws of items tell nothing of how far off alpha is."""


@dataclass(frozen=True)
class Agreement:
    """How much all annotators of a table agree.

    Attributes:
        items: items with two labels or more; the others say nothing here.
        observed: chance that two labels of one item are equal, in [0, 1]; each label counts alike.
        alpha: Krippendorff's alpha, <= 1; NaN where undefined, as below.
        low, high: its 95 % interval, over draws of items (infinitesimal jackknife); NaN below LEAST_ITEMS.
        fleiss: Fleiss' kappa.
        cohen: mean of Cohen's kappa over pairs of annotators, each weighed by its common items.
        pairs: how many pairs that mean is over.
    """

    items: int
    observed: float
    alpha: float
    low: float
    high: float
    fleiss: float
    cohen: float
    pairs: int


@dataclass(frozen=True, eq=False)
class Pairs:
    """Cohen's kappa of pairs of annotators.

    Attributes:
        first, second: (P,) annotator codes, first < second.
        shared: (P,) items both labeled.
        observed: (P,) share of these with the same label, in [0, 1].
        kappa: (P,) Cohen's kappa; NaN where chance agreement is complete.
    """

    first: Ints
    second: Ints
    shared: npt.NDArray[np.int64]
    observed: Floats
    kappa: Floats

    @property
    def mean(self) -> float:
        """Mean kappa, each pair weighed by its common items; NaN without a pair."""
        finite = np.isfinite(self.kappa)
        if not finite.any():
            return float("nan")
        return float(np.average(self.kappa[finite], weights=self.shared[finite]))


def agreement(annotations: Annotations, *, least_shared: int = 10, most_people: int = 500) -> Agreement:
    """All coefficients of a table; pairs as in `cohen_kappas`."""
    counts_nl = _counts(annotations)
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    alpha, low, high = krippendorff_alpha(counts_nl)
    pairs = cohen_kappas(annotations, least_shared=least_shared, most_people=most_people)
    observed, _ = _observed_and_expected(counts_nl)
    fleiss = fleiss_kappa(counts_nl)
    return Agreement(
        len(counts_nl), observed, alpha, low, high, fleiss, pairs.mean, int(np.isfinite(pairs.kappa).sum())
    )


def krippendorff_alpha(counts_nl: Floats) -> tuple[float, float, float]:
    """Alpha of (N, L) label counts with its 95 % interval (low, high); items with fewer than two labels are ignored."""
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    observed, expected = _observed_and_expected(counts_nl)
    if not expected < 1:
        return float("nan"), float("nan"), float("nan")
    alpha = 1 - (1 - observed) / (1 - expected)
    spread = float(np.sqrt(np.sum(_influence(counts_nl, observed, expected, alpha) ** 2)))
    if len(counts_nl) < LEAST_ITEMS:
        return alpha, float("nan"), float("nan")
    return alpha, max(-1.0, alpha - Z95 * spread), min(1.0, alpha + Z95 * spread)


def fleiss_kappa(counts_nl: Floats) -> float:
    """Fleiss' kappa of (N, L) label counts; items with fewer than two labels are ignored."""
    counts_nl = counts_nl[counts_nl.sum(axis=1) >= 2]
    if not len(counts_nl):
        return float("nan")
    m_n, t_l = counts_nl.sum(axis=1), counts_nl.sum(axis=0)
    observed = float(np.mean(np.sum(counts_nl * (counts_nl - 1), axis=1) / (m_n * (m_n - 1))))
    return _beyond_chance(observed, float(np.sum((t_l / t_l.sum()) ** 2)))


def cohen_kappas(annotations: Annotations, *, least_shared: int = 10, most_people: int = 500) -> Pairs:
    """Cohen's kappa of every pair with at least `least_shared` common items.

    Among the `most_people` annotators with most labels only: pairs grow with the square. The pool of annotators without
    ids is no annotator in particular and left out.
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
    k, n, said = place_k[annotations.annotator[rows]], annotations.item[rows], annotations.label[rows]
    shape = (len(people), annotations.n_items)
    labeled_kn = csr_array((np.ones(len(rows)), (k, n)), shape=shape)
    shared_kk = (labeled_kn @ labeled_kn.T).toarray()
    same_kk, chance_kk = np.zeros_like(shared_kk), np.zeros_like(shared_kk)
    for option in range(annotations.n_options):
        this = said == option
        said_kn = csr_array((np.ones(int(this.sum())), (k[this], n[this])), shape=shape)
        same_kk += (said_kn @ said_kn.T).toarray()
        said_with_kk = (said_kn @ labeled_kn.T).toarray()  # how often k says it on the items of the other
        chance_kk += said_with_kk * said_with_kk.T
    first, second = np.nonzero(np.triu(shared_kk >= least_shared, 1))
    shared = shared_kk[first, second]
    observed, expected = same_kk[first, second] / shared, chance_kk[first, second] / shared**2
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)
    return Pairs(
        people[first].astype(np.int32), people[second].astype(np.int32), shared.astype(np.int64), observed, kappa
    )


def agreement_with_others(annotations: Annotations) -> tuple[Floats, Floats]:
    """(K,) how often another annotator's label of the same item equals one's own, in [0, 1], and (K,) beyond chance.

    Each own label on an item with other labels counts alike; NaN for annotators without one. The second is the share
    corrected as Cohen's kappa, with what one says and what the others say on these items as the two margins.
    """
    counts_nl = _counts(annotations)
    m_n = counts_nl.sum(axis=1)
    rows = np.flatnonzero(m_n[annotations.item] >= 2)
    k, n, said = annotations.annotator[rows], annotations.item[rows], annotations.label[rows]
    people, options = annotations.n_annotators, annotations.n_options
    others = m_n[n] - 1
    same = np.bincount(k, weights=(counts_nl[n, said] - 1) / others, minlength=people)
    own_kl = np.bincount(k * np.int64(options) + said, minlength=people * options).reshape(people, options)
    theirs_kl = -np.bincount(k * np.int64(options) + said, weights=1 / others, minlength=people * options)
    theirs_kl = theirs_kl.reshape(people, options)
    for option in range(options):
        theirs_kl[:, option] += np.bincount(k, weights=counts_nl[n, option] / others, minlength=people)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own_kl.sum(axis=1)
        observed = same / total
        expected = np.sum(own_kl * theirs_kl, axis=1) / total**2
        kappa = np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)
    return observed, kappa


def _counts(annotations: Annotations) -> Floats:
    """(N, L) how often each item was given each label."""
    cell = annotations.item.astype(np.int64) * annotations.n_options + annotations.label
    size = annotations.n_items * annotations.n_options
    return np.bincount(cell, minlength=size).reshape(-1, annotations.n_options).astype(np.float64)


def _observed_and_expected(counts_nl: Floats) -> tuple[float, float]:
    """Krippendorff's observed and expected agreement; (NaN, NaN) without an item."""
    if not len(counts_nl):
        return float("nan"), float("nan")
    t_l = counts_nl.sum(axis=0)
    t = t_l.sum()
    return float(_agreeing(counts_nl).sum() / t), float(np.sum(t_l * (t_l - 1)) / (t * (t - 1)))


def _agreeing(counts_nl: Floats) -> Floats:
    """(N,) the coincidences of each item: its labels, each times the share of the other labels that equal it."""
    agreeing: Floats = np.sum(counts_nl * (counts_nl - 1), axis=1) / (counts_nl.sum(axis=1) - 1)
    return agreeing


def _influence(counts_nl: Floats, observed: float, expected: float, alpha: float) -> Floats:
    """(N,) derivative of alpha by the weight of each item."""
    m_n, t_l = counts_nl.sum(axis=1), counts_nl.sum(axis=0)
    t = t_l.sum()
    d_observed = (_agreeing(counts_nl) - observed * m_n) / t
    d_expected = (counts_nl @ (2 * t_l - 1) - expected * (2 * t - 1) * m_n) / (t * (t - 1))
    influence: Floats = (d_observed - (1 - alpha) * d_expected) / (1 - expected)
    return influence


def _beyond_chance(observed: float, expected: float) -> float:
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")
