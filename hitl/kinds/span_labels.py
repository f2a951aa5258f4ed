"""Spans that annotators marked (`SpanLabels`), and for texts the token classes that follow from them.

    text        Ada    met  Bob        spans                           recording  0 s          60 s        120 s
    ann         B-PER  O    B-PER      (0, 3, PER), (8, 11, PER)       ann        [ walk       ][ run      ]
    bob         B-PER  O    O          (0, 3, PER)                     bob          [ walk    ]  [ run       ]

Offsets in a text count characters from 0, and the end is one past the last character. White space at the ends of a span
is removed. Spans of a recording are half-open stretches of time: numbers, or times in ISO 8601.

Tokens are words and punctuation marks, cut again wherever a span begins or ends. So every span consists of complete
tokens, and the consensus can have the borders of any annotator.

If one annotator marked overlapping spans of two classes, such as a city in the name of a company, the classes are in
different layers. In recordings, the overlap must be more than half of the shorter span. Overlapping spans of one class
by one annotator are merged into one span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints, Name, Names
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted, listed
from hitl.kinds.kind import NOTHING
from hitl.kinds.matching import Answers, Flags, Indices, Marks, Matched, link, match, within_groups
from hitl.parts import Place, number_of
from hitl.tables.encode import natural_order

Span = tuple[Any, Any, Name]
"""Start, end and class of a span."""

WORDS = re.compile(r"\w+|[^\w\s]")
"""A word, or a single punctuation mark."""

FAR = 2**32
"""More characters than any text has, so that item * FAR + offset orders all offsets of all texts."""

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Answer:
    """Spans that one annotator marked in one item. Time (since the epoch) and duration in seconds; NaN if unknown."""

    item: Name
    annotator: Name
    spans: Sequence[Span]
    time: float = np.nan
    duration: float = np.nan


@dataclass(frozen=True, eq=False)
class Tokens:
    """T tokens of all texts, sorted. (T,) item of each token, its first character, and one past its last character."""

    item_t: Indices
    start_t: Indices
    end_t: Indices

    @classmethod
    def split(cls, texts: Sequence[str], cut_c: Indices) -> Tokens:
        """Split texts into words and punctuation marks, and split these again at `cut_c` (item * FAR + offset)."""
        words = [
            (number * FAR + word.start(), number * FAR + word.end())
            for number, text in enumerate(texts)
            for word in WORDS.finditer(text)
        ]
        start, end = np.array(words, np.int64).reshape(-1, 2).T
        word = np.searchsorted(start, cut_c, side="right") - 1
        cut = cut_c[(word >= 0) & (start[word] < cut_c) & (cut_c < end[word])] if len(start) else cut_c[:0]
        start, end = np.union1d(start, cut), np.union1d(end, cut)
        return cls(start // FAR, start % FAR, end % FAR)

    def __len__(self) -> int:
        return len(self.start_t)

    def within(self, item: Indices, start: Indices, end: Indices) -> tuple[Indices, Indices]:
        """Return the first token of each span, and one past its last token."""
        begin_t = self.item_t * FAR + self.start_t
        return np.searchsorted(begin_t, item * FAR + start), np.searchsorted(begin_t, item * FAR + end)


@dataclass(frozen=True, eq=False, repr=False)
class SpanLabels(Answers, OneLineRepr):
    """Spans that annotators marked in texts or recordings.

    Attributes:
        texts: the N texts, None if the items are recordings.
        classes: possible classes of a span.
        span_s4: (S, 4) answer, start, end and class of each span, sorted. Starts and ends are characters of a text, or
            ranks among all borders of recordings.
        truth_s4: (S', 4) item, start, end and class of each known span.
        merged: number of spans that were merged into overlapping spans of the same class and annotator.
        border_v: (V,) distinct borders of recordings, sorted. Times in ISO 8601 are in seconds since the epoch.
        written_v: the same V borders as they were written.

    Example:
        >>> from hitl.kinds.span_labels import Answer, SpanLabels
        >>> answers = [Answer("a", "ann", [(0, 3, "PER")]), Answer("a", "bob", [(0, 7, "PER")])]
        >>> labels = SpanLabels.from_texts({"a": "Ada met Bob"}, answers)
        >>> labels.matched[0].votes.annotations.items
        ('a[0:3]',)
    """

    texts: tuple[str, ...] | None
    classes: Names
    span_s4: Indices
    truth_s4: Indices
    merged: int = 0
    border_v: Floats | None = None
    written_v: tuple[Place, ...] = ()

    @classmethod
    def from_texts(
        cls,
        texts: Mapping[Name, str],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]] | None = None,
        classes: Names = (),
    ) -> SpanLabels:
        """Build from item -> text, answers, and item -> known spans.

        Of several answers by an annotator to an item, the last counts. `classes` come first, then other classes that
        occur, in natural order.
        """
        whole = tuple(texts.values())
        labels = cls._placed(tuple(texts), answers, truth or {}, classes, lambda n, *span: trimmed(whole[n], *span))
        return replace(labels, texts=whole)

    @classmethod
    def from_recordings(
        cls,
        items: Iterable[Name],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]] | None = None,
        classes: Names = (),
    ) -> SpanLabels:
        """Build from recordings, as `from_texts` does from texts. Raise ValueError for a border that is not a time."""
        written: dict[float, Place] = {}
        for spans in (*(answer.spans for answer in answers), *(truth or {}).values()):
            for border in (border for span in spans for border in span[:2]):
                written.setdefault(number_of(border), border)
        ordered = sorted(written)
        rank = {border: v for v, border in enumerate(ordered)}

        def place(_: int, start: Place, end: Place) -> tuple[int, int] | None:
            first, last = rank[number_of(start)], rank[number_of(end)]
            return (first, last) if first < last else None

        labels = cls._placed(tuple(items), answers, truth or {}, classes, place)
        return replace(labels, border_v=np.array(ordered), written_v=tuple(written[border] for border in ordered))

    @classmethod
    def _placed(
        cls,
        items: Names,
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]],
        classes: Names,
        place: Callable[[int, Any, Any], tuple[int, int] | None],
    ) -> SpanLabels:
        seen = [label for spans in (*(answer.spans for answer in answers), *truth.values()) for *_, label in spans]
        classes = tuple(dict.fromkeys([*classes, *natural_order(list(dict.fromkeys(seen)))]))
        annotators = tuple(dict.fromkeys(answer.annotator for answer in answers))
        item_of, annotator_of, class_of = (
            {name: n for n, name in enumerate(names)} for names in (items, annotators, classes)
        )
        truth = {  # of an item with a span that has no place, the truth is not known
            name: spans for name, spans in truth.items() if all(place(item_of[name], *span[:2]) for span in spans)
        }
        last = {(item_of[answer.item], annotator_of[answer.annotator]): answer for answer in answers}
        ordered = [last[pair] for pair in sorted(last)]

        def placed(owned: Iterable[tuple[int, Name, Sequence[Span]]]) -> Iterator[tuple[int, int, int, int]]:
            for owner, item, spans in owned:
                for start, end, label in spans:
                    sides = place(item_of[item], start, end)
                    if sides is not None:  # within the item, and not empty
                        yield owner, *sides, class_of[label]

        span_s4, merged = _merged(placed((a, one.item, one.spans) for a, one in enumerate(ordered)))
        truth_s4, _ = _merged(placed((item_of[name], name, spans) for name, spans in truth.items()))
        return cls(
            items,
            annotators,
            np.array(sorted(last), np.int64).reshape(-1, 2),
            np.isin(np.arange(len(items)), [item_of[name] for name in truth]),
            np.array([one.time for one in ordered]),
            np.array([one.duration for one in ordered]),
            None,
            classes,
            span_s4,
            truth_s4,
            merged,
        )

    def __str__(self) -> str:
        what, number = ("recording" if self.texts is None else "text"), len(self.span_s4)
        answers = f"{counted(len(self.answer_a2), 'answer')} by {counted(len(self.annotators), 'annotator')}"
        spans = f"{counted(number, 'span')} of {listed(self.classes)}"
        if self.texts is None:
            spans = f"{number} stretch{'' if number == 1 else 'es'} of time: {listed(self.classes)}"
        known = f"; known {'stretches' if self.texts is None else 'spans'} of {counted(int(self.known_n.sum()), what)}"
        return f"{counted(len(self.items), what)}, {answers}: {spans}{known if self.known_n.any() else ''}"

    @property
    def judged_n(self) -> Flags:
        """(N,) True for items that have an answer or whose spans are known."""
        judged: Flags = self.known_n | (self.answers_n > 0)
        return judged

    @property
    def item_s(self) -> Indices:
        """(S,) item of each span."""
        items: Indices = self.answer_a2[self.span_s4[:, 0], 0]
        return items

    def written(self, border: Indices) -> list[Any]:
        """Return starts or ends as annotators wrote them."""
        return border.tolist() if self.texts is not None else [self.written_v[rank] for rank in border]

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Codes of the classes in each layer. There is one layer if no spans of different classes overlap.

        Raise BadEvidence if there is no class, or one has the reserved name "(nothing)".
        """
        if not self.classes:
            raise BadEvidence(
                "spans: no label was given yet, so that it is not known what a span can be; name the labels "
                "(source.classes in hitl.toml), or wait for the first span"
            )
        if NOTHING in self.classes:
            raise BadEvidence(
                f"spans: a label is {NOTHING!r}, which is what an annotator says of a part that they left unmarked; "
                "give the label another name"
            )
        apart = _laid_over(self.span_s4, self.border_v) | _laid_over(self.truth_s4, self.border_v)
        layers: list[list[int]] = []
        for code in range(len(self.classes)):
            free = (layer for layer in layers if not any({(code, other), (other, code)} & apart for other in layer))
            layer = next(free, None)
            if layer is None:
                layers.append(layer := [])
            layer.append(code)
        return tuple(map(tuple, layers))

    @cached_property
    def matched(self) -> tuple[Matched, ...]:
        """Matched spans of different annotators, for each layer; a place is start and end."""
        marked = np.column_stack((self.answer_a2[self.span_s4[:, 0]], self.span_s4[:, 1:]))
        span_s5 = np.concatenate((marked, np.insert(self.truth_s4, 1, -1, axis=1)))
        span_s5 = span_s5[np.lexsort((span_s5[:, 1], *span_s5[:, :1:-1].T, span_s5[:, 0]))]
        return tuple(self._matched(codes, span_s5[np.isin(span_s5[:, 4], codes)]) for codes in self.layers)

    def _matched(self, codes: tuple[int, ...], span_s5: Indices) -> Matched:
        """Match (S, 5) item, annotator, start, end and class of the spans of one layer."""
        label_s = np.searchsorted(codes, span_s5[:, 4])
        # Equal spans are in one cluster from the start: no others overlap as much, and no annotator has two of them in
        # one layer.
        place_p3, place_s = np.unique(span_s5[:, [0, 2, 3]], axis=0, return_inverse=True)
        item, start, end = place_p3.T
        far = int(end.max(initial=0)) + 1
        count = np.searchsorted(item * far + start, item * far + end) - np.arange(len(item)) - 1
        one = np.repeat(np.arange(len(item)), count)
        other = one + 1 + within_groups(count)
        start, end = place_p3[:, 1:].T if self.border_v is None else self.border_v[place_p3[:, 1:]].T
        shared = np.minimum(end[one], end[other]) - start[other]
        overlap = shared / (end[one] - start[one] + end[other] - start[other] - shared)
        # Spans that only touch at disputed borders are neighbors. One within another is the same part.
        same = 2 * shared > np.minimum(end[one] - start[one], end[other] - start[other])
        one, other, overlap = one[same], other[same], overlap[same]
        cluster_p = link(np.column_stack((one, other)), overlap, place_s.ravel(), label_s, span_s5[:, 1])
        sides = zip(item.tolist(), start.tolist(), end.tolist(), strict=True)
        titles = np.array([f"{self.items[n]}[{begin}:{stop}]" for n, begin, stop in sides], dtype=object)
        first_c = np.unique(cluster_p, return_index=True)[1]
        marks = Marks(span_s5[:, 0], span_s5[:, 1], label_s, span_s5[:, 2:4])
        classes = tuple(self.classes[code] for code in codes)
        return match(marks, cluster_p[place_s.ravel()], self, classes, tuple(titles[first_c]))

    # -- tokens of texts -----------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens of all texts."""
        items = np.concatenate((self.item_s, self.truth_s4[:, 0]))
        offsets = np.concatenate((self.span_s4[:, 1:3], self.truth_s4[:, 1:3]))
        return Tokens.split(self.texts or (), np.unique(items[:, None] * FAR + offsets))

    def token_evidence(self, layer: int) -> Evidence:
        """Build the evidence about tokens as items and texts as sequences. Raise BadEvidence if there is no token.

        Class 0 is O. Class h of the layer has code 1 + 2 h at the first token of a span, and 2 + 2 h at later tokens.
        """
        codes, tokens = self.layers[layer], self.tokens
        if not len(tokens):
            raise BadEvidence("texts: none of them has a word; expected at least one in which something can be marked")
        classes = (OUTSIDE, *(f"{mark}-{self.classes[code]}" for code in codes for mark in "BI"))
        columns = (tokens.item_t.tolist(), tokens.start_t.tolist(), tokens.end_t.tolist())
        names = tuple(f"{self.items[n]}[{start}:{end}]" for n, start, end in zip(*columns, strict=True))
        first_n = np.searchsorted(tokens.item_t, np.arange(len(self.items) + 1))
        item_a, annotator_a = self.answer_a2.T
        length_a = first_n[item_a + 1] - first_n[item_a]
        shift_a = np.cumsum(length_a) - length_a - first_n[item_a]
        label = np.zeros(int(length_a.sum()), np.int32)
        answer_s, start_s, end_s, class_s = self.span_s4.T
        first, last = tokens.within(item_a[answer_s], start_s, end_s)
        _write(label, first + shift_a[answer_s], last + shift_a[answer_s], class_s, codes)
        truth = np.where(np.repeat(self.known_n, np.diff(first_n)), 0, -1).astype(np.int32)
        item_s, start_s, end_s, class_s = self.truth_s4.T
        _write(truth, *tokens.within(item_s, start_s, end_s), class_s, codes)
        token = (np.repeat(first_n[item_a], length_a) + within_groups(length_a)).astype(np.int32)
        annotator = np.repeat(annotator_a, length_a).astype(np.int32)
        annotations = Annotations(token, annotator, label, names, self.annotators, classes, classes)
        places = np.stack((tokens.item_t, np.arange(len(tokens)) - first_n[tokens.item_t]), axis=1)
        return Evidence(annotations, truth=truth, sequence=places)


def trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Remove white space from the ends of a span. Return None if it is outside the text, or only white space.

    Example:
        >>> trimmed("Ada met Bob", 3, 8)
        (4, 7)
    """
    if not 0 <= start < end <= len(text):
        return None
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    return (start, start + len(inside.strip())) if inside.strip() else None


def share_half(one: Sequence[float] | npt.NDArray[Any], other: Sequence[float] | npt.NDArray[Any]) -> bool:
    """Return True if two spans (start, end) share more than half of the shorter one."""
    (begin, end), (start, stop) = one, other
    return bool(2 * (min(end, stop) - max(begin, start)) > min(end - begin, stop - start))


def _merged(spans: Iterable[tuple[int, int, int, int]]) -> tuple[Indices, int]:
    """Merge overlapping spans of the same owner and class.

    Return (S, 4) owner, start, end and class of each span, sorted, and the number of spans merged into others.
    """
    merged: list[tuple[int, int, int, int]] = []
    distinct = sorted(set(spans), key=lambda span: (span[0], span[3], span[1], span[2]))
    for owner, start, end, code in distinct:
        if merged and merged[-1][0] == owner and merged[-1][3] == code and start < merged[-1][2]:
            merged[-1] = (owner, merged[-1][1], max(end, merged[-1][2]), code)
        else:
            merged.append((owner, start, end, code))
    return np.array(sorted(merged), np.int64).reshape(-1, 4), len(distinct) - len(merged)


def _laid_over(span_s4: Indices, border_v: Floats | None) -> set[tuple[int, int]]:
    """Return the pairs of classes whose spans overlap within one owner (an answer, or an item's ground truth)."""
    apart: set[tuple[int, int]] = set()
    owner, open_spans = -1, list[tuple[int, int, int]]()
    for number, start, end, code in span_s4.tolist():
        open_spans = [span for span in open_spans if span[1] > start] if number == owner else []
        apart |= {
            (other, code)
            for begin, stop, other in open_spans
            if border_v is None or share_half(border_v[[begin, stop]], border_v[[start, end]])
        }
        owner = number
        open_spans.append((start, end, code))
    return apart


def _write(label_t: Ints, first: Indices, last: Indices, class_s: Indices, codes: Sequence[int]) -> None:
    """Write the codes of B and I to the tokens of the spans whose classes are in `codes`."""
    begin_of = {code: 1 + 2 * number for number, code in enumerate(codes)}
    for begin, end, code in zip(first.tolist(), last.tolist(), class_s.tolist(), strict=True):
        if code in begin_of:
            label_t[begin + 1 : end] = begin_of[code] + 1
            label_t[begin] = begin_of[code]
