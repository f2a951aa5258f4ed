"""Fit large tables in few full passes, with iterations over only the least sure items between two passes.

After a few iterations the class of most items is nearly certain, and later iterations barely change their beliefs. So a
full pass, which computes exact sums, stores the sums of these sure items and the labels of the unsure ones. The loop
then runs over the unsure items with the stored sums held fixed, and the next pass begins where it ends (partial
E-steps: Neal & Hinton 1998; lazy EM: Thiesson, Meek & Heckerman 2001).

With the beliefs q of the sure items held fixed, the inner loop increases

    sum over unsure n of log evidence_n  +  sum over sure n of E_q[log p(z_n, labels of n)]  +  log p(pi) + log p(theta)

which, up to a constant, is at most the full objective, and equal to it at the parameters of the pass. So the objective
never falls from pass to pass. Each inner loop begins with a plain step of EM. As in `loop`, a pass that gains less than
the tolerance ends the fit. The first, large steps are full passes, because they decide which optimum is reached.

The unsure items are those in the first bins, as many bins as hold the fraction UNSURE of all doubt:

    u_n = 1 - max_j q_nj         bin = number of times u halves from 1, in quarters of a halving; 0 is the least sure

Bins count labels, because numbers of labels add up over shards. If unsure items have a large part of all labels (labels
are few or bad), a working set saves nothing, and the loop continues over all items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference.engine import Additive
from hitl.models.inference.loop import MOMENTUM_BELOW, EMResult, Expected, Limits, Pass, iterate
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import messages
from hitl.models.numerics.compiled import compiled, in_runs
from hitl.models.priors import Mask, Same, TruthPrior

UNSURE = 0.99
"""Fraction of all doubt, sum_n labels_n (1 - max_j q_nj), in the working set. The remaining doubt slows convergence in
proportion; values from .9 to .995 take about the same time.
"""

LARGEST_PART = 0.25
"""Fraction of all labels above which a working set is too large to pay off."""

MOST_LABELS = 2**24
"""Maximum number of labels in a working set, which bounds its memory to about 100 MB for any table."""

BINS = 256
"""Number of bins: four per halving, which suffices for 2**-53, the smallest positive u in double precision."""

_ONE = int(np.float64(1.0).view(np.int64)) >> 50

LEAST_LABELS = kernels.SERIAL_BELOW
"""Number of labels below which a table is small: iterations over all of it cost almost nothing."""

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Split(Additive):
    """Expectations of a pass, with sure and unsure items separate.

    Attributes:
        held: expectations over the sure items, and the log evidence of all items.
        unsure: expectations over the unsure items.
        parts: labels of the unsure items of each shard that has any.
        labels_b: (BINS,) number of labels of the items in each bin.
    """

    held: Expected
    unsure: Expected
    parts: tuple[kernels.Rows, ...]
    labels_b: npt.NDArray[np.int64]

    @property
    def all(self) -> Expected:
        """Expectations of all items."""
        return self.held + self.unsure

    def expected_of_unsure(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """Return expectations over all items: new ones of the unsure items, and those held of the others."""
        held = self.held
        counts_klj, statistics = held.counts_klj.copy(), held.statistics
        log_evidence = float(np.einsum("klj,klj->", counts_klj, log_pi_klj)) + prior.explained(statistics)
        for rows in self.parts:
            own_klj, total_j, log_z = kernels.expect(rows, log_pi_klj, prior.log_prior()[0])
            counts_klj += own_klj
            statistics, log_evidence = statistics + total_j, log_evidence + log_z
        return Expected(counts_klj, statistics, log_evidence)


def split(
    evidence: Evidence, prior: Same, log_pi_klj: Floats, counted: Callable[[Evidence], Mask], bins: int
) -> tuple[Split, Floats]:
    """Return the split of a shard, and beliefs (N, J). Items in the first `bins` bins are unsure.

    Items with ground truth, and items that do not count, are never unsure. `counted` marks those that do.
    """
    found = judged(evidence, log_pi_klj, prior.log_prior()[0], counted(evidence), min(bins, BINS - 1))
    held = Expected(found.counts_klj, found.total_j, found.log_evidence)
    items = np.flatnonzero(found.bin_n < min(bins, BINS - 1))
    rows, q_nj = rows_of(evidence.annotations, items), found.q_nj[items]
    unsure = Expected(kernels.counts(rows, q_nj), q_nj.sum(axis=0), 0.0)
    return Split(held, unsure, (rows,) if items.size else (), found.labels_b), found.q_nj


def is_large(labels: int, n_cells: int) -> bool:
    """Return True if labels, rather than count tables of `n_cells` cells, dominate the cost of an iteration."""
    return labels >= max(LEAST_LABELS, n_cells)


def pays(labels: int, n_cells: int, prior: TruthPrior) -> bool:
    """Return True if iterating over unsure items pays off: items are independent, and the table is large."""
    return isinstance(prior, Same) and is_large(labels, n_cells)


def iterate_in_few_passes(
    expected: Pass,
    split: Callable[[Any, Floats, int], Split],
    prior: P,
    annotators: A,
    found: Expected,
    limits: Limits,
    labels: int,
) -> EMResult[P, A]:
    """Do the same as `loop.iterate`, in fewer passes over all items. The trace has the objective after each pass.

    `split(prior, log_pi_klj, bins)` makes a pass that separates the unsure items. `labels`: number of all labels.
    """
    trace: list[float] = []
    bins, made, near, converged = 0, 0, False, False
    last: Split | None = None
    while not converged and made < limits.max_iterations:
        left = replace(limits, max_iterations=limits.max_iterations - made)
        if near and last is not None and sum(map(len, last.parts)) > LARGEST_PART * labels:
            rest = iterate(expected, prior, annotators, found, left)
            return replace(rest, objective=(*trace, *rest.objective))
        if near and last is not None and last.parts:
            inner = iterate(last.expected_of_unsure, prior, annotators, found, left)
            prior, annotators, made = inner.prior, inner.annotators, made + len(inner.objective)
        else:
            prior, annotators, made = prior.learn(found.statistics), annotators.learn(found.counts_klj), made + 1
        last = split(prior, annotators.log_pi_klj, bins)
        found, bins = last.all, first_bins(last.labels_b, UNSURE, MOST_LABELS)
        objective = found.log_evidence + annotators.log_density() + prior.log_density()
        gain = objective - trace[-1] if trace else np.inf
        trace.append(objective)
        converged = bool(gain < limits.enough)
        near = near or gain < MOMENTUM_BELOW * limits.counted
    return EMResult(prior, annotators, found, tuple(trace), converged)


class Judged(NamedTuple):
    """Result of one pass over all items.

    Attributes:
        q_nj: (N, J) beliefs.
        bin_n: (N,) bin of each item; the last one if the truth is known or the item does not count.
        labels_b: (BINS,) number of labels of the other items, by bin.
        counts_klj, total_j: expected counts (K, L, J) and numbers of items (J,) over the sure items that count.
        log_evidence: sum of the log normalizers of all items that count.
    """

    q_nj: Floats
    bin_n: npt.NDArray[np.uint8]
    labels_b: npt.NDArray[np.int64]
    counts_klj: Floats
    total_j: Floats
    log_evidence: float


def judged(
    evidence: Evidence, log_pi_klj: Floats, log_prior_j: Floats, counted_n: npt.NDArray[np.bool_], bins: int
) -> Judged:
    """Compute beliefs, bins and the counts of sure items; items in the first `bins` bins are unsure.

    `log_prior_j` (J,) is the prior of all items, and `counted_n` (N,) marks the items that count.
    """
    annotations = evidence.annotations
    message_nj = messages(evidence, log_pi_klj)
    q_nj, log_z_n = kernels.beliefs(message_nj, log_prior_j[None], out=message_nj)
    bin_n, binned_n = np.empty(len(q_nj), dtype=np.uint8), counted_n & ~evidence.known
    in_runs(_bins, kernels.even_runs(len(q_nj)), q_nj, binned_n, bin_n)
    labels_b = np.bincount(bin_n[binned_n], annotations.labels_per_item[binned_n], BINS).astype(np.int64)
    sure_n = counted_n & (bin_n >= bins)
    log_evidence = float(np.sum(log_z_n, where=counted_n))
    counts_klj = kernels.counts(annotations, q_nj, sure_n)
    return Judged(q_nj, bin_n, labels_b, counts_klj, kernels.totals(q_nj, sure_n), log_evidence)


def first_bins(labels_b: npt.NDArray[np.int64], share: float, most: int) -> int:
    """Return how many of the first bins are needed to hold the fraction `share` of all doubt, within `most` labels."""
    unsure_b = labels_b * 0.5 ** (np.arange(BINS) / 4)
    enough = int(np.searchsorted(np.cumsum(unsure_b), share * unsure_b.sum())) + 1
    return min(enough, int(np.searchsorted(np.cumsum(labels_b), most, side="right")))


def rows_of(annotations: Annotations, items: npt.NDArray[np.intp]) -> kernels.Rows:
    """Select the labels of these items, in their order."""
    start, labels_n = annotations.item_start, annotations.labels_per_item[items]
    own_start = np.concatenate(([0], np.cumsum(labels_n)))
    place = np.repeat(start[items] - own_start[:-1], labels_n) + np.arange(own_start[-1])
    sizes = annotations.n_annotators, annotations.n_options, annotations.n_classes
    return kernels.Rows(own_start, annotations.cell[place], *sizes)


@compiled
def _bins(first: int, last: int, q: Any, binned: Any, out: Any) -> None:
    for n in range(first, last):
        top = 0.0
        for j in range(q.shape[1]):
            top = max(top, q[n, j])
        halved = _ONE - (np.float64(1.0 - top).view(np.int64) >> 50)
        out[n] = min(max(halved, 0), BINS - 1) if top < 1.0 and binned[n] else BINS - 1
