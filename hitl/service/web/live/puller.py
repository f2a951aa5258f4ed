"""One thread a project: looks at the platform when it was told to, or the time has come, and keeps beliefs up to date.

    hint, or `schedule.poll` seconds     pull; what changed is taken in label by label; hints answered are cleared
    the store has moved by others        load: a cycle has come to its end, or somebody else has pulled
    another process pulls (`Lead`)       what it tells is taken in label by label; what it does not tell is loaded
    many labels taken in                 load, so that the pages have everything; it takes SHARE of the time at most

What fails is tried again, ever later, or soon after the next hint; requests wait for nothing of it.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hitl.connectors.catalog import connector_of
from hitl.cycle import pull
from hitl.errors import Busy, HitlError, PlatformError
from hitl.project import lease_seconds, recalled, require_one_name, require_place
from hitl.service.web.live.beliefs import Beliefs, Heard
from hitl.service.web.projects import Moment
from hitl.service.web.snapshot import questions_of, snapshot_of
from hitl.store import Lease, Store
from hitl.tables.limits import within

if TYPE_CHECKING:
    from hitl.platform import Connector, Page, PullSummary, Question
    from hitl.service.web.projects import Watched
    from hitl.store.hints import Hint

GAP = 0.25
"""Seconds from the beginning of one pull to that of the next, at least."""

REST = 0.1
"""Seconds from the end of a pull to the next, at least: others who wait for the lease get it. A pull that takes longer
is followed by as long a rest."""

LOOK = 1.0
"""Seconds between two looks at the store."""

SHARE = 0.1
"""Share of the time that loading may take while labels come; half of it where more than labels has changed."""

QUICK = 0.5
"""Seconds of a load that is waited for before a changed belief is told."""

OVERDUE = 5.0
"""Seconds that a load waits for a moment without hints."""

AGAIN, LAST_AGAIN = 0.5, 60.0
"""Seconds after which what failed is tried again, doubled with each time, up to the last."""

HINTED_AGAIN = 2.0
"""The same where hints come: a platform that sends them is there."""

_log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a change of the store may wait to be told by the process that made it, before everything is read."""

Publish = Callable[[str, Mapping[str, Any]], None]
"""Called with an event's name and data."""


@dataclass(frozen=True)
class Lead:
    """Which process of a service looks at the platform: one does, and tells the others what it has pulled.

    Attributes:
        mine: whether it is this one; tell: tells the others, JSON values.
        worker: the number of this process; None: there are no others.
    """

    mine: Callable[[], bool] = lambda: True
    tell: Callable[[Mapping[str, Any]], object] = lambda message: None
    worker: int | None = None

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.worker is None


class Hearing(Store):
    """The store of a project, that tells of the pages that are saved."""

    def __init__(self, store: Store, heard: Callable[[Page], None]) -> None:
        self.database, self._heard = store.database, heard

    def save_page(self, lease: Lease, page: Page) -> PullSummary:
        """Save it, then tell."""
        saved = super().save_page(lease, page)
        self._heard(page)
        return saved


@dataclass
class Figures:
    """What a puller has done.

    Attributes:
        pulls: those that succeeded; failures: those that did not, but for Busy.
        seconds: how long the last one took.
        labels: items taken in label by label; loads: how often everything was read.
        load_seconds: how long the last load took.
        pulled_at: when the last pull that succeeded ended, in seconds since the epoch; 0: none has.
        trouble: why the last pull or load failed; None: it did not.
    """

    pulls: int = 0
    failures: int = 0
    seconds: float = 0.0
    labels: int = 0
    loads: int = 0
    load_seconds: float = 0.0
    pulled_at: float = 0.0
    trouble: str | None = None


class Puller(threading.Thread):
    """Keeps one project up to date."""

    def __init__(self, watched: Watched, publish: Publish, lead: Lead | None = None) -> None:
        super().__init__(name=f"hitl live {watched.name}", daemon=True)
        self._watched, self._publish, self._lead = watched, publish, lead or Lead()
        self._store = watched.store
        self.beliefs = Beliefs(watched.settings, watched.store)
        self.figures = Figures()
        self._hinted, self._stopping = threading.Event(), False
        self._connector: Connector | None = None
        self._questions: tuple[Question, ...] | None = None
        self._at: Moment | None = None  # where the store stands of which the beliefs are
        self._pull_at, self._not_before, self._load_at = 0.0, 0.0, 0.0
        self._moved_at = 0.0
        self._told: dict[str, dict[str, None]] = {}  # before the pages had it
        self._fails = 0
        self._pulled_elsewhere: deque[tuple[Heard, int, int]] = deque()
        self._behind_at: float | None = None  # since when the store has what nobody has told
        self._leads = False  # this process has looked at the platform since it leads
        self._more = False  # hints came while the last pull ran: they will during the next one

    def wake(self) -> None:
        """There may be news on the platform."""
        self._hinted.set()

    def told(self, heard: Heard, before: int, after: int) -> None:
        """Another process has pulled; how often the store had changed before and after. From any thread."""
        self._pulled_elsewhere.append((heard, before, after))
        self._hinted.set()

    def stop(self, seconds: float = 10.0) -> None:
        """Stop, at the next page; a pull that waits for its platform is left behind."""
        self._stopping = True
        self._hinted.set()
        if self.is_alive():
            self.join(seconds)

    def run(self) -> None:
        """Until stopped."""
        with within(self._watched.settings.limits.limits()), suppress(_Stopped):
            self._kept(self._look)  # what is stored first: the platform may take long
            while not self._stopping:
                self._kept(self.turn)

    def _kept(self, step: Callable[[], None]) -> None:
        """A step; one that fails as nobody foresaw is logged, and tried again in a while."""
        try:
            step()
        except Exception as error:
            _log.exception("live: %s", self._watched.name)
            self.figures.failures += 1
            self.figures.trouble = f"{type(error).__name__}: {error}"
            threading.Event().wait(LOOK)

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        if not self._lead.mine():
            self._leads = False
            self._follow()
            return
        self._ask_for_hints()
        now = time.monotonic()
        wait = max(self._not_before - now, 0.0) if self._hinted.is_set() else min(LOOK, max(self._pull_at - now, 0.0))
        if wait and not self._wait(wait):
            now = time.monotonic()
        if (self._hinted.is_set() or now >= self._pull_at) and now >= self._not_before:
            self._hinted.clear()
            self._pull()
        self._look()

    def _wait(self, seconds: float) -> bool:
        """Wait so long, or until there is a hint that may be answered at once."""
        if not self._hinted.is_set():
            return self._hinted.wait(seconds)
        threading.Event().wait(min(seconds, LOOK))
        return False

    # -- beside other processes ----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Take in what the process that leads has pulled."""
        self._hinted.wait(LOOK)
        self._hinted.clear()
        while self._pulled_elsewhere:
            self._take_in(*self._pulled_elsewhere.popleft())
        self._look()

    def _ask_for_hints(self) -> None:
        """See whether another process has written a hint and died before it could tell."""
        self._pulled_elsewhere.clear()
        if self._lead.alone or self._fails or self._hinted.is_set():
            return
        with suppress(HitlError):
            there = self._store.hint(self._watched.name)
            if there is not None and there.count > there.taken:
                self._hinted.set()

    def _is_told_soon(self, now: float) -> bool:
        """Whether the process that leads may yet tell what the store has more."""
        if self._lead.mine() or self._at is None or self._watched.moment().cycle != self._at.cycle:
            return False
        self._behind_at = now if self._behind_at is None else self._behind_at
        return now < self._behind_at + PATIENCE

    # -- pulling -------------------------------------------------------------------------------------------

    def _pull(self) -> None:
        began = time.monotonic()
        heard, ahead = Heard(), self._more
        try:
            taken = self._store.take_hint(self._watched.name, ahead=ahead)
            before, after = self._pulled(heard)
        except Busy:
            self._try_again(began, None)
            return
        except (HitlError, OSError) as error:
            self._try_again(began, error)
            return
        self._fails, self.figures.trouble = 0, None
        self._reached(None)
        self.figures.pulls += 1
        self.figures.pulled_at = time.time()
        self.figures.seconds = time.monotonic() - began
        self._pull_at = began + self._watched.settings.schedule.poll
        if before != after and not self._lead.alone:
            told = {"items": list(heard.items), "annotators": heard.annotators, "live": heard.live}
            self._lead.tell({"pulled": self._watched.name, "before": before, "after": after, **told})
        self._take_in(heard, before, after)
        self._more = self._hinted.is_set()
        if ahead:
            self._hinted.set()
        else:
            self._answered(taken)
        self._not_before = max(began + GAP, time.monotonic() + max(REST, self.figures.seconds))

    def _pulled(self, heard: Heard) -> tuple[int, int]:
        """Pull; how often the store had changed before and after."""
        name, connector = self._watched.name, self._connected()
        require_one_name(self._store, name, connector)
        require_place(self._store, name, connector)
        with self._store.lease(name, seconds=lease_seconds(connector), brief=True) as lease:
            before = self._store.revision(name)
            pull(lease, Hearing(self._store, heard.page), connector, self._progress)
            return before, self._store.revision(name)

    def _connected(self) -> Connector:
        if self._connector is None:
            self._connector = connector_of(self._watched.settings.source, self._watched.config.parent)
        return self._connector

    def _progress(self, what: str, done: int, total: int | None) -> None:
        if self._stopping:
            raise _Stopped

    def _try_again(self, began: float, error: Exception | None) -> None:
        """Later; a cycle that holds the project is no failure."""
        self._fails = 0 if error is None else self._fails + 1
        wait = AGAIN * 2.0 ** min(self._fails - 1, 10) if error else AGAIN
        self._not_before = time.monotonic() + min(wait, HINTED_AGAIN)
        self._pull_at = time.monotonic() + min(wait, LAST_AGAIN)
        if error is not None:
            self.figures.failures += 1
            self.figures.trouble = str(error)
            self._reached(str(error))
            self._connector = None  # a new one asks again for what it had learned of its platform

    def _reached(self, why: str | None) -> None:
        """Say on the pages, in the log and to the other processes that the platform could not be read; None: it was."""
        changed, first = self._watched.unread != why, not self._leads
        self._watched.unread, self._leads = why, True
        if changed and why is None:
            _log.info("live: %s: the platform is read again", self._watched.name)
        elif changed:
            _log.warning("live: %s: the platform cannot be read: %s", self._watched.name, why)
        if changed or first:  # the others know what the process said that led before
            self.tell_unread()

    def tell_unread(self) -> None:
        """Tell the other processes how the last look at the platform went."""
        if not self._lead.alone and self._lead.mine():
            self._lead.tell({"looked": self._watched.name, "unread": self._watched.unread})

    def _answered(self, taken: Hint | None) -> None:
        """The pull began after these hints: they are done with. What fails here is cleared by the next pull."""
        if taken is not None:
            with suppress(HitlError):
                self._store.clear_hint(self._watched.name, taken)

    # -- beliefs -------------------------------------------------------------------------------------------

    def _take_in(self, heard: Heard, before: int, after: int) -> None:
        """What a pull brought."""
        if before == after or self._at is None or before != self._at.revision:
            return  # nothing; or others have pulled as well, and `_look` loads
        try:
            changed = self.beliefs.take_in(heard)
        except HitlError as error:
            self.figures.trouble = str(error)
            return
        if changed is None:
            return
        self._at = Moment(after, self._at.cycle)
        self.figures.labels += sum(map(len, changed.values()))
        told = {question: self._own(items) for question, items in changed.items()}
        if self._may_load() and self.figures.load_seconds < QUICK:
            self._load(reload=False)
        else:
            for question, items in told.items():
                self._told.setdefault(question, {}).update(dict.fromkeys(items))
        self._tell(told)

    def _tell(self, items: Mapping[str, Iterable[str]]) -> None:
        """Question -> items of which something else is believed now."""
        for question, changed in items.items():
            self._publish("belief", {"question": question, "items": list(changed)})

    def _own(self, keys: list[str]) -> list[str]:
        """The user's own ids of these items."""
        snapshot = self._watched.snapshot
        if snapshot is None:
            return keys
        place, names = snapshot.key_place, snapshot.names
        return [names[place[key]].as_py() if key in place else key for key in keys]

    def _may_load(self) -> bool:
        return time.monotonic() >= self._load_at

    def _look(self) -> None:
        """Load where the store has moved by others, or labels were taken in and loading is due again."""
        now = time.monotonic()
        try:
            moved = self._watched.moment() != self._at
            if moved and self._is_told_soon(now):
                return
        except HitlError as error:
            self.figures.trouble = str(error)
            return
        self._behind_at = None
        if moved and (self._at is None or now >= self._moved_at):
            self._load(reload=True)
            return
        quiet = not self._hinted.is_set() or now >= self._load_at + OVERDUE
        if not moved and quiet and self.beliefs.behind and self._may_load():
            self._load(reload=False)

    def _load(self, *, reload: bool) -> None:
        """Read everything, and put it before the pages; `reload`: say so to who looks at them."""
        began, before = time.monotonic(), self._at
        try:
            self._store.database.analyse()
            moment = self._watched.moment()
            questions = self._asked(moment)
            judged = self.beliefs.load(questions, moment.cycle, moment.revision)
            snapshot = snapshot_of(self._watched.settings, self._store, questions, judged)
        except HitlError as error:
            self.figures.trouble = self._watched.trouble = str(error)
            self._load_at = self._moved_at = time.monotonic() + LOOK
            return
        self._watched.follow(snapshot, moment)
        self._at = moment
        if not self.figures.loads:
            gc.freeze()  # what is there now stays: to go through it again and again would stop all threads
        self.figures.loads += 1
        self.figures.load_seconds = time.monotonic() - began
        self._load_at = time.monotonic() + self.figures.load_seconds * (1 / SHARE - 1)
        self._moved_at = time.monotonic() + self.figures.load_seconds
        told, self._told = self._told, {}
        if before is not None and moment.cycle != before.cycle:
            self._publish("cycle", {"number": moment.cycle})
            self._publish("plan", {"number": moment.cycle})
        elif reload and before is not None:
            self._publish("reload", {})
        else:
            self._tell(told)  # once more: the pages have it now

    def _asked(self, moment: Moment) -> tuple[Question, ...]:
        """The questions of the platform, asked at the first load, after a cycle, and where others have changed more
        than labels; those of the last cycle where it does not answer."""
        if self._questions is None or self._at is None or moment != self._at:
            try:
                self._questions = recalled(self._connected(), self._store, self._watched.name).questions()
            except (PlatformError, OSError):
                self._connector = None
        if self._questions is None:
            return questions_of(self._store, self._watched.name)
        return self._questions


class _Stopped(BaseException):
    """The pull is left between two pages; the next one goes on there."""
