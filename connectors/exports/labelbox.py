"""Labelbox NDJSON (export v2): a record per data row, with the labels of each project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, text_of


class Labelbox(Tool):
    """Exports of Labelbox."""

    title = "Labelbox NDJSON"
    items, annotators = ("data row", "global_key"), ("annotator", "created_by")
    fields = ("data_row",)

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the classifications. Labels that are benchmarks are known answers, predictions are none."""
        row = record.fields["data_row"]
        export.item_field = next((name for name in ("global_key", "external_id") if row.get(name)), "id")
        item = export.item_of(record.fields, row.get(export.item_field))
        export.skipped["prediction"] += len(record.fields.get("experiments") or ())
        projects = (record.fields.get("projects") or {}).values()
        labels = [label for project in projects for label in project.get("labels") or ()]
        export.skipped["data row without labels|data rows without labels"] += not labels
        for label in labels:
            with export.part(record, f"label {label.get('id')}"):
                yield from list(_answers(export, item, label))


def _answers(export: Export, item: str, label: Mapping[str, Any]) -> Iterator[Answer]:
    details, time = label.get("label_details") or {}, label.get("performance_details") or {}
    objects = label["annotations"].get("objects") or ()
    export.skipped["object that is not a classification|objects that are not classifications"] += len(objects)
    waiting = list(label["annotations"].get("classifications") or ())
    if details.get("is_skipped") or label.get("skipped"):
        export.skipped["skipped label"] += 1
        return
    while waiting:
        each = waiting.pop(0)
        several = "checklist_answers" in each
        answers = each.get("checklist_answers") if several else [each.get("radio_answer")]
        if not several and each.get("radio_answer") is None:
            export.skipped["text answer"] += "text_answer" in each
            continue
        waiting += [inner for answer in answers or () for inner in answer.get("classifications") or ()]
        yield Answer(
            item,
            str(each["name"]),
            text_of(details.get("created_by")),
            choices_of([answer["name"] for answer in answers or ()]),
            several,
            time=details.get("created_at"),
            duration=time.get("seconds_to_create"),
            known=bool(details.get("is_benchmark_reference")),
        )
