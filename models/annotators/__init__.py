"""Annotator models: how an annotator's label depends on the true class."""

from __future__ import annotations

from typing import Any, Protocol, Self

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus


class AnnotatorModel(Protocol):
    """p(label | true class, annotator) for all annotators, with its parameters and their density."""

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) (expected) log probability that annotator k answers l for an item of class j."""

    def learn(self, counts_klj: Floats) -> Self:
        """Return the parameters that maximize the expected log joint, given expected counts (K, L, J)."""

    def log_density(self) -> float:
        """Return the log density of the parameters, up to a constant."""


class AnnotatorKind(Protocol):
    """Kind of annotator model: builds the model before a fit, restores it from a consensus, and reports annotators."""

    def at_start(self, annotations: Annotations, start: Consensus | None) -> Any:
        """Return the annotator model before the first iteration."""

    def log_pi(self, learned: Consensus, annotations: Annotations) -> Floats:
        """Return (K, L, J) learned (expected) log probabilities of answers; new annotators follow the prior."""

    def report(self, annotations: Annotations, found: Any, share_j: Floats) -> AnnotatorReport:
        """Report the annotators of an `EMResult`."""
