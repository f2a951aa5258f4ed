"""When a job comes next: every so many seconds, by a cron line in a time zone, or once, soon.

The first two skip what has passed, because missed runs are one. They stand in for APScheduler's own: its CronTrigger
adds differences of local time to UTC, and so misses the first hour of days after a change of the clocks (3.11: a
weekly "0 0 * * mon" loses the Monday after the change to summer time), and its times missed are counted one by one.

    times of a local date    each minute that fits; one that comes twice (autumn) is two times, one that is left out
                             (spring) is the time as long after the jump
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from apscheduler.triggers.base import BaseTrigger

from hitl.times import WEEKDAYS, cron_fields, zone_of

YEARS = 41
"""How far to look for a date: the longest gap of a 29 February on a given weekday is 40 years."""


class Trigger(BaseTrigger):  # type: ignore[misc]
    """When a job comes, by the settings."""

    @abstractmethod
    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The first time from `now` on and after the last one; None: it never comes."""

    def latest(self, now: datetime) -> datetime | None:
        """When it comes next at the latest, of a job that is not due; None: nobody can say."""
        return self.get_next_fire_time(now, now)


@dataclass(frozen=True)
class Soon(Trigger):
    """Once, within so many seconds if that is known."""

    within: float | None = None

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Now, if it has not been."""
        return now if previous_fire_time is None else None

    def latest(self, now: datetime) -> datetime | None:
        """The end of that time."""
        return None if self.within is None else now + timedelta(seconds=self.within)


@dataclass(frozen=True)
class Every(Trigger):
    """At `start` and every `seconds` before and after."""

    seconds: float
    start: datetime

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """The first time that is not past, and after the last one."""
        passed = (now - self.start).total_seconds() / self.seconds
        when = self.start + timedelta(seconds=self.seconds * math.ceil(passed))
        last = now if previous_fire_time is None else previous_fire_time
        return when if when > last or previous_fire_time is None else when + timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class Cron(Trigger):
    """By a cron line (see `hitl.times`) in a time zone."""

    line: str
    timezone: str

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The first time from now on, and after the last one; None: it never comes. In UTC."""
        at_least = now if previous_fire_time is None else max(now, previous_fire_time + timedelta(microseconds=1))
        return next_time(self.line, zone_of(self.timezone), at_least)


def next_time(line: str, zone: tzinfo, at_least: datetime) -> datetime | None:
    """The first time of a cron line, in UTC, that is not before `at_least`."""
    day = at_least.astimezone(zone).date() - timedelta(days=1)
    fields = {name: None if text == "*" else set(text.split(",")) for name, text in cron_fields(line).items()}
    for _ in range(YEARS * 366):
        if _fits(fields, day):
            # A time left out before midnight comes after it, among those of the next day.
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
    """The times of a local date, in UTC, in no order."""
    hours, minutes = fields["hour"], fields["minute"]
    for hour in range(24) if hours is None else map(int, hours):
        for minute in range(60) if minutes is None else map(int, minutes):
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            when = local.astimezone(UTC)
            yield when
            again = local.replace(fold=1).astimezone(UTC)
            if again > when:  # of a time left out, the later reading is earlier
                yield again
