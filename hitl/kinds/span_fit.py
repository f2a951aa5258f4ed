"""Fit the spans of one layer, and the probability of each.

With a method for items, each cluster of matched spans is an item, and the method gives the probabilities of the classes
and of nothing. By default they come from the spans that annotators miss and invent (`latent_spans`), and answers count
for less by the design effect that the default combiner measures on the clusters.

    texts        p(span) = p(class) p(this start) p(this end). Of overlapping spans, a subset without overlaps is
                 selected: the one with the largest sum of log odds.
    recordings   p(span) = p(class), because borders on a time axis are only more or less right. Of two spans that share
                 more than half of the shorter one, the more probable is selected. If two overlap by less, the first
                 ends where the second begins.
    missed       The probability that an item has spans, if no annotator marked any, comes from
                 `hitl.models.inference.missed_objects`, by default with the misses of `latent_spans`.

Only clusters that are more likely a span than nothing are selected.

With a method for sequences (such as `bsc_seq`) the classes of the tokens of a text are a chain:

    selected     spans on the most probable path of each text (Viterbi)
    p(span)    = p(z_first = B, z = I from there to its end, z_end is not I | all labels of the text)

z are the true classes of the tokens. p(span) is computed by forward passes in which these classes are fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from hitl.annotations import Floats, Ints, Name
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.kinds.kind import NOTHING
from hitl.kinds.latent_spans import learn_spans
from hitl.kinds.matching import Flags, Indices, Matched, fit_clusters, without_missed
from hitl.kinds.span_borders import learn_borders, time_borders
from hitl.kinds.span_labels import SpanLabels, share_half
from hitl.models.combiner import Combiner
from hitl.models.default import DefaultCombiner
from hitl.models.sequences.learned_chain import ChainPosterior
from hitl.parts import Part
from hitl.tables.encode import writable


@dataclass(frozen=True, eq=False)
class LayerFit:
    """Fit of one layer.

    Attributes:
        consensus: consensus on the clusters of matched spans, or on tokens.
        annotators: report on annotators, with "(nothing)" and the classes of the layer.
        q_cj: (C, J) class probabilities of the clusters in `SpanLabels.matched`.
        nothing_n: (N,) probability that an item has no span; it applies to items in which nothing was marked.
        parts: spans of the consensus, and all other spans that an annotator marked.
    """

    consensus: Consensus
    annotators: AnnotatorReport
    q_cj: Floats
    nothing_n: Floats
    parts: tuple[Part, ...]


@runtime_checkable
class Chained(Combiner, Protocol):
    """Combiner that provides the posterior of whole sequences."""

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """Return the learned chain, with the log likelihoods of the items."""
        ...


def fit_layer(labels: SpanLabels, layer: int, method: Combiner) -> LayerFit:
    """Fit one layer. Raise BadSettings if the items are recordings and the method is for sequences."""
    if isinstance(method, Chained):
        if labels.texts is None:
            raise BadSettings(
                f"method: {type(method).__name__} is a method for sequences of tokens, which recordings do not have; "
                'expected a method for items, or "default"'
            )
        return _fit_tokens(labels, layer, method)
    matched = labels.matched[layer]
    size_n: Floats = np.ones(len(labels.items))  # all recordings count as equally large
    if labels.texts is not None:
        size_n = np.bincount(labels.tokens.item_t, minlength=len(size_n)).astype(np.float64)
    consensus, q_cj, nothing_n = fit_clusters(matched, method, size_n)
    if isinstance(method, DefaultCombiner) and len(matched):
        latent = learn_spans(matched, size_n)
        known_c = labels.known_n[matched.item_c]
        q_cj = latent.tempered(consensus.design_effect, labels.answers_n[matched.item_c], known_c)
        nothing_n = without_missed(matched, q_cj, size_n, latent.misses_k)
    find = _find_in_time if labels.texts is None else _find_in_texts
    return LayerFit(consensus, consensus.annotators, q_cj, nothing_n, find(labels, matched, q_cj))


# -- matched spans of texts --------------------------------------------------------------------------------


def _find_in_texts(labels: SpanLabels, matched: Matched, q_cj: Floats) -> tuple[Part, ...]:
    known = np.flatnonzero(matched.known_c >= 0)
    cluster_m = np.concatenate((matched.cluster_m, known))  # marked spans, and then the known ones
    place_m2 = np.concatenate((matched.place_md, matched.known_place_cd[known]))
    place_m2 = np.column_stack(labels.tokens.within(matched.item_c[cluster_m], *place_m2.T))
    marked, sides = slice(len(matched.cluster_m)), []
    for side in range(2):
        known_c = np.full(len(matched), -1, np.int64)
        known_c[known] = place_m2[len(matched.cluster_m) :, side]
        member_m3 = np.column_stack((matched.cluster_m, matched.annotator_m, place_m2[marked, side]))
        sides.append(learn_borders(member_m3, 1 - q_cj[:, 0], known_c, len(labels.annotators)))

    p_m2 = np.column_stack([side.at(cluster_m, place_m2[:, s]) for s, side in enumerate(sides)])
    best_c2 = _best_borders(cluster_m, place_m2, p_m2, len(matched))
    best_c4 = np.column_stack((np.arange(len(matched)), best_c2, q_cj[:, 1:].argmax(axis=1)))
    chosen_c = _best_apart(matched.item_c, best_c2, q_cj[:, 0])
    marked_m4 = np.column_stack((matched.cluster_m, place_m2[marked], matched.label_m))
    count_of, chosen = Counter(map(tuple, marked_m4.tolist())), set(map(tuple, best_c4[chosen_c].tolist()))
    span_e4 = np.unique(np.concatenate((marked_m4, best_c4[chosen_c])), axis=0)
    cluster, first, last, code = span_e4.T
    p_e = q_cj[cluster, 1 + code] * sides[0].at(cluster, first) * sides[1].at(cluster, last)
    rows = zip(map(tuple, span_e4.tolist()), p_e.tolist(), strict=True)
    return tuple(
        _text_part(labels, matched.classes[row[3]], row[1], row[2], p, count_of[row], row in chosen) for row, p in rows
    )


def _text_part(labels: SpanLabels, label: Name, first: int, last: int, p: float, marked: int, found: bool) -> Part:
    tokens, texts = labels.tokens, labels.texts or ()
    item = int(tokens.item_t[first])
    start, end = int(tokens.start_t[first]), int(tokens.end_t[last - 1])
    place = {"start": start, "end": end, "text": writable(texts[item][start:end])}
    return Part(labels.items[item], label, place, p, marked, int(labels.answers_n[item]), found)


def _best_borders(cluster_m: Indices, place_m2: Indices, p_m2: Floats, n_clusters: int) -> Indices:
    """Return (C, 2) the most probable marked start and end, or the best marked pair if these two are not in order."""

    def best(rank_m: Floats, place: Indices) -> Indices:
        order = np.lexsort((*place.T[::-1], -rank_m, cluster_m))
        first: Indices = place[order[np.flatnonzero(np.diff(cluster_m[order], prepend=-1))]]
        return first

    best_c2 = np.zeros((n_clusters, 2), np.int64)
    for side in range(2):
        best_c2[:, [side]] = best(p_m2[:, side], place_m2[:, [side]])
    empty = best_c2[:, 0] >= best_c2[:, 1]
    best_c2[empty] = best(p_m2.prod(axis=1), place_m2)[empty]
    return best_c2


def _best_apart(item_c: Indices, best_c2: Indices, nothing_c: Floats) -> Flags:
    """Return (C,) True for selected clusters: more likely a span than nothing, and not overlapping."""
    chosen_c = nothing_c < 0.5
    order = np.flatnonzero(chosen_c)
    order = order[np.lexsort((best_c2[order, 0], item_c[order]))]
    start, end, item = best_c2[order, 0], best_c2[order, 1], item_c[order]
    crowded = np.unique(item[1:][(start[1:] < end[:-1]) & (item[1:] == item[:-1])])
    odds_c = np.log1p(-nothing_c[order]) - np.log(np.maximum(nothing_c[order], 1e-300))
    for one in crowded.tolist():
        own = np.flatnonzero(item == one)
        best = without_overlap(start[own].tolist(), end[own].tolist(), odds_c[own].tolist())
        chosen_c[np.delete(order[own], best)] = False
    return chosen_c


def without_overlap(start: Sequence[int], end: Sequence[int], gain: Sequence[float]) -> list[int]:
    """Return the numbers, sorted, of intervals to keep: they do not overlap, and their sum of gains (> 0) is largest.

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


def _find_in_time(labels: SpanLabels, matched: Matched, q_cj: Floats) -> tuple[Part, ...]:
    """Return one part per cluster and class that was marked or selected, with the cluster's borders."""
    assert labels.border_v is not None
    item_c, nothing_c = matched.item_c, q_cj[:, 0]
    place_c2 = time_borders(matched, labels.border_v, 1 - nothing_c, len(labels.annotators))
    time_c2, code_c = labels.border_v[place_c2], q_cj[:, 1:].argmax(axis=1)
    chosen_c = np.zeros(len(matched), dtype=bool)
    chosen: dict[int, list[int]] = {}
    likely = np.flatnonzero(nothing_c < 0.5)
    for c in likely[np.argsort(nothing_c[likely], kind="stable")].tolist():
        others = chosen.setdefault(int(item_c[c]), [])
        if not any(share_half(time_c2[c], time_c2[other]) for other in others):
            others.append(c)
            chosen_c[c] = True
    movable = np.flatnonzero(chosen_c & ~labels.known_n[item_c])
    order = movable[np.lexsort((place_c2[movable, 0], item_c[movable]))]
    first, then = order[:-1], order[1:]
    over = (item_c[first] == item_c[then]) & (place_c2[first, 1] > place_c2[then, 0])
    place_c2[first[over], 1] = place_c2[then[over], 0]
    count_of = Counter(zip(matched.cluster_m.tolist(), matched.label_m.tolist(), strict=True))
    consensus = set(zip(np.flatnonzero(chosen_c).tolist(), code_c[chosen_c].tolist(), strict=True))
    starts, ends = labels.written(place_c2[:, 0]), labels.written(place_c2[:, 1])
    return tuple(
        Part(
            labels.items[item_c[c]],
            matched.classes[code],
            {"start": starts[c], "end": ends[c]},
            float(q_cj[c, 1 + code]),
            count_of[c, code],
            int(labels.answers_n[item_c[c]]),
            (c, code) in consensus,
        )
        for c, code in sorted({*count_of, *consensus})
    )


# -- chains of tokens --------------------------------------------------------------------------------------


def _fit_tokens(labels: SpanLabels, layer: int, method: Chained) -> LayerFit:
    evidence, matched = labels.token_evidence(layer), labels.matched[layer]
    consensus = method.fit(evidence)
    posterior = method.chain_posterior(consensus, evidence)
    return LayerFit(
        consensus,
        _report_of_classes(consensus.annotators, matched),
        _by_class(posterior.passed.q_nj[_most_marked(labels, matched)]),
        _nothing_in_texts(labels, posterior),
        tuple(_candidates(labels, matched.classes, posterior, posterior.path)),
    )


def _most_marked(labels: SpanLabels, matched: Matched) -> Indices:
    """Return (C,) the token of each cluster that most of its spans cover; ties go to the first."""
    known = np.flatnonzero(matched.known_c >= 0)
    cluster = np.concatenate((matched.cluster_m, known))
    place_m2 = np.concatenate((matched.place_md, matched.known_place_cd[known]))
    first, last = labels.tokens.within(matched.item_c[cluster], *place_m2.T)
    # Coverage is highest where a span begins before any earlier span has ended.
    order = np.lexsort((first, cluster))
    cluster, first, last = cluster[order], first[order], last[order]
    token_c = np.zeros(len(matched), np.int64)
    for c, (low, high) in enumerate(pairwise(np.searchsorted(cluster, np.arange(len(matched) + 1)).tolist())):
        begin, end = first[low:high], last[low:high]
        token_c[c] = begin[((begin[:, None] >= begin) & (begin[:, None] < end)).sum(axis=1).argmax()]
    return token_c


def _by_class(q_nj: Floats, axis: int = -1) -> Floats:
    """Sum B-class and I-class along an axis of O, B-class, I-class, ..."""
    # An empty class before O makes all classes pairs: O has no partner, every other class has two.
    padded = np.insert(q_nj, 0, 0.0, axis=axis)
    summed: Floats = np.add.reduceat(padded, range(0, q_nj.shape[axis], 2), axis=axis)
    return summed


def _report_of_classes(report: AnnotatorReport, matched: Matched) -> AnnotatorReport:
    """Merge B-class and I-class in the report on annotators."""
    classes = (NOTHING, *matched.classes)
    weighed = _by_class(_by_class(report.confusion * np.maximum(report.shares, 1e-12)[:, None]), axis=1)
    confusion = weighed / weighed.sum(axis=2, keepdims=True)
    concentration = _by_class(_by_class(report.concentration), axis=1)
    shares = _by_class(report.shares)
    return AnnotatorReport(report.names, classes, classes, concentration, confusion, report.labels, shares)


def _nothing_in_texts(labels: SpanLabels, posterior: ChainPosterior) -> Floats:
    """Return (N,) probability that a text has no span: all of its tokens are O."""
    sequences = posterior.chain.sequences
    item = labels.tokens.item_t[sequences.rows[sequences.start[:-1]]]

    def all_outside(_: int, message_tj: Floats) -> None:
        message_tj[:, 1:] = -np.inf

    probability = np.ones(len(labels.items))
    probability[item] = posterior.probabilities(np.arange(len(item)), all_outside)
    return probability


def _candidates(labels: SpanLabels, classes: Sequence[Name], posterior: ChainPosterior, path: Ints) -> list[Part]:
    """Return spans that annotators marked, and spans on the path in texts that have answers or ground truth."""
    item_t = labels.tokens.item_t
    code_of = {labels.classes.index(name): code for code, name in enumerate(classes)}
    tokens = labels.tokens.within(labels.item_s, *labels.span_s4[:, 1:3].T)
    columns = (column.tolist() for column in (*tokens, labels.span_s4[:, 3]))
    marked = Counter((*span, code_of[code]) for *span, code in zip(*columns, strict=True) if code in code_of)
    on_path = {span for span in _spans_on(item_t, path) if labels.judged_n[item_t[span[0]]]}
    spans = sorted({*marked, *on_path})
    if not spans:
        return []
    span_e3, sequences = np.array(spans), posterior.chain.sequences
    first_token = sequences.rows[sequences.start[:-1]]
    sequence_e = np.searchsorted(item_t[first_token], item_t[span_e3[:, 0]])

    def is_there(event: int, message_tj: Floats) -> None:
        first, last, code = span_e3[event]
        begin, begins, goes_on = first_token[sequence_e[event]], 1 + 2 * code, 2 + 2 * code
        others = np.arange(message_tj.shape[1])
        message_tj[first - begin, others != begins] = -np.inf
        message_tj[first - begin + 1 : last - begin, others != goes_on] = -np.inf
        message_tj[last - begin : last - begin + 1, goes_on] = -np.inf

    return [
        _text_part(labels, classes[span[2]], span[0], span[1], float(p), marked[span], span in on_path)
        for span, p in zip(spans, posterior.probabilities(sequence_e, is_there), strict=True)
    ]


def _spans_on(item_t: Indices, path: Ints) -> list[tuple[int, int, int]]:
    """Return first token, one past the last token, and class of the spans on a path."""
    begins = np.flatnonzero(path % 2 == 1)
    goes_on = (path > 0) & (path % 2 == 0)
    goes_on[1:] &= item_t[1:] == item_t[:-1]
    ends = np.flatnonzero(~goes_on)
    last = np.append(ends, len(path))[np.searchsorted(ends, begins, side="right")]
    return [(int(first), int(end), int(path[first] // 2)) for first, end in zip(begins, last, strict=True)]
