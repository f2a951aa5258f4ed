"""Times as people say them."""

from __future__ import annotations

from datetime import UTC, datetime


def ago(when: datetime | float | None) -> str:
    """How long ago it was, in one unit.

    Example:
        >>> ago(datetime.now(UTC))
        'just now'
    """
    if when is None:
        return "never"
    then = when if isinstance(when, datetime) else datetime.fromtimestamp(when, UTC)
    seconds = (datetime.now(UTC) - then).total_seconds()
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number:,} {unit}{'s' if number > 1 else ''} ago"
    return "just now"
