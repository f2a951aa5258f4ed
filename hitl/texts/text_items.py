"""Texts, or recordings, of which annotators mark parts, as items: what policies, stopping rules and reports see.

A text stands for the part of it about which its annotators agree least (`matched_spans`): their labels of the text are
what they say of that part. So questions go where an answer says most. A text in which nothing was marked stands for
what all of its annotators may have overlooked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.platform import Question
from hitl.texts.marked_labels import MarkedLabels
from hitl.texts.matched_spans import Indices, MatchedSpans


@dataclass(frozen=True, eq=False)
class TextParts:
    """The parts of texts, or stretches of recordings, that are items, and by which of them each text is judged.

    Attributes:
        question: what was asked.
        labels: what annotators marked.
        layer: the number of this layer of kinds.
        cluster_d: (D,) the part of each text about which its annotators agree least; -1 where nothing was marked.
    """

    question: Question
    labels: MarkedLabels
    layer: int
    cluster_d: Indices

    @property
    def matched(self) -> MatchedSpans:
        """The spans of this layer."""
        return self.labels.matched[self.layer]


def of_texts(labels: MarkedLabels, question: Question) -> dict[str, Evidence]:
    """Evidence about the texts, one for each layer; the first has the name of the question."""
    found: dict[str, Evidence] = {}
    for number, matched in enumerate(labels.matched):
        name = f"{question.name} ({listed(matched.kinds)})" if found else question.name
        found[name] = _of_layer(TextParts(question, labels, number, _least_agreed(matched, len(labels.documents))))
    return found


def _least_agreed(matched: MatchedSpans, n_documents: int) -> Indices:
    """(D,) the part with the smallest majority; of equals one that more annotators marked, then the first."""
    said = matched.evidence.annotations
    votes_cl = np.zeros((len(matched), said.n_options), np.int64)
    np.add.at(votes_cl, (said.item, said.label), 1)
    most, marked = votes_cl.max(axis=1, initial=0), votes_cl[:, 1:].sum(axis=1)
    order = np.lexsort((np.arange(len(matched)), -marked, most, matched.document_c))
    cluster_d = np.full(n_documents, -1, np.int64)
    there, first = np.unique(matched.document_c[order], return_index=True)
    cluster_d[there] = order[first]
    return cluster_d


def _of_layer(parts: TextParts) -> Evidence:
    labels, cluster_d, known = parts.labels, parts.cluster_d, parts.matched.evidence
    said = known.annotations
    document_a, annotator_a = labels.answer_a2.T
    label_a = np.zeros(len(document_a), np.int32)
    there = cluster_d[document_a] >= 0
    # Labels are in the order of clusters and annotators.
    key = said.item.astype(np.int64) * said.n_annotators + said.annotator
    label_a[there] = said.label[
        np.searchsorted(key, cluster_d[document_a[there]] * said.n_annotators + annotator_a[there])
    ]
    annotations = Annotations(
        document_a.astype(np.int32),
        annotator_a.astype(np.int32),
        label_a,
        labels.documents,
        labels.annotators,
        said.classes,
        said.options,
        time=labels.time_a,
        duration=labels.duration_a,
    )
    assert known.truth is not None
    truth = np.where(labels.known_d, 0, -1).astype(np.int32)
    truth[cluster_d >= 0] = known.truth[cluster_d[cluster_d >= 0]]
    return Evidence(annotations, truth=truth, parts=parts)
