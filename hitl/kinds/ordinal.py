"""Answers that choose one of several classes in order, such as stars. The default method expects errors of a step.

The label is the median of an item's probabilities, and the table of the consensus has the columns `low` and `high`.
"""

from __future__ import annotations

from dataclasses import replace

from hitl.evidence import Evidence
from hitl.kinds.choices import Choices
from hitl.kinds.kind import StoredAnswers


class Ordinal(Choices):
    """One of several classes that are in order, per item."""

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        """Build evidence as for choices, with the classes in order."""
        given = super().evidence(stored)
        return {name: replace(one, annotations=one.annotations.as_ordered()) for name, one in given.items()}
