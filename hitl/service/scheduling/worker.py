"""The one who runs a project's cycles, one at a time, in a thread of its own.

    while the ledger has a run to do:
        cycle       recorded under the run's name, or resumed where it was killed
                    -> done, with everything that was due when it began (resumed: only its own run)
        Busy, Unreachable, StoreError, OSError    tried again, ever later; the platform may say when
        any other error                           reported, and over: the next run is at its next time

Between runs it may look for new annotations: a pull, and a run when enough came since the last cycle. Nothing that
happens to one project concerns the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cycle import CycleReport, Unchanged, pull, run_if_changed
from hitl.errors import BadSettings, Busy, HitlError, StoreError, Unreachable
from hitl.platform import Connector, Progress, silent
from hitl.project import opened
from hitl.service.scheduling.ledger import Ledger, name_of
from hitl.store.cycles import BASIS

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.store import Store

FIRST_RETRY, LAST_RETRY = 5.0, 600.0
"""Seconds to the first retry, doubled with each, up to the last; a platform that asks for more is asked then too."""

LAST_BUSY_RETRY = 60.0
"""The same where another process holds the project: a look at the store tells whether it has ended."""

MAY_PASS = (Busy, Unreachable, StoreError, OSError)
"""What may be different in a while."""

Tell = Callable[[str, str, Mapping[str, Any]], None]
"""Called with (event, project, figures): began, done, failed, waits, looked."""


class Stopped(BaseException):
    """The scheduler is to stop: the cycle is left between two steps, and resumed at the next start."""


def clock() -> datetime:
    """Now; replaced in tests."""
    return datetime.now(UTC)


def once(config: str | Path, due: str | None = None, progress: Progress = silent) -> CycleReport | Unchanged:
    """One cycle of the project of this hitl.toml, as `hitl run` does it; what APScheduler's jobs name."""
    with opened(Path(config)) as (settings, store, connector):
        return run_if_changed(settings, store, connector, progress, due=due)


def retry_delay(attempt: int, error: Exception) -> float:
    """Seconds until the next attempt, after `attempt` that failed (1, 2, ...)."""
    hint = error.retry_after if isinstance(error, Unreachable) else None
    wait = FIRST_RETRY * 2.0 ** min(attempt - 1, 20) if hint is None else hint
    return min(wait, LAST_BUSY_RETRY if isinstance(error, Busy) else LAST_RETRY)


@dataclass(frozen=True)
class Assignment:
    """What a worker works on: the project's hitl.toml, and how many new annotations are worth a cycle (or None)."""

    project: str
    config: Path
    after_annotations: int | None


class Worker(threading.Thread):
    """Runs what the ledger says of one project, whenever it is woken."""

    def __init__(
        self, work: Assignment, ledger: Ledger, stop: threading.Event, tell: Tell, progress: Progress = silent
    ) -> None:
        super().__init__(name=f"hitl {work.project}", daemon=True)  # a fit cannot be stopped half-way, but abandoned
        self._work, self._ledger, self._stopping, self._told = work, ledger, stop, tell
        self._shown = progress
        self._woken, self._look_wanted = threading.Event(), threading.Event()
        self._attempts = 0
        self._finished, self._begun = clock(), None  # type: datetime, datetime | None
        self._blind: datetime | None = None  # since when looks fail: no cycle comes of them while they do

    def finished(self) -> tuple[datetime, datetime | None]:
        """When a cycle last finished (here, by another scheduler, or this one started); since when one is tried."""
        now = clock()
        self._finished = min(self._finished, now)  # a clock that was ahead must not make it look well until then
        if self._begun is None and (done := self._ledger.last_done(self._work.project, now)) is not None:
            self._finished = max(self._finished, done)
        tried = [min(since, now) for since in (self._begun, self._blind) if since is not None]
        return self._finished, min(tried, default=None)

    def wake(self, *, look: bool = False) -> None:
        """There may be something to do; `look`: see first whether new annotations came."""
        if look:
            self._look_wanted.set()
        self._woken.set()

    def run(self) -> None:
        """Until stopped."""
        while not self._stopping.is_set():
            try:
                delay = self.turn()
            except Stopped:
                return
            except Exception as error:  # the ledger's database: nothing is known to be done
                delay = self._try_later(error)
            if delay is None:
                self._woken.wait()
                self._woken.clear()
            else:
                self._stopping.wait(delay)

    def turn(self) -> float | None:
        """Look if wanted and do the run that is due; seconds until the next turn, or None: nothing is left to do."""
        project = self._work.project
        if self._look_wanted.is_set():
            self._look_wanted.clear()
            self._look()
        due = self._ledger.pending(project)
        if due is None:  # or another scheduler has done it meanwhile
            self._attempts, self._begun = 0, None
            return None
        self._begun = self._begun or clock()
        self._tell("began", due=due)
        began, start, covered = name_of(clock()), time.monotonic(), due
        try:
            report = self._cycle(due)
        except Stopped:
            raise
        except MAY_PASS as error:
            return self._try_later(error)
        except Exception as error:
            self._tell("failed", due=due, **_in_words(error))
        else:
            self._finished, self._begun = clock(), None
            self._tell("done", due=due, seconds=round(time.monotonic() - start, 1), **figures(report))
            covered = due if report.resumed else max(due, began)  # it saw all that was there when it began
        self._ledger.done(project, covered)
        self._attempts = 0
        return 0.0

    def _cycle(self, due: str) -> CycleReport | Unchanged:
        with opened(self._work.config) as (settings, store, connector):
            self._same_project(settings)
            return run_if_changed(settings, store, connector, self._progress, due=due)

    def _look(self) -> None:
        """Pull, and make a run due when enough annotations are new. What fails now is looked at next time."""
        try:
            with opened(self._work.config) as (settings, store, connector):
                self._same_project(settings)
                new = self.new_annotations(store, connector)
        except (HitlError, OSError) as error:
            if not isinstance(error, Busy):
                self._blind = self._blind or clock()
                self._tell("failed", look=True, **_in_words(error))
            return
        self._blind = None
        if new is None or new >= (self._work.after_annotations or 1):
            self._tell("looked", new=new)
            now = clock()
            self._ledger.mark([(self._work.project, now)], now)

    def new_annotations(self, store: Store, connector: Connector) -> int | None:
        """How many annotations more or fewer than at the last cycle there are; None: no cycle has counted them yet."""
        project = self._work.project
        with store.lease(project) as lease:
            pull(lease, store, connector, self._progress)
        last = store.last_cycle(project)
        if last is None:
            return None
        if "annotations" not in last.metrics:  # a cycle by hand does not count them: then anything new is enough
            return 0 if last.revision == store.revision(project) else None
        return abs(store.annotation_count(project) - int(last.metrics["annotations"]))

    def _same_project(self, settings: Settings) -> None:
        if settings.name != self._work.project:
            raise BadSettings(
                f"{self._work.config}: name is {settings.name!r} now, was {self._work.project!r}; "
                "restart `hitl schedule`"
            )

    def _try_later(self, error: Exception) -> float:
        self._attempts += 1
        delay = retry_delay(self._attempts, error)
        self._tell("waits", seconds=round(delay, 1), **_in_words(error))
        return delay

    def _progress(self, what: str, done: int, total: int | None) -> None:
        if self._stopping.is_set():
            raise Stopped
        self._shown(what, done, total)

    def _tell(self, event: str, **said: Any) -> None:
        self._told(event, self._work.project, said)


def _in_words(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


PROBLEMS = 10
"""How many of the things that a cycle left out are told; `hitl run` tells as many."""


def figures(report: CycleReport | Unchanged) -> dict[str, Any]:
    """What is reported of a cycle."""
    pushed: dict[str, Any] = {"operations": len(report.receipts), "changed": report.changed}
    if report.pulled.problems:
        pushed["problems"] = list(report.pulled.problems[:PROBLEMS])
    if isinstance(report, Unchanged):
        return {"unchanged": True, **pushed}
    metrics = {
        key: value for key, value in report.judgement.metrics.items() if key not in ("due", "annotations", BASIS)
    }
    pulled = {"new": report.pulled.changed, "deleted": report.pulled.deleted}
    return {**pulled, **metrics, "asks": len(report.judgement.plan.asks), **pushed}
