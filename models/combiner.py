"""The contract of every combiner: evidence in, consensus out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hitl.consensus import Consensus
from hitl.evidence import Evidence


class Combiner(Protocol):
    """Fuses what is known into the best-supported label of every item.

    Settings are the fields of a frozen dataclass; `fit` remembers nothing. `start` is an earlier consensus to
    begin from (usually the same answer, in fewer iterations).
    """

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the evidence and judge all its items."""
        ...


@runtime_checkable
class Applicable(Protocol):
    """A combiner whose result judges items it has not seen."""

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge the items of `evidence` with what `consensus` learned; nothing is refitted."""
        ...
