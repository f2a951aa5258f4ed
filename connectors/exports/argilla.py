"""Argilla: a record with the responses to each question, as JSON, lines of JSON or a table.

2.x         "responses": {question: [{"value", "user_id", "status"}]}
flat        "<question>.responses": [values], "<question>.responses.users", "<question>.responses.status"
1.x         "responses": [{"user_id", "status", "values": {question: {"value"}}}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, text_of

FLAT = ".responses"


class Argilla(Tool):
    """Records of Argilla."""

    title = "Argilla"
    items, annotators = ("record", "id"), ("user", "user_id")
    kind, fields = None, (r"fields|.+\.responses", r"responses|.+\.responses\.users")

    def survey(self, export: Export) -> None:
        """Find the questions whose answers are spans, which show it unless they are empty."""
        self.of_spans: set[str] = set()
        for record in export.records():
            with suppress(TypeError, ValueError, AttributeError):  # `read` tells
                for question, value, *_ in _responses(record.fields):
                    spans = value if isinstance(value, list) else []
                    if spans and all(
                        isinstance(one, dict) and {"start", "end", "label"} <= one.keys() for one in spans
                    ):
                        self.of_spans.add(question)

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the submitted responses. Drafts, discarded responses and suggestions are none."""
        fields = record.fields
        item = export.item_of(fields, fields.get("id") or fields.get("external_id") or fields.get("_server_id"))
        texts = [text for text in (fields.get("fields") or fields).values() if isinstance(text, str)]
        flat = sum(value is not None for name, value in fields.items() if name.endswith(".suggestion"))
        export.skipped["suggestion"] += len(fields.get("suggestions") or ()) or flat
        for question, value, user, status in _responses(fields):
            with export.part(record, f"response of {user!r}"):
                who, several = text_of(user), isinstance(value, list)
                if status not in (None, "submitted"):
                    export.skipped[f"{status} response"] += 1
                elif question in self.of_spans:
                    spans = tuple((each["start"], each["end"], str(each["label"])) for each in value or ())
                    last = max((end for _, end, _ in spans), default=0)
                    text = next((text for text in texts if last <= len(text)), "")
                    yield Answer(item, question, who, spans=spans, text=text)
                elif several and any(isinstance(each, dict) for each in value):
                    export.skipped["ranking or other answer|rankings and other answers"] += 1
                else:
                    yield Answer(item, question, who, choices_of(value), several)


def _responses(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield question, value, user and status of each response."""
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
            users, statuses = (fields.get(f"{name}.{of}") or [None] * len(values) for of in ("users", "status"))
            for each in list(zip(values, users, statuses, strict=True)):
                yield name.removesuffix(FLAT), *each
