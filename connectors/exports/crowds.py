"""Tables of crowdsourcing platforms, with a row for each answer of a worker.

crowd-kit     "task", "worker" (in old versions "performer"), "label"
Appen         the full report of CrowdFlower, Figure Eight or Appen: a column for each question, and its known answer
Toloka        the responses of a pool: columns INPUT:, OUTPUT: and GOLDEN:
Zooniverse    the classifications, with the answers to all tasks of a workflow as JSON in a cell
MTurk         the results of a batch:

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

from hitl.connectors.exports.export import (
    Answer,
    Export,
    Record,
    Tool,
    answer_columns,
    choices_of,
    is_true,
    seconds,
    text_of,
)


class CrowdKit(Tool):
    """Tables of crowd-kit."""

    title = "crowd-kit table"
    items, annotators = ("task", "task"), ("worker", "worker")
    kind, fields = None, ("task", "worker|performer", "label")

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the label of a row."""
        row = record.fields
        who, label = text_of(row["worker"] if "worker" in row else row["performer"]), row["label"]
        yield Answer(export.item_of(row, row["task"]), "label", who, choices_of(label), isinstance(label, list))


class Appen(Tool):
    """Full reports of Appen."""

    title = "Appen full report"
    items, annotators = ("unit", "_unit_id"), ("contributor", "_worker_id")
    kind, fields = None, ("_unit_id", "_worker_id")
    gold = "_gold"

    def survey(self, export: Export) -> None:
        """Find the columns of the answers: those with known answers, or that differ between contributors."""
        names = dict.fromkeys(name for record in export.records() for name in record.fields)
        columns = [name for name in names if not name.startswith(("_", "orig_")) and not name.endswith(self.gold)]
        tested = [name for name in columns if f"{name}{self.gold}" in names]
        self.questions = answer_columns(export, "_unit_id", columns, tested)

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the answers of a judgment that is not tainted, and the known answers of a test question."""
        row = record.fields
        item, who = export.item_of(row, row.get("_unit_id")), text_of(row.get("_worker_id"))
        for field, what in (("_tainted", "tainted judgment"), ("_canary", "hidden judgment")):
            if is_true(row.get(field)):
                export.skipped[what] += 1
                return
        for name in self.questions:
            yield Answer(item, name, who, self._lines(row.get(name)), time=row.get("_created_at"))
            right = self._lines(row.get(f"{name}{self.gold}"))
            if len(right) > 1:  # each of them is accepted
                export.skipped["known answer with several labels|known answers with several labels"] += 1
            elif right:
                yield Answer(item, name, None, right, known=True)

    def _lines(self, cell: Any) -> tuple[str, ...]:
        """Return the lines of a cell: Appen writes one per ticked box."""
        return choices_of(cell.splitlines() if isinstance(cell, str) else cell)


class Toloka(Tool):
    """Responses of Toloka."""

    title = "Toloka TSV"
    items, annotators = ("task", "ASSIGNMENT:task_id"), ("Toloker", "ASSIGNMENT:worker_id")
    kind, fields = None, ("ASSIGNMENT:worker_id", "OUTPUT:.*")
    input, output, golden = "INPUT:", "OUTPUT:", "GOLDEN:"

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the outputs of an accepted or submitted assignment, and the known answers of a control task."""
        row, status = record.fields, str(record.fields.get("ASSIGNMENT:status") or "SUBMITTED")
        if status.upper() not in ("APPROVED", "ACCEPTED", "SUBMITTED"):
            export.skipped[f"{status.lower()} assignment"] += 1
            return
        inputs = {name: str(row[name]) for name in row if name.startswith(self.input) and row[name] is not None}
        task = row.get("ASSIGNMENT:task_id")
        item = export.item_of(row, task or " | ".join(inputs.values()))
        export.item_field = None if task else ", ".join(inputs)
        who, time = text_of(row.get("ASSIGNMENT:worker_id")), row.get("ASSIGNMENT:submitted")
        for name, cell in row.items():
            several = isinstance(cell, str) and cell.startswith("[")  # a list is written as JSON
            values = choices_of(json.loads(cell) if several else [] if isinstance(cell, dict) else cell)
            if name.startswith(self.output):
                yield Answer(item, name.removeprefix(self.output), who, values, several, time=time)
            elif name.startswith(self.golden) and values:
                yield Answer(item, name.removeprefix(self.golden), None, values, several, known=True)


class MTurk(Tool):
    """Batches of Mechanical Turk."""

    title = "MTurk batch CSV"
    items, annotators = ("HIT", "HITId"), ("worker", "WorkerId")
    kind, fields = None, ("HITId", "WorkerId", "AssignmentStatus")

    def survey(self, export: Export) -> None:
        """Find the questions that allow several choices."""
        self.multiple: set[str] = set()
        for record in export.records():
            with suppress(TypeError, ValueError, AttributeError):  # `read` tells
                found = _questions(record.fields)
                self.multiple |= {name for name, (choices, several) in found.items() if several or len(choices) > 1}

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the answers of an assignment that was not rejected."""
        row, status = record.fields, str(record.fields.get("AssignmentStatus")).lower()
        if status == "rejected" or row.get("Reject"):
            export.skipped["rejected assignment"] += 1
        elif status not in ("approved", "submitted"):
            export.skipped["assignment without an answer|assignments without an answer"] += 1
        else:
            item, who = export.item_of(row, row.get("HITId")), text_of(row.get("WorkerId"))
            time, duration = row.get("SubmitTime"), row.get("WorkTimeInSeconds")
            for name, (choices, _) in _questions(row).items():
                yield Answer(item, name, who, choices, name in self.multiple, time=time, duration=duration)


def _questions(row: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return question -> chosen labels, and whether it allows several."""
    if row.get("Answer.taskAnswers"):
        return {name: _chosen(value) for task in json.loads(row["Answer.taskAnswers"]) for name, value in task.items()}
    found: dict[str, tuple[tuple[str, ...], bool]] = {}
    for column, cell in row.items():
        if not column.startswith("Answer."):
            continue
        name, _, option = column.removeprefix("Answer.").partition(".")
        if option == "label" or not option:
            found[name] = choices_of(str(cell).split("|") if cell is not None else []), False
        elif option == "labels":
            found[name] = choices_of(json.loads(cell) if cell else []), True
        elif option == "on":  # a single box
            found[name] = choices_of(cell), False
        elif cell is None or str(cell).lower() in ("true", "false"):
            ticked = found.get(name, ((), False))[0]
            found[name] = (*ticked, *([option] if is_true(cell) else [])), False
        else:
            found[f"{name}.{option}"] = choices_of(cell), False
    return found


def _chosen(value: Any) -> tuple[tuple[str, ...], bool]:
    if not isinstance(value, dict):
        return choices_of(value), False
    if "labels" in value or "label" in value:
        return choices_of(value["labels"] if "labels" in value else value["label"]), "labels" in value
    return tuple(name for name, ticked in value.items() if is_true(ticked)), False


class Zooniverse(Tool):
    """Classifications of Zooniverse."""

    title = "Zooniverse classifications"
    items, annotators = ("subject", "subject_ids"), ("volunteer", "user_name")
    kind, fields = None, ("classification_id", "subject_ids", "annotations", "user_name")

    def survey(self, export: Export) -> None:
        """Find the workflows: with several of them, the names of tasks are not distinct."""
        self.workflows = {record.fields.get("workflow_id") for record in export.records()}

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the answers to questions with choices. Drawings and texts are left out."""
        row = record.fields
        subject = json.loads(row.get("subject_data") or "{}").get(str(row.get("subject_ids")))
        item, who = export.item_of({**row, "subject": subject}, row.get("subject_ids")), text_of(row.get("user_name"))
        prefix = f"{row.get('workflow_id')}." if len(self.workflows) > 1 else ""
        about = json.loads(row.get("metadata") or "{}")
        began, ended = (seconds(about.get(name)) for name in ("started_at", "finished_at"))
        duration = None if began is None or ended is None else ended - began
        time, known = row.get("created_at"), is_true(row.get("gold_standard"))
        for task, value in _tasks(json.loads(row["annotations"])):
            choices = value if isinstance(value, list) else [value]
            if all(one is None or isinstance(one, str | int) for one in choices):
                yield Answer(
                    item,
                    prefix + task,
                    who,
                    choices_of(choices),
                    isinstance(value, list),
                    time=time,
                    duration=duration,
                    known=known,
                )
            else:
                export.skipped["drawing or other answer|drawings and other answers"] += 1


def _tasks(annotations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield task and value of each annotation; a combined task holds the annotations of its parts."""
    for each in annotations:
        value = each["value"]
        if isinstance(value, list) and value and all(isinstance(one, dict) and "task" in one for one in value):
            yield from _tasks(value)
        elif isinstance(value, list) and value and all(isinstance(one, dict) and "choice" in one for one in value):
            yield str(each["task"]), [one["choice"] for one in value]  # a survey
        else:
            yield str(each["task"]), value
