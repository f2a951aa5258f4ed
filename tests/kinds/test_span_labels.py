"""Spans as annotators mark them: tokens, layers, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.errors import BadEvidence, BadTable, UnreadableSpans
from hitl.evidence import Evidence
from hitl.kinds.span_labels import SpanLabels
from hitl.kinds.span_tables import read_labels

TEXT = "Ada met Bob at Acme Paris."


def rows(*marked: tuple[str, str, int | None, int | None, str | None]) -> dict[str, Any]:
    names = ("document", "annotator", "start", "end", "label")
    return {name: [row[place] for row in marked] for place, name in enumerate(names)}


def labels(*marked: tuple[str, str, int | None, int | None, str | None], **texts: str) -> SpanLabels:
    texts = texts or {"a": TEXT}
    return read_labels(rows(*marked), {"document": list(texts), "text": list(texts.values())})


def token_layers(found: SpanLabels) -> list[Evidence]:
    return [found.token_evidence(number) for number in range(len(found.layers))]


def said(layer: Evidence, annotator: str) -> dict[str, str]:
    """Token -> class that the annotator gave it."""
    known = layer.annotations
    k = known.annotators.index(annotator)
    return {
        str(known.items[n]): str(known.options[code])
        for n, who, code in zip(known.item, known.annotator, known.label, strict=True)
        if who == k
    }


def test_tokens_are_words_and_marks_cut_where_spans_begin_or_end() -> None:
    (layer,) = token_layers(labels(("a", "ann", 0, 3, "PER"), ("a", "bob", 15, 17, "ORG")))
    tokens = [TEXT[slice(*map(int, name[2:-1].split(":")))] for name in map(str, layer.annotations.items)]
    assert tokens == ["Ada", "met", "Bob", "at", "Ac", "me", "Paris", "."]


def test_each_answer_says_something_of_every_token() -> None:
    (layer,) = token_layers(
        labels(("a", "ann", 15, 25, "ORG"), ("a", "ann", 0, 3, "PER"), ("a", "bob", None, None, None))
    )
    assert layer.annotations.classes == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER")
    ann = list(said(layer, "ann").values())
    assert ann == ["B-PER", "O", "O", "O", "B-ORG", "I-ORG", "O"]
    assert set(said(layer, "bob").values()) == {"O"}
    assert layer.sequence is not None
    assert layer.sequence.tolist() == [[0, position] for position in range(7)]


def test_kinds_that_lie_over_one_another_are_in_layers_of_their_own() -> None:
    found = labels(("a", "ann", 15, 25, "ORG"), ("a", "ann", 20, 25, "LOC"), ("a", "bob", 0, 3, "PER"))
    assert [matched.classes for matched in found.matched] == [("LOC", "PER"), ("ORG",)]
    assert list(said(token_layers(found)[1], "ann").values()) == ["O"] * 4 + ["B-ORG", "I-ORG", "O"]
    assert said(token_layers(found)[0], "ann")["a[20:25]"] == "B-LOC"
    apart = labels(("a", "ann", 15, 25, "ORG"), ("a", "bob", 20, 25, "LOC"))
    assert len(apart.layers) == 1, "of two annotators they are a disagreement"


def test_spans_of_one_kind_that_lie_over_one_another_are_one() -> None:
    found = labels(("a", "ann", 0, 7, "PER"), ("a", "ann", 4, 11, "PER"), ("a", "ann", 0, 7, "PER"))
    assert found.merged == 1
    assert found.span_s4.tolist() == [[0, 0, 11, 0]]
    beside = labels(("a", "ann", 0, 3, "PER"), ("a", "ann", 4, 7, "PER"))
    assert beside.merged == 0
    assert len(beside.span_s4) == 2


def test_white_space_at_the_ends_does_not_count() -> None:
    assert labels(("a", "ann", 3, 8, "PER")).span_s4.tolist() == [[0, 4, 7, 0]]


def test_known_spans_say_what_every_token_of_their_texts_is() -> None:
    table = rows(("a", "ann", 0, 3, "PER"), ("b", "ann", None, None, None), ("c", "ann", None, None, None))
    texts = {"document": ["a", "b", "c"], "text": ["Ada met Bob", "Bob slept", "So it is"]}
    right = {"document": ["b", "c"], "start": [0, None], "end": [3, None], "label": ["PER", None]}
    found = read_labels(table, texts, right)
    truth = token_layers(found)[0].truth
    assert truth is not None
    assert truth.tolist() == [-1, -1, -1, 1, 0, 0, 0, 0]


def test_the_texts_may_be_in_the_rows() -> None:
    table = rows(("a", "ann", 0, 3, "PER"), ("a", "bob", 0, 3, "PER")) | {"text": [TEXT, TEXT]}
    assert read_labels(table).texts == (TEXT,)
    with pytest.raises(BadTable, match="row 1: document 'a' has another text in an earlier row"):
        read_labels(table | {"text": [TEXT, "other"]})


def test_a_text_may_be_a_number() -> None:
    table = rows(("a", "ann", 0, 3, "PER")) | {"text": [2026]}
    assert read_labels(table).texts == ("2026",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "ann", 20, 27, "PER"), "spans, row 1: 20 to 27 is no part of the text of document 'a', which has 26"),
        (("a", "ann", 3, 3, "PER"), "3 to 3 is no part"),
        (("a", "ann", 3, 4, "PER"), "more than white space"),
        (("z", "ann", 0, 3, "PER"), "row 1: no text of document 'z'"),
        (("a", "ann", 0, None, "PER"), "expected start, end and label together, or none of them"),
        (("a", "ann", 0, 3, None), "expected start, end and label together"),
        (("a", None, 0, 3, "PER"), "row 1: the annotator is empty"),
    ],
)
def test_an_answer_that_cannot_be_read_is_named_and_left_out(row: Any, message: str) -> None:
    good = ("a", "bob", 0, 3, "PER")
    with pytest.warns(UnreadableSpans, match=rf"^1 answer .*{message}"):
        found = labels(good, row, (*row[:2], 4, 7, "PER"))
    assert (found.annotators, found.span_s4.tolist()) == (("bob",), [[0, 0, 3, 0]])
    texts = {"document": ["a"], "text": [TEXT]}
    with pytest.raises(BadTable, match=message):
        read_labels(rows(good, row), texts, strict=True)
    message = message.replace("spans, row 1", "row 0").replace("row 1", "row 0")
    with pytest.raises(BadTable, match=message):
        labels(row)
    if row[1] is not None:
        with pytest.raises(BadTable, match=message):
            read_labels(rows(good), texts, rows(row))


CELLS = st.one_of(
    st.none(), st.integers(-3, 40), st.floats(-3, 40), st.floats(), st.sampled_from(["", "x", "7", "2026-01-01", "²"])
)
GOOD = {"a": [(0, 3, "PER"), (8, 11, "LOC")], "b": [(4, 7, "PER")], "c": []}


@pytest.mark.parametrize("in_texts", [True, False])
@given(st.tuples(CELLS, CELLS, st.sampled_from(["PER", "LOC", None])), st.sampled_from("abcd"), st.booleans())
def test_a_broken_row_changes_no_other_answer_and_never_becomes_an_empty_one(
    in_texts: bool, span: tuple[Any, Any, Any], document: str, marks_more: bool
) -> None:
    """Bob's answers about three documents stay, whatever Ann marks in one of them, or in one that has no text."""
    bobs = [(name, "bob", *one) for name, marked in GOOD.items() for one in marked or [(None, None, None)]]
    anns = [(document, "ann", *span)] + [(document, "ann", 0, 3, "PER")] * marks_more
    texts = {"document": [*GOOD], "text": [TEXT] * len(GOOD)} if in_texts else None
    table = rows(*bobs, *anns)
    for side in ("start", "end"):  # a column with a text is text, as in a file
        if any(isinstance(cell, str) for cell in table[side]):
            table[side] = [None if cell is None else str(cell) for cell in table[side]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_labels(table, texts)
    marked: dict[tuple[Any, Any], list[Any]] = {}
    for item, who in found.answer_a2.tolist():
        marked[found.annotators[who], found.items[item]] = []
    for answer, first, last, code in found.span_s4.tolist():
        item, who = found.answer_a2[answer].tolist()
        sides = found.written(np.array([first, last]))
        marked[found.annotators[who], found.items[item]].append((*sides, found.classes[code]))
    assert {name: own for (who, name), own in marked.items() if who == "bob"} == GOOD
    is_read = ("ann", document) in marked
    assert is_read is not any(issubclass(one.category, UnreadableSpans) for one in caught)
    if is_read:
        has_mark = any(cell not in (None, "") and cell == cell for cell in span)  # not NaN
        assert bool(marked["ann", document]) is (has_mark or marks_more)


@pytest.mark.parametrize("end", ["three", "²"])
def test_what_is_no_number_is_named(end: str) -> None:
    table = rows(("a", "ann", 0, 3, "PER")) | {"end": [end]}
    with pytest.raises(BadTable, match=f"end is '{end}'; expected a whole number from 0"):
        read_labels(table, {"document": ["a"], "text": [TEXT]})


words = st.text(alphabet="ab .'é\n", max_size=30)


@given(st.lists(words, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_tokens_tile_all_that_is_no_white_space_and_every_span(texts: list[str], random: Any) -> None:
    marked = []
    for number, text in enumerate(texts):
        for annotator in ("ann", "bob"):
            start, end = sorted(random.sample(range(len(text) + 1), 2)) if len(text) else (0, 0)
            there = start < end and text[start:end].strip()
            marked.append((str(number), annotator, *((start, end, "X") if there else (None, None, None))))
    found = labels(*marked, **{str(number): text for number, text in enumerate(texts)})
    tokens = found.tokens
    for number, text in enumerate(texts):
        own = tokens.item_t == number
        covered = np.zeros(len(text), int)
        for start, end in zip(tokens.start_t[own], tokens.end_t[own], strict=True):
            covered[start:end] += 1
        assert covered.tolist() == [int(not character.isspace()) for character in text]
    first, last = tokens.within(found.answer_a2[found.span_s4[:, 0], 0], found.span_s4[:, 1], found.span_s4[:, 2])
    assert (tokens.start_t[first] == found.span_s4[:, 1]).all()
    assert (tokens.end_t[last - 1] == found.span_s4[:, 2]).all()


def test_what_leaves_nothing_to_judge_is_said() -> None:
    with pytest.raises(BadEvidence, match="no label was given yet"):
        _ = token_layers(labels(("a", "ann", None, None, None)))
    with pytest.raises(BadEvidence, match=r"a label is '\(nothing\)'.*; give the label another name"):
        _ = labels(("a", "ann", 0, 3, "(nothing)")).matched
    with pytest.raises(BadEvidence, match="none of them has a word"):
        _ = SpanLabels.from_texts({"a": " ", "b": ""}, [], classes=("PER",)).token_evidence(0)
