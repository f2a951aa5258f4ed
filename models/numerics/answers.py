"""One pass over the labels: expected right and wrong answers per annotator, and the uncertainty of their items."""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled


def answered(annotations: Annotations, q_nj: Floats) -> tuple[Floats, Floats]:
    """Return (K, 3) expected right and wrong answers given beliefs (N, J), and their variance; and (K,) sum of doubts.

    An answer that is no class ("unsure") is neither right nor wrong. The doubt of a label is 1 - max_j q_nj of its
    item.
    """
    answers_k3, doubt_k = np.zeros((annotations.n_annotators, 3)), np.zeros(annotations.n_annotators)
    _answered(
        annotations.item, annotations.annotator, annotations.label, np.ascontiguousarray(q_nj), answers_k3, doubt_k
    )
    return answers_k3, doubt_k


@compiled
def _answered(item: Any, annotator: Any, label: Any, q: Any, answers: Any, doubt: Any) -> None:
    classes, last, unsure = q.shape[1], -1, 0.0
    for m in range(item.shape[0]):
        n, k = item[m], annotator[m]
        if n != last:
            last, unsure = n, 1.0 - q[n].max()
        doubt[k] += unsure
        if label[m] < classes:
            chance = q[n, label[m]]
            answers[k, 0] += chance
            answers[k, 1] += 1.0  # counts all answers until the end
            answers[k, 2] += chance * (1.0 - chance)
    for k in range(answers.shape[0]):
        answers[k, 1] -= answers[k, 0]
