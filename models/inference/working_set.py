"""Fit large tables in few full passes: between two of them, iterate over the least sure items.

After a few iterations most items are sure of their class, and later iterations barely move their beliefs. So a full
pass, which computes exact sums, stores the sums of the sure items and the labels of the unsure ones. The loop then runs
over the unsure items with the stored sums held fixed, and the next pass begins where it ends (partial E-steps: Neal &
Hinton 1998; lazy EM: Thiesson, Meek & Heckerman 2001).

With beliefs q of the sure items held, the inner loop climbs

    sum over unsure n of log evidence_n  +  sum over sure n of E_q[log p(z_n, labels of n)]  +  log p(pi) + log p(theta)

which, up to a constant, lies below the whole objective and touches it where the pass was made. So the objective never
falls from pass to pass. Each inner loop begins with a plain step of EM: as in `loop`, a pass that gains less than the
tolerance ends the fit. The first, large steps are full passes, for the same reason as there.

The unsure items are those in the first bins of `numerics.confidence_bins` that hold UNSURE of all doubt. If these
are many, because labels are few or bad, nothing is saved, and the loop runs on over all items.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference.engine import Additive
from hitl.models.inference.loop import MOMENTUM_BELOW, EMResult, Expected, Passes, iterate
from hitl.models.numerics import kernels
from hitl.models.numerics.confidence_bins import BINS, Rows, first_bins, judged, rows_of
from hitl.models.priors import Same, TruthPrior

UNSURE = 0.99
"""Share of all doubt, sum of labels_n (1 - max_j q_nj), in the working set. The held part slows convergence by its
share: values from .9 to .995 cost about as much.
"""

LARGEST_PART = 0.25
"""Share of all labels from which the working set is too large to pay off."""

MOST_LABELS = 2**24
"""Maximum number of labels in a working set, which bounds its memory to about 100 MB for any table."""

LEAST_LABELS = kernels.SERIAL_BELOW
"""Number of labels below which a table is small, so that iterations over all of it cost almost nothing."""

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Split(Additive):
    """Expectations of a pass, with sure and unsure items separate.

    Attributes:
        held, unsure: expectations of the sure items (with all log evidence), and of the others.
        parts: labels of the unsure items of each shard.
        labels_b: (BINS,) labels of items by how sure they are.
    """

    held: Expected
    unsure: Expected
    parts: tuple[Rows, ...]
    labels_b: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, evidence: Evidence, prior: Same, log_pi_klj: Floats, counted_n: npt.NDArray[np.bool_], bins: int
    ) -> tuple[Split, Floats]:
        """Return the split of a shard, and beliefs (N, J). Items in the first `bins` bins are unsure, except gold
        items."""
        found = judged(evidence, log_pi_klj, prior.log_prior()[0], counted_n, min(bins, BINS - 1))
        held = Expected(found.counts_klj, found.total_j, found.log_evidence)
        items = np.flatnonzero(found.bin_n < min(bins, BINS - 1))
        rows, q_nj = rows_of(evidence.annotations, items), found.q_nj[items]
        unsure = Expected(kernels.counts(rows, q_nj), q_nj.sum(axis=0), 0.0)
        return cls(held, unsure, (rows,) if items.size else (), found.labels_b), found.q_nj

    @property
    def unsure_labels(self) -> int:
        """Number of labels of the unsure items."""
        return sum(len(rows) for rows in self.parts)

    @property
    def all(self) -> Expected:
        """Expectations of all items."""
        return self.held + self.unsure


class SplitPasses(Passes, Protocol):
    """Passes that can separate the unsure items."""

    @property
    def labels(self) -> int:
        """Number of all labels."""
        ...

    def split(self, prior: Any, log_pi_klj: Floats, bins: int) -> Split:
        """Compute expectations under these parameters; items in the first `bins` bins are unsure."""
        ...


def is_large(labels: int, n_cells: int) -> bool:
    """Return True if labels, rather than annotator tables of `n_cells` cells, dominate the cost of an iteration."""
    return labels >= max(LEAST_LABELS, n_cells)


def pays(labels: int, n_cells: int, prior: TruthPrior) -> bool:
    """Return True if iterating over unsure items pays off: items are independent, and the table is large."""
    return isinstance(prior, Same) and is_large(labels, n_cells)


def iterate_in_few_passes(
    passes: SplitPasses, prior: P, annotators: A, *, tolerance: float, max_iterations: int
) -> EMResult[P, A]:
    """Find the same result as `loop.iterate` in fewer passes; the trace has the objective after each."""
    found = passes.first(prior, annotators.log_pi_klj)
    trace: list[float] = []
    bins, made, near, converged = 0, 0, False, False
    split: Split | None = None
    while not converged and made < max_iterations:
        left = max_iterations - made
        if near and split is not None and split.unsure_labels > LARGEST_PART * passes.labels:
            rest = iterate(passes, prior, annotators, tolerance=tolerance, max_iterations=left, begun=found)
            return replace(rest, objective=(*trace, *rest.objective))
        if near and split is not None and split.parts:
            unsure = _Unsure(split, passes.counted)
            inner = iterate(unsure, prior, annotators, tolerance=tolerance, max_iterations=left, begun=split.all)
            prior, annotators, made = inner.prior, inner.annotators, made + len(inner.objective)
        else:
            prior, annotators, made = prior.learn(found.statistics), annotators.learn(found.counts_klj), made + 1
        split = passes.split(prior, annotators.log_pi_klj, bins)
        found, bins = split.all, first_bins(split.labels_b, UNSURE, MOST_LABELS)
        objective = found.log_evidence + annotators.log_density() + prior.log_density()
        gain = objective - trace[-1] if trace else np.inf
        trace.append(objective)
        converged = bool(gain < tolerance * max(1, passes.counted))
        near = near or gain < MOMENTUM_BELOW * passes.counted
    return EMResult(prior, annotators, found, tuple(trace), converged, passes.q_nj)


class _Unsure:
    """Passes over the unsure items alone, added to the held expectations of the others."""

    q_nj = np.empty((0, 0))

    def __init__(self, split: Split, counted: int) -> None:
        self._split, self.counted = split, counted

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        return self._split.all

    def expected(self, prior: Any, log_pi_klj: Floats) -> Expected:
        held = self._split.held
        explained = float(np.einsum("klj,klj->", held.counts_klj, log_pi_klj)) + prior.explained(held.statistics)
        counts_klj, statistics, log_evidence = held.counts_klj, held.statistics, explained
        for rows in self._split.parts:
            counts_klj, total_j, log_z = kernels.expect(rows, log_pi_klj, prior.log_prior()[0], counts_klj)
            statistics, log_evidence = statistics + total_j, log_evidence + log_z
        return Expected(counts_klj, statistics, log_evidence)
