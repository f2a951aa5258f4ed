"""Spans of texts by a chain of tokens (`bsc_seq` and its kin), and how probable each is.

    found          spans on the most probable path of each text (Viterbi)
    p(span)      = p(z_first = B, z = I from there to its end, z_end is not I | all labels of the text)
    p(text)      = p(the whole path | all labels of the text)

with z the true classes of its tokens, by forward passes in which the span is known (`learned_chain.ChainPosterior`).
What annotators matched (`hitl.texts.matched_spans`) has the beliefs of the token that most of them marked.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner
from hitl.models.sequences.layer_spans import LayerSpans
from hitl.models.sequences.learned_chain import ChainPosterior
from hitl.parts import Part
from hitl.tables.encoding import writable
from hitl.texts.matched_spans import NOTHING, MatchedSpans
from hitl.texts.span_labels import Indices, Layer, SpanLabels, Tokens


@runtime_checkable
class Chained(Combiner, Protocol):
    """A combiner that knows the posterior of whole sequences."""

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """The chain that was learned, and what is known of each item."""
        ...


def spans_on_paths(labels: SpanLabels, number: int, method: Chained) -> LayerSpans:
    """The spans of one layer by a method for sequences. Raises BadEvidence where no text has a word."""
    layer = labels.layers[number]
    consensus = method.fit(layer.evidence)
    posterior = method.chain_posterior(consensus, layer.evidence)
    path, matched = posterior.path, labels.matched[number]
    q_cj = _of_kinds(posterior.passed.q_nj[_most_marked(labels, matched)])
    return LayerSpans(
        consensus,
        _report_of_kinds(consensus.annotators, matched),
        q_cj,
        _of_whole_texts(labels, posterior, np.zeros_like(path)),
        tuple(_candidates(labels, layer, posterior, path)),
        _of_whole_texts(labels, posterior, path),
    )


def _most_marked(labels: SpanLabels, matched: MatchedSpans) -> Indices:
    """(C,) the token of each cluster that most of its spans cover, the first of equals."""
    tokens, known_c3 = labels.tokens, matched.known_c3
    known = np.flatnonzero(known_c3[:, 2] >= 0)
    place_m3 = np.concatenate((matched.member_m5[:, [0, 2, 3]], np.column_stack((known, known_c3[known, :2]))))
    first, last = tokens.within(matched.document_c[place_m3[:, 0]], place_m3[:, 1], place_m3[:, 2])
    # Coverage is highest where some span begins, and no span has ended that began before.
    begun = np.lexsort((first, place_m3[:, 0]))
    cluster, first, last = place_m3[begun, 0], first[begun], last[begun]
    token_c = np.zeros(len(matched), np.int64)
    borders = np.searchsorted(cluster, np.arange(len(matched) + 1))
    for c, (low, high) in enumerate(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)):
        own_first, own_last = first[low:high], last[low:high]
        covered = ((own_first[:, None] >= own_first) & (own_first[:, None] < own_last)).sum(axis=1)
        token_c[c] = own_first[covered.argmax()]
    return token_c


def _of_kinds(q_nj: Floats, axis: int = -1) -> Floats:
    """Sums over B-kind and I-kind along an axis of classes O, B-kind, I-kind."""
    begins = range(0, q_nj.shape[axis], 2)
    # O is alone, then come pairs: an empty class before O makes pairs of all.
    padded = np.insert(q_nj, 0, 0.0, axis=axis)
    summed: Floats = np.add.reduceat(padded, begins, axis=axis)
    return summed


def _report_of_kinds(report: AnnotatorReport, matched: MatchedSpans) -> AnnotatorReport:
    """What is said of the annotators' tokens, with B-kind and I-kind as one class."""
    classes = (NOTHING, *matched.kinds)
    weighed = _of_kinds(_of_kinds(report.confusion * np.maximum(report.shares, 1e-12)[:, None]), axis=1)
    shares = _of_kinds(report.shares)
    confusion = weighed / weighed.sum(axis=2, keepdims=True)
    concentration = _of_kinds(_of_kinds(report.concentration), axis=1)
    return AnnotatorReport(report.names, classes, classes, concentration, confusion, report.labels, shares)


def _of_whole_texts(labels: SpanLabels, posterior: ChainPosterior, path: Ints) -> Floats:
    """(D,) probability of this path of each text; 1 for a text without a token."""
    sequences = posterior.chain.sequences
    number = labels.tokens.document_t[sequences.rows[sequences.start[:-1]]]

    def as_found(event: int, message_tj: Floats) -> None:
        rows = sequences.rows[sequences.start[event] : sequences.start[event + 1]]
        message_tj[np.arange(message_tj.shape[1]) != path[rows][:, None]] = -np.inf

    probability = np.ones(len(labels.documents))
    probability[number] = posterior.probabilities(np.arange(len(number)), as_found)
    return probability


def _candidates(labels: SpanLabels, layer: Layer, posterior: ChainPosterior, path: Ints) -> list[Part]:
    """Spans of this layer on the path, and those that annotators marked in judged texts."""
    tokens, judged = labels.tokens, labels.judged_d
    marked = _marked(labels, layer, tokens)
    on_path = {span for span in _on_path(tokens, path) if judged[tokens.document_t[span[0]]]}
    spans = sorted({*marked, *on_path})
    if not spans:
        return []
    span_e3 = np.array(spans)
    answers = labels.answers_d
    probability = _of_spans(posterior, tokens, span_e3)
    document_e = tokens.document_t[span_e3[:, 0]]
    places = [(int(tokens.start_t[first]), int(tokens.end_t[last - 1])) for first, last, _ in spans]
    return [
        Part(
            labels.documents[document],
            layer.kinds[kind],
            {"start": start, "end": end, "text": writable(labels.texts[document][start:end])},
            float(p),
            marked.get((first, last, kind), 0),
            int(answers[document]),
            (first, last, kind) in on_path,
        )
        for (first, last, kind), (start, end), p, document in zip(spans, places, probability, document_e, strict=True)
    ]


def _of_spans(posterior: ChainPosterior, tokens: Tokens, span_e3: Indices) -> Floats:
    """(E,) probability of spans (first token, one past the last, kind)."""
    sequences = posterior.chain.sequences
    first_token = sequences.rows[sequences.start[:-1]]
    of_e = np.searchsorted(tokens.document_t[first_token], tokens.document_t[span_e3[:, 0]])

    def is_there(event: int, message_tj: Floats) -> None:
        first, last, kind = span_e3[event]
        begun = first_token[of_e[event]]
        begins, goes_on = 1 + 2 * kind, 2 + 2 * kind
        others = np.arange(message_tj.shape[1])
        message_tj[first - begun, others != begins] = -np.inf
        message_tj[first - begun + 1 : last - begun, others != goes_on] = -np.inf
        message_tj[last - begun : last - begun + 1, goes_on] = -np.inf

    return posterior.probabilities(of_e, is_there)


def _marked(labels: SpanLabels, layer: Layer, tokens: Tokens) -> dict[tuple[int, int, int], int]:
    """First token, one past the last and kind (of the layer) of all spans that annotators marked: how many did."""
    code = {labels.kinds.index(kind): number for number, kind in enumerate(layer.kinds)}
    span_s4 = labels.span_s4
    first, last = tokens.within(labels.answer_a2[span_s4[:, 0], 0], span_s4[:, 1], span_s4[:, 2])
    count: dict[tuple[int, int, int], int] = {}
    for begin, end, kind in zip(first.tolist(), last.tolist(), span_s4[:, 3].tolist(), strict=True):
        if kind in code:
            span = begin, end, code[kind]
            count[span] = count.get(span, 0) + 1
    return count


def _on_path(tokens: Tokens, path: Ints) -> list[tuple[int, int, int]]:
    """First token, one past the last and kind of the spans on the path. Known truth may begin one inside."""
    begins = np.flatnonzero(path % 2 == 1)
    goes_on = (path > 0) & (path % 2 == 0)
    goes_on[1:] &= tokens.document_t[1:] == tokens.document_t[:-1]
    ends = np.flatnonzero(~goes_on)
    last = np.append(ends, len(path))[np.searchsorted(ends, begins, side="right")]
    return [(int(first), int(end), int(path[first] // 2)) for first, end in zip(begins, last, strict=True)]
