"""Argilla: a record with the responses to each question, as JSON, lines of JSON or a table.

2.x         "responses": {question: [{"value", "user_id", "status"}]}
flat        "<question>.responses": [values], "<question>.responses.users", "<question>.responses.status"
1.x         "responses": [{"user_id", "status", "values": {question: {"value"}}}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, text_of

FLAT = ".responses"
Response = tuple[str, Any, Any, Any]
"""Question, value, user and status."""


class Argilla:
    """Records of Argilla."""

    title = "Argilla"
    items, annotators = ("record", "id"), ("user", "user_id")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for records with responses."""
        return {"fields", "responses"} <= names or any(
            f"{name}.users" in names for name in names if name.endswith(FLAT)
        )

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the submitted responses. Drafts, discarded responses and suggestions are none."""
        of_spans: set[str] = set()
        for record in export.records():
            with suppress(TypeError, ValueError, AttributeError):  # told below
                of_spans |= {question for question, value, *_ in _responses(record.fields) if _are_spans(value)}
        for record in export.records():
            with export.part(record):
                fields = record.fields
                item = export.item_of(fields, fields.get("id") or fields.get("external_id") or fields.get("_server_id"))
                inner = fields.get("fields")
                texts = [text for text in (inner or fields).values() if isinstance(text, str)]
                suggested = fields.get("suggestions")
                flat = sum(value is not None for name, value in fields.items() if name.endswith(".suggestion"))
                export.skipped["suggestion"] += len(suggested) if suggested else flat
                for question, value, user, status in _responses(fields):
                    with export.part(record, f"response of {user!r}"):
                        if status not in (None, "submitted"):
                            export.skipped[f"{status} response"] += 1
                        elif question in of_spans:
                            spans = tuple((each["start"], each["end"], str(each["label"])) for each in value or ())
                            last = max((end for _, end, _ in spans), default=0)
                            text = next((text for text in texts if last <= len(text)), "")
                            yield Answer(item, question, text_of(user), spans=spans, text=text)
                        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
                            export.skipped["ranking or other answer|rankings and other answers"] += 1
                        else:
                            several = isinstance(value, list)
                            yield Answer(item, question, text_of(user), choices_of(value), several)


def _are_spans(value: Any) -> bool:
    values = value if isinstance(value, list) else []
    return bool(values) and all(isinstance(each, dict) and {"start", "end", "label"} <= each.keys() for each in values)


def _responses(fields: Mapping[str, Any]) -> Iterator[Response]:
    nested = fields.get("responses")
    if isinstance(nested, dict):
        for question, responses in nested.items():
            for each in responses or ():
                yield question, each.get("value"), each.get("user_id"), each.get("status")
    elif isinstance(nested, list):
        for each in nested:
            for question, answer in (each.get("values") or {}).items():
                yield question, answer.get("value"), each.get("user_id"), each.get("status")
    for name in fields:
        if name.endswith(FLAT):
            values = fields[name] or []
            users = fields.get(f"{name}.users") or [None] * len(values)
            statuses = fields.get(f"{name}.status") or [None] * len(values)
            for value, user, status in list(zip(values, users, statuses, strict=True)):
                yield name.removesuffix(FLAT), value, user, status
