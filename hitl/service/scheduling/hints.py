"""Debouncing: a burst of hints is one run, soon after the last of them, and not much later than the first.

    run at  min(last hint + quiet, first hint + at_most)

The second keeps a steady stream of hints from putting the run off for ever. A hint after that time begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class Debounce:
    """The hints of one project; `quiet` and `at_most` in seconds."""

    quiet: float
    at_most: float
    first: datetime | None = None
    due: datetime | None = None

    def hint(self, now: datetime) -> datetime:
        """When to run, after a hint at this time."""
        if self.first is None or self.due is None or not self.first <= now < self.due:  # before: a clock was set back
            self.first = now
        self.due = min(now + timedelta(seconds=self.quiet), self.first + timedelta(seconds=self.at_most))
        return self.due
