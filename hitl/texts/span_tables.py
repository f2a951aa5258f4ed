"""Tables of spans: what was found in texts, and what annotators marked in them.

found_table     a row for each span: document, start, end, label, confidence, marked, answers, text
answer_table    a row for each span of each answer: document, annotator, start, end, label, time, text (the whole one)

A text in which nothing was found, or marked, has one row without a span. Recordings have the same tables without the
texts. `hitl combine` reads answers as they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hitl.annotations import Name, Names
from hitl.parts import Part
from hitl.tables.encoding import iso_8601, writable
from hitl.texts.marked_labels import MarkedLabels, number_of

NO_SPAN: Mapping[str, Any] = {"start": None, "end": None, "label": None}


def found_table(
    spans: Iterable[Part], documents: Names, texts: Sequence[str] | None, empty: Sequence[Name] = ()
) -> pa.Table:
    """The spans that are part of the consensus, by document and place; `empty` names those in which there is none."""
    place = {name: number for number, name in enumerate(documents)}
    found = sorted(
        (one for one in spans if one.found),
        key=lambda one: (number_of(one.place["start"]), number_of(one.place["end"])),
    )
    rows: list[dict[str, Any]] = [
        {
            "document": span.item,
            "start": span.place["start"],
            "end": span.place["end"],
            "label": span.label,
            "confidence": span.probability,
            "marked": span.marked,
            "answers": span.answers,
        }
        for span in found
    ]
    rows += [{"document": name, **NO_SPAN} for name in empty]
    rows.sort(key=lambda row: place[row["document"]])
    columns = {
        "document": pa.array([row["document"] for row in rows], pa.array(list(documents)).type),
        **_places(rows),
        "label": pa.array([row["label"] for row in rows], pa.string()),
        "confidence": pa.array([row.get("confidence") for row in rows], pa.float64()),
        **{name: pa.array([row.get(name) for row in rows], pa.int64()) for name in ("marked", "answers")},
    }
    if texts is not None:
        whole = [texts[place[row["document"]]] for row in rows]
        pairs = zip(rows, whole, strict=True)
        marked = [None if row["start"] is None else writable(text[row["start"] : row["end"]]) for row, text in pairs]
        columns["text"] = pa.array(marked, pa.string())
    return pa.table(columns)


def answer_table(labels: MarkedLabels) -> pa.Table:
    """What each annotator marked, in the order of documents and annotators."""
    rows: list[dict[str, Any]] = []
    spans: dict[int, list[dict[str, Any]]] = {}
    starts, ends = labels.written(labels.span_s4[:, 1]), labels.written(labels.span_s4[:, 2])
    for (answer, _, _, kind), start, end in zip(labels.span_s4.tolist(), starts, ends, strict=True):
        spans.setdefault(answer, []).append({"start": start, "end": end, "label": labels.kinds[kind]})
    for number, (document, annotator) in enumerate(labels.answer_a2.tolist()):
        whole = {"document": document, "annotator": labels.annotators[annotator], "answer": number}
        rows += [{**whole, **span} for span in spans.get(number, [NO_SPAN])]
    times = labels.time_a[[row["answer"] for row in rows]] if rows else np.empty(0)
    columns = {
        "document": pa.array([labels.documents[row["document"]] for row in rows], pa.array(labels.documents).type),
        "annotator": pa.array([row["annotator"] for row in rows]),
        **_places(rows),
        "label": pa.array([row["label"] for row in rows], pa.string()),
        "time": iso_8601(times),
    }
    if labels.texts is not None:
        columns["text"] = pa.array([writable(labels.texts[row["document"]]) for row in rows], pa.string())
    return pa.table(columns)


def _places(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """The columns of starts and ends: text where one is, else numbers, whole where all are (or there is none)."""
    given = {side: [row[side] for row in rows] for side in ("start", "end")}
    kinds = {type(one) for side in given.values() for one in side if one is not None}
    kind = pa.string() if str in kinds else pa.float64() if float in kinds else pa.int64()
    if kind == pa.string():
        given = {side: [None if one is None else str(one) for one in values] for side, values in given.items()}
    return {side: pa.array(values, kind) for side, values in given.items()}
