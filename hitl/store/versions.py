"""Row versions as sortable text, made from times, whole numbers or any other text of the platform."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def sortable(version: str) -> str:
    """Return the version as text that sorts by time if it is a time, and by size if it is a whole number.

    ISO 8601 text does not sort by itself: "12:00:00.5Z" comes before "12:00:00Z" byte by byte.
    """
    if version.isascii() and version.isdigit():
        return version.zfill(20)
    when = parse_time(version)
    return fixed_width(when) if when else version


@lru_cache(1024)  # without platform versions, all rows of a page share "" or one store time
def parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, in UTC if it names no zone. Return None for anything else."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def fixed_width(when: datetime) -> str:
    """Return a time as text that sorts in order of time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")
