"""LangSmith: feedback as its API (`/feedback`) and its SDK (`list_feedback`) write it.

The fields are those of LangSmith's API reference and SDK 0.15; no server was at hand.

"run_id", "key", "score", "value", "created_at", "modified_at", "feedback_source": {"type", "user_id"}

A category has its label in "value" and its number in "score"; thumbs have a score alone. Tables of runs have means of
their feedback, and no raters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, text_of
from hitl.connectors.exports.traces import answer, counting

SOURCE = "feedback_source"
JUDGES = ("model", "auto_eval")
"""Types of source of evaluators."""


class LangSmith:
    """Feedback of LangSmith."""

    title = "LangSmith feedback"
    items, annotators = ("run", "run_id"), ("user", "user_id")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for feedback with a key and a source."""
        return kind == "json" and {"run_id", "key", SOURCE} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the feedback that has a label or a grade. Comments and comparisons of runs are none."""
        return counting(export, _answers(export))


def _answers(export: Export) -> Iterator[Answer]:
    for record in export.records():
        with export.part(record):
            feedback = record.fields
            source, value, score = feedback.get(SOURCE) or {}, feedback.get("value"), feedback.get("score")
            item = export.item_of(feedback, feedback.get("run_id") or feedback.get("trace_id"))
            if feedback.get("comparative_experiment_id") or isinstance(value, dict):
                export.skipped["comparison or other answer|comparisons and other answers"] += 1
                continue
            if type(value) in (int, float):
                score, value = value, None
            label = text_of(score) if value is None and isinstance(score, bool) else value
            judge = source.get("type") if source.get("type") in JUDGES else None
            who = source.get("user_id") or source.get("ls_user_id") or source.get("user_name")
            time = feedback.get("modified_at") or feedback.get("created_at")
            yield answer(item, feedback["key"], label, score, who, judge, time)
