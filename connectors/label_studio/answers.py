"""What reading an annotation gives, and how it says that it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answers = Mapping[str, str | None]
"""Question -> label, or None where it was left open."""


class NotUnderstood(Exception):
    """A result that does not fit the control; the text says what is wrong. Never leaves the connector."""


def results_of(control: str, result: object) -> list[Mapping[str, Any]]:
    """The results of one control in an annotation's list. Raises NotUnderstood for what is no list."""
    if not isinstance(result, list):
        raise NotUnderstood("result is not a list")
    return [item for item in result if isinstance(item, dict) and item.get("from_name") == control]
