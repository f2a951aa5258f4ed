"""Convert spans in a folder of tables, which mark parts of texts or segments of recordings, to answers and back.

annotations.csv   item, annotator, start, end, label [, time]    a row without a span: nothing to mark
items.csv         item, text                                     the text in which parts are marked; without texts,
                                                                 spans are time segments
truth.csv         item, start, end, label
consensus.csv     item, start, end, label, confidence, text      written; a row without a span: no spans found
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from hitl.annotations import Name
from hitl.kinds.span_tables import span_rows
from hitl.parts import Place, spans_as_label

TEXT, RECORDING = "text", "recording"
"""Columns of items.* for the text, and for the address of the recording (optional)."""


def are_in(table: pa.Table | None) -> bool:
    """Return True if the rows of this table are spans."""
    return table is not None and {"start", "end"} <= set(table.column_names)


def as_answers(
    table: pa.Table, items: Mapping[str, Mapping[str, Any]], item: str, label: str, others: Sequence[str] = ()
) -> pa.Table:
    """Return one row per item and combination of the columns `others`, with its spans as one label.

    Raises BadTable, with the row, for a span outside the item's text, or an invalid time segment.
    """
    texts: dict[Name, str] = {key: str(data[TEXT]) for key, data in items.items() if TEXT in data}
    rows = span_rows(table, "annotations", (item, None, label), texts or None)
    marked: dict[tuple[Any, ...], list[tuple[Place, Place, str]]] = {}
    for (key, _, span), *other in zip(rows, *(table.column(name).to_pylist() for name in others), strict=True):
        marked.setdefault((key, *other), []).extend([] if span is None else [(span[0], span[1], str(span[2]))])
    columns = list(zip(*marked, strict=True)) or [()] * (1 + len(others))
    named = {name: pa.array(columns[place]) for place, name in enumerate((item, *others))}
    return pa.table({**named, label: pa.array([spans_as_label(one) for one in marked.values()], pa.string())})


def consensus_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of consensus.csv for the rows of an operation."""
    of_texts = all(TEXT in span for row in rows for span in row["parts"])
    found = []
    for row in rows:
        nothing = {"start": None, "end": None, "label": None, "confidence": row["confidence"]}
        for span in row["parts"] or [nothing | ({TEXT: None} if of_texts else {})]:
            found.append({"item": row["item"], **span})
    return found
