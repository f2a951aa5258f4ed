"""Parse times as people write them in hitl.toml: "15m", "1h30m", and five-field cron lines.

A cron line is "minute hour day-of-month month day-of-week". Each field is `*`, a number, a range a-b, or a
comma-separated list of these, with `/n` for every n-th. Months and weekdays also have English names, and Sunday is 0 or
7. All five fields must match (many crons accept either of the two days if both are given). Fields are expanded to lists
of numbers and names here, because schedulers disagree about which weekday is number 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from hitl.errors import BadSettings

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(?P<low>\*|\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\d+))?")

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

FIELDS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day": (1, 31, ()),
    "month": (1, 12, MONTHS),
    "day_of_week": (0, 7, WEEKDAYS),
}
"""Field -> smallest number, largest number, and the names (the first is for the smallest number)."""


YEARS = 41
"""Years to search for a date: the longest gap between February 29ths on a given weekday is 40 years."""


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as "90s", "15m", "1h30m" or "2d". Raises BadSettings for others and 0."""
    if not isinstance(text, str) or not _SPAN.fullmatch(text):
        raise BadSettings(f"{text!r} is not a time; expected for instance '30s', '15m', '1h30m' or '2d'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))
    if seconds <= 0:
        raise BadSettings(f"{text!r} is no time at all; expected more than 0 seconds")
    return seconds


def spelled(seconds: float) -> str:
    """Format seconds as a duration: 5400.0 -> "1h30m"."""
    parts, rest = [], seconds
    for unit, size in sorted(_UNITS.items(), key=lambda pair: -pair[1]):
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


def cron_fields(line: str) -> dict[str, str]:
    """Parse a cron line: field -> "*" or its values as a list ("0,10,20", "mon,tue"), by the names of `FIELDS`.

    Raises BadSettings that says which field is wrong.
    """
    words = line.split()
    if len(words) != len(FIELDS):
        raise BadSettings(
            f"{line!r} has {len(words)} fields; expected 5: minute hour day-of-month month day-of-week, "
            "for instance '*/10 8-18 * * mon-fri'"
        )
    return {name: _values(name, word.lower()) for name, word in zip(FIELDS, words, strict=True)}


def _values(field: str, text: str) -> str:
    if text == "*":
        return text
    numbers: set[int] = set()
    for part in text.split(","):
        numbers |= _part(field, part)
    if field == "day_of_week":
        return ",".join(WEEKDAYS[number] for number in sorted({number % 7 for number in numbers}))
    return ",".join(str(number) for number in sorted(numbers))


def _part(field: str, text: str) -> set[int]:
    """Return the numbers of one part of a list. A range of weekdays may wrap around the week ("fri-mon")."""
    smallest, largest, _ = FIELDS[field]
    match = _PART.fullmatch(text)
    if match is None:
        raise _wrong(field, text)
    low, high, step = match["low"], match["high"], int(match["step"] or 1)
    if step < 1 or (low == "*" and high is not None):
        raise _wrong(field, text)
    if low == "*":
        return set(range(smallest, (6 if field == "day_of_week" else largest) + 1, step))
    first = _number(field, low)
    last = _number(field, high) if high is not None else largest if match["step"] else first
    if last < first and field == "day_of_week":
        last += 7
    if last < first:
        raise _wrong(field, text)
    return set(range(first, last + 1, step))


def _number(field: str, word: str) -> int:
    smallest, largest, names = FIELDS[field]
    if word in names:
        return smallest + names.index(word)
    if word.isascii() and word.isdigit() and smallest <= int(word) <= largest:
        return int(word)
    raise _wrong(field, word)


def _wrong(field: str, text: str) -> BadSettings:
    smallest, largest, names = FIELDS[field]
    named = f" or {names[0]} to {names[-1]}" if names else ""
    return BadSettings(
        f"{text!r} is no {field.replace('_', ' ')}; expected {smallest} to {largest}{named}: a number, a range a-b, "
        "a list a,b or every n-th */n"
    )


def next_time(line: str, zone: tzinfo, at_least: datetime) -> datetime | None:
    """Return the first time of a cron line, in UTC, that is not before `at_least`. None: it never comes.

    A local time that occurs twice (autumn) counts twice. A local time that is skipped (spring) is moved to just as long
    after the jump.
    """
    day = at_least.astimezone(zone).date() - timedelta(days=1)
    fields = {name: None if text == "*" else set(text.split(",")) for name, text in cron_fields(line).items()}
    for _ in range(YEARS * 366):
        if _fits(fields, day):
            # A skipped time before midnight moves past it, to be sorted among those of the next day.
            days = [each for each in (day, day + timedelta(days=1)) if _fits(fields, each)]
            later = [when for each in days for when in _times(fields, each, zone) if when >= at_least]
            if later:
                return min(later)
        day += timedelta(days=1)
    return None


def _fits(fields: dict[str, set[str] | None], day: date) -> bool:
    month, monthday, weekday = fields["month"], fields["day"], fields["day_of_week"]
    return (
        (month is None or str(day.month) in month)
        and (monthday is None or str(day.day) in monthday)
        and (weekday is None or WEEKDAYS[day.isoweekday() % 7] in weekday)
    )


def _times(fields: dict[str, set[str] | None], day: date, zone: tzinfo) -> Iterator[datetime]:
    """Yield the times of a local date, in UTC, unordered."""
    hours, minutes = fields["hour"], fields["minute"]
    for hour in range(24) if hours is None else map(int, hours):
        for minute in range(60) if minutes is None else map(int, minutes):
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            when = local.astimezone(UTC)
            yield when
            again = local.replace(fold=1).astimezone(UTC)
            if again > when:  # for a skipped time, the later reading is earlier
                yield again
