"""Spans in tables. A row has a document, an annotator, start and end of a span, and its label.

    document,annotator,start,end,label
    a,ann,0,3,PER
    b,ann,,,                            the annotator marked nothing there

Texts are in a column `text` of the same table, or in a table of their own with the columns document and text. Without
texts, spans are stretches of time: start and end are numbers below 2**53 (seconds, frames, ...), or times in ISO 8601.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from hitl.annotations import Name
from hitl.errors import BadTable, UnreadableSpans
from hitl.formatting import counted
from hitl.kinds.kind import places_type
from hitl.kinds.span_labels import Answer, Span, SpanLabels, trimmed
from hitl.parts import LARGEST, Place, number_of
from hitl.tables.columns import as_typed_names, empty_as_null, require_columns, table_of, with_names
from hitl.tables.encode import writable
from hitl.tables.read import name_of, place_in
from hitl.tables.times import iso_8601

TEXT = "text"
NAMED = 5
"""Maximum number of unreadable answers that a warning names."""


Columns = tuple[str, str | None, str]
"""Names of the columns of the document, the annotator (None in a table of ground truth), and the label."""


def read_labels(
    spans: Any,
    texts: Any = None,
    truth: Any = None,
    *,
    document: str = "document",
    annotator: str = "annotator",
    label: str = "label",
    strict: bool = False,
) -> SpanLabels:
    """Read spans from tables. They are parts of texts if there are texts, otherwise stretches of time.

    `texts` has the columns document and text; documents without an answer are kept. `truth` has the columns of `spans`
    except the annotator. An answer with a span that is outside its text, or no stretch of time, is left out, and an
    UnreadableSpans warning names it. Raise BadTable instead, naming the row, if `strict`, or if no answer is left.

    Example:
        >>> rows = {"document": ["a"], "annotator": ["ann"], "start": [2.5], "end": [9], "label": ["walk"]}
        >>> str(read_labels(rows))
        '1 recording, 1 answer by 1 annotator: 1 stretch of time: walk'
    """
    table = table_of(spans, "spans")
    whole: dict[Name, str] | None = None
    if texts is not None or TEXT in table.column_names:
        own = (table, "spans") if texts is None else (table_of(texts, "texts"), "texts")
        whole = _texts(*own, document, repeated=texts is None)
    by_annotator, unreadable = _spans(table, "spans", (document, annotator, label), whole)
    if unreadable:
        _report(unreadable, strict or not by_annotator)
    answers = [Answer(*pair, marked) for pair, marked in by_annotator.items()]
    known: dict[Name, list[Span]] = {}
    if truth is not None:
        right, wrong = _spans(table_of(truth, "truth"), "truth", (document, None, label), whole)
        for error in wrong:
            raise error
        known = {name: marked for (name, _), marked in right.items()}
    if whole is not None:
        return SpanLabels.from_texts(whole, answers, known)
    return SpanLabels.from_recordings(dict.fromkeys([*(name for name, _ in by_annotator), *known]), answers, known)


def _spans(
    table: pa.Table, called: str, columns: Columns, texts: Mapping[Name, str] | None
) -> tuple[dict[tuple[Name, Name], list[Span]], list[BadTable]]:
    """Return (document, annotator) -> spans, without answers that cannot be read, and an error for each of these.

    The annotator is "" if `columns` names no column of annotators.
    """
    spans: dict[tuple[Name, Name], list[Span]] = {}
    errors: dict[tuple[Name, Name], BadTable] = {}
    place_of = _place_of(table, called)
    for row, (document, annotator, span) in enumerate(span_rows(table, called, columns, texts)):
        if document is None:
            raise BadTable(f"{place_of(row)}: the {columns[0]} is empty; expected one in every row")
        if annotator is None:
            span = BadTable(f"{place_of(row)}: the {columns[1]} is empty; expected one in every row")
        if isinstance(span, BadTable):
            errors.setdefault((document, annotator), span)
        else:
            spans.setdefault((document, annotator), []).extend([] if span is None else [span])
    return {pair: marked for pair, marked in spans.items() if pair not in errors}, list(errors.values())


def _report(unreadable: Sequence[BadTable], strict: bool) -> None:
    """Warn of answers that are left out. Raise the first error instead if `strict`."""
    if strict:
        raise unreadable[0]
    more = f"; and {len(unreadable) - NAMED:,} more" if len(unreadable) > NAMED else ""
    warnings.warn(
        f"{counted(len(unreadable), 'answer')} with a span that cannot be read "
        f"{'is' if len(unreadable) == 1 else 'are'} left out: {'; '.join(map(str, unreadable[:NAMED]))}{more}",
        UnreadableSpans,
        stacklevel=3,
    )


def _place_of(table: pa.Table, called: str) -> Callable[[int], str]:
    where = name_of(table, called)
    return place_in(table, lambda row: f"{where}, row {row}")


def span_rows(
    table: pa.Table, called: str, columns: Columns, texts: Mapping[Name, str] | None
) -> list[tuple[Any, Any, Span | BadTable | None]]:
    """Return document, annotator and span of each row: None if nothing is marked, an error if it cannot be read.

    Raise BadTable if a column is missing.
    """
    named = [name for name in columns if name is not None]
    hint = "A text may also be in a table of its own: document, text (--texts)"
    require_columns(table, [*named, "start", "end"], name_of(table, called), hint)
    table, place_of = with_names(table, named), _place_of(table, called)
    cells = {name: empty_as_null(as_typed_names(table.column(name))).to_pylist() for name in named}
    owners = (cells[name] if name is not None else [""] * table.num_rows for name in columns)
    sides = (table.column(side).to_pylist() for side in ("start", "end"))
    rows: list[tuple[Any, Any, Span | BadTable | None]] = []
    span: Span | BadTable | None
    in_words: dict[Any, bool] = {}  # document -> whether its times are text
    for row, (document, annotator, label, start, end) in enumerate(zip(*owners, *sides, strict=True)):
        try:
            if texts is None:
                span = time_span(start, end, label)
                for side in () if span is None else span[:2]:
                    if in_words.setdefault(document, isinstance(side, str)) != isinstance(side, str):
                        raise ValueError(f"{side} among other times of {document!r}; expected all numbers or ISO 8601")
            elif document not in texts:
                raise ValueError(f"no text of document {document!r}")
            else:
                span = _text_span(document, texts[document], start, end, label, columns[2])
        except ValueError as error:
            span = BadTable(f"{place_of(row)}: {error}")
        rows.append((document, annotator, span))
    return rows


def _text_span(document: Name, text: str, start: Any, end: Any, label: Name | None, column: str) -> Span | None:
    """Read a span of a text, without white space at its ends. Return None if all fields are empty."""
    first, last = _offset("start", start), _offset("end", end)
    if first is None and last is None and label is None:
        return None
    if first is None or last is None or label is None:
        raise ValueError(f"expected start, end and {column} together, or none of them")
    place = trimmed(text, first, last)
    if place is None:
        raise ValueError(
            f"{first} to {last} is no part of the text of document {document!r}, which has {len(text)} characters; "
            "expected 0 <= start < end, and more than white space"
        )
    return *place, label


def _offset(column: str, value: Any) -> int | None:
    text = "" if value is None else str(value).strip().removesuffix(".0")
    if text and not text.isdecimal():
        raise ValueError(f"{column} is {value!r}; expected a whole number from 0")
    return int(text) if text else None


def time_span(start: Any, end: Any, label: Name | None) -> Span | None:
    """Read a stretch of time. Return None if all fields are empty. Raise ValueError for anything else."""
    begin, stop = _time(start), _time(end)
    if begin is None and stop is None and label is None:
        return None
    if begin is None or stop is None or label is None:
        raise ValueError("expected start, end and label together, or none of them")
    try:
        if number_of(begin) < number_of(stop):
            return begin, stop, label
    except ValueError:
        pass
    raise ValueError(
        f"{start} to {end} is no stretch of time; expected numbers below 2**53 (about 9e15), or times in ISO 8601, "
        "and a start before its end"
    )


def _time(value: Any) -> Place | None:
    """Read a cell as a number if possible, otherwise as text. Return None if it is empty or NaN."""
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


def _texts(table: pa.Table, called: str, document: str, repeated: bool) -> dict[Name, str]:
    """Return document -> text. If `repeated`, a document may have several rows, with equal texts. Raise BadTable."""
    require_columns(table, [document, TEXT], name_of(table, called))
    place_of = _place_of(table, called)
    names = empty_as_null(as_typed_names(with_names(table, [document]).column(document))).to_pylist()
    texts: dict[Name, str] = {}
    for row, (name, text) in enumerate(zip(names, table.column(TEXT).to_pylist(), strict=True)):
        if name is None or text is None:
            raise BadTable(f"{place_of(row)}: expected a {document} and its text")
        if name in texts and not repeated:
            raise BadTable(f"{place_of(row)}: {document} {name!r} appears twice; expected one row")
        if texts.setdefault(name, str(text)) != str(text):
            raise BadTable(f"{place_of(row)}: document {name!r} has another text in an earlier row")
    return texts


def answer_table(labels: SpanLabels) -> pa.Table:
    """Return one row per span, and one per answer without spans, in the form of `read_labels`, with time and text."""
    span_s4 = labels.span_s4
    empty = np.setdiff1d(np.arange(len(labels.answer_a2)), span_s4[:, 0])  # answers without spans
    sides = [[*labels.written(span_s4[:, side]), *[None] * len(empty)] for side in (1, 2)]
    names = [*(labels.classes[code] for code in span_s4[:, 3].tolist()), *[None] * len(empty)]
    answer = np.concatenate((span_s4[:, 0], empty))
    item_r, annotator_r = labels.answer_a2[answer].T.tolist()
    kind = places_type([*sides[0], *sides[1]])
    if pa.types.is_string(kind):
        sides = [[None if one is None else str(one) for one in side] for side in sides]
    columns = {
        "document": pa.array([labels.items[d] for d in item_r], pa.array(labels.items).type),
        "annotator": pa.array([labels.annotators[k] for k in annotator_r]),
        "start": pa.array(sides[0], kind),
        "end": pa.array(sides[1], kind),
        "label": pa.array(names, pa.string()),
        "time": iso_8601(labels.time_a[answer]),
    }
    if labels.texts is not None:
        columns[TEXT] = pa.array([writable(labels.texts[d]) for d in item_r], pa.string())
    return pa.table(columns).take(np.argsort(answer, kind="stable"))
