"""Right and wrong answers of annotators, by corrected beliefs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.models.inference.engine import Additive
from hitl.models.numerics.answers import answered

RATIO_VARIANCE = 0.25
"""Variance of r, the ratio of actual to expected wrong answers, in the intervals of annotators.

With it the intervals cover the share of right answers for 88 to 94 % of the annotators of public crowds with three
labels per item or more (docs/benchmarks/honesty.txt); without it for 68 %.
"""


@dataclass(frozen=True, eq=False)
class Answers(Additive):
    """Annotators' answers: (K, 3) `numerics.answers.answered`, and (K,) the sum of doubts."""

    answers_k3: Floats
    doubted_k: Floats

    @classmethod
    def of(cls, annotations: Annotations, q_nj: Floats) -> Answers:
        """Count answers by beliefs (N, J)."""
        return cls(*answered(annotations, q_nj))

    def reported(self) -> Floats:
        """Return (K, 3) right and wrong answers of each annotator, and the variance of that number.

        Besides the chance errors of each label there is one that labels share: the number of wrong answers may be r
        times the expected one. It widens the intervals of annotators whose items are least certain the most.
        """
        return np.asarray(self.answers_k3 + np.outer(RATIO_VARIANCE * self.doubted_k**2, [0.0, 0.0, 1.0]))
