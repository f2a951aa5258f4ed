"""What annotators mark within items, be it parts of texts or stretches of recordings: what both have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Names
from hitl.errors import BadEvidence
from hitl.parts import Place
from hitl.texts.matched_spans import NOTHING, MatchedSpans, Places, matched

Indices = npt.NDArray[np.int64]

LARGEST = 2**53
"""Numbers from here on are not all floats: some that differ would be one place."""


class MarkedLabels(Protocol):
    """What annotators marked in D items: `SpanLabels` of texts, `TimelineLabels` of recordings.

    Starts and ends are whole numbers in the order of their places; `written` tells which places they stand for.
    """

    @property
    def documents(self) -> Names:
        """D names."""
        ...

    @property
    def texts(self) -> tuple[str, ...] | None:
        """D texts; None where the items are no texts."""
        ...

    @property
    def annotators(self) -> Names:
        """K names."""
        ...

    @property
    def kinds(self) -> Names:
        """What a span can be."""
        ...

    @property
    def answer_a2(self) -> Indices:
        """(A, 2) document and annotator of each answer, in order, each pair once."""
        ...

    @property
    def span_s4(self) -> Indices:
        """(S, 4) answer, start, end and kind of each span, in order."""
        ...

    @property
    def known_d(self) -> npt.NDArray[np.bool_]:
        """(D,) documents whose spans are known."""
        ...

    @property
    def truth_s4(self) -> Indices:
        """(S', 4) document, start, end and kind of each known span."""
        ...

    @property
    def time_a(self) -> Floats:
        """(A,) seconds since the epoch, NaN where unknown."""
        ...

    @property
    def duration_a(self) -> Floats:
        """(A,) seconds, NaN where unknown."""
        ...

    @property
    def merged(self) -> int:
        """How many spans were laid over others of their kind by the same annotator, and are one with them."""
        ...

    @property
    def kinds_apart(self) -> tuple[tuple[int, ...], ...]:
        """Codes of the kinds of each layer."""
        ...

    @property
    def matched(self) -> tuple[MatchedSpans, ...]:
        """For each layer, which spans of different annotators are about the same part."""
        ...

    @property
    def answers_d(self) -> Indices:
        """(D,) how many annotators answered each document."""
        ...

    @property
    def judged_d(self) -> npt.NDArray[np.bool_]:
        """(D,) documents that were answered, or whose spans are known."""
        ...

    def written(self, place: Indices) -> Sequence[Place]:
        """The places that these starts or ends stand for, as they are written."""
        ...


def layers_of_kinds(labels: MarkedLabels, place_v: Places | None = None) -> tuple[tuple[int, ...], ...]:
    """Codes of the kinds of each layer: one layer where no owner laid kinds over one another.

    With `place_v` (as for `matched`) only by more than half of the shorter one: borders on a time axis are seldom
    exact, and two stretches that follow each other may well overlap a little.

    Raises BadEvidence where there is no kind, or one has the name of the class that is none.
    """
    kinds = labels.kinds
    if not kinds:
        raise BadEvidence(
            "spans: no label was given yet, so that it is not known what a span can be; name the labels "
            "(source.classes in hitl.toml), or wait for the first span"
        )
    if NOTHING in kinds:
        raise BadEvidence(
            f"spans: a label is {NOTHING!r}, which is what an annotator says of a part that they left unmarked; give "
            "the label another name"
        )
    apart = _laid_over(labels.span_s4, place_v) | _laid_over(labels.truth_s4, place_v)
    layer_of: dict[int, int] = {}
    for kind in range(len(kinds)):
        taken = {layer for other, layer in layer_of.items() if {(kind, other), (other, kind)} & apart}
        layer_of[kind] = next(layer for layer in range(len(kinds)) if layer not in taken)
    return tuple(
        tuple(kind for kind in layer_of if layer_of[kind] == layer) for layer in sorted(set(layer_of.values()))
    )


def matched_layers(labels: MarkedLabels, place_v: Places | None = None) -> tuple[MatchedSpans, ...]:
    """For each layer, which spans of different annotators are about the same part; `place_v` as for `matched`."""
    document_a, annotator_a = labels.answer_a2.T
    answer_s = labels.span_s4[:, 0]
    own = np.column_stack((document_a[answer_s], annotator_a[answer_s], labels.span_s4[:, 1:]))
    span_s5 = np.concatenate((own, np.insert(labels.truth_s4, 1, -1, axis=1)))
    return tuple(_of_layer(labels, span_s5, kinds, place_v) for kinds in labels.kinds_apart)


def _of_layer(labels: MarkedLabels, span_s5: Indices, kinds: Sequence[int], place_v: Places | None) -> MatchedSpans:
    code = np.full(len(labels.kinds), -1)
    code[list(kinds)] = np.arange(len(kinds))
    span_s5 = span_s5[code[span_s5[:, 4]] >= 0]
    span_s5[:, 4] = code[span_s5[:, 4]]
    names = labels.documents, labels.annotators, tuple(labels.kinds[kind] for kind in kinds)
    return matched(span_s5, labels.answer_a2, labels.known_d, names, place_v)


def merged(spans: Iterable[tuple[int, int, int, int]]) -> tuple[Indices, int]:
    """(S, 4) owner, start, end, kind, in order; those of one owner and kind that overlap are one. How many merged."""
    kept: list[tuple[int, int, int, int]] = []
    whole = sorted(set(spans), key=lambda span: (span[0], span[3], span[1], span[2]))
    for owner, start, end, kind in whole:
        if kept and kept[-1][0] == owner and kept[-1][3] == kind and start < kept[-1][2]:
            kept[-1] = (owner, kept[-1][1], max(end, kept[-1][2]), kind)
        else:
            kept.append((owner, start, end, kind))
    return np.array(sorted(kept), np.int64).reshape(-1, 4), len(whole) - len(kept)


def number_of(place: Any) -> float:
    """A place as a number: a time in ISO 8601 is seconds since the epoch (UTC, where it names no zone).

    Raises ValueError for what is neither, and for a number beyond LARGEST.

    Example:
        >>> number_of(2.5), number_of("1970-01-01T00:01:00.5")
        (2.5, 60.5)
    """
    if isinstance(place, str):
        time = datetime.fromisoformat(place)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if isinstance(place, bool) or not isinstance(place, int | float) or not abs(place) < LARGEST:
        raise ValueError(f"{place!r} is no time; expected a number below 2**53, or a time in ISO 8601")
    return float(place)


def _laid_over(span_s4: Indices, place_v: Places | None) -> set[tuple[int, int]]:
    """Pairs of kinds of which one owner laid one over the other."""
    apart: set[tuple[int, int]] = set()
    owner, open_ = -1, list[tuple[int, int, int]]()
    for number, start, end, kind in span_s4.tolist():
        open_ = [one for one in open_ if one[1] > start] if number == owner else []
        apart |= {
            (other, kind)
            for begin, stop, other in open_
            if place_v is None or share_half(place_v[[begin, stop]], place_v[[start, end]])
        }
        owner = number
        open_.append((start, end, kind))
    return apart


def share_half(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> bool:
    """Whether two stretches (start, end) share more than half of the shorter one."""
    (begin, end), (start, stop) = one, other
    return bool(2 * (min(end, stop) - max(begin, start)) > min(end - begin, stop - start))
