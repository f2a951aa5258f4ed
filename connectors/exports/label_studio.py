"""Label Studio JSON, with a task per record, lines of JSON, the files of a target storage, JSON-MIN and CSV.

The export does not have the labeling configuration, so controls are inferred from the results. Spans are read by the
controls of the connector.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Span, Tool, answer_columns, text_of
from hitl.connectors.label_studio.config import Form
from hitl.connectors.label_studio.controls import SEPARATOR, NotUnderstood
from hitl.connectors.label_studio.regions import Regions, TextSpans, TimeSegments
from hitl.parts import spans_in

Json = Mapping[str, Any]
WHOLE = ("choices", "rating", "taxonomy", "pairwise")
"""Types of results about whole tasks."""
SPANS = {"labels": "Audio", "timeserieslabels": "TimeSeries", "timelinelabels": "Video"}
"""Types of results that mark spans -> tag of the recording; "labels" may also be about a text."""
TEXT = "text"
"""Field by which the controls of spans find their text."""
KEYS = {"pairwise": "selected"}
"""Type of a result -> key of its value, if it is not the type."""


OWN = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement")
"""Fields that JSON-MIN and CSV have besides those of the task and of the controls."""
TYPES = {KEYS.get(type_, type_): type_ for type_ in (*WHOLE, *SPANS, "rectanglelabels", "brushlabels", "text")}
"""Key of a value -> type of its result."""


class LabelStudio(Tool):
    """Exports of Label Studio as JSON."""

    title = "Label Studio JSON"
    items, annotators = ("task", "id"), ("annotator", "completed_by")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Json]) -> bool:
        """Return True for tasks with annotations, or annotations with their task."""
        of_tasks = "data" in names and not {"annotations", "completions"}.isdisjoint(names)
        return kind == "json" and (of_tasks or {"result", "task"} <= names)

    def survey(self, export: Export) -> None:
        """Learn the controls from their results."""
        self.controls, self.text_field = _controls(map(self.task_in, export.records()))

    def task_in(self, record: Record) -> Json:
        """Return a task with its annotations, also from a record that is one annotation with its task."""
        fields = record.fields
        if "result" in fields and isinstance(fields.get("task"), dict):
            return {**fields["task"], "annotations": [fields]}
        return fields

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the answers of all controls about a task."""
        task = self.task_in(record)
        item = export.item_of(task, task.get("id"))
        text = task["data"].get(self.text_field) if self.text_field else None
        export.skipped["prediction"] += len(task.get("predictions") or ())
        export.skipped["draft"] += len(task.get("drafts") or ())
        for annotation in _annotations(task):
            with export.part(record, f"annotation {annotation.get('id')}"):
                if annotation.get("was_cancelled") or annotation.get("skipped"):
                    export.skipped["cancelled annotation"] += 1
                else:
                    yield from list(_answers(export, self.controls, item, annotation, text))


class LabelStudioTable(LabelStudio):
    """Exports of Label Studio as JSON-MIN or CSV: a record per annotation, with its task and a field per control."""

    title = "Label Studio JSON-MIN or CSV"
    annotators = "annotator", "annotator"
    kind, fields = None, ("id", "annotation_id", "lead_time")
    matches = Tool.matches

    def survey(self, export: Export) -> None:
        """Find the fields of the controls. In JSON-MIN, they are between "id" and "annotator"."""
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
        self.columns = answer_columns(export, "id", candidates, [name for name in controls if name not in OWN])
        super().survey(export)

    def task_in(self, record: Record) -> Json:
        """Return the task of a record, with its annotation."""
        fields = record.fields
        result = [entry for name in self.columns for entry in _entries(name, fields.get(name))]
        annotation = {"id": fields.get("annotation_id"), "completed_by": fields.get("annotator"), "result": result}
        annotation |= {name: fields.get(name) for name in ("created_at", "updated_at", "lead_time")}
        data = {name: value for name, value in fields.items() if name not in self.columns and name not in OWN}
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


@dataclass(slots=True)
class Inferred:
    """A control as its results show it.

    Attributes:
        type: type of its results.
        several: True if an annotation chose several labels.
        of_text: True if it marks spans of a text.
    """

    type: str
    several: bool = False
    of_text: bool = False


def _annotations(task: Json) -> list[Json]:
    listed = task.get("annotations") or task.get("completions") or []
    if not isinstance(listed, list):
        raise ValueError("its annotations are not a list")
    return [each if isinstance(each, dict) else {"id": each, "result": None} for each in listed]


def _answers(
    export: Export, controls: Mapping[str, Inferred], item: str, annotation: Json, text: str | None
) -> Iterator[Answer]:
    result = annotation["result"]
    if not isinstance(result, list):
        raise ValueError("result is not a list")
    time = annotation.get("updated_at") or annotation.get("created_at")
    duration = annotation.get("lead_time")
    who, known = annotator_of(annotation), bool(annotation.get("ground_truth"))
    own: dict[str, list[Json]] = {name: [] for name in controls if export.wants(name)}
    for entry in result:
        name, type_ = str(entry.get("from_name")), str(entry.get("type"))
        if name not in controls or _of_a_region(entry):
            export.skipped[f"result of type {type_}|results of type {type_}"] += 1
        elif name in own:
            own[name].append(entry)
    for name, entries in own.items():
        control = controls[name]
        if control.type in WHOLE:
            if len(entries) > 1:
                raise ValueError(f"{len(entries)} answers to {name!r}")
            choices = tuple(choice for entry in entries for choice in _choices(control.type, entry["value"]))
            rating = control.type == "rating"
            yield Answer(item, name, who, choices, control.several, None, None, time, duration, known, rating)
        else:
            about = text if control.of_text else None
            spans = _spans(export, name, control, entries, about)
            yield Answer(item, name, who, (), False, spans, about, time, duration, known)


def _spans(export: Export, name: str, control: Inferred, entries: list[Json], text: str | None) -> tuple[Span, ...]:
    labels = tuple(dict.fromkeys(label for entry in entries for label in entry["value"].get(control.type) or ()))
    target = str(entries[0].get("to_name", "")) if entries else ""
    reader: Regions = TimeSegments(name, target, labels, "", SPANS[control.type])
    if control.of_text:
        reader = TextSpans(name, target, labels, TEXT)
    try:
        answers, repairs = Form((reader,)).read_and_repair(entries, {TEXT: text})
    except NotUnderstood as error:
        raise ValueError(str(error)) from None
    export.repaired.update(repairs)
    return tuple(spans_in(answers[name] or ""))


def _choices(type_: str, value: Json) -> list[str]:
    raw = value.get(KEYS.get(type_, type_))
    if type_ == "taxonomy" and isinstance(raw, list):
        raw = [SEPARATOR.join(path) for path in raw]
    if type_ in ("rating", "pairwise"):
        raw = [text_of(raw)]
    if not isinstance(raw, list) or not all(isinstance(choice, str) and choice for choice in raw):
        raise ValueError(f"{str(value)[:40]!r} is no answer of type {type_}")
    return raw


def _of_a_region(entry: Json) -> bool:
    """Return True for choices about a region, which have its place in their value."""
    return entry.get("type") in WHOLE and not {"start", "x", "points", "rle", "ranges"}.isdisjoint(entry["value"])


def _controls(tasks: Iterable[Json]) -> tuple[dict[str, Inferred], str | None]:
    """Return the controls, and the field of the texts in which they mark spans, or None."""
    controls: dict[str, Inferred] = {}
    fields: Counter[str] = Counter()
    for task in tasks:
        with suppress(TypeError, ValueError, LookupError, AttributeError):  # `read` tells
            texts = {name: text for name, text in task["data"].items() if isinstance(text, str)}
            for entry in (entry for each in _annotations(task) for entry in each.get("result") or ()):
                type_, value = str(entry.get("type")), entry["value"]
                if _of_a_region(entry) or type_ not in (*WHOLE, *SPANS):
                    continue
                control = controls.setdefault(str(entry.get("from_name")), Inferred(type_))
                if type_ in WHOLE:
                    control.several |= len(_choices(type_, value)) > 1
                elif type_ == "labels" and "channel" not in value and type(value.get("start")) is int:
                    within = value.get("text") or ""
                    fields.update(name for name, text in texts.items() if within in text and value["start"] < len(text))
                    control.of_text = True
    field = fields.most_common(1)[0][0] if fields else None
    for control in controls.values():
        control.of_text &= field is not None
    return controls, field


def annotator_of(annotation: Json) -> str | None:
    """Return the annotator: the e-mail address if the export has it, otherwise the id."""
    by = annotation.get("completed_by")
    if isinstance(by, dict):
        by = by.get("email") or by.get("id")
    return text_of(by if by is not None else annotation.get("created_username"))
