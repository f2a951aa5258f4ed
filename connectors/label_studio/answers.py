"""What reading an annotation gives, and how it says that it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping

Answers = Mapping[str, str | None]
"""Question -> label, or None where it was left open."""


class NotUnderstood(Exception):
    """A result that does not fit the control; the text says what is wrong. Never leaves the connector."""
