"""Langfuse: scores as its page Scores, its API (v1, v2, v3) and its blob storage export write them.

The fields are those of Langfuse's API definition (SDK 5.0) and export code; no server was at hand.

page       "traceId", "observationId", "source", "name", "dataType", "value", "stringValue", "authorUserName"
API v2     ... "authorUserId", "updatedAt"; a page of them is {"data": [...], "meta": {...}}
API v3     "value" is the label; "subject": {"kind", "id"}, with `fields=subject,annotation`
blob       "trace_id", "data_type", "string_value" ..., without authors

Langfuse has one ANNOTATION for a score and a trace: the second person replaces the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, is_true
from hitl.connectors.exports.traces import answer, counting

JUDGE = "EVAL"
"""Source of the scores of evaluators."""


class Langfuse:
    """Scores of Langfuse."""

    title = "Langfuse scores"
    items, annotators = ("trace", "observationId, else traceId"), ("author", "authorUserId")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for scores with a source and a type."""
        scores = [score for fields in first for score in _scores(fields) if isinstance(score, Mapping)]
        return any({"name", "value", "source", "dataType"} <= _named(score).keys() for score in scores)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the categorical, boolean and graded scores of traces and observations. Texts are none."""
        return counting(export, _answers(export))


def _answers(export: Export) -> Iterator[Answer]:
    for record in export.records():
        for fields in _scores(record.fields):
            with export.part(record):
                score = _named(fields)
                subject, kind, value = score.get("subject") or {}, score["dataType"], score.get("value")
                own = subject.get("id") if subject.get("kind") in ("trace", "observation") else None
                item = score.get("observationId") or score.get("traceId") or own
                if item is None and (subject or score.get("sessionId") or score.get("datasetRunId")):
                    export.skipped["score of a session or experiment|scores of sessions or experiments"] += 1
                    continue
                if kind not in ("CATEGORICAL", "BOOLEAN", "NUMERIC"):
                    export.skipped["text score"] += 1
                    continue
                label, number = score.get("stringValue", value), None
                if kind == "NUMERIC":
                    label, number = None, value
                elif kind == "BOOLEAN":
                    label = None if value in (None, "") else str(is_true(value))
                judge = JUDGE if score["source"] == JUDGE else None
                who = score.get("authorUserId") or score.get("authorUserName")
                time = score.get("updatedAt") or score.get("timestamp")
                time = time.strip('"') if isinstance(time, str) else time  # its CSV quotes them twice
                yield answer(export.item_of(score, item), score["name"], label, number, who, judge, time)


def _scores(fields: Mapping[str, Any]) -> Sequence[Any]:
    """Return the scores of a record, which is one, or a page of the API."""
    page = fields.get("data")
    return page if isinstance(page, list) and "meta" in fields else [fields]


def _named(score: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score with the names of the API: dataType for data_type."""
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name): value for name, value in score.items()}
