"""Settings of the times at which runs start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, model_validator

from hitl.errors import BadSettings
from hitl.settings.section import AtLeastOne, Seconds, Section, check
from hitl.settings.times import cron_times, zone_of


def _require_cron(line: str) -> None:
    cron_times(line, datetime(2026, 1, 1, tzinfo=UTC))


def _require_listener(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSettings(f"{text!r} is no address to listen at; expected for instance '127.0.0.1:8090'")


class ScheduleSettings(Section):
    """When runs start: by time, new annotations or webhooks. After `late_after` missed runs, /health fails."""

    every: Seconds | None = None
    """Interval between runs, such as `15m`."""
    cron: Annotated[str, AfterValidator(check(_require_cron))] | None = None
    """Cron line, such as `*/10 8-18 * * mon-fri`; excludes `every`."""
    timezone: Annotated[str, AfterValidator(check(zone_of))] = "UTC"
    """Time zone of the cron line."""
    after_annotations: AtLeastOne | None = None
    """Number of new annotations that start a run."""
    poll: Seconds = 60.0
    """Time between two counts of new annotations."""
    webhook: Annotated[str, AfterValidator(check(_require_listener))] | None = None
    """Address at which `hitl schedule` listens for webhooks, such as `127.0.0.1:8090`."""
    debounce: Seconds = 10.0
    """Time from the last webhook of a burst to the run."""
    debounce_at_most: Seconds = 120.0
    """Maximum time from the first webhook of a burst to the run."""
    late_after: AtLeastOne = 3
    """`/health` fails when this many due times have passed without a finished run (without times: 10 minutes each)."""

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleSettings:
        if self.every is not None and self.cron is not None:
            raise ValueError("every and cron exclude each other; expected one of them")
        if self.debounce_at_most < self.debounce:
            raise ValueError("debounce_at_most is shorter than debounce; expected at least as long")
        return self

    def next_after(self, when: datetime) -> datetime | None:
        """Return the next scheduled time after `when`, or None if there is no schedule."""
        if self.every is not None:
            return when + timedelta(seconds=self.every)
        if self.cron is None:
            return None
        local = cron_times(self.cron, when.astimezone(zone_of(self.timezone)))
        times = (time.astimezone(UTC) for time in local)  # when clocks go back, the first may lie before `when`
        return next((time for time in times if time > when), None)
