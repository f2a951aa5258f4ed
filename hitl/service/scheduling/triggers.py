"""When a job comes next: every so many seconds, by a cron line in a time zone, or once, soon.

The first two skip what has passed, because missed runs are one. They stand in for APScheduler's own: its CronTrigger
adds differences of local time to UTC, and so misses the first hour of days after a change of the clocks (3.11: a
weekly "0 0 * * mon" loses the Monday after the change to summer time), and its times missed are counted one by one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from apscheduler.triggers.base import BaseTrigger

from hitl.settings.times import next_time, zone_of


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
    """By a cron line (see `hitl.settings.times`) in a time zone."""

    line: str
    timezone: str

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The first time from now on, and after the last one; None: it never comes. In UTC."""
        at_least = now if previous_fire_time is None else max(now, previous_fire_time + timedelta(microseconds=1))
        return next_time(self.line, zone_of(self.timezone), at_least)
