"""Answers in the exports of tools for traces: who gave them, and which of them count.

person                   an annotator, as named in the export
model, evaluator         a judge, named by its source; its answers are predictions of a model, as those in MLflow are
label, boolean           a class
number                   a class in order if all numbers of the question are whole and there are few; else no answer
question `<name>_hitl`   the consensus of hitl, never read as an answer

The fields are those of the definitions of their APIs (Langfuse SDK 5.0, Opik SDK 2.2, LangSmith SDK 0.15); no server
was at hand. Langfuse's are those that its page Scores, its API and its blob storage export write:

page       "traceId", "observationId", "source", "name", "dataType", "value", "stringValue", "authorUserName"
API v2     ... "authorUserId", "updatedAt"; a page of them is {"data": [...], "meta": {...}}
API v3     "value" is the label; "subject": {"kind", "id"}, with `fields=subject,annotation`
blob       "trace_id", "data_type", "string_value" ..., without authors

It has one ANNOTATION for a score and a trace: the second person replaces the first. Opik's are

opik export   {"trace": {...}, "spans": [...]}, a file for each trace; a .zip file of them is read as one
SDK           "id", "feedback_scores": [{"name", "value", "category_name", "source", "value_by_author": {...}}]
API           {"content": [...], "total": ...}, a page of such traces

With several authors, "value" is a mean, so that the answers are in "value_by_author": author -> {"value", ...}.
LangSmith's, of its API (`/feedback`) and its SDK (`list_feedback`), are

"run_id", "key", "score", "value", "created_at", "modified_at", "feedback_source": {"type", "user_id"}

A category has its label in "value" and its number in "score"; thumbs have a score alone. Tables of runs have means of
their feedback, and no raters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, is_true, seconds, text_of

SUFFIX = "_hitl"
"""Ending of the names under which the consensus is written, as in MLflow and Phoenix."""
GRADES = 11
"""Most different numbers of a question that are classes: those of a scale from 0 to 10."""


class Traces(Tool):
    """Tool for traces, whose raters may answer a question about an item again."""

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the latest answer of each named rater to a question about an item, and all those of unnamed people."""
        latest: dict[tuple[object, ...], Answer] = {}
        for number, one in enumerate(super().answers(export)):
            if one.question.endswith(SUFFIX):
                export.skipped["consensus label of hitl|consensus labels of hitl"] += 1
                continue
            alone = one.annotator is None or not one.choices
            key = (one.item, one.question, one.judge, number if alone else one.annotator)
            earlier = latest.get(key)
            export.skipped["replaced answer"] += earlier is not None
            if earlier is None or (seconds(one.time) or 0) >= (seconds(earlier.time) or 0):
                latest[key] = one
        numbers: dict[tuple[str, bool], set[str]] = {}
        for one in latest.values():
            if one.ordered:
                numbers.setdefault((one.question, one.judge), set()).update(one.choices)
        for one in latest.values():
            values = numbers.get((one.question, one.judge), set())
            if one.ordered and (len(values) > GRADES or not all(each.lstrip("-").isdigit() for each in values)):
                export.skipped["number that is no class|numbers that are no class"] += 1
            else:
                yield one


def _answer(
    item: str, question: object, label: object, number: object, who: object, judge: object, time: object
) -> Answer:
    """Return the answer of a person, or of a judge if `judge` names its source: the label, or else the number."""
    name, text = text_of(question), text_of(label)
    if name is None:
        raise ValueError("it has no name of a question")
    choices = choices_of(text if text is not None or number in (None, "") else float(str(number)))
    return Answer(item, name, text_of(judge or who), choices, time=time, ordered=text is None, judge=bool(judge))


class Langfuse(Traces):
    """Scores of Langfuse."""

    title = "Langfuse scores"
    items, annotators = ("trace", "observationId, else traceId"), ("author", "authorUserId")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for scores with a source and a type."""
        scores = [score for fields in first for score in _scores(fields) if isinstance(score, Mapping)]
        return any({"name", "value", "source", "dataType"} <= _named(score).keys() for score in scores)

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the categorical, boolean and graded scores of traces and observations. Texts are none."""
        for fields in _scores(record.fields):
            with export.part(record):
                score = _named(fields)
                subject, kind, value = score.get("subject") or {}, score["dataType"], score.get("value")
                own = subject.get("id") if subject.get("kind") in ("trace", "observation") else None
                item = score.get("observationId") or score.get("traceId") or own
                if item is None and (subject or score.get("sessionId") or score.get("datasetRunId")):
                    export.skipped["score of a session or experiment|scores of sessions or experiments"] += 1
                    continue
                label, number = score.get("stringValue", value), None
                if kind == "NUMERIC":
                    label, number = None, value
                elif kind == "BOOLEAN":
                    label = None if value in (None, "") else str(is_true(value))
                elif kind != "CATEGORICAL":
                    export.skipped["text score"] += 1
                    continue
                judge = "EVAL" if score["source"] == "EVAL" else None
                who = score.get("authorUserId") or score.get("authorUserName")
                time = score.get("updatedAt") or score.get("timestamp")
                time = time.strip('"') if isinstance(time, str) else time  # its CSV quotes them twice
                yield _answer(export.item_of(score, item), score["name"], label, number, who, judge, time)


def _scores(fields: Mapping[str, Any]) -> Sequence[Any]:
    """Return the scores of a record of Langfuse, which is one, or a page of the API."""
    page = fields.get("data")
    return page if isinstance(page, list) and "meta" in fields else [fields]


def _named(score: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score with the names of the API: dataType for data_type."""
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name): value for name, value in score.items()}


class Opik(Traces):
    """Feedback scores of Opik."""

    title = "Opik feedback scores"
    items, annotators = ("trace", "id"), ("author", "value_by_author")
    judge = "online_scoring"  # source of the scores of online evaluation rules

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for traces with feedback scores."""
        scored = [one for fields in first for one in _scored(fields) if isinstance(one, Mapping)]
        return kind == "json" and any("feedback_scores" in one for one in scored)

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the category of each author, or the grade if there is none."""
        for one in _scored(record.fields):
            with export.part(record):
                item, scores = export.item_of(one, one.get("id")), one.get("feedback_scores") or ()
                export.skipped["trace or span without scores|traces or spans without scores"] += not scores
                for score in scores:
                    with export.part(record, f"score of {item}"):
                        authors = score.get("value_by_author") or {score.get("created_by"): score}
                        for key, own in authors.items():
                            with export.part(record, f"score of {item} by {key}"):
                                judge = self.judge if own.get("source") == self.judge else None
                                label, number, time = map(own.get, ("category_name", "value", "last_updated_at"))
                                who = own.get("author") or key
                                yield _answer(item, score["name"], label, number, who, judge, time)


def _scored(fields: Mapping[str, Any]) -> Sequence[Any]:
    """Return the traces and spans of a record of Opik."""
    if isinstance(fields.get("trace"), Mapping):
        return [fields["trace"], *(fields.get("spans") or ())]
    page = fields.get("content")
    return page if isinstance(page, list) and "feedback_scores" not in fields else [fields]


class LangSmith(Traces):
    """Feedback of LangSmith."""

    title = "LangSmith feedback"
    items, annotators = ("run", "run_id"), ("user", "user_id")
    fields = "run_id", "key", "feedback_source"

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the feedback if it has a label or a grade. Comments and comparisons of runs are none."""
        feedback = record.fields
        source, value, score = feedback.get("feedback_source") or {}, feedback.get("value"), feedback.get("score")
        item = export.item_of(feedback, feedback.get("run_id") or feedback.get("trace_id"))
        if feedback.get("comparative_experiment_id") or isinstance(value, dict):
            export.skipped["comparison or other answer|comparisons and other answers"] += 1
            return
        if type(value) in (int, float):
            score, value = value, None
        label = text_of(score) if value is None and isinstance(score, bool) else value
        judge = source.get("type") if source.get("type") in ("model", "auto_eval") else None
        who = source.get("user_id") or source.get("ls_user_id") or source.get("user_name")
        time = feedback.get("modified_at") or feedback.get("created_at")
        yield _answer(item, feedback["key"], label, score, who, judge, time)
