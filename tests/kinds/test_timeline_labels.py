"""Stretches of time as annotators mark them: borders, layers, matching, and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.errors import BadTable, UnreadableSpans
from hitl.kinds.kind import NOTHING
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.kinds.span_tables import answer_table, read_labels
from hitl.parts import spans_as_label, spans_in


def labels(known: dict[str, Any] | None = None, **said: Any) -> SpanLabels:
    """Answers to one recording, annotator -> stretches."""
    answers = [Answer("r", annotator, segments) for annotator, segments in said.items()]
    return SpanLabels.from_recordings(["r"], answers, known, classes=("A", "B"))


def test_borders_are_numbers_or_times_and_are_written_as_they_were() -> None:
    found = labels(
        ann=[("2026-02-01T00:00:00", "2026-02-01T00:00:09.5", "A")],
        bob=[("2026-01-31T23:59:59", "2026-02-01T00:00:05", "A")],
    )
    assert np.diff(found.border_v).tolist() == [1.0, 5.0, 4.5]
    assert found.written(found.span_s4[:, 1]) == ["2026-02-01T00:00:00", "2026-01-31T23:59:59"]
    assert len(found.matched[0]) == 1
    again = answer_table(found).to_pylist()
    assert again[0]["end"] == "2026-02-01T00:00:09.5"
    label = spans_as_label([(0.5, 2, "A"), (0.1, 0.5, "B")])
    assert spans_in(label) == [(0.1, 0.5, "B"), (0.5, 2, "A")]


def test_numbers_in_one_recording_and_times_in_another_are_both_text_in_a_table() -> None:
    times = [("2026-02-01T00:00:00", "2026-02-01T00:00:09", "A")]
    answers = [Answer("r", "ann", [(1, 2.5, "A")]), Answer("s", "ann", times)]
    table = answer_table(SpanLabels.from_recordings(["r", "s"], answers))
    assert table.column("start").to_pylist() == ["1", "2026-02-01T00:00:00"]
    assert table.column("end").to_pylist() == ["2.5", "2026-02-01T00:00:09"]
    assert read_labels(table).border_v.tolist() == [1, 2.5, 1769904000, 1769904009]
    assert spans_in(spans_as_label([*times, (1, 2, "A")])) == [(1, 2, "A"), *times]


def test_what_is_no_stretch_is_left_out_and_one_over_another_of_its_kind_is_one_with_it() -> None:
    found = labels(ann=[(5, 5, "A"), (9, 8, "B"), (0, 4, "A"), (3.5, 7, "A")])
    assert (len(found.span_s4), found.merged) == (1, 1)
    assert found.border_v[found.span_s4[0, 1:3]].tolist() == [0, 7]


def test_kinds_laid_over_one_another_by_more_than_half_are_in_layers() -> None:
    """Stretches that follow each other may overlap a little."""
    assert labels(ann=[(0, 10, "A"), (9, 20, "B")]).layers == ((0, 1),)
    assert labels(ann=[(0, 100, "A"), (40, 45, "B")]).layers == ((0,), (1,))
    assert labels({"r": [(0, 10, "A"), (2, 12, "B")]}).layers == ((0,), (1,))


def test_known_stretches_are_truth_of_what_they_match() -> None:
    found = labels({"r": [(0, 50, "B")]}, ann=[(3, 48, "A"), (80, 90, "A")])
    (matched,) = found.matched
    assert matched.votes.truth is not None
    assert matched.votes.truth.tolist() == [2, 0]
    assert matched.votes.annotations.classes == (NOTHING, "A", "B")
    assert found.judged_n.tolist() == [True]


def test_tables_are_read_and_written() -> None:
    rows = {
        "document": ["b", "a", "a"],
        "annotator": ["ann", "ann", "bob"],
        "start": ["2.5", "0", ""],
        "end": ["9", "4", ""],
        "label": ["B", "A", ""],
    }
    truth = {"document": ["c"], "start": [None], "end": [None], "label": [None]}
    found = read_labels(rows, truth=truth)
    assert str(found) == (
        "3 recordings, 3 answers by 2 annotators: 2 stretches of time: A, B; known stretches of 1 recording"
    )
    again = read_labels(answer_table(found).to_pydict())
    assert sorted(again.border_v) == sorted(found.border_v)


@pytest.mark.parametrize(
    ("start", "end", "label", "what"),
    [
        (3, 2, "A", "3 to 2 is no stretch of time"),
        ("soon", "2", "A", "soon to 2 is no stretch of time"),
        (1, None, "A", "expected start, end and label together"),
        (1, float("inf"), "A", "is no stretch of time"),
        ("1", "9223372036854775808", "A", r"1 to 9223372036854775808 is no stretch of time; .* below 2\*\*53"),
        ("1700000000000000001", "1700000000000000009", "A", "1700000000000000001 to 1700000000000000009 is no"),
        (-1.7e308, 1.7e308, "A", "is no stretch of time"),
    ],
)
def test_what_is_no_stretch_in_a_table_is_named(start: Any, end: Any, label: str, what: str) -> None:
    rows = {"document": ["a"], "annotator": ["ann"], "start": [start], "end": [end], "label": [label]}
    with pytest.raises(BadTable, match=f"spans, row 0: .*{what}"):
        read_labels(rows)


def test_numbers_and_times_in_one_recording_are_told() -> None:
    times = ["2026-02-01T00:00:00", "2026-02-01T00:00:09"]
    rows = [("r", "ann", 1, 2.5), ("r", "bob", *times), ("r", "cy", 1, times[1]), ("s", "ann", *times)]
    table = {name: [str(row[n]) for row in rows] for n, name in enumerate(("document", "annotator", "start", "end"))}
    with pytest.warns(UnreadableSpans, match=r"2 answers .*row 1: 2026.* among other times of 'r'; expected all"):
        found = read_labels(table | {"label": ["A"] * len(rows)})
    assert [found.items[n] for n in found.item_s] == ["r", "s"]
