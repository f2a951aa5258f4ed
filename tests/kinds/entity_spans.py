"""Spans of tokens encoded as BIO classes, and the agreement of predicted with true spans.

    B-PER I-PER O B-LOC     the spans (0, 2, PER) and (3, 4, LOC): first token, one past the last, kind

B and I alone are spans of the kind NAMELESS. A class that is "O" (or None) is outside; B-X begins a span of kind X and
I-X continues it. An I-X that follows nothing of its kind begins one, as in the CoNLL evaluation (Tjong Kim Sang & De
Meulder 2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hitl.errors import BadInput
from hitl.models.priors.markov_chain import Sequences

OUTSIDE, NAMELESS = "O", "span"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Tokens `first` to before `end` of a sequence (positions counted from 0), of a kind."""

    sequence: int
    first: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """Precision, recall and F1 of spans, each in [0, 1]; 0 if there are none to count."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def spans(labels: Sequence[str | None], sequences: Sequences) -> list[Span]:
    """Return the spans of all sequences, in order.

    `labels` (N,) are the classes of the items: O, B-kind, I-kind, B or I. Raise BadInput for any other class.
    """
    start = sequences.start.tolist()
    rows = sequences.rows.tolist()
    found: list[Span] = []
    for number, (first, end) in enumerate(pairwise(start)):
        found += (Span(number, *place) for place in _of_one([labels[row] for row in rows[first:end]]))
    return found


def strict(found: Iterable[Span], right: Iterable[Span]) -> Agreement:
    """Count a span as right if one with the same tokens and kind exists."""
    ours, theirs = set(found), set(right)
    both = len(ours & theirs)
    return Agreement(both / len(ours) if ours else 0.0, both / len(theirs) if theirs else 0.0)


def partial(found: Iterable[Span], right: Iterable[Span]) -> Agreement:
    """Count each span by the share of its tokens that spans of its kind on the other side also contain."""
    ours, theirs = list(found), list(right)
    return Agreement(_covered(ours, theirs), _covered(theirs, ours))


def _covered(spans: Sequence[Span], by: Sequence[Span]) -> float:
    tokens = {(one.sequence, place, one.kind) for one in by for place in range(one.first, one.end)}
    shares = [
        sum((one.sequence, place, one.kind) in tokens for place in range(one.first, one.end)) / (one.end - one.first)
        for one in spans
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _of_one(labels: Sequence[str | None]) -> Iterator[tuple[int, int, str]]:
    """Yield first, end and kind of the spans of one sequence."""
    begun, kind = 0, ""
    for place, label in enumerate([*labels, OUTSIDE]):
        mark, here = _read(label)
        if kind and (mark != "I" or here != kind):
            yield begun, place, kind
            kind = ""
        if mark == "B" or (mark == "I" and not kind):
            begun, kind = place, here
    return


def _read(label: str | None) -> tuple[str, str]:
    """Return the mark and the kind of a class."""
    if label is None or label == OUTSIDE:
        return OUTSIDE, ""
    mark, dash, kind = label.partition("-")
    if mark not in ("B", "I") or (dash and not kind):
        raise BadInput(f"class {label!r} is no part of a span; expected O, B-kind, I-kind, B or I")
    return mark, kind or NAMELESS
