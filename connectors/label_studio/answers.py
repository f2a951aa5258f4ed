"""Read answers from annotations, with an error for those that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answers = Mapping[str, str | None]
"""Question -> label, or None if it was left open."""


class NotUnderstood(Exception):
    """Raised for a result that does not fit the control; the text explains why. Never leaves the connector."""


SUGGESTED = "prediction"
"""Prefix of the origin of results that Label Studio's editor made from a prediction ("prediction-changed")."""


def began_as_suggestion(result: object) -> bool | None:
    """Return True if any part of an annotation began as a prediction, or None if no part has an origin.

    `parent_prediction` is no help, because the predictions of the order are parents too, although they suggest nothing.
    """
    items = result if isinstance(result, list) else []
    origins = [str(item["origin"]) for item in items if isinstance(item, dict) and item.get("origin")]
    return any(origin.startswith(SUGGESTED) for origin in origins) if origins else None


def results_of(control: str, result: object) -> list[Mapping[str, Any]]:
    """Return the results of one control in an annotation's list. Raises NotUnderstood if it is not a list."""
    if not isinstance(result, list):
        raise NotUnderstood("result is not a list")
    return [item for item in result if isinstance(item, dict) and item.get("from_name") == control]
