"""The default combiner for classes in order, such as stars or grades of severity.

    annotators     err towards neighboring classes, and differ in bias and precision (`hierarchy.ordered_skills`)
    label          the median of an item's probabilities, which has the least expected absolute error
    interval       the classes between the 5 % and the 95 % quantile

Everything else is as in `default`. Above 100 classes, so are the annotators. That combiner does the same if the
annotations say that the classes are in order (`Annotations.ordered`): this method says it for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import used
from hitl.models.default import DefaultCombiner
from hitl.models.inference.engine import Shards


@dataclass(frozen=True, slots=True)
class Ordinal(DefaultCombiner):
    """The default combiner for classes that are in order, from the first to the last.

    `accuracy` is the expected accuracy of annotators, in (0, 1).

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import Ordinal
        >>> stars = Annotations.from_matrix([[3, 4, 2], [0, 1, 2], [4, 4, 4]], classes=[1, 2, 3, 4, 5])
        >>> Ordinal().fit(Evidence(stars)).frame()[["label", "low", "high"]].values.tolist()
        [[4, 3, 5], [2, 1, 3], [5, 4, 5]]
    """

    fits_shards: ClassVar[bool] = False

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Fit the hierarchy for ordered classes, then correct its confidence."""
        return DefaultCombiner.fit(self, _in_order(used(self, evidence)), start=start)

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak."""
        return DefaultCombiner.memory(self, _in_order(evidence))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters."""
        return DefaultCombiner.apply(self, consensus, _in_order(evidence))


def _in_order(evidence: Evidence) -> Evidence:
    return replace(evidence, annotations=evidence.annotations.as_ordered())
