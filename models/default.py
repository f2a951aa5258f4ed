"""The default combiner: picks by what the evidence holds.

    model probabilities   P+L-EM (calibrated models x confusion matrices)
    people only           Dawid–Skene with an informative prior on accuracy, taught by items with two labels or more

Plain Dawid–Skene is not a default: with one label an item nothing tells who is right, the class shares run away to a
single class, and the labels follow (docs/decisions.md has the figures).
"""

from __future__ import annotations

from dataclasses import dataclass

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.checks import require_between
from hitl.models.dawid_skene import DawidSkene
from hitl.models.pl_em import PLEM

SHARE_SMOOTHING = 20.0
"""Pseudo-items of each class: the first few items with two labels do not settle how common the classes are."""


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """P+L-EM where there are model probabilities, else a cautious Dawid–Skene; `accuracy` is expected of people."""

    accuracy: float = 0.75

    def __post_init__(self) -> None:
        require_between("accuracy", self.accuracy, 0, 1)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner that suits the evidence."""
        return self._suited(evidence).fit(evidence, start=start)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        return self._suited(evidence).apply(consensus, evidence)

    def _suited(self, evidence: Evidence) -> PLEM | DawidSkene:
        if evidence.probabilities:
            return PLEM(accuracy=self.accuracy)
        return DawidSkene(accuracy=self.accuracy, share_smoothing=SHARE_SMOOTHING, least_labels=2)
