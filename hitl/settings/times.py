"""Parse times as people write them in hitl.toml: "15m", "1h30m", and five-field cron lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from hitl.errors import BadSettings

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")


def seconds_of(text: str) -> float:
    """Convert a duration > 0 such as "90s", "15m", "1h30m" or "2d" to seconds. Raises BadSettings."""
    if not _SPAN.fullmatch(text):
        raise BadSettings(f"{text!r} is not a time; expected for instance '30s', '15m', '1h30m' or '2d'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))
    if seconds <= 0:
        raise BadSettings(f"{text!r} is no time at all; expected more than 0 seconds")
    return seconds


def spelled(seconds: float) -> str:
    """Format seconds as a duration: 5400.0 -> "1h30m"."""
    parts, rest = [], seconds
    for unit, size in _UNITS.items():
        count = rest if unit == "s" else rest // size
        if count:
            parts.append(f"{count:g}{unit}")
            rest -= count * size
    return "".join(parts) or "0s"


def zone_of(name: str) -> tzinfo:
    """Return the time zone of this name. UTC works even if no time zones are installed. Raises BadSettings."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadSettings(f"{name!r} is no time zone; expected a name such as UTC or Europe/Vienna") from None


def cron_times(line: str, after: datetime) -> Iterator[datetime]:
    """Return an iterator over the times of a cron line after `after`, in its time zone. Raises BadSettings."""
    from cronsim import CronSim, CronSimError

    fields = line.split()
    try:
        if len(fields) != 5:  # a sixth would be seconds
            raise CronSimError("wrong number of fields")
        until_sunday = re.sub(r"-(?:sun|0)\b", "-7", fields[4], flags=re.IGNORECASE)  # "sat-sun" wraps around otherwise
        return CronSim(" ".join([*fields[:4], until_sunday]), after)
    except CronSimError as error:
        raise BadSettings(
            f"{line!r}: {str(error).lower()}; expected minute hour day-of-month month day-of-week, for instance "
            "'*/10 8-18 * * mon-fri'"
        ) from None
