"""Versions of rows: text in order, made from times, whole numbers or whatever else a platform has."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def sortable(version: str) -> str:
    """Return the version as text whose order is that of the versions: times by time, whole numbers by size.

    ISO 8601 text is not in order by itself: "12:00:00.5Z" comes before "12:00:00Z" byte by byte.
    """
    if version.isascii() and version.isdigit():
        return version.zfill(20)
    when = parse_time(version)
    return fixed_width(when) if when else version


@lru_cache(1024)  # a platform without versions says "" of all rows, and the store one time of a page
def parse_time(text: str) -> datetime | None:
    """Return a time in ISO 8601, UTC where it names no zone; None for anything else."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def fixed_width(when: datetime) -> str:
    """Return a time as text whose order is that of the times."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")
