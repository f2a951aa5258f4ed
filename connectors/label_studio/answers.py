"""What reading an annotation gives, and how it says that it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answers = Mapping[str, str | None]
"""Question -> label, or None where it was left open."""


class NotUnderstood(Exception):
    """A result that does not fit the control; the text says what is wrong. Never leaves the connector."""


SUGGESTED = "prediction"
"""How the origin of a result begins that Label Studio's editor made of a prediction: "prediction-changed" where the
annotator changed it."""


def began_as_suggestion(result: object) -> bool | None:
    """Whether any part of an annotation was made of a prediction; None where its parts say nothing of their origin.

    Its `parent_prediction` would not tell: the order's own predictions, which suggest nothing, are parents too.
    """
    items = result if isinstance(result, list) else []
    origins = [str(item["origin"]) for item in items if isinstance(item, dict) and item.get("origin")]
    return any(origin.startswith(SUGGESTED) for origin in origins) if origins else None


def results_of(control: str, result: object) -> list[Mapping[str, Any]]:
    """The results of one control in an annotation's list. Raises NotUnderstood for what is no list."""
    if not isinstance(result, list):
        raise NotUnderstood("result is not a list")
    return [item for item in result if isinstance(item, dict) and item.get("from_name") == control]
