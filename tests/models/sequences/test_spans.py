"""Spans as BIO classes say them, against words and against plain counting."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.errors import BadInput
from hitl.models.priors.markov_chain import Sequences
from hitl.models.sequences.spans import Span, partial, spans, strict


def one(*labels: str | None) -> list[tuple[int, int, str]]:
    places = np.stack((np.zeros(len(labels), int), np.arange(len(labels))), axis=1)
    return [(span.first, span.end, span.kind) for span in spans(labels, Sequences(places))]


def test_what_begins_and_what_ends_a_span() -> None:
    assert one("B-PER", "I-PER", "O", "B-LOC") == [(0, 2, "PER"), (3, 4, "LOC")]
    assert one("B-PER", "B-PER") == [(0, 1, "PER"), (1, 2, "PER")]
    assert one("I-PER", "I-PER", None, "I-LOC", "I-PER") == [(0, 2, "PER"), (3, 4, "LOC"), (4, 5, "PER")]
    assert one("B-PER", "I-LOC", "I-LOC") == [(0, 1, "PER"), (1, 3, "LOC")]
    assert one("O", "O") == []
    with pytest.raises(BadInput, match="class 'PER' is no part of a span; expected O, B-kind or I-kind"):
        one("PER")


def test_a_span_ends_with_its_sequence_whatever_the_order_of_the_items() -> None:
    places = np.array([[9, 1], [4, 0], [9, 0], [4, 1]])
    found = spans(["I-PER", "B-PER", "B-PER", "I-PER"], Sequences(places))
    assert found == [Span(0, 0, 2, "PER"), Span(1, 0, 2, "PER")]
    assert spans(["B-PER", "B-PER", "O", "I-PER"], Sequences(places)) == [Span(0, 0, 2, "PER"), Span(1, 1, 2, "PER")]


def test_strict_and_partial_agreement() -> None:
    right = [Span(0, 0, 2, "PER"), Span(0, 5, 6, "LOC"), Span(1, 0, 4, "ORG")]
    found = [Span(0, 0, 2, "PER"), Span(0, 5, 6, "ORG"), Span(1, 0, 3, "ORG"), Span(2, 0, 1, "ORG")]
    exact, loose = strict(found, right), partial(found, right)
    assert (exact.precision, exact.recall) == (1 / 4, 1 / 3)
    assert exact.f1 == pytest.approx(2 / 7)
    assert (loose.precision, loose.recall) == (2 / 4, pytest.approx((1 + 0 + 3 / 4) / 3))
    assert strict([], right).f1 == partial(found, []).f1 == 0
    assert strict(right, right).f1 == partial(right, right).f1 == 1
