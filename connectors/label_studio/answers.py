"""Answers read from annotations, and the error for those that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answers = Mapping[str, str | None]
"""Question -> label, or None where it was left open."""


class NotUnderstood(Exception):
    """A result that does not fit the control; the text says what is wrong. Never leaves the connector."""


SUGGESTED = "prediction"
"""Results that Label Studio's editor made of a prediction have an origin that begins so ("prediction-changed")."""


def began_as_suggestion(result: object) -> bool | None:
    """Return True if any part of an annotation was made of a prediction, None if no part says its origin.

    `parent_prediction` does not help: the order's own predictions, which suggest nothing, are parents too.
    """
    items = result if isinstance(result, list) else []
    origins = [str(item["origin"]) for item in items if isinstance(item, dict) and item.get("origin")]
    return any(origin.startswith(SUGGESTED) for origin in origins) if origins else None


def results_of(control: str, result: object) -> list[Mapping[str, Any]]:
    """Return the results of one control in an annotation's list. Raises NotUnderstood if it is no list."""
    if not isinstance(result, list):
        raise NotUnderstood("result is not a list")
    return [item for item in result if isinstance(item, dict) and item.get("from_name") == control]
