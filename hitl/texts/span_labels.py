"""`SpanLabels`: which parts of which texts annotators marked, and what that says of each token.

    text   Ada    met  Bob        spans
    ann    B-PER  O    B-PER      (0, 3, PER), (8, 11, PER)
    bob    B-PER  O    O          (0, 3, PER)

An answer is all that one annotator marked in one text; a text in which they marked nothing is an answer too. Offsets
count characters from 0, the end is one past the last. White space at the ends of a span does not count.

Tokens are words and single marks, cut again wherever a span begins or ends: every span is then whole tokens, and the
consensus can have the borders of any annotator.

Kinds that one annotator has ever laid over one another, such as a city in the name of a company, are in different
layers: each layer has classes O, B-kind, I-kind of its own. Spans of one kind that one annotator laid over one another
are one span.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints, Name, Names
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted, listed
from hitl.tables.encoding import natural_order
from hitl.texts.marked_labels import layers_of_kinds, matched_layers, merged
from hitl.texts.matched_spans import MatchedSpans
from hitl.texts.span_rows import SpanRows, texts_of, trimmed

Indices = npt.NDArray[np.int64]

WORDS = re.compile(r"\w+|[^\w\s]")
"""A word, or a single mark."""

FAR = 2**32
"""More than the characters of any text: document * FAR + offset orders all offsets of all texts."""

OUTSIDE = "O"


@dataclass(frozen=True, eq=False)
class Tokens:
    """T tokens of all texts, in order: (T,) the document of each, its first character, and one past its last."""

    document_t: Indices
    start_t: Indices
    end_t: Indices

    @classmethod
    def of(cls, texts: Sequence[str], cut_c2: Indices) -> Tokens:
        """Words and marks, cut again at (C, 2) documents and offsets."""
        words = [
            (number * FAR + found.start(), number * FAR + found.end())
            for number, text in enumerate(texts)
            for found in WORDS.finditer(text)
        ]
        start, end = np.array(words, np.int64).reshape(-1, 2).T
        cut = np.unique(cut_c2[:, 0] * FAR + cut_c2[:, 1])
        word = np.searchsorted(start, cut, side="right") - 1
        cut = cut[(word >= 0) & (start[word] < cut) & (cut < end[word])] if len(start) else cut[:0]
        begun = np.union1d(start, cut)
        ended = np.union1d(end, cut)
        return cls(begun // FAR, begun % FAR, ended % FAR)

    def __len__(self) -> int:
        return len(self.start_t)

    def within(self, document: Indices, start: Indices, end: Indices) -> tuple[Indices, Indices]:
        """The first token of each span, and one past its last."""
        begun = self.document_t * FAR + self.start_t
        return np.searchsorted(begun, document * FAR + start), np.searchsorted(begun, document * FAR + end)


@dataclass(frozen=True, eq=False)
class Layer:
    """Kinds that no annotator lays over one another, and the evidence of their classes about each token.

    Items are tokens, a sequence is a document. Class 0 is O; kind h (counted in the layer from 0) has the classes
    1 + 2 h, where a span begins, and 2 + 2 h, where it goes on.
    """

    kinds: Names
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Answer:
    """What one annotator marked in one document: start, end and kind of each span.

    `time`: seconds since the epoch; `duration`: seconds; NaN where unknown.
    """

    document: Name
    annotator: Name
    spans: Sequence[tuple[int, int, Name]]
    time: float = np.nan
    duration: float = np.nan


@dataclass(frozen=True, eq=False, repr=False)
class SpanLabels(OneLineRepr):
    """What annotators marked in D texts.

    Attributes:
        documents, texts: D names and texts.
        annotators: K names.
        kinds: what a span can be.
        answer_a2: (A, 2) document and annotator of each answer, each pair once.
        span_s4: (S, 4) answer, start, end and kind of each span, in order.
        known_d: (D,) documents whose spans are known.
        truth_s4: (S', 4) document, start, end and kind of each known span.
        time_a, duration_a: (A,) seconds since the epoch, and seconds; NaN where unknown.
        merged: how many spans were laid over others of their kind by the same annotator, and are one with them.
        outside: how many spans were no part of their text, or white space alone, and are left out.

    Example:
        >>> from hitl.texts.span_labels import SpanLabels
        >>> rows = {"document": ["a"] * 2, "annotator": ["ann", "bob"], "start": [0, 0], "end": [3, 7],
        ...         "label": ["PER", "PER"]}
        >>> labels = SpanLabels.from_tables(rows, {"document": ["a"], "text": ["Ada met Bob"]})
        >>> labels.layers[0].evidence.annotations.items
        ('a[0:3]', 'a[4:7]', 'a[8:11]')
    """

    documents: Names
    texts: tuple[str, ...]
    annotators: Names
    kinds: Names
    answer_a2: Indices
    span_s4: Indices
    known_d: npt.NDArray[np.bool_]
    truth_s4: Indices
    time_a: Floats
    duration_a: Floats
    merged: int = 0
    outside: int = 0

    @classmethod
    def from_tables(
        cls,
        spans: Any,
        texts: Any = None,
        truth: Any = None,
        *,
        document: str = "document",
        annotator: str = "annotator",
        label: str = "label",
    ) -> SpanLabels:
        """From rows of document, annotator, start, end and label, and rows of document and text.

        A row without start, end and label says that the annotator marked nothing there. The texts may be a column
        `text` of the spans; texts without an answer are kept. `truth` has the columns of the spans without the
        annotator. Raises BadTable, naming the row, for a span that is not in its text or holds no more than white
        space.
        """
        rows = SpanRows.of(spans, "spans", [document, annotator, label], {"text": texts is None})
        given = rows.texts(document) if texts is None else texts_of(texts, document)
        people = rows.names(annotator)
        if None in people:
            raise BadTable(f"{rows.place_of(people.index(None))}: the {annotator} is empty; expected one in every row")
        marked: dict[tuple[Name, Name], list[tuple[int, int, Name]]] = {}
        for name, person, span in zip(rows.names(document), people, rows.spans(document, label, given), strict=True):
            marked.setdefault((name, person), []).extend([] if span is None else [span])
        known: dict[Name, list[tuple[int, int, Name]]] = {}
        if truth is not None:
            right = SpanRows.of(truth, "truth", [document, label], {})
            for name, span in zip(right.names(document), right.spans(document, label, given), strict=True):
                known.setdefault(name, []).extend([] if span is None else [span])
        return cls.from_answers(given, [Answer(*pair, spans) for pair, spans in marked.items()], known)

    @classmethod
    def from_answers(
        cls,
        texts: Mapping[Name, str],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[tuple[int, int, Name]]] | None = None,
        kinds: Names = (),
        annotators: Names = (),
    ) -> SpanLabels:
        """From document -> text, answers (the last of an annotator to a document counts), and document -> known spans.

        `kinds` and `annotators` come first, those seen besides in natural order and as they come.
        """
        known = truth or {}
        seen = [kind for one in (*(answer.spans for answer in answers), *known.values()) for *_, kind in one]
        kinds = tuple(dict.fromkeys([*kinds, *natural_order(list(dict.fromkeys(seen)))]))
        annotators = tuple(dict.fromkeys([*annotators, *(answer.annotator for answer in answers)]))
        place, code, kind_of = ({name: n for n, name in enumerate(names)} for names in (texts, annotators, kinds))
        last = {(place[answer.document], code[answer.annotator]): answer for answer in answers}
        ordered = [last[pair] for pair in sorted(last)]
        whole = list(texts.values())
        own, lost = _placed(whole, kind_of, [(a, place[one.document], one.spans) for a, one in enumerate(ordered)])
        right, astray = _placed(whole, kind_of, [(place[name], place[name], spans) for name, spans in known.items()])
        span_s4, joined = merged(own)
        known_d = np.zeros(len(texts), dtype=bool)
        known_d[[place[name] for name in known]] = True
        return cls(
            tuple(texts),
            tuple(whole),
            annotators,
            kinds,
            np.array(sorted(last), np.int64).reshape(-1, 2),
            span_s4,
            known_d,
            merged(right)[0],
            np.array([one.time for one in ordered]),
            np.array([one.duration for one in ordered]),
            joined,
            lost + astray,
        )

    def __str__(self) -> str:
        answers = f"{counted(len(self.answer_a2), 'answer')} by {counted(len(self.annotators), 'annotator')}"
        there = f"{counted(len(self.span_s4), 'span')} of {listed(self.kinds)}"
        known = f"; known spans of {counted(int(self.known_d.sum()), 'text')}" if self.known_d.any() else ""
        return f"{counted(len(self.documents), 'text')}, {answers}: {there}{known}"

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of all texts."""
        documents = np.concatenate((self.answer_a2[self.span_s4[:, 0], 0], self.truth_s4[:, 0]))
        offsets = np.concatenate((self.span_s4[:, 1:3], self.truth_s4[:, 1:3]))
        return Tokens.of(self.texts, np.stack((np.tile(documents, 2), offsets.T.ravel()), axis=1))

    @cached_property
    def kinds_apart(self) -> tuple[tuple[int, ...], ...]:
        """Codes of the kinds of each layer: one layer where no annotator laid kinds over one another.

        Raises BadEvidence where there is no kind of span.
        """
        return layers_of_kinds(self)

    @cached_property
    def matched(self) -> tuple[MatchedSpans, ...]:
        """For each layer, which spans of different annotators are about the same part of a text."""
        return matched_layers(self)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The same layers, with the tokens of all texts as items.

        Raises BadEvidence where there is no kind of span, and where the texts have no word.
        """
        kinds_apart = self.kinds_apart
        if not len(self.tokens):
            raise BadEvidence("texts: none of them has a word; expected at least one in which something can be marked")
        return tuple(self._layer(kinds) for kinds in kinds_apart)

    @property
    def answers_d(self) -> Indices:
        """(D,) how many annotators answered each text."""
        return np.bincount(self.answer_a2[:, 0], minlength=len(self.documents))

    @property
    def judged_d(self) -> npt.NDArray[np.bool_]:
        """(D,) texts that were answered, or whose spans are known."""
        judged: npt.NDArray[np.bool_] = self.known_d | (self.answers_d > 0)
        return judged

    def written(self, place: Indices) -> list[int]:
        """Characters, as they are."""
        return [int(one) for one in place]

    def _layer(self, kinds: Sequence[int]) -> Layer:
        tokens = self.tokens
        names = tuple(self.kinds[kind] for kind in kinds)
        classes = (OUTSIDE, *(f"{mark}-{name}" for name in names for mark in "BI"))
        items = tuple(
            f"{self.documents[d]}[{start}:{end}]"
            for d, start, end in zip(*(one.tolist() for one in vars(tokens).values()), strict=False)
        )
        first_d = self._borders
        document_a = self.answer_a2[:, 0]
        length_a = first_d[document_a + 1] - first_d[document_a]
        begun_a = np.cumsum(length_a) - length_a
        said = np.zeros(int(length_a.sum()), np.int32)
        first, last = tokens.within(document_a[self.span_s4[:, 0]], self.span_s4[:, 1], self.span_s4[:, 2])
        shift = (begun_a - first_d[document_a])[self.span_s4[:, 0]]
        _write(said, first + shift, last + shift, _codes(self.span_s4[:, 3], kinds))
        truth = np.where(np.repeat(self.known_d, np.diff(first_d)), 0, -1).astype(np.int32)
        first, last = tokens.within(self.truth_s4[:, 0], self.truth_s4[:, 1], self.truth_s4[:, 2])
        _write(truth, first, last, _codes(self.truth_s4[:, 3], kinds))
        item = np.arange(len(said)) - np.repeat(begun_a - first_d[document_a], length_a)
        annotator = np.repeat(self.answer_a2[:, 1], length_a)
        annotations = Annotations(
            item.astype(np.int32), annotator.astype(np.int32), said, items, self.annotators, classes, classes
        )
        places = np.stack((tokens.document_t, np.arange(len(tokens)) - first_d[tokens.document_t]), axis=1)
        return Layer(names, Evidence(annotations, truth=truth, sequence=places))

    @cached_property
    def _borders(self) -> Indices:
        """(D + 1,) the first token of each document, and one past the last."""
        return np.searchsorted(self.tokens.document_t, np.arange(len(self.documents) + 1))


def _placed(
    texts: Sequence[str],
    kind_of: Mapping[Name, int],
    marked: Iterable[tuple[int, int, Sequence[tuple[int, int, Name]]]],
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Owner, start, end and kind of the spans of (owner, document, spans), without white space; how many hold none."""
    found, lost = [], 0
    for owner, document, spans in marked:
        for start, end, kind in spans:
            place = trimmed(texts[document], start, end)
            if place is None:
                lost += 1
            else:
                found.append((owner, *place, kind_of[kind]))
    return found, lost


def _codes(kind_s: Indices, kinds: Sequence[int]) -> Iterator[int]:
    """For each span the class with which it begins in the layer of these kinds; 0 where it is of another layer."""
    code = {kind: 1 + 2 * number for number, kind in enumerate(kinds)}
    return (code.get(kind, 0) for kind in kind_s.tolist())


def _write(said: Ints, first: Indices, last: Indices, codes: Iterator[int]) -> None:
    for begin, end, code in zip(first.tolist(), last.tolist(), codes, strict=True):
        if code:
            said[begin + 1 : end] = code + 1
            said[begin] = code
