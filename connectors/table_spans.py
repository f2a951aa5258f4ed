"""Spans in a folder of tables: rows of parts of texts become one answer for each text and annotator, and come back.

annotations.csv   item, annotator, start, end, label [, time]    a row without a span: nothing is to be marked
items.csv         item, text                                     the text of which parts are marked
truth.csv         item, start, end, label
consensus.csv     item, start, end, label, confidence, text      written; a row without a span: nothing was found
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from hitl.annotations import Name
from hitl.errors import BadTable
from hitl.exchange import spans_as_label
from hitl.texts.span_rows import SpanRows

TEXT = "text"
"""The column of items.* that holds the text."""


def are_in(table: pa.Table | None) -> bool:
    """Whether the rows of this table are spans."""
    return table is not None and {"start", "end"} <= set(table.column_names)


def as_answers(
    table: pa.Table, items: Mapping[str, Mapping[str, Any]], item: str, label: str, others: Sequence[str] = ()
) -> pa.Table:
    """One row for each item and what the columns `others` hold beside it: its spans as one label.

    Raises BadTable, naming the row, for a span that is no part of the item's text.
    """
    texts: dict[Name, str] = {key: str(data[TEXT]) for key, data in items.items() if TEXT in data}
    if not texts:
        raise BadTable(
            f"annotations with start and end are parts of texts; expected items.* with columns {item}, {TEXT}"
        )
    rows = SpanRows.of(table, "annotations", [item, label], {})
    spans = rows.spans(item, label, texts)
    columns = [rows.names(item), *(table.column(name).to_pylist() for name in others)]
    marked: dict[tuple[Any, ...], list[tuple[int, int, str]]] = {}
    for *key, span in zip(*columns, spans, strict=True):
        marked.setdefault(tuple(key), []).extend([] if span is None else [(span[0], span[1], str(span[2]))])
    found = list(zip(*marked, strict=True)) or [()] * len(columns)
    named = {name: pa.array(found[place]) for place, name in enumerate((item, *others))}
    return pa.table({**named, label: pa.array([spans_as_label(one) for one in marked.values()], pa.string())})


def consensus_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of consensus.csv for the rows of an operation."""
    found = []
    for row in rows:
        nothing = {"start": None, "end": None, "label": None, "confidence": row["confidence"], "text": None}
        for span in row["spans"] or [nothing]:
            found.append({"item": row["item"], **{name: span[name] for name in nothing}})
    return found
