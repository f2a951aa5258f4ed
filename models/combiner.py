"""The contract of every combiner: evidence in, consensus out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hitl.consensus import Consensus
from hitl.evidence import Evidence

if TYPE_CHECKING:
    from hitl.models.inference.incremental import IncrementalEM


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


@runtime_checkable
class Updatable(Protocol):
    """A combiner that takes in new, edited and withdrawn labels without a refit, all at once."""

    def update(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """What `consensus` becomes with all that is known now, `evidence`, matched to it by name.

        Labels, items, annotators and known truths may be new, different or gone: what changed need not be said. It
        takes a few passes over the evidence, however much has changed. Raises BadEvidence for other classes.
        """
        ...


@runtime_checkable
class Followable(Protocol):
    """A combiner whose result can follow the labels one by one, each in a fraction of a millisecond."""

    def follow(self, consensus: Consensus, evidence: Evidence) -> IncrementalEM:
        """Something that starts from `consensus` and the labels of `evidence` and takes in changes as they come."""
        ...
