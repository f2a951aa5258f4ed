"""Parse times as people write them in hitl.toml: "15m", "1h30m", and five-field cron lines.

A cron line is "minute hour day-of-month month day-of-week". Each field is `*`, a number, a range a-b, or a
comma-separated list of these, with `/n` for every n-th. Months and weekdays also have English names, and Sunday is 0 or
7. All five fields must match (many crons accept either of the two days if both are given).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from hitl.errors import BadSettings

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(?P<low>\*|\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\d+))?")

FIELDS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day": (1, 31, ()),
    "month": (1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    "day_of_week": (0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
}
"""Field -> smallest number, largest number, and the names (the first is for the smallest number)."""

YEARS = 41
"""Years to search for a date: the longest gap between February 29ths on a given weekday is 40 years."""


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as "90s", "15m", "1h30m" or "2d". Raises BadSettings for others and 0."""
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


def cron_fields(line: str) -> dict[str, set[int]]:
    """Return the numbers of each field of a cron line, Sunday as 0. Raises BadSettings that names the wrong field."""
    words = line.split()
    if len(words) != len(FIELDS):
        raise BadSettings(
            f"{line!r} has {len(words)} fields; expected 5: minute hour day-of-month month day-of-week, "
            "for instance '*/10 8-18 * * mon-fri'"
        )
    fields = {
        name: {number for part in word.lower().split(",") for number in _numbers(name, part)}
        for name, word in zip(FIELDS, words, strict=True)
    }
    fields["day_of_week"] = {number % 7 for number in fields["day_of_week"]}
    return fields


def _numbers(field: str, text: str) -> range:
    """Return the numbers of one part of a list. A range of weekdays may wrap around the week ("fri-mon")."""
    smallest, largest, names = FIELDS[field]
    named = f" or {names[0]} to {names[-1]}" if names else ""

    def wrong(part: str) -> BadSettings:
        return BadSettings(
            f"{part!r} is no {field.replace('_', ' ')}; expected {smallest} to {largest}{named}: a number, a range "
            "a-b, a list a,b or every n-th */n"
        )

    def number(word: str) -> int:
        if word in names:
            return smallest + names.index(word)
        if word.isascii() and word.isdigit() and smallest <= int(word) <= largest:
            return int(word)
        raise wrong(word)

    match = _PART.fullmatch(text)
    step = 0 if match is None else int(match["step"] or 1)
    if match is None or step < 1 or (match["low"] == "*" and match["high"] is not None):
        raise wrong(text)
    if match["low"] == "*":
        return range(smallest, (6 if field == "day_of_week" else largest) + 1, step)
    first = number(match["low"])
    last = number(match["high"]) if match["high"] is not None else largest if match["step"] else first
    if last < first and field == "day_of_week":
        last += 7
    if last < first:
        raise wrong(text)
    return range(first, last + 1, step)


def next_time(line: str, zone: tzinfo, at_least: datetime) -> datetime | None:
    """Return the first time of a cron line, in UTC, that is not before `at_least`. None: it never comes.

    A local time that occurs twice (autumn) counts twice. A local time that is skipped (spring) is moved to just as long
    after the jump.
    """
    fields = cron_fields(line)

    def fits(day: date) -> bool:
        weekday = day.isoweekday() % 7
        return day.month in fields["month"] and day.day in fields["day"] and weekday in fields["day_of_week"]

    day = at_least.astimezone(zone).date() - timedelta(days=1)
    for _ in range(YEARS * 366):
        following = day + timedelta(days=1)
        if fits(day):
            # A skipped time before midnight moves past it, to be sorted among those of the next day.
            days = [day, following] if fits(following) else [day]
            later = [when for each in days for when in _times(fields, each, zone) if when >= at_least]
            if later:
                return min(later)
        day = following
    return None


def _times(fields: Mapping[str, set[int]], day: date, zone: tzinfo) -> Iterator[datetime]:
    """Yield the times of a local date, in UTC, unordered."""
    for hour in fields["hour"]:
        for minute in fields["minute"]:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            when = local.astimezone(UTC)
            yield when
            again = local.replace(fold=1).astimezone(UTC)
            if again > when:  # for a skipped time, the later reading is earlier
                yield again
