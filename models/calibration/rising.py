"""Calibration by values that rise with the probability: I-Max binning and isotonic calibration.

I-Max binning (Patel, Beluch, Yang, Pfeiffer & Zhang 2021) chooses bins that keep the most information about the class.

Take the log-odds s = ln p_j / (1 - p_j) of each item and class, pooled over the classes (shared, "sCW") or separately
per class. The bins of s maximize the mutual information between the bin and whether the item is of class j, where the
model's own sigma(s) replaces the rare positives. As in the paper, values phi and edges g are updated in turn:

    phi_m = ln  sum_{s in m} sigma(s)  /  sum_{s in m} sigma(-s)
    g_m   = ln  ln[(1 + e^phi_m) / (1 + e^phi_{m-1})]  /  ln[(1 + e^-phi_{m-1}) / (1 + e^-phi_m)]

The start is not random: in s' = asin sqrt sigma(s), the density of bins is proportional to (density of s')^(1/3). The
value of a bin is r_m = (sum q + doubt mean sigma(s)) / (n_m + doubt); neighbors whose values would fall share their
mean. Then c(p)[j] ∝ r of the bin of p_j, mixed with a trace of p (TIE) that breaks ties between classes.

Isotonic calibration (Zadrozny & Elkan 2002) fits a rising function per class, then renormalizes.

    minimize  sum_n (q_nj - f_j(p_nj))²   over rising f_j            c(p)[j]  ∝  (n f_j(p_j) + doubt p_j) / (n + doubt)

Each class is fitted against the rest by pooling adjacent violators, and the function is interpolated between the n
items. It follows any rising shape and needs hundreds of items per class. Its steps could end at exactly 0 and 1, which
no data can prove, so one more item of unknown class (1/J for each class) is added at either end. The model's own
probability, worth `doubt` items, keeps the order of items on the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import expit

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.numerics.checks import check_settings

MAX_ITERATIONS = 200
CELLS = 1000
"""Number of cells of the histogram that sets the first bins."""

TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Bins:
    """For each class (M - 1,) rising edges between bins of log-odds, and (M,) rising values of the bins in (0, 1)."""

    edges: tuple[Floats, ...]
    values: tuple[Floats, ...]

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return the (N, J) value of each class's bin, renormalized."""
        p_nj = checked(probabilities, len(self.edges))
        s_nj = log_odds(p_nj)
        binned_nj = p_nj.copy()
        for j, (edges, values) in enumerate(zip(self.edges, self.values, strict=True)):
            binned_nj[:, j] = (1 - TIE) * values[np.searchsorted(edges, s_nj[:, j], side="right")] + TIE * p_nj[:, j]
        return np.asarray(binned_nj / binned_nj.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True)
class IMax:
    """Bins that preserve the most information.

    Attributes:
        bins: maximum number of bins, at least 1.
        shared: True for one set of bins for all classes, False for one per class.
        doubt: weight of the model's own probability in each bin, in items, > 0.

    Example:
        >>> from hitl.models.calibration import IMax
        >>> IMax().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    bins: int = 15
    shared: bool = True
    doubt: float = 10.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Bins:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        s_nj, weight_nj = log_odds(p_nj), np.broadcast_to(q_nj.sum(axis=1, keepdims=True), q_nj.shape)
        if self.shared:
            bins = self._binned(s_nj.ravel(), q_nj.ravel(), weight_nj.ravel())
            fitted = [bins] * p_nj.shape[1]
        else:
            fitted = [self._binned(s_nj[:, j], q_nj[:, j], weight_nj[:, j]) for j in range(p_nj.shape[1])]
        return Bins(tuple(edges for edges, _ in fitted), tuple(values for _, values in fitted))

    def _binned(self, s_i: Floats, q_i: Floats, weight_i: Floats) -> tuple[Floats, Floats]:
        """Return the edges and values of the bins; q_i is the part of weight_i that belongs to the class."""
        edges = informative_edges(s_i, weight_i, self.bins)
        bin_i, n_bins = np.searchsorted(edges, s_i, side="right"), edges.size + 1
        weight_m = np.bincount(bin_i, weight_i, n_bins)
        word_m = np.bincount(bin_i, weight_i * expit(s_i), n_bins) / weight_m
        value_m = (np.bincount(bin_i, q_i, n_bins) + self.doubt * word_m) / (weight_m + self.doubt)
        return edges, isotonic_regression(value_m, weights=weight_m).x


def log_odds(p_nj: Floats) -> Floats:
    """Return ln p / (1 - p), between ±ln(1 / FLOOR)."""
    return floored_log(p_nj) - floored_log(1 - p_nj)


def informative_edges(s_i: Floats, weight_i: Floats, bins: int) -> Floats:
    """Return (M - 1,) rising edges of M <= bins bins of the weighted log-odds; no bin is empty."""
    order = np.argsort(s_i, kind="stable")
    s_i, weight_i = s_i[order], weight_i[order]
    yes_i = np.append(0, np.cumsum(weight_i * expit(s_i)))
    no_i = -np.append(np.cumsum((weight_i * expit(-s_i))[::-1])[::-1], 0)  # summed from the end, where terms are small
    angle_i = np.arcsin(np.sqrt(expit(s_i)))
    count, border = np.histogram(angle_i, CELLS, (angle_i[0], max(angle_i[-1], angle_i[0] + 1e-9)), weights=weight_i)
    mass = np.append(0, np.cumsum(np.cbrt(count)))
    angle_m = np.interp(np.arange(1, bins) / bins * mass[-1], mass, border)
    edges = np.unique(np.interp(angle_m, angle_i, s_i))
    cut: npt.NDArray[np.intp] = np.full(0, -1)
    for _ in range(MAX_ITERATIONS):
        before = cut
        cut = np.unique(np.searchsorted(s_i, edges, side="left"))
        cut = cut[(cut > 0) & (cut < s_i.size)]  # no empty bins
        if np.array_equal(cut, before):
            break
        edges = best_edges(_values(yes_i, no_i, cut))
    return np.asarray(0.5 * (s_i[cut - 1] + s_i[cut]))


def _values(yes_i: Floats, no_i: Floats, cut: npt.NDArray[np.intp]) -> Floats:
    """Return (M,) phi of the bins between cuts of the sorted log-odds, from cumulative sums."""
    ends = np.concatenate([[0], cut, [yes_i.size - 1]])
    tiny = np.finfo(float).tiny
    yes_m, no_m = (np.maximum(np.diff(sum_i[ends]), tiny) for sum_i in (yes_i, no_i))
    return np.asarray(np.log(yes_m) - np.log(no_m))


def best_edges(phi_m: Floats) -> Floats:
    """Return (M - 1,) log-odds at which neighboring bins describe an item equally well."""
    phi_m = np.unique(phi_m)
    gain, loss = np.diff(np.logaddexp(0, phi_m)), -np.diff(np.logaddexp(0, -phi_m))
    return np.asarray(np.log(gain) - np.log(loss))


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Rising function of the probability of each class.

    Attributes:
        knots: for each class (X,) rising probabilities and the (X,) values of f_j there.
        word: weight of the model's own probability, in (0, 1).
    """

    knots: tuple[tuple[Floats, Floats], ...]
    word: float

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) f_j(p_j) mixed with p_j, renormalized."""
        p_nj = checked(probabilities, len(self.knots))
        f_nj = np.stack([np.interp(p_nj[:, j], *knots) for j, knots in enumerate(self.knots)], axis=1)
        f_nj = (1 - self.word) * f_nj + self.word * p_nj
        return np.asarray(f_nj / f_nj.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True)
class IsotonicCalibration:
    """Rising function per class; `doubt` > 0 is the weight of the model's own probability, in items.

    Example:
        >>> from hitl.models.calibration import IsotonicCalibration
        >>> IsotonicCalibration().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    doubt: float = 10.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Isotonic:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        weight_n = q_nj.sum(axis=1)
        knots = tuple(_rising(p_nj[:, j], q_nj[:, j], weight_n, 1 / q_nj.shape[1]) for j in range(q_nj.shape[1]))
        return Isotonic(knots, float(self.doubt / (weight_n.sum() + self.doubt)))


def _rising(p_n: Floats, q_n: Floats, weight_n: Floats, guess: float) -> tuple[Floats, Floats]:
    """Return knots and values of the rising function of p nearest to q / weight.

    One more item, with the value `guess`, is added at either end.
    """
    p, place = np.unique(np.append(p_n, [p_n.min(), p_n.max()]), return_inverse=True)
    weight = np.bincount(place, np.append(weight_n, [1.0, 1.0]))
    mean = np.bincount(place, np.append(q_n, [guess, guess])) / weight
    return p, isotonic_regression(mean, weights=weight).x
