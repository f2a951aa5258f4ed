"""`TimelineLabels`: which stretches of which recordings annotators marked.

    recording  0 s          60 s         120 s
    ann        [ walk       ][ run       ]          (0, 60.2, walk), (60.2, 118, run)
    bob          [ walk    ]  [ run        ]        (4, 57, walk), (61.5, 121, run)

An answer is all that one annotator marked in one recording; a recording in which they marked nothing is an answer too.
A stretch goes from its start to before its end: two numbers in the units of the recording (seconds, frames, ...), or
two times in ISO 8601. One of no length is left out.

Kinds that an annotator has laid over one another by more than half are in different layers, as in texts. Stretches of
one kind that one annotator laid over one another are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name, Names
from hitl.formatting import OneLineRepr, counted, listed
from hitl.parts import Place
from hitl.tables.encoding import natural_order
from hitl.texts.marked_labels import Indices, layers_of_kinds, matched_layers, merged, number_of
from hitl.texts.matched_spans import MatchedSpans

Segment = tuple[Place, Place, Name]
"""Start, end and kind of a stretch."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one annotator marked in one recording.

    `time`: seconds since the epoch; `duration`: seconds; NaN where unknown.
    """

    document: Name
    annotator: Name
    segments: Sequence[Segment]
    time: float = np.nan
    duration: float = np.nan


@dataclass(frozen=True, eq=False, repr=False)
class TimelineLabels(OneLineRepr):
    """What annotators marked in D recordings. Starts and ends are ranks among all borders.

    Attributes:
        documents: D names of recordings.
        annotators: K names.
        kinds: what a stretch can be.
        answer_a2: (A, 2) recording and annotator of each answer, each pair once.
        span_s4: (S, 4) answer, start, end and kind of each stretch, in order.
        known_d: (D,) recordings whose stretches are known.
        truth_s4: (S', 4) recording, start, end and kind of each known stretch.
        time_a, duration_a: (A,) seconds since the epoch, and seconds; NaN where unknown.
        place_v: (V,) the borders, in order and each once; those in ISO 8601 in seconds since the epoch.
        written_v: V borders as they were written.
        merged: how many stretches were laid over others of their kind by the same annotator, and are one with them.
        empty: how many stretches end where they begin, or before, and are left out.

    Example:
        >>> from hitl.timelines.timeline_labels import Answer, TimelineLabels
        >>> ann = Answer("a", "ann", [(0, 60.5, "walk")])
        >>> labels = TimelineLabels.from_answers(["a"], [ann, Answer("a", "bob", [(2, 58, "walk")])])
        >>> labels.matched[0].evidence.annotations.items
        ('a[0.0:60.5]',)
    """

    documents: Names
    annotators: Names
    kinds: Names
    answer_a2: Indices
    span_s4: Indices
    known_d: npt.NDArray[np.bool_]
    truth_s4: Indices
    time_a: Floats
    duration_a: Floats
    place_v: Floats
    written_v: tuple[Place, ...]
    merged: int = 0
    empty: int = 0

    @classmethod
    def from_answers(
        cls,
        documents: Iterable[Name],
        answers: Sequence[Answer],
        truth: Mapping[Name, Sequence[Segment]] | None = None,
        kinds: Names = (),
    ) -> TimelineLabels:
        """From answers (the last of an annotator to a recording counts), and recording -> known stretches.

        `kinds` come first, those seen besides in natural order. Raises ValueError for a border that is no time.
        """
        known, documents = truth or {}, tuple(documents)
        given = [*(answer.segments for answer in answers), *known.values()]
        seen = [kind for segments in given for *_, kind in segments]
        kinds = tuple(dict.fromkeys([*kinds, *natural_order(list(dict.fromkeys(seen)))]))
        annotators = tuple(dict.fromkeys(answer.annotator for answer in answers))
        place, code, kind_of = ({name: n for n, name in enumerate(names)} for names in (documents, annotators, kinds))
        place_v, written_v = _borders(border for segments in given for segment in segments for border in segment[:2])
        last = {(place[answer.document], code[answer.annotator]): answer for answer in answers}
        ordered = [last[pair] for pair in sorted(last)]

        def placed(owned: Iterable[tuple[int, Sequence[Segment]]]) -> list[tuple[int, int, int, int]]:
            found = [(owner, *segment) for owner, segments in owned for segment in segments]
            rank_s2 = np.searchsorted(place_v, [[number_of(start), number_of(end)] for _, start, end, _ in found])
            ranks = rank_s2.reshape(-1, 2).tolist()
            return [(row[0], start, end, kind_of[row[3]]) for row, (start, end) in zip(found, ranks, strict=True)]

        own = placed((a, one.segments) for a, one in enumerate(ordered))
        right = placed((place[name], segments) for name, segments in known.items())
        span_s4, joined = merged(row for row in own if row[1] < row[2])
        known_d = np.zeros(len(documents), dtype=bool)
        known_d[[place[name] for name in known]] = True
        return cls(
            documents,
            annotators,
            kinds,
            np.array(sorted(last), np.int64).reshape(-1, 2),
            span_s4,
            known_d,
            merged(row for row in right if row[1] < row[2])[0],
            np.array([one.time for one in ordered]),
            np.array([one.duration for one in ordered]),
            place_v,
            written_v,
            joined,
            sum(row[1] >= row[2] for row in (*own, *right)),
        )

    def __str__(self) -> str:
        answers = f"{counted(len(self.answer_a2), 'answer')} by {counted(len(self.annotators), 'annotator')}"
        marked = len(self.span_s4)
        there = f"{marked} stretch{'' if marked == 1 else 'es'} of time: {listed(self.kinds)}"
        number = int(self.known_d.sum())
        known = f"; known stretches of {counted(number, 'recording')}" if number else ""
        return f"{counted(len(self.documents), 'recording')}, {answers}: {there}{known}"

    @property
    def texts(self) -> None:
        """Recordings are no texts."""

    @cached_property
    def kinds_apart(self) -> tuple[tuple[int, ...], ...]:
        """Codes of the kinds of each layer. Raises BadEvidence where there is no kind."""
        return layers_of_kinds(self, self.place_v)

    @cached_property
    def matched(self) -> tuple[MatchedSpans, ...]:
        """For each layer, which stretches of different annotators are about the same one."""
        return matched_layers(self, self.place_v)

    @property
    def answers_d(self) -> Indices:
        """(D,) how many annotators answered each recording."""
        return np.bincount(self.answer_a2[:, 0], minlength=len(self.documents))

    @property
    def judged_d(self) -> npt.NDArray[np.bool_]:
        """(D,) recordings that were answered, or whose stretches are known."""
        judged: npt.NDArray[np.bool_] = self.known_d | (self.answers_d > 0)
        return judged

    def written(self, place: Indices) -> list[Place]:
        """The borders of these ranks as they were written."""
        return [self.written_v[rank] for rank in place]


def _borders(given: Iterable[Place]) -> tuple[Floats, tuple[Place, ...]]:
    """(V,) the distinct borders in order, and how each was written first."""
    written: dict[float, Place] = {}
    for border in given:
        written.setdefault(number_of(border), border)
    ordered = sorted(written)
    return np.array(ordered), tuple(written[border] for border in ordered)
