"""Turn MLflow's traces and their assessments into items and answers.

trace                         an item; annotators see its request and response
question (label schema)       a question: pass / fail, or one of several options
feedback, HUMAN               an answer; of several by one person, the latest valid one
feedback, LLM_JUDGE or CODE   the prediction of a model of this name; of several, the latest valid one
expectation                   ground truth
feedback of hitl              the consensus, never read as an answer
"Decline" in hitl's queue     a skip
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hitl.connectors.rescan import Rated
from hitl.formatting import listed, short
from hitl.platform import AnnotationRow, AnnotatorRow, ItemRow, Question

OWN = "hitl"
"""Name under which hitl writes."""
SUFFIX = "_hitl"
"""Ending of the names under which the consensus is written, so that filters on people's answers do not find it."""
ID_TAG = "hitl.id"
"""Tag of a trace with the user's own id."""
SAID = {"yes": True, "no": False}
"""Pass and fail, as MLflow's own judges say them."""
HUMAN = "HUMAN"
"""Type of source of people. All others are models."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of MLflow, its schema's id, and label -> value that MLflow stores."""

    question: Question
    schema: str
    values: Mapping[str, object]

    def label_of(self, value: object) -> str | None:
        """Return the label that a stored value means; None if it is none."""
        if isinstance(value, float) and value.is_integer():
            value = str(int(value))  # MLflow's numbers have a point
        names = {label.casefold() for label in self.values}
        if isinstance(value, str) and names.isdisjoint(SAID):
            value = SAID.get(value, value)
        return next((label for label, stored in self.values.items() if value == label or value is stored), None)


def asked_in(schemas: Iterable[Json], wanted: Iterable[str]) -> list[Asked]:
    """Return the questions with one answer out of several, in the order of their names. `wanted` (empty: all)."""
    found = []
    for schema in sorted(schemas, key=lambda one: str(one["name"])):
        given, names = schema.get("input", {}), set(wanted)
        if names and schema["name"] not in names:
            continue
        if (options := given.get("categorical")) and not options.get("multi_select") and len(options["options"]) > 1:
            values: dict[str, object] = {str(option): option for option in options["options"]}
        elif both := given.get("pass_fail"):
            values = {both["positive_label"]: True, both["negative_label"]: False}
        else:
            continue
        labels = tuple(values)
        found.append(Asked(Question(schema["name"], labels, labels), schema["schema_id"], values))
    return found


def item_of(trace: Json) -> ItemRow:
    """Return the item of a trace."""
    data = {name: trace.get(f"{name}_preview", "") for name in ("request", "response")}
    return ItemRow(trace["trace_id"], data, "", ref=trace.get("tags", {}).get(ID_TAG))


def rater_of(assessment: Json) -> AnnotatorRow:
    """Return who gave an answer. MLflow takes names as they are claimed; case does not tell people apart."""
    name = str(assessment.get("source", {}).get("source_id") or "default")
    return AnnotatorRow(name.casefold(), name.casefold() if _type_of(assessment) == HUMAN else name)


def is_own(assessment: Json) -> bool:
    """Return True for the consensus that hitl wrote."""
    source = assessment.get("source", {})
    named = str(assessment.get("assessment_name", "")).endswith(SUFFIX)
    return named and (source.get("source_type"), source.get("source_id")) == ("CODE", OWN)


def answers_in(trace: Json, questions: Mapping[str, Asked]) -> list[Rated]:
    """Return the answers to these questions in a trace, and who gave them: the latest valid one of each rater."""
    latest: dict[tuple[str, str, str, bool], Json] = {}
    for assessment in trace.get("assessments", []):
        name = assessment.get("assessment_name", "")
        if name not in questions or not assessment.get("valid", True):
            continue
        key = name, _type_of(assessment), rater_of(assessment).key, "expectation" in assessment
        if key not in latest or _time(assessment) >= _time(latest[key]):
            latest[key] = assessment
    return [
        (_answer(trace, one, questions[name]), rater_of(one), not (is_truth or kind == HUMAN))
        for (name, kind, _, is_truth), one in latest.items()
    ]


def declined(trace: Json, who: Mapping[str, str], questions: Iterable[str], rows: Iterable[Rated]) -> list[Rated]:
    """Return a skip of every question that people (name -> time) who declined the trace did not answer."""
    answered = {(row.annotator, row.question) for row, _, _ in rows}
    item = trace["trace_id"]
    return [
        (AnnotationRow(f"{item} {name}", item, question, name, None, "skip", at, at), AnnotatorRow(name, name), False)
        for name, at in who.items()
        for question in questions
        if (name, question) not in answered
    ]


def _type_of(assessment: Json) -> str:
    return str(assessment.get("source", {}).get("source_type", ""))


def _answer(trace: Json, assessment: Json, asked: Asked) -> AnnotationRow:
    is_truth = "expectation" in assessment
    value = assessment.get("expectation" if is_truth else "feedback", {}).get("value")
    label, note = asked.label_of(value), None
    if label is None and value is not None:
        note = f"{short(value)} is none of {listed(asked.question.options)}"
    return AnnotationRow(
        key=assessment["assessment_id"],
        item=trace["trace_id"],
        question=asked.question.name,
        annotator=rater_of(assessment).key,
        label=label,
        kind="skip" if label is None else "gold" if is_truth else "answer",
        version=_time(assessment),
        created=_iso(assessment.get("create_time", "")),
        note=note,
    )


def _time(assessment: Json) -> str:
    return _iso(assessment.get("last_update_time") or assessment.get("create_time", ""))


@lru_cache(4096)
def _iso(text: str) -> str:
    """Return a time as sortable ISO 8601 in UTC; "" if there is none."""
    if not text:
        return ""
    return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="milliseconds")
