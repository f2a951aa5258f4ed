"""Annotator models: how an annotator's label depends on the true class."""

from __future__ import annotations

from typing import Protocol, Self

from hitl.annotations import Floats


class AnnotatorModel(Protocol):
    """p(label | true class, annotator) of all annotators, with its parameters and their density."""

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) (expected) log probability that annotator k answers l for an item of class j."""
        ...

    def learn(self, counts_klj: Floats) -> Self:
        """Return the parameters that maximize the expected log joint, given expected counts (K, L, J)."""
        ...

    def log_density(self) -> float:
        """Return the log density of the parameters, up to a constant."""
        ...
