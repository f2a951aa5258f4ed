"""Whether cycles finish: what /health says of a project.

with a period (every, cron)    late when `late_after` of its times have passed since a cycle finished
without                        late when a run was begun and none has finished for `late_after` of the longest retries
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hitl.service.scheduling.worker import LAST_RETRY
from hitl.settings import ScheduleSettings


def is_late(schedule: ScheduleSettings, finished: datetime, begun: datetime | None, now: datetime) -> bool:
    """Whether a cycle should have finished by now.

    Args:
        schedule: when cycles run.
        finished: when the last one did, or the scheduler started.
        begun: since when one is tried, None where none is.
        now: the time.
    """
    if schedule.every is not None:
        return now > finished + timedelta(seconds=schedule.every * schedule.late_after)
    if schedule.cron is not None:
        when = finished
        for _ in range(schedule.late_after + 1):  # the last of them has just become due
            following = schedule.next_after(when)
            if following is None or following > now:
                return False
            when = following
        return True
    return begun is not None and now > begun + timedelta(seconds=LAST_RETRY * schedule.late_after)
