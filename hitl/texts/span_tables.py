"""Tables of spans: what was found in texts, and what annotators marked in them.

found_table     a row for each span: document, start, end, label, confidence, marked, answers, text
answer_table    a row for each span of each answer: document, annotator, start, end, label, time, text (the whole one)

A text in which nothing was found, or marked, has one row without a span. `hitl combine` reads answers as they are
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hitl.annotations import Name
from hitl.tables.encoding import iso_8601
from hitl.texts.span_labels import FoundSpan, SpanLabels

NO_SPAN: Mapping[str, Any] = {"start": None, "end": None, "label": None}


def found_table(spans: Iterable[FoundSpan], texts: Mapping[Name, str], empty: Sequence[Name] = ()) -> pa.Table:
    """The spans that are part of the consensus, by document and place; `empty` names texts in which there is none."""
    place = {name: number for number, name in enumerate(texts)}
    rows: list[dict[str, Any]] = [
        {
            "document": span.document,
            "start": span.start,
            "end": span.end,
            "label": span.kind,
            "confidence": span.probability,
            "marked": span.marked,
            "answers": span.answers,
            "text": texts[span.document][span.start : span.end],
        }
        for span in spans
        if span.found
    ]
    rows += [{"document": name, **NO_SPAN} for name in empty]
    rows.sort(key=lambda row: (place[row["document"]], row["start"] or 0, row["end"] or 0))
    names = pa.array(list(texts)).type
    kinds = {"confidence": pa.float64(), "label": pa.string(), "text": pa.string(), "document": names}
    columns = ("document", "start", "end", "label", "confidence", "marked", "answers", "text")
    return pa.table(
        {column: pa.array([row.get(column) for row in rows], kinds.get(column, pa.int64())) for column in columns}
    )


def answer_table(labels: SpanLabels) -> pa.Table:
    """What each annotator marked, in the order of documents and annotators."""
    rows: list[dict[str, Any]] = []
    spans: dict[int, list[dict[str, Any]]] = {}
    for answer, start, end, kind in labels.span_s4.tolist():
        spans.setdefault(answer, []).append({"start": start, "end": end, "label": labels.kinds[kind]})
    for number, (document, annotator) in enumerate(labels.answer_a2.tolist()):
        whole = {"document": labels.documents[document], "annotator": labels.annotators[annotator], "answer": number}
        rows += [{**whole, **span, "whole": labels.texts[document]} for span in spans.get(number, [NO_SPAN])]
    times = labels.time_a[[row["answer"] for row in rows]] if rows else np.empty(0)
    return pa.table(
        {
            "document": pa.array([row["document"] for row in rows], pa.array(labels.documents).type),
            "annotator": pa.array([row["annotator"] for row in rows]),
            "start": pa.array([row["start"] for row in rows], pa.int64()),
            "end": pa.array([row["end"] for row in rows], pa.int64()),
            "label": pa.array([row["label"] for row in rows], pa.string()),
            "time": iso_8601(times),
            "text": pa.array([row["whole"] for row in rows], pa.string()),
        }
    )
