"""Stretches of recordings in tables: rows of a recording, an annotator, a start, an end, and a label.

    document,annotator,start,end,label
    a,ann,12.5,60.2,walk
    b,ann,,,                            the annotator marked nothing there

Start and end are numbers below 2**53 (seconds, frames, ...), or times in ISO 8601.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hitl.annotations import Name
from hitl.errors import BadTable
from hitl.parts import Place
from hitl.tables.arrow import table_of
from hitl.tables.columns import empty_as_null, require_columns, with_text
from hitl.tables.encoding import names_of
from hitl.tables.places import name_of, place_in
from hitl.texts.marked_labels import LARGEST, number_of
from hitl.timelines.timeline_labels import Answer, Segment, TimelineLabels


def labels_of(
    segments: Any,
    truth: Any = None,
    *,
    document: str = "document",
    annotator: str = "annotator",
    label: str = "label",
) -> TimelineLabels:
    """From rows of document, annotator, start, end and label; `truth` has the same without the annotator.

    Raises BadTable, naming the row, for what is no stretch of time.

    Example:
        >>> rows = {"document": ["a"], "annotator": ["ann"], "start": [2.5], "end": [9], "label": ["walk"]}
        >>> labels_of(rows).place_v.tolist()
        [2.5, 9.0]
    """
    marked = segments_of(segments, "spans", document, label, annotator)
    right = {} if truth is None else segments_of(truth, "truth", document, label)
    known = {name: own for (name, _), own in right.items()}
    names = dict.fromkeys([*(name for name, _ in marked), *known])
    return TimelineLabels.from_answers(names, [Answer(*pair, own) for pair, own in marked.items()], known)


def segments_of(
    given: Any, called: str, document: str, label: str, annotator: str | None = None
) -> dict[tuple[Name, Name], list[Segment]]:
    """(document, annotator) -> what is marked; the annotator is "" where no column is named. Raises BadTable."""
    table = table_of(given, called)
    where = name_of(table, called)
    named = [document, *([annotator] if annotator else []), label]
    require_columns(table, [*named, "start", "end"], where)
    table = with_text(table, named)
    place_of = place_in(table, lambda row: f"{where}, row {row}")
    columns = {name: empty_as_null(names_of(table.column(name))).to_pylist() for name in named}
    people = columns[annotator] if annotator else [""] * table.num_rows
    places = zip(*(table.column(side).to_pylist() for side in ("start", "end")), strict=True)
    found: dict[tuple[Name, Name], list[Segment]] = {}
    for row, (name, who, kind, sides) in enumerate(zip(columns[document], people, columns[label], places, strict=True)):
        if name is None or who is None:
            missing = document if name is None else annotator
            raise BadTable(f"{place_of(row)}: the {missing} is empty; expected one in every row")
        try:
            segment = segment_in(sides[0], sides[1], kind)
        except ValueError as error:
            raise BadTable(f"{place_of(row)}: {error}") from None
        found.setdefault((name, who), []).extend([] if segment is None else [segment])
    return found


def segment_in(start: Any, end: Any, kind: Name | None) -> Segment | None:
    """One row as a stretch of time; None where all of it is empty. Raises ValueError, in words, for what is none."""
    begin, stop = _time(start), _time(end)
    if begin is None and stop is None and kind is None:
        return None
    if begin is None or stop is None or kind is None:
        raise ValueError("expected start, end and label together, or none of them")
    try:
        if number_of(begin) < number_of(stop):
            return begin, stop, kind
    except ValueError:
        pass
    raise ValueError(
        f"{start} to {end} is no stretch of time; expected numbers below 2**53 (about 9e15), or times in ISO 8601, "
        "and a start before its end"
    )


def _time(value: Any) -> Place | None:
    """A cell as a number or as text; None where it is empty."""
    if isinstance(value, datetime):
        return value.isoformat()
    text = "" if value is None else str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text or None
    if number != number:
        return None
    return int(number) if number.is_integer() and abs(number) < LARGEST else number
