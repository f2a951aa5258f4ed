"""Images as items, represented by the objects that annotators drew in them; shared by boxes and masks.

Without a cluster all annotators of an image say NOTHING; then either all of them missed an object, or there is none
(`inference.missed_objects`, with images of one size). An image without an answer has the class shares of clusters,
which are uniform until there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats, Name
from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.kinds.kind import Marked, PartsKind, StoredAnswers
from hitl.kinds.matching import Answers, Matched, fit_clusters, judge_items, without_clusters
from hitl.models.combiner import Combiner
from hitl.tables.encode import natural_order


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Answers about N images: for each image annotator -> marks; and number of an image -> known marks."""

    answers: Answers
    drawn: tuple[dict[Name, list[Marked]], ...]
    known: dict[int, list[Marked]]


def read_images(kind: PartsKind, stored: StoredAnswers) -> StoredImages:
    """Read the stored answers. Raise BadInput for those of another kind, or with other labels."""
    labels = stored.question.classes

    def marks(item: Name, answer: str) -> list[Marked]:
        parts = kind.read_stored(item, answer)
        for part in parts:
            if part["label"] not in labels:
                raise BadInput(f"item {item}: {kind.noun} of {part['label']!r}; expected one of {listed(labels)}")
        return parts

    items = tuple(stored.items().column("item").to_pylist())
    number = {item: n for n, item in enumerate(items)}
    answers = {(item, who): (answer, time, seconds) for item, who, answer, time, seconds in stored.by_annotator()}
    annotators = natural_order(list({who for _, who in answers}))
    code = {who: k for k, who in enumerate(annotators)}
    drawn: tuple[dict[Name, list[Marked]], ...] = tuple({} for _ in items)
    for (item, who), (answer, *_) in answers.items():
        drawn[number[item]][who] = marks(item, answer)
    known = {number[item]: marks(item, answer) for item, answer in stored.known().items() if item in number}
    rows = sorted((number[item], code[who], *times) for (item, who), (_, *times) in answers.items())
    column_4 = np.array(rows, np.float64).reshape(-1, 4).T
    pair_a2 = column_4[:2].T.astype(np.int64)
    known_n = np.isin(np.arange(len(items)), [*known])
    return StoredImages(Answers(items, annotators, pair_a2, known_n, *column_4[2:]), drawn, known)


def judge_images(evidence: Evidence, matched: Matched, method: Combiner) -> tuple[Consensus, Floats]:
    """Fit a method for items to the clusters. Return the consensus on images, and the (C, J) beliefs in clusters."""
    answers_n = matched.answers.answers_n
    clusters, q_cj, nothing_n = fit_clusters(matched, method, np.ones(len(answers_n)))
    empty_nj = without_clusters(nothing_n, clusters.annotators)
    empty_nj[answers_n == 0] = clusters.class_shares
    return judge_items(evidence, matched, clusters, clusters.annotators, q_cj, empty_nj), q_cj
