"""doccano JSONL: a record per text or image, without the annotator.

doccano writes a file for each annotator, named after them, into a .zip file. So the annotator is the name of the file,
unless an annotation of an old version has its user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, text_of

LABELS = ("label", "labels", "entities", "annotations")
"""Fields that hold the answers, in different versions and kinds of projects."""


class Doccano(Tool):
    """Exports of doccano."""

    title = "doccano JSONL"
    items, annotators = ("text", "id"), ("annotator", "name of the file")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for records with a text, an image or a file, and lists of labels."""
        about = not {"text", "data", "filename"}.isdisjoint(names)
        marks = {"Comments", "annotation_approver"} & names
        tasks = any(isinstance(fields.get("data"), dict) for fields in first)  # of Label Studio
        listed = not tasks and any(isinstance(fields.get(name), list) for fields in first for name in LABELS)
        return kind == "json" and about and listed and (bool(marks) or names <= {"id", "text", "data", "meta", *LABELS})

    def survey(self, export: Export) -> None:
        """Find whether the labels are spans."""
        self.of_spans = any(
            (isinstance(mark, list) and len(mark) == 3) or (isinstance(mark, dict) and "start_offset" in mark)
            for record in export.records()
            if isinstance(marks := _marks(record.fields), list)  # `read` tells
            for mark in marks
        )
        self.numbers = count()

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the labels of a text, or its spans."""
        fields, marks = record.fields, _marks(record.fields)
        text = fields.get("text", fields.get("data"))
        item = export.item_of(fields, fields.get("id", next(self.numbers)))
        if not isinstance(marks, list):
            raise ValueError(f"{str(marks)[:40]!r} is no list of labels")
        if not marks:  # doccano also exports texts that no one has seen
            export.skipped["text without labels|texts without labels"] += 1
        for user in {each.get("user") if isinstance(each, dict) else None for each in marks}:
            own = [each for each in marks if not isinstance(each, dict) or each.get("user") == user]
            who = record.source if user is None else text_of(user)
            if self.of_spans:
                yield Answer(item, "label", who, spans=tuple(map(_span, own)), text=text)
            else:
                labels = [each.get("label", each.get("text")) if isinstance(each, dict) else each for each in own]
                yield Answer(item, "label", who, choices_of(labels))


def _marks(fields: Mapping[str, Any]) -> Any:
    return next((fields[name] for name in LABELS if fields.get(name) is not None), [])


def _span(mark: Any) -> tuple[int, int, str]:
    start, end, label = mark if isinstance(mark, list) else (mark["start_offset"], mark["end_offset"], mark["label"])
    return start, end, str(label)
