"""Stretches of recordings by a method for items: which are there, of which kind, and where they begin and end.

    existence, kind   each cluster of matched stretches is an item; any combiner says how probable each kind is, or
                      nothing
    borders           each is the weighted lower median of the members' borders, so that it is one that somebody set;
                      annotator k weighs 1 / s_k (`segment_borders`)
    p(stretch)      = p(kind): borders on a time axis are right by degrees
    found             clusters that are more likely a stretch than nothing; of two that share more than half of the
                      shorter one the more probable; where two overlap by less, the first ends where the second begins
    missed            as for texts (`missed_objects`), with recordings of one size

A recording is right with the probability that all of its stretches are there, and that none was overlooked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.combiner import Combiner, seen_by
from hitl.models.inference.missed_objects import chance_of_none, misses
from hitl.models.sequences.layer_spans import LayerSpans
from hitl.models.sequences.segment_borders import segment_borders
from hitl.parts import Part
from hitl.texts.marked_labels import share_half
from hitl.texts.matched_spans import Indices, MatchedSpans
from hitl.timelines.timeline_labels import TimelineLabels


def segment_fit(labels: TimelineLabels, number: int, method: Combiner) -> LayerSpans:
    """The stretches of one layer, by a combiner for items."""
    matched = labels.matched[number]
    consensus = method.fit(seen_by(method, matched.evidence))
    q_cj = consensus.probabilities[: len(matched)]
    nothing_c = q_cj[:, 0]
    place_c2 = segment_borders(matched, labels.place_v, 1 - nothing_c, len(labels.annotators))
    best_c3 = np.column_stack((place_c2, q_cj[:, 1:].argmax(axis=1)))
    chosen_c = _found(matched.document_c, labels.place_v[place_c2], nothing_c)
    _cut(matched.document_c, best_c3, np.flatnonzero(chosen_c & ~labels.known_d[matched.document_c]))
    n = len(labels.documents)
    seen_d = np.bincount(matched.document_c, weights=1 - nothing_c, minlength=n).astype(np.float64)
    nothing_d = chance_of_none(seen_d, np.ones(n), labels.known_d, labels.answer_a2, misses(consensus.annotators))
    right_d = nothing_d.copy()
    p_c = q_cj[np.arange(len(matched)), 1 + best_c3[:, 2]]
    np.multiply.at(right_d, matched.document_c, np.where(chosen_c, p_c, nothing_c))
    spans = tuple(_spans(labels, matched, best_c3, q_cj, np.flatnonzero(chosen_c)))
    return LayerSpans(consensus, consensus.annotators, q_cj, nothing_d, spans, right_d)


def _found(document_c: Indices, place_c2: Floats, nothing_c: Floats) -> npt.NDArray[np.bool_]:
    """(C,) which clusters are stretches: more likely than nothing, and none over a more probable one."""
    chosen_c = np.zeros(len(nothing_c), dtype=bool)
    kept: dict[int, list[int]] = {}
    likely = np.flatnonzero(nothing_c < 0.5)
    for c in likely[np.argsort(nothing_c[likely], kind="stable")].tolist():
        own = kept.setdefault(int(document_c[c]), [])
        if not any(share_half(place_c2[c], place_c2[other]) for other in own):
            own.append(c)
            chosen_c[c] = True
    return chosen_c


def _cut(document_c: Indices, best_c3: Indices, chosen: Indices) -> None:
    """Let each of the chosen clusters end where the next one begins, if it is still going on then."""
    order = chosen[np.lexsort((best_c3[chosen, 0], document_c[chosen]))]
    first, then = order[:-1], order[1:]
    over = (document_c[first] == document_c[then]) & (best_c3[first, 1] > best_c3[then, 0])
    best_c3[first[over], 1] = best_c3[then[over], 0]


def _spans(
    labels: TimelineLabels, matched: MatchedSpans, best_c3: Indices, q_cj: Floats, chosen: Indices
) -> Iterator[Part]:
    """One for each kind that annotators marked of a cluster, and that of the consensus, all with its borders."""
    marked_e2, count_e = np.unique(matched.member_m5[:, [0, 4]], axis=0, return_counts=True)
    marked = dict(zip(map(tuple, marked_e2.tolist()), count_e.tolist(), strict=True))
    found = set(map(tuple, np.column_stack((chosen, best_c3[chosen, 2])).tolist()))
    starts, ends = labels.written(best_c3[:, 0]), labels.written(best_c3[:, 1])
    for cluster, kind in sorted({*marked, *found}):
        document = int(matched.document_c[cluster])
        yield Part(
            labels.documents[document],
            matched.kinds[kind],
            {"start": starts[cluster], "end": ends[cluster]},
            float(q_cj[cluster, 1 + kind]),
            marked.get((cluster, kind), 0),
            int(labels.answers_d[document]),
            (cluster, kind) in found,
        )
