"""Label Studio JSON-MIN and CSV: a record per annotation, with the data of its task and a field per control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, answer_columns
from hitl.connectors.exports.label_studio import KEYS, SPANS, WHOLE, read_tasks

OWN = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement")
"""Fields that Label Studio adds to those of the task and of the controls."""
TYPES = {KEYS.get(type_, type_): type_ for type_ in (*WHOLE, *SPANS, "rectanglelabels", "brushlabels", "text")}
"""Key of a value -> type of its result."""


class LabelStudioTable:
    """Exports of Label Studio as JSON-MIN or CSV."""

    title = "Label Studio JSON-MIN or CSV"
    items, annotators = ("task", "id"), ("annotator", "annotator")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for records with the fields that Label Studio adds."""
        return {"id", "annotation_id", "lead_time"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers in the fields of controls. In JSON-MIN, they are between "id" and "annotator"."""
        names: dict[str, None] = {}
        controls: dict[str, None] = {}
        for record in export.records():
            fields = list(record.fields)
            names |= dict.fromkeys(fields)
            end = "annotator" if "annotator" in fields else "annotation_id"
            if export.kind == "json" and "id" in fields and end in fields:
                controls |= dict.fromkeys(fields[fields.index("id") + 1 : fields.index(end)])
            controls |= dict.fromkeys(name for name, cell in record.fields.items() if _entries(name, cell, marked=True))
        candidates = [name for name in names if name not in OWN]
        columns = answer_columns(export, "id", candidates, [name for name in controls if name not in OWN])
        return read_tasks(export, lambda: ((record, _task(record, columns)) for record in export.records()))


def _task(record: Record, columns: Sequence[str]) -> Mapping[str, Any]:
    fields = record.fields
    result = [entry for name in columns for entry in _entries(name, fields.get(name))]
    annotation = {"id": fields.get("annotation_id"), "completed_by": fields.get("annotator"), "result": result}
    annotation |= {name: fields.get(name) for name in ("created_at", "updated_at", "lead_time")}
    data = {name: value for name, value in fields.items() if name not in columns and name not in OWN}
    return {"id": fields.get("id"), "data": data, "annotations": [annotation]}


def _entries(name: str, cell: Any, marked: bool = False) -> list[dict[str, Any]]:
    """Return a field as results of Label Studio. If `marked`, return only those whose form shows that they are."""
    if isinstance(cell, str) and cell[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            cell = json.loads(cell)
    values = cell if isinstance(cell, list) else [cell]
    if not marked:
        values = [{"choices": [str(value)]} if isinstance(value, str | int | float) else value for value in values]
    entries = []
    for value in values:
        if isinstance(value, dict) and (key := next((key for key in TYPES if key in value), None)):
            type_ = TYPES[key]
            entries.append({"from_name": name, "type": "textarea" if type_ == "text" else type_, "value": value})
    return entries
