"""Several classes as binary questions: is the item of class j or of the rest?

Two classes are one question, whose second class is class 1. An annotator's answer to a question is j, the rest, or an
option that is no class. Expected confusion rows are collapsed: the row of the rest is the mean of the rows of the other
classes.

The beliefs of the questions are normalized to sum to 1 (Rodrigues 2014, section 4.2, has one task per genre).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.numerics.clamping import clamp

LEAST = 1e-300
"""Smallest belief of a question."""


def asked(n_classes: int) -> range:
    """Return the classes j with a question."""
    return range(1, 2) if n_classes == 2 else range(n_classes)


def question(evidence: Evidence, j: int) -> Evidence:
    """Build the evidence about class j, as class 1, against the rest, as class 0."""
    annotations = evidence.annotations
    code = _codes(annotations, j)
    assert evidence.truth is not None
    truth = np.where(evidence.known, (evidence.truth == j).astype(np.int32), -1)
    names = tuple(range(int(code.max()) + 1))
    return Evidence(replace(annotations, label=code[annotations.label], classes=names[:2], options=names), truth=truth)


def collapsed(value_jl: Floats, annotations: Annotations, j: int) -> Floats:
    """Collapse (J, L) pseudo-counts of the confusion rows to (2, L') of question j."""
    code = _codes(annotations, j)
    by_option = np.zeros((len(value_jl), int(code.max()) + 1))
    np.add.at(by_option.T, code, value_jl.T)
    others = np.delete(by_option, j, axis=0)
    return np.stack((others.mean(axis=0), by_option[j]))


def column(q_nj: Floats, j: int) -> Floats:
    """Return (N, 2) beliefs of question j from those (N, J) of the classes."""
    return np.stack((1 - q_nj[:, j], q_nj[:, j]), axis=1)


def joined(q_qn: Floats, evidence: Evidence) -> Floats:
    """Return (N, J) class beliefs from beliefs (questions, N) of each question's class j; known truth is preserved."""
    if len(q_qn) == 1:
        q_nj = np.stack((1 - q_qn[0], q_qn[0]), axis=1)
    else:
        q_nj = np.maximum(q_qn.T, LEAST)
        q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def _codes(annotations: Annotations, j: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return (L,) the code of each option in question j."""
    code = np.zeros(annotations.n_options, dtype=np.int32)
    code[j] = 1
    extra = annotations.n_options - annotations.n_classes
    code[annotations.n_classes :] = 2 + np.arange(extra)
    return code
