"""Fit the spans of one layer, and the probability of each.

With a method for items, each cluster of matched spans is an item, and the method gives the probability of each class,
or nothing.

    texts        p(span) = p(class) p(begins there) p(ends there); among overlapping spans, those with the largest sum
                 of log odds are selected
    recordings   p(span) = p(class), because borders on a time axis are right by degrees; of two that share more than
                 half of the shorter one the more probable is selected; if two overlap by less, the first ends where the
                 second begins
    missed       spans that none of a document's annotators marked (`hitl.models.inference.missed_objects`)

Selected clusters are more likely a span than nothing. A document is right with the probability that all of its
spans are, and that nothing was missed.

With a method for sequences (such as `bsc_seq`) the classes of the tokens of a text are a chain:

    selected     spans on the most probable path of each text (Viterbi)
    p(span)    = p(z_first = B, z = I from there to its end, z_end is not I | all labels of the text)
    p(text)    = p(the whole path | all labels of the text)

with z the true classes of its tokens, by forward passes in which the span is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from hitl.annotations import Floats, Ints, Name
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.kinds.kind import NOTHING
from hitl.kinds.matching import Flags, Indices, MatchedSpans
from hitl.kinds.span_borders import learn_borders, time_borders
from hitl.kinds.span_labels import SpanLabels, TokenLayer, share_half
from hitl.models.combiner import Combiner, seen_by
from hitl.models.inference.missed_objects import chance_of_none, misses
from hitl.models.sequences.learned_chain import ChainPosterior
from hitl.parts import Part
from hitl.tables.encoding import writable


@dataclass(frozen=True, eq=False)
class LayerFit:
    """Fit of one layer, with its spans and document probabilities.

    Attributes:
        consensus: about matched spans, or about tokens.
        annotators: how they answer; classes "(nothing)" and those of the layer.
        q_cj: (C, J) beliefs in the class of each cluster of `SpanLabels.matched`.
        nothing_d: (D,) probability that there is no span at all, for documents in which nothing was marked.
        parts: spans of the consensus, and all others that an annotator marked.
        right_d: (D,) probability that all spans of a document are right, and no others.
    """

    consensus: Consensus
    annotators: AnnotatorReport
    q_cj: Floats
    nothing_d: Floats
    parts: tuple[Part, ...]
    right_d: Floats


@runtime_checkable
class Chained(Combiner, Protocol):
    """Combiner that provides the posterior of whole sequences."""

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """Return the learned chain, and the log likelihoods of each item."""
        ...


def fit_layer(labels: SpanLabels, layer: int, method: Combiner) -> LayerFit:
    """Fit one layer by a method for items or, for texts, for sequences. Raise BadSettings for another."""
    if isinstance(method, Chained):
        if labels.texts is None:
            raise BadSettings(
                f"method: {type(method).__name__} is a method for sequences of tokens, which recordings do not have; "
                'expected a method for items, or "default"'
            )
        return _fit_tokens(labels, layer, method)
    matched = labels.matched[layer]
    consensus = method.fit(seen_by(method, matched.evidence))
    q_cj = consensus.probabilities[: len(matched)]
    find = _find_in_time if labels.texts is None else _find_in_texts
    parts, chosen_c, p_c = find(labels, matched, q_cj)
    n_documents = len(labels.documents)
    seen_d = np.bincount(matched.document_c, weights=1 - q_cj[:, 0], minlength=n_documents).astype(np.float64)
    size_d: Floats = np.ones(n_documents)  # recordings count as the same size
    if labels.texts is not None:
        size_d = np.bincount(labels.tokens.document_t, minlength=n_documents).astype(np.float64)
    nothing_d = chance_of_none(seen_d, size_d, labels.known_d, labels.answer_a2, misses(consensus.annotators))
    right_d = nothing_d.copy()
    np.multiply.at(right_d, matched.document_c, np.where(chosen_c, p_c, q_cj[:, 0]))
    return LayerFit(consensus, consensus.annotators, q_cj, nothing_d, parts, right_d)


# -- matched spans of texts --------------------------------------------------------------------------------


def _find_in_texts(labels: SpanLabels, matched: MatchedSpans, q_cj: Floats) -> tuple[tuple[Part, ...], Flags, Floats]:
    """Return candidates, selected clusters (C,), and the probability (C,) of each at its most likely place."""
    place_m3 = matched.place_m3
    document_m = matched.document_c[place_m3[:, 0]]
    marked_m3 = np.column_stack((place_m3[:, 0], *labels.tokens.within(document_m, *place_m3[:, 1:].T)))
    n_marked = len(matched.member_m5)
    sides = []
    for side in (1, 2):
        known_c = np.full(len(matched), -1, np.int64)
        known_c[marked_m3[n_marked:, 0]] = marked_m3[n_marked:, side]
        member_m3 = np.column_stack((matched.member_m5[:, :2], marked_m3[:n_marked, side]))
        sides.append(learn_borders(member_m3, 1 - q_cj[:, 0], known_c, len(labels.annotators)))

    def probability(span_e4: Indices) -> Floats:
        cluster, first, last, code = span_e4.T
        p_e: Floats = q_cj[cluster, 1 + code] * sides[0].at(cluster, first) * sides[1].at(cluster, last)
        return p_e

    p_m2 = np.column_stack([side.at(marked_m3[:, 0], marked_m3[:, 1 + s]) for s, side in enumerate(sides)])
    best_c2 = _best_borders(marked_m3, p_m2, len(matched))
    best_c4 = np.column_stack((np.arange(len(matched)), best_c2, q_cj[:, 1:].argmax(axis=1)))
    chosen_c = _best_apart(matched.document_c, best_c2, q_cj[:, 0])
    marked_m4 = np.column_stack((marked_m3[:n_marked], matched.member_m5[:, 4]))
    marked_e4, count_e = np.unique(marked_m4, axis=0, return_counts=True)
    count_of = dict(zip(map(tuple, marked_e4.tolist()), count_e.tolist(), strict=True))
    found = set(map(tuple, best_c4[chosen_c].tolist()))
    span_e4 = np.unique(np.concatenate((marked_e4, best_c4[chosen_c])), axis=0)
    rows = zip(map(tuple, span_e4.tolist()), probability(span_e4).tolist(), strict=True)
    parts = [
        _text_part(labels, matched.classes[row[3]], row[1], row[2], p, count_of.get(row, 0), row in found)
        for row, p in rows
    ]
    return tuple(parts), chosen_c, probability(best_c4)


def _text_part(labels: SpanLabels, label: Name, first: int, last: int, p: float, marked: int, found: bool) -> Part:
    tokens, texts = labels.tokens, labels.texts or ()
    document = int(tokens.document_t[first])
    start, end = int(tokens.start_t[first]), int(tokens.end_t[last - 1])
    place = {"start": start, "end": end, "text": writable(texts[document][start:end])}
    return Part(labels.documents[document], label, place, p, marked, int(labels.answers_d[document]), found)


def _best_borders(marked_m3: Indices, p_m2: Floats, n_clusters: int) -> Indices:
    """Return (C, 2) the most probable marked border of each side, or a marked pair if these would be no span."""

    def best(rank_m: Floats, ties: Sequence[Indices], column: slice) -> Indices:
        order = np.lexsort((*ties, -rank_m, marked_m3[:, 0]))
        first = np.flatnonzero(np.diff(marked_m3[order, 0], prepend=-1))
        return marked_m3[order[first], column]

    best_c2 = np.zeros((n_clusters, 2), np.int64)
    for side in range(2):
        best_c2[:, side] = best(p_m2[:, side], [marked_m3[:, 1 + side]], slice(1 + side, 2 + side))[:, 0]
    pair_c2 = best(p_m2.prod(axis=1), [marked_m3[:, 2], marked_m3[:, 1]], slice(1, 3))
    empty = best_c2[:, 0] >= best_c2[:, 1]
    best_c2[empty] = pair_c2[empty]
    return best_c2


def _best_apart(document_c: Indices, best_c2: Indices, nothing_c: Floats) -> Flags:
    """Return (C,) True for selected clusters: more likely a span than nothing, and without overlaps."""
    chosen_c = nothing_c < 0.5
    order = np.flatnonzero(chosen_c)
    order = order[np.lexsort((best_c2[order, 0], document_c[order]))]
    start, end, document = best_c2[order, 0], best_c2[order, 1], document_c[order]
    crowded = np.unique(document[1:][(start[1:] < end[:-1]) & (document[1:] == document[:-1])])
    odds_c = np.log1p(-nothing_c[order]) - np.log(np.maximum(nothing_c[order], 1e-300))
    for one in crowded.tolist():
        own = np.flatnonzero(document == one)
        kept = without_overlap(start[own].tolist(), end[own].tolist(), odds_c[own].tolist())
        chosen_c[np.delete(order[own], kept)] = False
    return chosen_c


def without_overlap(start: Sequence[int], end: Sequence[int], gain: Sequence[float]) -> list[int]:
    """Return which intervals to keep so that none overlap and the sum of gains (> 0) is largest; numbers in order.

    Example:
        >>> without_overlap([0, 2, 5], [3, 6, 8], [1.0, 1.5, 1.0])
        [0, 2]
    """
    order = sorted(range(len(start)), key=lambda number: (end[number], start[number]))
    ends = [end[number] for number in order]
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for place, number in enumerate(order):
        before = int(np.searchsorted(ends[:place], start[number], side="right"))
        total = best[before][0] + gain[number]
        best.append((total, [*best[before][1], number]) if total > best[-1][0] else best[-1])
    return sorted(best[-1][1])


# -- matched spans of time ---------------------------------------------------------------------------------


def _find_in_time(labels: SpanLabels, matched: MatchedSpans, q_cj: Floats) -> tuple[tuple[Part, ...], Flags, Floats]:
    """Return the same for recordings: one candidate per class marked in a cluster, all with the cluster's borders."""
    assert labels.border_v is not None
    document_c, nothing_c = matched.document_c, q_cj[:, 0]
    place_c2 = time_borders(matched, labels.border_v, 1 - nothing_c, len(labels.annotators))
    code_c = q_cj[:, 1:].argmax(axis=1)
    chosen_c = _most_probable_apart(document_c, labels.border_v[place_c2], nothing_c)
    movable = np.flatnonzero(chosen_c & ~labels.known_d[document_c])
    order = movable[np.lexsort((place_c2[movable, 0], document_c[movable]))]
    first, then = order[:-1], order[1:]
    over = (document_c[first] == document_c[then]) & (place_c2[first, 1] > place_c2[then, 0])
    place_c2[first[over], 1] = place_c2[then[over], 0]
    marked_e2, count_e = np.unique(matched.member_m5[:, [0, 4]], axis=0, return_counts=True)
    count_of = dict(zip(map(tuple, marked_e2.tolist()), count_e.tolist(), strict=True))
    found = set(map(tuple, np.column_stack((np.arange(len(matched)), code_c))[chosen_c].tolist()))
    starts, ends = labels.written(place_c2[:, 0]), labels.written(place_c2[:, 1])
    parts = [
        Part(
            labels.documents[document_c[c]],
            matched.classes[code],
            {"start": starts[c], "end": ends[c]},
            float(q_cj[c, 1 + code]),
            count_of.get((c, code), 0),
            int(labels.answers_d[document_c[c]]),
            (c, code) in found,
        )
        for c, code in sorted({*count_of, *found})
    ]
    return tuple(parts), chosen_c, q_cj[np.arange(len(matched)), 1 + code_c]


def _most_probable_apart(document_c: Indices, place_c2: Floats, nothing_c: Floats) -> Flags:
    """Return (C,) True for selected clusters: more likely a span than nothing, and not over a more probable one."""
    chosen_c = np.zeros(len(nothing_c), dtype=bool)
    chosen: dict[int, list[int]] = {}
    likely = np.flatnonzero(nothing_c < 0.5)
    for c in likely[np.argsort(nothing_c[likely], kind="stable")].tolist():
        others = chosen.setdefault(int(document_c[c]), [])
        if not any(share_half(place_c2[c], place_c2[other]) for other in others):
            others.append(c)
            chosen_c[c] = True
    return chosen_c


# -- chains of tokens --------------------------------------------------------------------------------------


def _fit_tokens(labels: SpanLabels, layer: int, method: Chained) -> LayerFit:
    tokens, matched = labels.token_layer(layer), labels.matched[layer]
    consensus = method.fit(tokens.evidence)
    posterior = method.chain_posterior(consensus, tokens.evidence)
    path = posterior.path
    return LayerFit(
        consensus,
        _report_of_classes(consensus.annotators, matched),
        _by_class(posterior.passed.q_nj[_most_marked(labels, matched)]),
        _of_whole_texts(labels, posterior, np.zeros_like(path)),
        tuple(_candidates(labels, tokens, posterior, path)),
        _of_whole_texts(labels, posterior, path),
    )


def _most_marked(labels: SpanLabels, matched: MatchedSpans) -> Indices:
    """Return (C,) the token of each cluster that most of its spans cover; ties go to the first."""
    place_m3 = matched.place_m3
    first, last = labels.tokens.within(matched.document_c[place_m3[:, 0]], *place_m3[:, 1:].T)
    # Coverage is highest where a span begins before any earlier span has ended.
    order = np.lexsort((first, place_m3[:, 0]))
    cluster, first, last = place_m3[order, 0], first[order], last[order]
    token_c = np.zeros(len(matched), np.int64)
    borders = np.searchsorted(cluster, np.arange(len(matched) + 1)).tolist()
    for c, (low, high) in enumerate(pairwise(borders)):
        begin, end = first[low:high], last[low:high]
        token_c[c] = begin[((begin[:, None] >= begin) & (begin[:, None] < end)).sum(axis=1).argmax()]
    return token_c


def _by_class(q_nj: Floats, axis: int = -1) -> Floats:
    """Sum B-class and I-class along an axis of O, B-class, I-class, ..."""
    # O is alone, followed by pairs: an empty class before O makes everything pairs.
    padded = np.insert(q_nj, 0, 0.0, axis=axis)
    summed: Floats = np.add.reduceat(padded, range(0, q_nj.shape[axis], 2), axis=axis)
    return summed


def _report_of_classes(report: AnnotatorReport, matched: MatchedSpans) -> AnnotatorReport:
    """Join B-class and I-class in the report of annotators."""
    classes = (NOTHING, *matched.classes)
    weighed = _by_class(_by_class(report.confusion * np.maximum(report.shares, 1e-12)[:, None]), axis=1)
    confusion = weighed / weighed.sum(axis=2, keepdims=True)
    concentration = _by_class(_by_class(report.concentration), axis=1)
    return AnnotatorReport(
        report.names, classes, classes, concentration, confusion, report.labels, _by_class(report.shares)
    )


def _of_whole_texts(labels: SpanLabels, posterior: ChainPosterior, path: Ints) -> Floats:
    """Return (D,) probability of this path of each text; 1 for a text without a token."""
    sequences = posterior.chain.sequences
    document = labels.tokens.document_t[sequences.rows[sequences.start[:-1]]]

    def as_on_path(event: int, message_tj: Floats) -> None:
        rows = sequences.rows[sequences.start[event] : sequences.start[event + 1]]
        message_tj[np.arange(message_tj.shape[1]) != path[rows][:, None]] = -np.inf

    probability = np.ones(len(labels.documents))
    probability[document] = posterior.probabilities(np.arange(len(document)), as_on_path)
    return probability


def _candidates(labels: SpanLabels, layer: TokenLayer, posterior: ChainPosterior, path: Ints) -> list[Part]:
    """Return spans of this layer on the path, and those that annotators marked, in texts with answers or truth."""
    document_t = labels.tokens.document_t
    marked = _marked_tokens(labels, layer.classes)
    on_path = {span for span in _spans_on(document_t, path) if labels.judged_d[document_t[span[0]]]}
    spans = sorted({*marked, *on_path})
    if not spans:
        return []
    span_e3, sequences = np.array(spans), posterior.chain.sequences
    first_token = sequences.rows[sequences.start[:-1]]
    sequence_e = np.searchsorted(document_t[first_token], document_t[span_e3[:, 0]])

    def is_there(event: int, message_tj: Floats) -> None:
        first, last, code = span_e3[event]
        begin, begins, goes_on = first_token[sequence_e[event]], 1 + 2 * code, 2 + 2 * code
        others = np.arange(message_tj.shape[1])
        message_tj[first - begin, others != begins] = -np.inf
        message_tj[first - begin + 1 : last - begin, others != goes_on] = -np.inf
        message_tj[last - begin : last - begin + 1, goes_on] = -np.inf

    return [
        _text_part(labels, layer.classes[span[2]], *span[:2], float(p), marked.get(span, 0), span in on_path)
        for span, p in zip(spans, posterior.probabilities(sequence_e, is_there), strict=True)
    ]


def _marked_tokens(labels: SpanLabels, classes: Sequence[Name]) -> Mapping[tuple[int, int, int], int]:
    """Count annotators per marked span, keyed by first token, one past the last, and class."""
    code_of = {labels.classes.index(name): code for code, name in enumerate(classes)}
    answer_s, start_s, end_s, class_s = labels.span_s4.T
    first, last = labels.tokens.within(labels.answer_a2[answer_s, 0], start_s, end_s)
    count: dict[tuple[int, int, int], int] = {}
    for begin, end, code in zip(first.tolist(), last.tolist(), class_s.tolist(), strict=True):
        if code in code_of:
            span = begin, end, code_of[code]
            count[span] = count.get(span, 0) + 1
    return count


def _spans_on(document_t: Indices, path: Ints) -> list[tuple[int, int, int]]:
    """Return first token, one past the last and class of the spans on a path. Ground truth may begin one inside."""
    begins = np.flatnonzero(path % 2 == 1)
    goes_on = (path > 0) & (path % 2 == 0)
    goes_on[1:] &= document_t[1:] == document_t[:-1]
    ends = np.flatnonzero(~goes_on)
    last = np.append(ends, len(path))[np.searchsorted(ends, begins, side="right")]
    return [(int(first), int(end), int(path[first] // 2)) for first, end in zip(begins, last, strict=True)]
