"""Serve projects, each with its store and newest snapshot. A thread keeps the snapshots up to date.

Every `EVERY` seconds, the thread checks the store's revision and the number of the last run. It loads a new snapshot if
one of them has changed. Meanwhile, requests read the previous snapshot. The platform is not contacted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.errors import BadSettings, HitlError
from hitl.events.sender import address_rows
from hitl.formatting import masked
from hitl.service.project import Project
from hitl.service.web.snapshot import Snapshot, snapshot_of
from hitl.tables.limits import within

if TYPE_CHECKING:
    from hitl.service.loop import ProjectLoop

EVERY = 0.5  # seconds between two checks of the stores

SHARE = 0.1  # maximum share of the time spent loading while labels come in


@dataclass
class Work:
    """An action that someone has started. Times are seconds since the epoch.

    Attributes:
        what: plan, push, run or gold; by: who started it; at: when it was started; item: the item it is about, if one.
        step: current step; ended: when it ended, or None; said: its outcome, in words; failed: True after an error.
    """

    what: str
    by: str
    at: float
    item: str | None = None
    step: str = "starts"
    ended: float | None = None
    said: str = ""
    failed: bool = False

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Record the current step."""
        self.step = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")


class Watched(Project):
    """One served project, with its newest snapshot."""

    def __init__(self, config: Path) -> None:
        super().__init__(config)
        self.snapshot: Snapshot | None = None
        self.trouble: str | None = None  # why the last load failed
        self.loop: ProjectLoop | None = None  # pulls and does its runs
        self.work: Work | None = None  # the action in progress, or the last one
        self.loads, self.load_seconds, self._loaded_at = 0, 0.0, 0.0
        self._seen: tuple[int, int] | None = None  # revision and number of the last run in the snapshot
        self._one_at_a_time = threading.Lock()

    @property
    def warning(self) -> str | None:
        """Warning to show next to the data, or None."""
        unread = "" if self.loop is None else self.loop.unread
        if self.trouble is not None or not unread:
            return self.trouble
        return f"the last look at the platform failed, so that new answers may be missing: {unread}"

    @property
    def addresses(self) -> list[dict[str, Any]]:
        """Addresses that events are sent to, without secret parts, and their counts."""
        return address_rows(self.settings, self.store)

    def refresh(self) -> bool:
        """Load a new snapshot if the store has changed. Return True if one was loaded. `trouble` records a failure."""
        with self._one_at_a_time:
            try:
                last = self.store.last_cycle(self.name)
                now = self.store.revision(self.name), 0 if last is None else last.number
                if now == self._seen:
                    return False
                start = time.monotonic()
                with within(self.settings.limits.limits()):
                    self.snapshot = snapshot_of(self.settings, self.store)
            except HitlError as error:
                self.trouble = masked(str(error))
                return False
            self._seen, self.trouble, self._loaded_at = now, None, time.monotonic()
            self.load_seconds, self.loads = self._loaded_at - start, self.loads + 1
            return True

    @property
    def rests(self) -> bool:
        """True if loading now would take more than `SHARE` of the time."""
        return time.monotonic() < self._loaded_at + self.load_seconds * (1 / SHARE - 1)


class Projects(Mapping[str, Watched]):
    """All served projects, by name. Raises BadSettings if two share a name."""

    def __init__(self, configs: Sequence[Path]) -> None:
        self._watched: dict[str, Watched] = {}
        for config in configs:
            one = Watched(config)
            if "/" in one.name or one.name.lstrip("~") in (".", ".."):
                raise BadSettings(
                    f"{config}: the name {one.name!r} cannot be a part of an address; expected one without '/' that is "
                    "not '.' or '..'"
                )
            if one.name in self._watched:
                raise BadSettings(
                    f"{config}: another project that is served is called {one.name!r} too; expected a name of its own"
                )
            self._watched[one.name] = one
        self._woken, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._keep_looking, name="hitl snapshots", daemon=True)

    def __getitem__(self, name: str) -> Watched:
        return self._watched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._watched)

    def __len__(self) -> int:
        return len(self._watched)

    def start(self) -> None:
        """Start checking for news in a thread."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread check now."""
        self._woken.set()

    def stop(self) -> None:
        """Stop the thread and close the stores."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        for one in self._watched.values():
            one.store.close()

    def _keep_looking(self) -> None:
        while not self._stopping:
            for one in self._watched.values():
                if not one.rests:
                    one.refresh()
            self._woken.wait(EVERY)
            self._woken.clear()
