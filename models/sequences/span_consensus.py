"""The spans of texts that annotators' labels support, or stretches of recordings, and how probable each is.

    method for items       spans of different annotators are matched; each match is an item (`matched_span_fit`, and
                           `segment_fit` for recordings)
    method for sequences   tokens of texts are items, and their classes a chain (`spans_on_paths`)

The first is the default. It is level with the best chain on names in newspapers, and chains fall far behind where
spans are long or their borders are disputed (docs/benchmarks/sequences.txt): an annotator who overlooks a span is wrong
about all of its tokens at once, which a chain takes for as many errors that confirm each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from hitl.annotations import Floats, Name
from hitl.consensus import Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted
from hitl.models.combiner import Combiner
from hitl.models.inference.missed_objects import shares_of_kinds
from hitl.models.registry import combiner
from hitl.models.sequences.layer_spans import LayerSpans
from hitl.models.sequences.matched_span_fit import matched_span_fit
from hitl.models.sequences.segment_fit import segment_fit
from hitl.models.sequences.spans_on_paths import Chained, spans_on_paths
from hitl.parts import Part
from hitl.texts.marked_labels import MarkedLabels, number_of
from hitl.texts.span_labels import SpanLabels
from hitl.texts.span_tables import found_table
from hitl.texts.text_items import TextParts
from hitl.timelines.timeline_labels import TimelineLabels


@dataclass(frozen=True, eq=False, repr=False)
class SpanConsensus(OneLineRepr):
    """Which spans are right, and how good everyone is.

    Attributes:
        labels: what annotators marked.
        layers: the consensus about matched spans, or about tokens, for each layer of kinds.
        candidates: spans of the consensus, and all others that an annotator marked, by document and place.
        text_probability: (D,) probability that all spans of a text are right, and no others; NaN without an answer.
    """

    labels: MarkedLabels
    layers: tuple[Consensus, ...]
    candidates: tuple[Part, ...]
    text_probability: Floats

    @cached_property
    def spans(self) -> tuple[Part, ...]:
        """Those of the consensus."""
        return tuple(span for span in self.candidates if span.found)

    def __str__(self) -> str:
        sure = [span.probability for span in self.spans]
        mean = f"; mean confidence {np.mean(sure):.3f}" if sure else ""
        fits = "; ".join(str(layer.fit) for layer in self.layers)
        return f"{counted(len(sure), 'span')} in {counted(self._answered, self._whole)}{mean}; {fits}"

    @property
    def _whole(self) -> str:
        """What the spans are parts of."""
        return "recording" if self.labels.texts is None else "text"

    @property
    def _answered(self) -> int:
        return int((~np.isnan(self.text_probability)).sum())

    def table(self) -> pa.Table:
        """Arrow table of the consensus: document, start, end, label, confidence, marked, answers, text."""
        return found_table(self.candidates, self.labels.documents, self.labels.texts)

    def texts(self) -> pa.Table:
        """Arrow table, a row for each text: document, spans, answers, confidence (that all of its spans are right)."""
        count: dict[Name, int] = {}
        for span in self.spans:
            count[span.item] = count.get(span.item, 0) + 1
        return pa.table(
            {
                "document": pa.array(self.labels.documents),
                "spans": pa.array([count.get(name, 0) for name in self.labels.documents]),
                "answers": pa.array(self.labels.answers_d),
                "confidence": pa.array(self.text_probability, mask=np.isnan(self.text_probability)),
            }
        )

    def annotators(self) -> pa.Table:
        """Arrow table: annotator, texts (or recordings), spans, precision, recall, f1; by how probable each span is.

        Precision is the expected share of their spans that are right, recall the expected share of the right ones, in
        the texts they answered, that they marked. Their own labels are among those that say what is right.
        """
        labels, k = self.labels, len(self.labels.annotators)
        right_d = np.zeros(len(labels.documents))
        place = {name: number for number, name in enumerate(labels.documents)}
        for span in self.candidates:
            right_d[place[span.item]] += span.probability
        document_a, annotator_a = labels.answer_a2.T
        annotator_s = annotator_a[labels.span_s4[:, 0]]
        marked_k = np.bincount(annotator_s, minlength=k)
        right_k = np.bincount(annotator_s, weights=self._right_s(), minlength=k)
        there_k = np.bincount(annotator_a, weights=right_d[document_a], minlength=k)
        with np.errstate(invalid="ignore"):
            shares = {"precision": right_k / marked_k, "recall": right_k / there_k}
            shares["f1"] = 2 * right_k / (marked_k + there_k)
        return pa.table(
            {
                "annotator": pa.array(labels.annotators),
                f"{self._whole}s": np.bincount(annotator_a, minlength=k),
                "spans": marked_k,
                **{name: pa.array(share, mask=np.isnan(share)) for name, share in shares.items()},
            }
        )

    def _right_s(self) -> Floats:
        """(S,) that each marked span is right; of a stretch of time, that there is one of its kind where it matches."""
        labels = self.labels
        answer_s, start_s, end_s, kind_s = labels.span_s4.T
        (document_s, annotator_s), kinds = labels.answer_a2[answer_s].T, [labels.kinds[kind] for kind in kind_s]
        if labels.texts is not None:
            p_of = {
                (span.item, span.place["start"], span.place["end"], span.label): span.probability
                for span in self.candidates
            }
            named = zip((labels.documents[d] for d in document_s), start_s.tolist(), end_s.tolist(), kinds, strict=True)
            return np.array([p_of[span] for span in named])
        q_of = {
            (*matched.member_m5[m, 1:4].tolist(), int(matched.document_c[c]), matched.kinds[kind]): q_cj[c, 1 + kind]
            for matched, q_cj in zip(labels.matched, (layer.probabilities for layer in self.layers), strict=True)
            for m, (c, kind) in enumerate(matched.member_m5[:, [0, 4]].tolist())
        }
        rows = zip(*(one.tolist() for one in (annotator_s, start_s, end_s, document_s)), kinds, strict=True)
        return np.array([q_of[row] for row in rows])


def combined(labels: MarkedLabels, method: Combiner | None = None) -> SpanConsensus:
    """The spans that the labels support, by a method for items or sequences; default: the default combiner.

    Raises BadEvidence where it is not known what a span can be.
    """
    place = {name: number for number, name in enumerate(labels.documents)}
    layers = [_fitted(labels, number, method) for number in range(len(labels.kinds_apart))]
    found = [span for layer in layers for span in layer.spans]
    found.sort(
        key=lambda one: (place[one.item], number_of(one.place["start"]), number_of(one.place["end"]), str(one.label))
    )
    probability = np.where(labels.judged_d, np.prod([layer.text_probability for layer in layers], axis=0), np.nan)
    return SpanConsensus(labels, tuple(layer.consensus for layer in layers), tuple(found), probability)


def of_texts(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    """The consensus about texts as items (`hitl.texts.text_items`), by a method as for `combined`.

    Each text has the beliefs of the part it stands for, and `spans` are those of this layer.
    """
    parts = evidence.parts
    assert isinstance(parts, TextParts)
    found = _fitted(parts.labels, parts.layer, method)
    q_dj = np.column_stack((found.nothing_d, np.multiply.outer(1 - found.nothing_d, shares_of_kinds(found.annotators))))
    there = parts.cluster_d >= 0
    q_dj[there] = found.q_cj[parts.cluster_d[there]]
    assert evidence.truth is not None
    q_dj[evidence.known] = np.eye(q_dj.shape[1])[evidence.truth[evidence.known]]
    report = replace(found.annotators, labels=evidence.annotations.labels_per_annotator)
    judged = found.consensus.judging(parts.labels.documents, q_dj, report)
    return replace(judged, parameters={}, question=parts.question, parts=found.spans)


def _fitted(labels: MarkedLabels, number: int, method: Combiner | None) -> LayerSpans:
    """The spans of one layer."""
    if isinstance(labels, TimelineLabels):
        if isinstance(method, Chained):
            raise BadSettings(
                f"method: {type(method).__name__} is a method for sequences of tokens, which recordings do not have; "
                'expected a method for items, or "default"'
            )
        return segment_fit(labels, number, combiner("default") if method is None else method)
    assert isinstance(labels, SpanLabels)
    if isinstance(method, Chained):
        return spans_on_paths(labels, number, method)
    return matched_span_fit(labels, number, combiner("default") if method is None else method)
