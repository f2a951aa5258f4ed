"""Mechanical Turk: the CSV file of a batch, a row per assignment.

Answer.sentiment                a question; several answers are separated by |
Answer.sentiment.label          the same, of a crowd-classifier; .labels holds a list
Answer.topic.sports             true or false for each option of the question "topic"
Answer.taskAnswers              JSON with all answers
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, is_true, text_of

ANSWER, JSON = "Answer.", "Answer.taskAnswers"
TRUTH_VALUES = ("true", "false")


class MTurk:
    """Batches of Mechanical Turk."""

    title = "MTurk batch CSV"
    items, annotators = ("HIT", "HITId"), ("worker", "WorkerId")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for rows of assignments."""
        return {"HITId", "WorkerId", "AssignmentStatus"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers of assignments that were not rejected."""
        multiple: set[str] = set()
        for record in export.records():
            with suppress(TypeError, ValueError, AttributeError):  # told below
                found = _questions(record.fields)
                multiple |= {name for name, (choices, several) in found.items() if several or len(choices) > 1}
        for record in export.records():
            row = record.fields
            if str(row.get("AssignmentStatus")).lower() == "rejected" or row.get("Reject"):
                export.skipped["rejected assignment"] += 1
                continue
            if str(row.get("AssignmentStatus")).lower() not in ("approved", "submitted"):
                export.skipped["assignment without an answer|assignments without an answer"] += 1
                continue
            with export.part(record):
                item, who = export.item_of(row, row.get("HITId")), text_of(row.get("WorkerId"))
                time, duration = row.get("SubmitTime"), row.get("WorkTimeInSeconds")
                for name, (choices, _) in _questions(row).items():
                    yield Answer(item, name, who, choices, name in multiple, time=time, duration=duration)


def _questions(row: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return question -> chosen labels, and whether it allows several."""
    if row.get(JSON):
        return {name: _chosen(value) for task in json.loads(row[JSON]) for name, value in task.items()}
    found: dict[str, tuple[tuple[str, ...], bool]] = {}
    for column, cell in row.items():
        if not column.startswith(ANSWER):
            continue
        name, _, option = column.removeprefix(ANSWER).partition(".")
        if option == "label" or not option:
            found[name] = choices_of(str(cell).split("|") if cell is not None else []), False
        elif option == "labels":
            found[name] = choices_of(json.loads(cell) if cell else []), True
        elif option == "on":  # a single box
            found[name] = choices_of(cell), False
        elif cell is None or str(cell).lower() in TRUTH_VALUES:
            ticked = found.get(name, ((), False))[0]
            found[name] = (*ticked, *([option] if is_true(cell) else [])), False
        else:
            found[f"{name}.{option}"] = choices_of(cell), False
    return found


def _chosen(value: Any) -> tuple[tuple[str, ...], bool]:
    if isinstance(value, dict) and "labels" in value:
        return choices_of(value["labels"]), True
    if isinstance(value, dict) and "label" in value:
        return choices_of(value["label"]), False
    if isinstance(value, dict):
        return tuple(name for name, ticked in value.items() if is_true(ticked)), False
    return choices_of(value), False
