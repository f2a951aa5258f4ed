"""`SpanLabels`: spans of documents that annotators marked, and the token classes that follow for texts.

    text        Ada    met  Bob        spans                           recording  0 s          60 s        120 s
    ann         B-PER  O    B-PER      (0, 3, PER), (8, 11, PER)       ann        [ walk       ][ run      ]
    bob         B-PER  O    O          (0, 3, PER)                     bob          [ walk    ]  [ run       ]

An answer is all that one annotator marked in one document; a document in which they marked nothing is an answer too.
Offsets in a text count characters from 0, the end is one past the last, and white space at the ends of a span does not
count. Spans of a recording are half-open stretches of time: numbers, or times in ISO 8601.

Tokens are words and single marks, cut again wherever a span begins or ends. So every span consists of whole tokens, and
the consensus can have the borders of any annotator.

Classes that one annotator has laid over one another, such as a city in the name of a company, are in different layers.
Times must overlap by more than half, because borders on a time axis are seldom exact. Spans of one class that one
annotator laid over one another are one span.
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
from hitl.kinds.matching import Flags, Indices, MatchedSpans, match_spans, within_groups
from hitl.parts import Place, number_of
from hitl.tables.encoding import natural_order

Span = tuple[Any, Any, Name]
"""Start, end and class of a span."""

WORDS = re.compile(r"\w+|[^\w\s]")
"""Word, or single mark."""

FAR = 2**32
"""Upper bound on the characters of any text: document * FAR + offset orders all offsets of all texts."""

OUTSIDE = "O"


@dataclass(frozen=True, eq=False)
class Tokens:
    """T tokens of all texts, in order: (T,) the document of each, its first character, and one past its last."""

    document_t: Indices
    start_t: Indices
    end_t: Indices

    @classmethod
    def of(cls, texts: Sequence[str], cut_c2: Indices) -> Tokens:
        """Split into words and marks, and again at (C, 2) documents and offsets."""
        words = [
            (number * FAR + word.start(), number * FAR + word.end())
            for number, text in enumerate(texts)
            for word in WORDS.finditer(text)
        ]
        start, end = np.array(words, np.int64).reshape(-1, 2).T
        cut = np.unique(cut_c2[:, 0] * FAR + cut_c2[:, 1])
        word = np.searchsorted(start, cut, side="right") - 1
        cut = cut[(word >= 0) & (start[word] < cut) & (cut < end[word])] if len(start) else cut[:0]
        start, end = np.union1d(start, cut), np.union1d(end, cut)
        return cls(start // FAR, start % FAR, end % FAR)

    def __len__(self) -> int:
        return len(self.start_t)

    def within(self, document: Indices, start: Indices, end: Indices) -> tuple[Indices, Indices]:
        """Return the first token of each span, and one past its last."""
        begin_t = self.document_t * FAR + self.start_t
        return np.searchsorted(begin_t, document * FAR + start), np.searchsorted(begin_t, document * FAR + end)


@dataclass(frozen=True, eq=False)
class TokenLayer:
    """Spans of one layer as classes of tokens: items are tokens, a sequence is a document.

    Class 0 is O; class h of the layer has 1 + 2 h where a span begins, and 2 + 2 h inside it.
    """

    classes: Names
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Answer:
    """Spans that one annotator marked in one document; time (since the epoch) and duration in seconds, NaN: unknown."""

    document: Name
    annotator: Name
    spans: Sequence[Span]
    time: float = np.nan
    duration: float = np.nan


@dataclass(frozen=True, eq=False, repr=False)
class SpanLabels(OneLineRepr):
    """Spans that annotators marked in D documents.

    Attributes:
        documents: D names; texts: D texts, None if the documents are recordings.
        annotators: K names.
        classes: possible classes of a span.
        answer_a2: (A, 2) document and annotator of each answer, in order, each pair once.
        span_s4: (S, 4) answer, start, end and class of each span, in order. Starts and ends are characters of a text,
            or ranks among all borders of recordings.
        known_d: (D,) True for documents whose spans are known.
        truth_s4: (S', 4) document, start, end and class of each known span.
        time_a, duration_a: (A,) seconds since the epoch, and seconds; NaN if unknown.
        merged: number of spans that overlapped others of their class by the same annotator, and were merged with them.
        left_out: number of spans that are not within their document, or empty.
        border_v: (V,) distinct borders of recordings, in order; those in ISO 8601 in seconds since the epoch.
        written_v: V borders as they were written.

    Example:
        >>> from hitl.kinds.span_labels import Answer, SpanLabels
        >>> answers = [Answer("a", "ann", [(0, 3, "PER")]), Answer("a", "bob", [(0, 7, "PER")])]
        >>> labels = SpanLabels.of_texts({"a": "Ada met Bob"}, answers)
        >>> labels.matched[0].evidence.annotations.items
        ('a[0:3]',)
    """

    documents: Names
    texts: tuple[str, ...] | None
    annotators: Names
    classes: Names
    answer_a2: Indices
    span_s4: Indices
    known_d: Flags
    truth_s4: Indices
    time_a: Floats
    duration_a: Floats
    merged: int = 0
    left_out: int = 0
    border_v: Floats | None = None
    written_v: tuple[Place, ...] = ()

    @classmethod
    def of_texts(
        cls,
        texts: Mapping[Name, str],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]] | None = None,
        classes: Names = (),
    ) -> SpanLabels:
        """Build from document -> text, answers (the last of an annotator to a document counts), and known spans.

        `classes` come first, then other classes seen, in natural order.
        """
        whole = tuple(texts.values())
        labels = cls._placed(tuple(texts), answers, truth or {}, classes, lambda d, *span: trimmed(whole[d], *span))
        return replace(labels, texts=whole)

    @classmethod
    def of_recordings(
        cls,
        documents: Iterable[Name],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]] | None = None,
        classes: Names = (),
    ) -> SpanLabels:
        """Build from recordings. Raise ValueError for a border that is not a time."""
        written: dict[float, Place] = {}
        for spans in (*(answer.spans for answer in answers), *(truth or {}).values()):
            for border in (border for span in spans for border in span[:2]):
                written.setdefault(number_of(border), border)
        ordered = sorted(written)
        rank = {border: v for v, border in enumerate(ordered)}

        def place(_: int, start: Place, end: Place) -> tuple[int, int] | None:
            first, last = rank[number_of(start)], rank[number_of(end)]
            return (first, last) if first < last else None

        labels = cls._placed(tuple(documents), answers, truth or {}, classes, place)
        return replace(labels, border_v=np.array(ordered), written_v=tuple(written[border] for border in ordered))

    @classmethod
    def _placed(
        cls,
        documents: Names,
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Span]],
        classes: Names,
        place: Callable[[int, Any, Any], tuple[int, int] | None],
    ) -> SpanLabels:
        seen = [label for spans in (*(answer.spans for answer in answers), *truth.values()) for *_, label in spans]
        classes = tuple(dict.fromkeys([*classes, *natural_order(list(dict.fromkeys(seen)))]))
        annotators = tuple(dict.fromkeys(answer.annotator for answer in answers))
        document_of, annotator_of, class_of = (
            {name: n for n, name in enumerate(names)} for names in (documents, annotators, classes)
        )
        last = {(document_of[answer.document], annotator_of[answer.annotator]): answer for answer in answers}
        ordered = [last[pair] for pair in sorted(last)]
        left_out = 0

        def placed(owned: Iterable[tuple[int, Name, Sequence[Span]]]) -> Iterator[tuple[int, int, int, int]]:
            nonlocal left_out
            for owner, document, spans in owned:
                for start, end, label in spans:
                    sides = place(document_of[document], start, end)
                    left_out += sides is None
                    if sides is not None:
                        yield owner, *sides, class_of[label]

        span_s4, merged = _merged(placed((a, one.document, one.spans) for a, one in enumerate(ordered)))
        truth_s4, _ = _merged(placed((document_of[name], name, spans) for name, spans in truth.items()))
        known_d = np.zeros(len(documents), dtype=bool)
        known_d[[document_of[name] for name in truth]] = True
        return cls(
            documents,
            None,
            annotators,
            classes,
            np.array(sorted(last), np.int64).reshape(-1, 2),
            span_s4,
            known_d,
            truth_s4,
            np.array([one.time for one in ordered]),
            np.array([one.duration for one in ordered]),
            merged,
            left_out,
        )

    def __str__(self) -> str:
        what, number = ("recording" if self.texts is None else "text"), len(self.span_s4)
        answers = f"{counted(len(self.answer_a2), 'answer')} by {counted(len(self.annotators), 'annotator')}"
        spans = f"{counted(number, 'span')} of {listed(self.classes)}"
        if self.texts is None:
            spans = f"{number} stretch{'' if number == 1 else 'es'} of time: {listed(self.classes)}"
        known = f"; known {'stretches' if self.texts is None else 'spans'} of {counted(int(self.known_d.sum()), what)}"
        return f"{counted(len(self.documents), what)}, {answers}: {spans}{known if self.known_d.any() else ''}"

    @cached_property
    def answers_d(self) -> Indices:
        """(D,) number of annotators who answered each document."""
        return np.bincount(self.answer_a2[:, 0], minlength=len(self.documents))

    @property
    def judged_d(self) -> Flags:
        """(D,) True for documents that were answered, or whose spans are known."""
        judged: Flags = self.known_d | (self.answers_d > 0)
        return judged

    def written(self, border: Indices) -> list[Any]:
        """Return starts or ends as they were written."""
        return border.tolist() if self.texts is not None else [self.written_v[rank] for rank in border]

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Codes of the classes of each layer: one layer if no annotator laid classes over one another.

        Raise BadEvidence if there is no class, or one has the name reserved for nothing.
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
    def matched(self) -> tuple[MatchedSpans, ...]:
        """Matched spans of different annotators, for each layer."""
        answer_s = self.span_s4[:, 0]
        marked = np.column_stack((self.answer_a2[answer_s], self.span_s4[:, 1:]))
        span_s5 = np.concatenate((marked, np.insert(self.truth_s4, 1, -1, axis=1)))
        found = []
        for codes in self.layers:
            code_of = np.full(len(self.classes), -1)
            code_of[list(codes)] = np.arange(len(codes))
            own_s5 = span_s5[code_of[span_s5[:, 4]] >= 0]
            own_s5[:, 4] = code_of[own_s5[:, 4]]
            names = self.documents, self.annotators, tuple(self.classes[code] for code in codes)
            found.append(match_spans(own_s5, self.answer_a2, self.known_d, names, self.border_v))
        return tuple(found)

    # -- tokens of texts -----------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens of all texts."""
        documents = np.concatenate((self.answer_a2[self.span_s4[:, 0], 0], self.truth_s4[:, 0]))
        offsets = np.concatenate((self.span_s4[:, 1:3], self.truth_s4[:, 1:3]))
        return Tokens.of(self.texts or (), np.stack((np.tile(documents, 2), offsets.T.ravel()), axis=1))

    def token_layer(self, layer: int) -> TokenLayer:
        """Build the evidence about tokens. Raise BadEvidence if the texts have no word."""
        codes, tokens = self.layers[layer], self.tokens
        if not len(tokens):
            raise BadEvidence("texts: none of them has a word; expected at least one in which something can be marked")
        names = tuple(self.classes[code] for code in codes)
        classes = (OUTSIDE, *(f"{mark}-{name}" for name in names for mark in "BI"))
        columns = (tokens.document_t.tolist(), tokens.start_t.tolist(), tokens.end_t.tolist())
        items = tuple(f"{self.documents[d]}[{start}:{end}]" for d, start, end in zip(*columns, strict=True))
        first_d = np.searchsorted(tokens.document_t, np.arange(len(self.documents) + 1))
        document_a = self.answer_a2[:, 0]
        length_a = first_d[document_a + 1] - first_d[document_a]
        begin_a = np.cumsum(length_a) - length_a
        label = np.zeros(int(length_a.sum()), np.int32)
        answer_s, start_s, end_s, class_s = self.span_s4.T
        first, last = tokens.within(document_a[answer_s], start_s, end_s)
        shift = (begin_a - first_d[document_a])[answer_s]
        _write(label, first + shift, last + shift, class_s, codes)
        truth = np.where(np.repeat(self.known_d, np.diff(first_d)), 0, -1).astype(np.int32)
        document_s, start_s, end_s, class_s = self.truth_s4.T
        _write(truth, *tokens.within(document_s, start_s, end_s), class_s, codes)
        item = np.repeat(first_d[document_a], length_a) + within_groups(length_a)
        annotator = np.repeat(self.answer_a2[:, 1], length_a)
        annotations = Annotations(
            item.astype(np.int32), annotator.astype(np.int32), label, items, self.annotators, classes, classes
        )
        places = np.stack((tokens.document_t, np.arange(len(tokens)) - first_d[tokens.document_t]), axis=1)
        return TokenLayer(names, Evidence(annotations, truth=truth, sequence=places))


def trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Trim white space off the ends of a span; None if it is not within the text, or holds nothing else.

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
    """Return True if two stretches (start, end) share more than half of the shorter one."""
    (begin, end), (start, stop) = one, other
    return bool(2 * (min(end, stop) - max(begin, start)) > min(end - begin, stop - start))


def _merged(spans: Iterable[tuple[int, int, int, int]]) -> tuple[Indices, int]:
    """Return (S, 4) owner, start, end, class, in order, and the number merged.

    Overlapping spans of one owner and class become one.
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
    """Return pairs of classes of which one owner laid one over the other."""
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
    """Write B and I of the classes of a layer over its tokens."""
    begin_of = {code: 1 + 2 * number for number, code in enumerate(codes)}
    for begin, end, code in zip(first.tolist(), last.tolist(), class_s.tolist(), strict=True):
        if code in begin_of:
            label_t[begin + 1 : end] = begin_of[code] + 1
            label_t[begin] = begin_of[code]
