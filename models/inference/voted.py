"""Consensus of methods whose beliefs come from votes rather than a confusion model.

The confusion matrices of their reports follow the beliefs. The accuracies compare each answer with the item's other
labels: vote fractions are not chances, and an annotator who is always right among votes of three to one would be scored
as right in 3 of 4 cases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards, Sums
from hitl.models.numerics import kernels
from hitl.models.numerics.votes import smoothed


def voted_consensus(method: Any, began: float, shards: Shards, beliefs: Beliefs, **learned: Any) -> Consensus:
    """Return the consensus with these beliefs; arguments as in `combiner.concluded`."""
    beliefs = shards.once(beliefs)
    people = _report(shards.annotations, shards.total(partial(_counted_in, beliefs=beliefs)))
    q_nj = np.empty((0, shards.annotations.n_classes)) if shards.table is None else beliefs(shards.table)
    return concluded(method, began, shards, q_nj, people, **learned)


def report_of_votes(annotations: Annotations, q_nj: Floats) -> AnnotatorReport:
    """Report how often each annotator agrees with beliefs (N, J) from no confusion model."""
    return _report(annotations, _counted(annotations, q_nj))


def _report(annotations: Annotations, counted: Sums) -> AnnotatorReport:
    counts_klj, belief_j, items, answers_k3, labels_k = counted
    pseudo_jl = confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
    found = confusion.report(annotations, counts_klj, pseudo_jl, smoothed(belief_j, items))
    return replace(found, answers=answers_k3, labels=labels_k)


def _counted_in(evidence: Evidence, beliefs: Beliefs) -> Sums:
    return _counted(evidence.annotations, beliefs(evidence))


def _counted(annotations: Annotations, q_nj: Floats) -> Sums:
    """Return counts (K, L, J) by the beliefs, their sum (J,), items, `_answers_beside_labels`, and labels (K,)."""
    counts_klj, answers_k3 = kernels.counts(annotations, q_nj), _answers_beside_labels(annotations, q_nj)
    return Sums((counts_klj, q_nj.sum(axis=0), len(q_nj), answers_k3, annotations.labels_per_annotator))


def _answers_beside_labels(annotations: Annotations, q_nj: Floats) -> Floats:
    """Return (K, 3) right and wrong answers by the most probable class (ties share), and the variance of that number.

    A lone answer does not count toward itself unless the truth is known.
    """
    top_nj = (q_nj >= q_nj.max(axis=1, keepdims=True) - 1e-12).astype(float)
    top_nj /= top_nj.sum(axis=1, keepdims=True)
    judged_n = (annotations.labels_per_item >= 2) | (q_nj.max(axis=1) >= 1)
    rows = (annotations.label < annotations.n_classes) & judged_n[annotations.item]
    who, right = annotations.annotator[rows], top_nj[annotations.item[rows], annotations.label[rows]]
    return np.column_stack(
        [np.bincount(who, weights, annotations.n_annotators) for weights in (right, 1 - right, right * (1 - right))]
    )
