"""Zooniverse: the CSV file of classifications, with the answers to all tasks of a workflow as JSON in a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, is_true, seconds, text_of


class Zooniverse:
    """Classifications of Zooniverse."""

    title = "Zooniverse classifications"
    items, annotators = ("subject", "subject_ids"), ("volunteer", "user_name")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for rows of classifications."""
        return {"classification_id", "subject_ids", "annotations", "user_name"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers to questions with choices. Drawings and texts are left out."""
        workflows = {record.fields.get("workflow_id") for record in export.records()}
        for record in export.records():
            with export.part(record):
                row = record.fields
                subject = json.loads(row.get("subject_data") or "{}").get(str(row.get("subject_ids")))
                item = export.item_of({**row, "subject": subject}, row.get("subject_ids"))
                prefix = f"{row.get('workflow_id')}." if len(workflows) > 1 else ""
                about = json.loads(row.get("metadata") or "{}")
                began, ended = (seconds(about.get(name)) for name in ("started_at", "finished_at"))
                duration = None if began is None or ended is None else ended - began
                for task, value in _values(json.loads(row["annotations"])):
                    if not _is_choice(value):
                        export.skipped["drawing or other answer|drawings and other answers"] += 1
                        continue
                    yield Answer(
                        item,
                        prefix + task,
                        text_of(row.get("user_name")),
                        choices_of([] if value is None else value),
                        isinstance(value, list),
                        time=row.get("created_at"),
                        duration=duration,
                        known=is_true(row.get("gold_standard")),
                    )


def _values(annotations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield task and value of each annotation; a combined task holds the annotations of its parts."""
    for each in annotations:
        value = each["value"]
        if isinstance(value, list) and value and all(isinstance(one, dict) and "task" in one for one in value):
            yield from _values(value)
        elif isinstance(value, list) and value and all(isinstance(one, dict) and "choice" in one for one in value):
            yield str(each["task"]), [one["choice"] for one in value]  # a survey
        else:
            yield str(each["task"]), value


def _is_choice(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(one is None or isinstance(one, str | int) for one in values)
