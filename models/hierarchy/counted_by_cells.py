"""What counts of the labels for the hierarchy, where whole tables (K, L, J) would be much larger than the labels.

The same fit as with `counted.Counted`, in another form: beliefs (N, J) stand for the counts that are sums of them, and
rows are made where labels are (`numerics.observed_cells`). That is exact, for all of it is linear in the counts:

    what is learned from   (1 - w) counts by q + w votes     =  counts by (1 - w) q + w a     a: agreeing pairs of votes
    momentum               counts (1 + m) - last counts m    =  counts by q (1 + m) - last q m, where below 0, 0
    hierarchy              sums of counts over options, over annotators, and of the right ones
    prior of the rows      `Factors`: the crowd's rows times numbers of annotator and class

In reports the matrices are such factors, and what labels add where it is more than LEAST.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.hierarchy.counted import Round, least_labels, shares_before
from hitl.models.hierarchy.skills import NEGLIGIBLE, STRENGTHS, ExpectedRows, Seen, of_totals, strength
from hitl.models.hierarchy.weighed_labels import Left, Pairs, Weighed
from hitl.models.hierarchy.weighed_shares import WeighedShares
from hitl.models.inference import em, loop
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, observe
from hitl.models.numerics.confidence_bins import Rows
from hitl.models.numerics.observed_cells import BLOCK, Cells, Pseudo, read
from hitl.models.numerics.strengths_of_cells import log_likelihood
from hitl.models.numerics.votes import agreement
from hitl.tables.factored_rows import FactoredTable, Factors, as_array

LARGE = 2**22
"""Cells of a whole table from which it may be large: 32 MB."""

FULL = 4
"""Labels for each row of a whole table up to which making rows again and again is the quicker way.

With 4 it takes .6 of the time with 1,000 classes, with 7 as long with 300. Below a BLOCK of classes there is more to do
around a row than in it: 200,000 annotators of 5 classes took twenty times as long."""

LEAST = 1e-12
"""Beliefs up to this one are left out of the reported matrices."""


def is_by_cells(annotations: Annotations) -> bool:
    """Return True where classes are many, whole tables large and labels few for their size."""
    rows, classes = annotations.n_annotators * annotations.n_options, annotations.n_classes
    return classes >= BLOCK and rows * classes >= LARGE and len(annotations) < FULL * rows


@dataclass(frozen=True, eq=False)
class FactoredSkills:
    """`Skills` by factors: `prior` has the Dirichlet parameters of the annotators, `crowd_jl` (J, L) of others."""

    accuracy: float
    crowd_jl: Floats
    prior: Factors
    alike: float
    rows: float


@dataclass(frozen=True, eq=False)
class ReadRows:
    """`SkilledRows` as far as labels read them.

    Attributes:
        pseudo: counts before labels.
        weight_n: (N,) how much items count.
        message_nj: (N, J) sums of log pi over the labels of each item.
        density: see `log_density`.
    """

    pseudo: Pseudo
    weight_n: Floats
    message_nj: Floats
    density: float = 0.0

    @property
    def log_pi_klj(self) -> Floats:
        """(N, J) the messages, which are all that a pass makes of log pi (K, L, J)."""
        return self.message_nj

    def learn(self, q_nj: Floats) -> Self:
        """The mean of every row given the counts by beliefs (N, J)."""
        message_nj, density = read(self.pseudo, q_nj, self.weight_n)
        return replace(self, message_nj=message_nj, density=density)

    def log_density(self) -> float:
        """Log Dirichlet density, up to a constant, of which that mean is the mode given the counts."""
        return self.density


@dataclass(frozen=True, eq=False)
class CountedByCells:
    """Counts of the labels of a table, by cells.

    Attributes:
        evidence: the table.
        anchor: w, weight of the votes, in [0, 1).
        left: what the weights leave to the votes.
        outputs: the models, over its items.
        weighed: the labels and what they count.
        cells: the labels by cells.
        agreed_nj: (N, J) shares of agreeing pairs of votes.
    """

    evidence: Evidence
    anchor: float
    left: Left
    outputs: Outputs
    weighed: Weighed
    cells: Cells
    agreed_nj: sparse.csr_array

    @classmethod
    def of(cls, evidence: Evidence, anchor: float, outputs: Outputs) -> Self:
        """Count the votes of one table."""
        weight = Pairs.of(evidence).weight(outputs.informativeness)
        weighed = Weighed.of(evidence, weight, outputs.informativeness)
        agreed_nj = sparse.csr_array(clamp(agreement(evidence.annotations), evidence))
        left, cells = Left.by_weights(evidence, weighed), Cells.of(evidence.annotations)
        return cls(evidence, anchor, left, outputs.on(evidence), weighed, cells, agreed_nj)

    def first(self, first: em.Beliefs) -> tuple[Expected, Floats]:
        """Return first beliefs (N, J), which stand for their counts, and (L, J) counts of lone labels."""
        q_nj = first(self.evidence)
        return Expected(q_nj, kernels.totals(q_nj, self.weighed.weight_n), 0.0), self.weighed.lone(q_nj)

    def ended(self, before: em.Beliefs, after: em.Beliefs) -> Round:
        """Compare beliefs before and after a round."""
        q_nj = after(self.evidence)
        return Round(float(np.abs(q_nj - before(self.evidence)).sum()), self.weighed.lone(q_nj))

    def shares(self) -> WeighedShares:
        """The shares before any belief."""
        weight_n = self.weighed.weight_n
        return shares_before(self.left, weight_n, self.outputs.informativeness, self.outputs.share_j)

    def skills(self, counts: Floats, lone_lj: Floats, accuracy: float) -> FactoredSkills:
        """The hierarchy by beliefs, anchored, and by lone labels."""
        learned_nj = self.anchored(counts)
        seen, total_kj = self._seen(learned_nj, lone_lj)
        found, weight_n = ExpectedRows.by(seen, accuracy), self.weighed.weight_n
        inside = log_likelihood(found.means, self.cells, learned_nj, weight_n, STRENGTHS, NEGLIGIBLE)
        rows = strength(inside - of_totals(total_kj))
        return FactoredSkills(found.accuracy, rows * found.crowd_lj.T, found.means.times(rows), found.alike, rows)

    def anchored(self, q_nj: Floats) -> Floats:
        """(N, J) beliefs whose counts are learned from."""
        learned_nj = (1 - self.anchor) * q_nj
        agreed = sparse.coo_array(self.agreed_nj)
        learned_nj[agreed.row, agreed.col] += self.anchor * agreed.data
        return learned_nj

    def run_em(
        self, prior: WeighedShares, skills: FactoredSkills, begun: Expected, tolerance: float, most: int
    ) -> tuple[em.EMResult[WeighedShares, ReadRows], em.Beliefs]:
        """Iterate from `begun`, the hierarchy held; also return the beliefs at the end."""
        passes = _Passes(self.evidence, em.informative(self.evidence, least_labels(self.outputs)), self.outputs, begun)
        rows = ReadRows(self._pseudo(skills), self.weighed.weight_n, np.empty(0))
        found = loop.iterate(passes, prior, rows, tolerance=tolerance, max_iterations=most, begun=begun, ahead=_ahead)
        return found, lambda evidence: found.q_nj

    def report(self, skills: FactoredSkills, counts: Floats, shares: WeighedShares) -> AnnotatorReport:
        """Report the annotators, by factors."""
        annotations = self.evidence.annotations
        learned_nj = self.anchored(counts)
        learned_nj[learned_nj <= LEAST] = 0.0
        summed = self.cells.summed(self.weighed.weight_n, annotations.n_items)
        alpha = FactoredTable(skills.prior, self._in_all_rows(summed @ sparse.csr_array(learned_nj)))
        return AnnotatorReport(
            names=annotations.annotators,
            classes=annotations.classes,
            options=annotations.options,
            concentration=as_array(alpha),
            confusion=as_array(alpha.divided(alpha.totals())),
            labels=annotations.labels_per_annotator,
            shares=shares.share_j,
            prior=skills.crowd_jl,
        )

    def _seen(self, learned_nj: Floats, lone_lj: Floats) -> tuple[Seen, Floats]:
        """Return the counts that tell how good annotators are, and (K, J) answers of every kind."""
        a, weight_n = self.weighed.annotations, self.weighed.weight_n
        of_a_class = a.label < a.n_classes
        by_kind = a.annotator + a.n_annotators * ~of_a_class
        said_skj = self._counts(by_kind, 2, a.n_annotators, learned_nj)
        crowd_lj = self._counts(a.label, 1, a.n_options, learned_nj)[0]
        k, item, label = (column[of_a_class] for column in (a.annotator, a.item, a.label))
        right_k: Floats = np.bincount(k, weight_n[item] * learned_nj[item, label], a.n_annotators).astype(np.float64)
        return Seen(right_k, said_skj[0], crowd_lj, lone_lj), said_skj.sum(axis=0)

    def _counts(self, cell_m: npt.NDArray[Any], tables: int, rows: int, q_nj: Floats) -> Floats:
        """(tables, rows, J) expected counts of labels by these codes."""
        labels = Rows(self.weighed.annotations.item_start, cell_m, tables, rows, q_nj.shape[1])
        return kernels.counts(labels, q_nj, self.weighed.weight_n)

    def _pseudo(self, skills: FactoredSkills) -> Pseudo:
        """Return the counts beside those by beliefs, in their unit."""
        summed = self.cells.summed(self.weighed.weight_n, self.agreed_nj.shape[0])
        votes_pj = sparse.csr_array(summed @ self.agreed_nj * (self.anchor / (1 - self.anchor)))
        return Pseudo(skills.prior.times(1 / (1 - self.anchor)), votes_pj, self.cells)

    def _in_all_rows(self, of_cells: sparse.csr_array) -> sparse.csr_array:
        """(K L, J) rows of the cells (P, J) among those of all options."""
        cells, size_p = self.cells, np.diff(of_cells.indptr)
        size = np.zeros(cells.n_annotators * cells.n_options, dtype=np.int64)
        size[cells.row_p] = size_p
        start = np.append(0, np.cumsum(size))
        return sparse.csr_array((of_cells.data, of_cells.indices, start), shape=(len(size), cells.n_classes))


class _Passes:
    """Passes over one table, whose beliefs stand for counts."""

    def __init__(self, evidence: Evidence, counted_n: npt.NDArray[np.bool_], outputs: Outputs, begun: Expected) -> None:
        self._evidence, self._counted_n, self._outputs, self._begun = evidence, counted_n, outputs, begun
        self.counted, self.q_nj = int(counted_n.sum()), begun.counts_klj

    def first(self, prior: Any, message_nj: Floats) -> Expected:
        return self._begun

    def expected(self, prior: WeighedShares, message_nj: Floats) -> Expected:
        message_nj = observe(message_nj.copy(), self._evidence)
        found = self._outputs.beside(prior).posterior(message_nj, self._counted_n)
        self.q_nj = found.q_nj
        return Expected(found.q_nj, found.statistics, found.log_evidence)


def _ahead(q_nj: Floats, last_nj: Floats, momentum: float) -> Floats:
    """Beliefs that go on the way from the last ones to these; `read` keeps their counts from falling below 0."""
    if not momentum:
        return q_nj
    ahead_nj = q_nj - last_nj
    ahead_nj *= momentum
    ahead_nj += q_nj
    return ahead_nj
