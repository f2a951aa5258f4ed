"""Which spans of different annotators are about the same part of a text, or of a recording."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from hitl.kinds.kind import NOTHING
from hitl.kinds.matching import Matched
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.kinds.spans import layer_evidence
from hitl.platform import Question

WORDS = " ".join("abcdefghijklmnopqrst")


def labels(known: dict[str, Any] | None = None, **said: Any) -> SpanLabels:
    """Answers to one text, annotator -> spans (start, end, kind)."""
    answers = [Answer("t", annotator, spans) for annotator, spans in said.items()]
    return SpanLabels.from_texts({"t": WORDS}, answers, known, classes=("A", "B"))


def recording(**said: Any) -> SpanLabels:
    """Answers to one recording."""
    answers = [Answer("r", annotator, spans) for annotator, spans in said.items()]
    return SpanLabels.from_recordings(["r"], answers, classes=("A", "B"))


def clusters(found: SpanLabels) -> list[set[tuple[str, float, float]]]:
    """Who marked from where to where, by cluster."""
    (matched,) = found.matched
    places = matched.place_md if found.border_v is None else found.border_v[matched.place_md]
    clusters: list[set[tuple[str, float, float]]] = [set() for _ in range(len(matched))]
    for c, who, (start, end) in zip(matched.cluster_m, matched.annotator_m, places.tolist(), strict=True):
        clusters[c].add((str(found.annotators[who]), start, end))
    return clusters


def said(matched: Matched) -> dict[tuple[str, str], str]:
    known = matched.votes.annotations
    rows = zip(known.item, known.annotator, known.label, strict=True)
    return {(str(known.items[n]), str(known.annotators[k])): str(known.options[code]) for n, k, code in rows}


def test_spans_that_overlap_are_one_part_and_who_has_none_says_nothing() -> None:
    found = labels(ann=[(0, 3, "A")], bob=[(0, 5, "B")], cyd=[], dee=[(10, 13, "A")])
    (matched,) = found.matched
    assert clusters(found) == [{("ann", 0, 3), ("bob", 0, 5)}, {("dee", 10, 13)}]
    first = {who: said(matched)["t[0:3]", who] for who in ("ann", "bob", "cyd", "dee")}
    assert first == {"ann": "A", "bob": "B", "cyd": NOTHING, "dee": NOTHING}
    assert said(matched)["t[10:13]", "dee"] == "A"


def test_the_larger_overlap_is_joined_first_and_then_the_kind_decides() -> None:
    """Bob cut one span in two: the longer half is what Ann marked; of equal halves that of her kind."""
    found = labels(ann=[(0, 9, "A")], bob=[(0, 3, "A"), (4, 9, "B")])
    assert clusters(found) == [{("bob", 0, 3)}, {("ann", 0, 9), ("bob", 4, 9)}]
    found = labels(ann=[(0, 7, "B")], bob=[(0, 3, "A"), (4, 7, "B")])
    assert clusters(found) == [{("bob", 0, 3)}, {("ann", 0, 7), ("bob", 4, 7)}]


def test_neighbors_that_touch_at_a_disputed_border_are_two_parts() -> None:
    """Ann saw the first and Bob the second; where the one is most of the other, they saw the same."""
    found = labels(ann=[(0, 9, "A")], bob=[(6, 15, "A")])
    assert clusters(found) == [{("ann", 0, 9)}, {("bob", 6, 15)}]
    found = labels(ann=[(0, 9, "A")], bob=[(4, 13, "A")])
    assert clusters(found) == [{("ann", 0, 9), ("bob", 4, 13)}]
    found = labels(ann=[(0, 15, "A")], bob=[(6, 9, "A")])
    assert clusters(found) == [{("ann", 0, 15), ("bob", 6, 9)}]


def test_known_spans_are_truth_of_what_they_match() -> None:
    found = labels({"t": [(0, 5, "B"), (14, 17, "A")]}, ann=[(0, 3, "A"), (8, 11, "A")])
    (matched,) = found.matched
    assert matched.votes.truth is not None
    assert matched.votes.truth.tolist() == [2, 0, 1]
    assert matched.known_c.tolist() == [1, -1, 0]
    assert matched.known_place_cd.tolist() == [[0, 5], [-1, -1], [14, 17]]
    assert said(matched)["t[14:17]", "ann"] == NOTHING


def naive(found: SpanLabels) -> set[frozenset[tuple[str, float, float]]]:
    """Average linkage from single spans by plain loops: largest mean overlap, then agreement, then place."""
    border = (lambda side: side) if found.border_v is None else (lambda side: float(found.border_v[side]))
    who_a = [str(found.annotators[k]) for k in found.answer_a2[:, 1]]
    spans = [(border(start), border(end), code, who_a[answer]) for answer, start, end, code in found.span_s4.tolist()]
    groups = [[span] for span in sorted(spans)]
    while True:
        best = None
        for one, other in combinations(groups, 2):
            if {span[3] for span in one} & {span[3] for span in other}:
                continue
            pairs = [(a, b) for a in one for b in other]
            shared = [max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in pairs]
            whole = [(a[1] - a[0]) + (b[1] - b[0]) - s for (a, b), s in zip(pairs, shared, strict=True)]
            half = [2 * s > min(a[1] - a[0], b[1] - b[0]) for s, (a, b) in zip(shared, pairs, strict=True)]
            overlap = np.mean([s / w if more else 0 for s, w, more in zip(shared, whole, half, strict=True)])
            agree = np.mean([a[2] == b[2] for a, b in pairs])
            places = tuple(sorted(min((span[0], span[1]) for span in group) for group in (one, other)))
            key = (round(overlap, 9), agree, tuple((-a, -b) for a, b in places))
            if overlap > 0 and (best is None or key > best[0]):
                best = key, one, other
        if best is None:
            return {frozenset((who, start, end) for start, end, _, who in group) for group in groups}
        _, one, other = best
        groups = [group for group in groups if group not in (one, other)] + [sorted(one + other)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("timed", [False, True])
def test_clusters_are_those_of_plain_average_linkage(seed: int, timed: bool) -> None:
    """Of texts with many equal overlaps; of recordings borders are random numbers, so that no two are equal."""
    rng = np.random.default_rng(seed)
    answers: dict[str, list[tuple[float, float, str]]] = {}
    for who in "abcd":
        size = 2 * int(rng.integers(1, 4))
        if timed:
            borders = np.sort(rng.exponential(10, size))
        else:
            borders = np.sort(2 * rng.choice(20, size=size, replace=False)) - np.arange(size) % 2
        pairs = [pair for pair in borders.reshape(-1, 2).tolist() if rng.random() < 0.9]
        answers[who] = [(start, end, str(rng.choice(["A", "B"]))) for start, end in pairs]
    found = recording(**answers) if timed else labels(**answers)
    assert {frozenset(one) for one in clusters(found)} == naive(found)


def test_a_text_stands_for_the_part_with_the_smallest_majority() -> None:
    found = labels(ann=[(0, 3, "A"), (8, 11, "A")], bob=[(0, 3, "A"), (8, 11, "B")], cyd=[(0, 3, "A")])
    known = layer_evidence(found, Question("names", ("A", "B"), ("A", "B"), "spans", "text"))["names"]
    rows = zip(known.annotations.annotator, known.annotations.label, strict=True)
    assert {known.annotations.annotators[k]: known.annotations.options[code] for k, code in rows} == {
        "ann": "A",
        "bob": "B",
        "cyd": NOTHING,
    }
