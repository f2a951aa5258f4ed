"""Dependence of two judges of the same items, given the class (Kerrigan 2021, appendix B).

    I(A; B | Z) = sum_z p(z) sum_ab p(a, b | z) log2( p(a, b | z) / (p(a | z) p(b | z)) )             bits

I is 0 if the judges err independently. The plug-in estimate from counts is too high because independent judges also
agree by chance. So the mean estimate over items shuffled within their class is subtracted. The p-value is how often a
shuffle reaches the estimate. Each shuffle draws unknown truths from the consensus, and one of an item's several labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats

Codes = npt.NDArray[np.int64]
Judge = Callable[[np.random.Generator], Codes]
"""Function that draws the answer of a judge to each of its items."""

SHUFFLES = 200
"""Number of shuffles of the items within their classes."""

DENSE = 2_000_000
"""Number of possible codes up to which they are counted in an array."""


@dataclass(frozen=True)
class Dependence:
    """Dependence of two judges, given the class.

    Attributes:
        bits: conditional mutual information minus `chance`, in bits, >= 0.
        chance: mean estimate for independent judges, in bits.
        p_value: how often independent judges reach the estimate, in (0, 1].
        together: mutual information regardless of class, in bits, >= 0, for comparison; chance is not subtracted.
        items: number of items that both have judged.
    """

    bits: float
    chance: float
    p_value: float
    together: float
    items: int


def dependence(first: Judge, second: Judge, truth_nj: Floats, shuffles: int = SHUFFLES) -> Dependence:
    """Test two judges of N items with (expected) truths `truth_nj`, whose rows sum to 1; NaN without items."""
    rng = np.random.default_rng(0)
    n = len(truth_nj)
    if not n:
        return Dependence(np.nan, np.nan, np.nan, np.nan, 0)
    reached_nj = np.cumsum(truth_nj, axis=1)
    observed, by_chance, together = np.empty((3, shuffles))
    for draw in range(shuffles):
        z = (rng.random((n, 1)) * reached_nj[:, -1:] >= reached_nj[:, :-1]).sum(axis=1)
        a, b = first(rng), second(rng)
        observed[draw] = conditional_information(a, b, z)
        by_chance[draw] = conditional_information(a, shuffled_within(b, z, rng), z)
        together[draw] = conditional_information(a, b, np.zeros_like(z))
    reached = int((by_chance >= observed - 1e-12).sum())
    chance = float(by_chance.mean())
    bits = max(float(observed.mean()) - chance, 0.0)
    return Dependence(bits, chance, (1 + reached) / (1 + shuffles), float(together.mean()), n)


def conditional_information(first_n: Codes, second_n: Codes, given_n: Codes) -> float:
    """Return the plug-in estimate of I(A; B | Z) from N codes of each, in bits, >= 0."""
    a, b = int(first_n.max(initial=0)) + 1, int(second_n.max(initial=0)) + 1
    with_a, with_b = given_n * a + first_n, given_n * b + second_n
    total = _sum_c_log_c(with_a * b + second_n) + _sum_c_log_c(given_n)
    total -= _sum_c_log_c(with_a) + _sum_c_log_c(with_b)
    return max(float(total / (max(len(given_n), 1) * np.log(2))), 0.0)


def shuffled_within(values_n: Codes, group_n: Codes, rng: np.random.Generator) -> Codes:
    """Shuffle the values among the items of the same group."""
    group_n = group_n.astype(np.uint16) if group_n.max(initial=0) < 2**16 else group_n  # sorted in linear time
    order = rng.permutation(len(group_n))
    out = np.empty_like(values_n)
    out[np.argsort(group_n, kind="stable")] = values_n[order[np.argsort(group_n[order], kind="stable")]]
    return out


def fixed(answer_n: npt.NDArray[np.integer]) -> Judge:
    """Return a judge with one answer per item."""
    codes = answer_n.astype(np.int64)
    return lambda rng: codes


def a_label(annotations: Annotations, items: npt.NDArray[np.intp]) -> Judge:
    """Return a judge that draws one label of each of these items, which all have labels."""
    start, many = annotations.item_start[items], annotations.labels_per_item[items]
    label = annotations.label.astype(np.int64)
    return lambda rng: label[start + rng.integers(many)]


def two_labels(annotations: Annotations, items: npt.NDArray[np.intp]) -> tuple[Judge, Judge]:
    """Return two judges that draw two different labels of each of these items, which all have at least two.

    Call the first before the second for each draw.
    """
    start, many = annotations.item_start[items], annotations.labels_per_item[items]
    label: Codes = annotations.label.astype(np.int64)
    first = np.zeros(len(items), np.int64)

    def one(rng: np.random.Generator) -> Codes:
        first[:] = rng.integers(many)
        drawn: Codes = label[start + first]
        return drawn

    def another(rng: np.random.Generator) -> Codes:
        other: Codes = label[start + (first + 1 + rng.integers(many - 1)) % many]
        return other

    return one, another


def _sum_c_log_c(codes: Codes) -> float:
    """Return the sum of c log c over the counts c of equal codes, in nats."""
    if not codes.size:
        return 0.0
    counts = np.bincount(codes) if codes.max() < DENSE else np.unique(codes, return_counts=True)[1]
    counts = counts[counts > 1]
    return float(counts @ np.log(counts)) if counts.size else 0.0
