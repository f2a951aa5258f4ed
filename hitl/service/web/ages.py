"""Format times for people."""

from __future__ import annotations

from datetime import UTC, datetime


def ago(when: datetime | float | None) -> str:
    """Return how long ago it was, in one unit.

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


def when(text: str) -> str:
    """Format the time of a row, "2026-11-23T20:37:37+00:00", for pages.

    Example:
        >>> when("2026-11-23T20:37:37+00:00")
        '2026-11-23 20:37 UTC'
    """
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def hours(number: float) -> str:
    """Format a duration in hours, in one unit.

    Example:
        >>> hours(0.5), hours(3.04), hours(50)
        ('30 min', '3 h', '2 days')
    """
    if number < 1:
        return f"{number * 60:.0f} min"
    return f"{number:.0f} h" if number < 48 else f"{number / 24:,.0f} days"
