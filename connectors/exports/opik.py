"""Opik: traces and spans with feedback scores, as `opik export`, its SDK and its API write them.

The fields are those of Opik's API reference and SDK 2.2; no server was at hand.

opik export   {"trace": {...}, "spans": [...]}, a file for each trace; a .zip file of them is read as one
SDK           "id", "feedback_scores": [{"name", "value", "category_name", "source", "value_by_author": {...}}]
API           {"content": [...], "total": ...}, a page of such traces

With several authors, "value" is a mean, so that the answers are in "value_by_author": author -> {"value", ...}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export
from hitl.connectors.exports.traces import answer, counting

JUDGE = "online_scoring"
"""Source of the scores of online evaluation rules."""


class Opik:
    """Feedback scores of Opik."""

    title = "Opik feedback scores"
    items, annotators = ("trace", "id"), ("author", "value_by_author")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for traces with feedback scores."""
        scored = [one for fields in first for one in _scored(fields) if isinstance(one, Mapping)]
        return kind == "json" and any("feedback_scores" in one for one in scored)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the category of each author, or the grade if there is none."""
        return counting(export, _answers(export))


def _answers(export: Export) -> Iterator[Answer]:
    for record in export.records():
        with export.part(record):
            for one in _scored(record.fields):
                with export.part(record):
                    item, scores = export.item_of(one, one.get("id")), one.get("feedback_scores") or ()
                    export.skipped["trace or span without scores|traces or spans without scores"] += not scores
                    for score in scores:
                        with export.part(record, f"score of {item}"):
                            authors = score.get("value_by_author") or {score.get("created_by"): score}
                            for key, own in authors.items():
                                with export.part(record, f"score of {item} by {key}"):
                                    who, judge = own.get("author") or key, JUDGE if own.get("source") == JUDGE else None
                                    label, number, time = map(own.get, ("category_name", "value", "last_updated_at"))
                                    yield answer(item, score["name"], label, number, who, judge, time)


def _scored(fields: Mapping[str, Any]) -> Sequence[Any]:
    """Return the traces and spans of a record."""
    if isinstance(fields.get("trace"), Mapping):
        return [fields["trace"], *(fields.get("spans") or ())]
    page = fields.get("content")
    return page if isinstance(page, list) and "feedback_scores" not in fields else [fields]
