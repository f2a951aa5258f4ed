"""Spans of texts by a method for items: which matched spans are there, of which kind, and where they begin and end.

    existence, kind   each cluster of matched spans is an item; any combiner says how probable each kind is, or nothing
    borders           `span_borders`, each side by itself
    p(span)         = p(kind) p(begins there) p(ends there)
    found             clusters that are more likely a span than nothing; of spans that overlap, those whose log odds sum
                      to the most
    missed            spans that none of a text's annotators marked (`missed_objects`)

A text is right with the probability that all of its spans are, and that nothing was overlooked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.combiner import Combiner, seen_by
from hitl.models.inference.missed_objects import chance_of_none, misses
from hitl.models.sequences.layer_spans import LayerSpans
from hitl.models.sequences.span_borders import Borders, borders, without_overlap
from hitl.parts import Part
from hitl.tables.encoding import writable
from hitl.texts.matched_spans import Indices, MatchedSpans
from hitl.texts.span_labels import SpanLabels

Mask = npt.NDArray[np.bool_]


def matched_span_fit(labels: SpanLabels, number: int, method: Combiner) -> LayerSpans:
    """The spans of one layer, by a combiner for items."""
    matched = labels.matched[number]
    consensus = method.fit(seen_by(method, matched.evidence))
    q_cj = consensus.probabilities[: len(matched)]
    marked_m3 = _in_tokens(labels, matched)
    sides = tuple(_borders(matched, marked_m3, place, 1 - q_cj[:, 0], len(labels.annotators)) for place in (1, 2))
    best_c3 = np.column_stack((_best_places(marked_m3, sides, len(matched)), q_cj[:, 1:].argmax(axis=1)))
    p_c = _probability(q_cj, sides, np.column_stack((np.arange(len(matched)), best_c3)))
    chosen_c = _without_overlap(matched.document_c, best_c3, q_cj[:, 0])
    n = len(labels.documents)
    seen_d = np.bincount(matched.document_c, weights=1 - q_cj[:, 0], minlength=n).astype(np.float64)
    size_d = np.bincount(labels.tokens.document_t, minlength=n).astype(np.float64)
    nothing_d = chance_of_none(seen_d, size_d, labels.known_d, labels.answer_a2, misses(consensus.annotators))
    right_d = nothing_d.copy()
    np.multiply.at(right_d, matched.document_c, np.where(chosen_c, p_c, q_cj[:, 0]))
    marked_e4, count_e = _marked(matched, marked_m3)
    found_e4 = np.column_stack((np.flatnonzero(chosen_c), best_c3[chosen_c]))
    span_e4 = np.unique(np.concatenate((marked_e4, found_e4)), axis=0)
    probability_e = _probability(q_cj, sides, span_e4)
    is_found = _rows_in(span_e4, found_e4)
    counts = np.zeros(len(span_e4), np.int64)
    counts[_rows_in(span_e4, marked_e4)] = count_e
    spans = tuple(_spans(labels, matched, span_e4, probability_e, counts, is_found))
    return LayerSpans(consensus, consensus.annotators, q_cj, nothing_d, spans, right_d)


def _in_tokens(labels: SpanLabels, matched: MatchedSpans) -> Indices:
    """(M', 3) cluster, first token and one past the last of all marked spans, and then of the known ones."""
    known = np.flatnonzero(matched.known_c3[:, 2] >= 0)
    place_m3 = np.concatenate(
        (matched.member_m5[:, [0, 2, 3]], np.column_stack((known, matched.known_c3[known, :2]))), axis=0
    )
    first, last = labels.tokens.within(matched.document_c[place_m3[:, 0]], place_m3[:, 1], place_m3[:, 2])
    return np.column_stack((place_m3[:, 0], first, last))


def _borders(matched: MatchedSpans, marked_m3: Indices, place: int, weight_c: Floats, n_annotators: int) -> Borders:
    """Of one side: `place` is 1 for beginnings, 2 for ends."""
    n_marked = len(matched.member_m5)
    known_c = np.full(len(matched), -1, np.int64)
    known_c[marked_m3[n_marked:, 0]] = marked_m3[n_marked:, place]
    member_m3 = np.column_stack((matched.member_m5[:, :2], marked_m3[:n_marked, place]))
    return borders(member_m3, weight_c, known_c, n_annotators)


def _best_places(marked_m3: Indices, sides: tuple[Borders, ...], n_clusters: int) -> Indices:
    """(C, 2) the most probable of the marked borders of each side; a marked pair where these would be no span."""
    cluster_m = marked_m3[:, 0]
    p_m2 = np.column_stack([side.of(cluster_m, marked_m3[:, 1 + s]) for s, side in enumerate(sides)])
    best_c2 = np.zeros((n_clusters, 2), np.int64)
    for s in range(2):
        order = np.lexsort((marked_m3[:, 1 + s], -p_m2[:, s], cluster_m))
        first = np.flatnonzero(np.diff(cluster_m[order], prepend=-1))
        best_c2[:, s] = marked_m3[order[first], 1 + s]
    order = np.lexsort((marked_m3[:, 2], marked_m3[:, 1], -p_m2.prod(axis=1), cluster_m))
    pair_c2 = marked_m3[order[np.flatnonzero(np.diff(cluster_m[order], prepend=-1))], 1:]
    empty = best_c2[:, 0] >= best_c2[:, 1]
    best_c2[empty] = pair_c2[empty]
    return best_c2


def _probability(q_cj: Floats, sides: tuple[Borders, ...], span_e4: Indices) -> Floats:
    """(E,) of spans: cluster, first token, one past the last, kind."""
    cluster, first, last, kind = span_e4.T
    probability: Floats = q_cj[cluster, 1 + kind] * sides[0].of(cluster, first) * sides[1].of(cluster, last)
    return probability


def _without_overlap(document_c: Indices, best_c3: Indices, nothing_c: Floats) -> Mask:
    """(C,) which clusters are spans: more likely than nothing, and none over another."""
    chosen_c = nothing_c < 0.5
    order = np.flatnonzero(chosen_c)
    order = order[np.lexsort((best_c3[order, 0], document_c[order]))]
    start, end, document = best_c3[order, 0], best_c3[order, 1], document_c[order]
    crowded = np.unique(document[1:][(start[1:] < end[:-1]) & (document[1:] == document[:-1])])
    odds_c = np.log1p(-nothing_c[order]) - np.log(np.maximum(nothing_c[order], 1e-300))
    for one in crowded.tolist():
        own = np.flatnonzero(document == one)
        kept = without_overlap(start[own].tolist(), end[own].tolist(), odds_c[own].tolist())
        chosen_c[np.delete(order[own], kept)] = False
    return chosen_c


def _marked(matched: MatchedSpans, marked_m3: Indices) -> tuple[Indices, Indices]:
    """(E, 4) cluster, first token, one past the last and kind of what annotators marked; (E,) how many did."""
    n_marked = len(matched.member_m5)
    return np.unique(np.column_stack((marked_m3[:n_marked], matched.member_m5[:, 4])), axis=0, return_counts=True)


def _rows_in(row_e4: Indices, some_f4: Indices) -> Mask:
    """(E,) which rows are among some of them."""
    _, at = np.unique(np.concatenate((row_e4, some_f4)), axis=0, return_inverse=True)
    at = at.ravel()
    return np.isin(at[: len(row_e4)], at[len(row_e4) :])


def _spans(
    labels: SpanLabels, matched: MatchedSpans, span_e4: Indices, probability_e: Floats, count_e: Indices, found_e: Mask
) -> Iterator[Part]:
    tokens, answers_d = labels.tokens, labels.answers_d
    for (cluster, first, last, kind), p, count, found in zip(
        span_e4.tolist(), probability_e.tolist(), count_e.tolist(), found_e.tolist(), strict=True
    ):
        document = int(matched.document_c[cluster])
        start, end = int(tokens.start_t[first]), int(tokens.end_t[last - 1])
        yield Part(
            labels.documents[document],
            matched.kinds[kind],
            {"start": start, "end": end, "text": writable(labels.texts[document][start:end])},
            p,
            count,
            int(answers_d[document]),
            found,
        )
