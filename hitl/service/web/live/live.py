"""`Live`: hints in, beliefs up to date, events out; for all projects of one process."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from hitl.service.web.live.beliefs import Heard
from hitl.service.web.live.broadcast import Broadcast
from hitl.service.web.live.hints import Hints
from hitl.service.web.live.puller import Figures, Lead, Puller
from hitl.service.web.work import Work

if TYPE_CHECKING:
    from fastapi import APIRouter

    from hitl.annotations import Floats
    from hitl.service.scheduling.scheduler import Scheduler
    from hitl.service.web.live.routes import Endpoint
    from hitl.service.web.projects import Difference, Projects, Watched


SWITCH = 0.0005
"""Seconds after which Python's threads take turns (default: .005): a request would wait so long for the thread of a
pull, at each byte that it reads or sends."""

COLLECT = (20_000, 50, 50)
"""Objects, and collections of younger ones, after which Python looks for cycles (default: 700, 10, 10): each time it
stops all threads, for half a second in the end."""


class Live:
    """Keeps the projects that are served up to date with their platforms, label by label.

    It takes the snapshots of `projects` over: they are made here, and no more by `Projects.look`. The `scheduler`, if
    one runs in this process, is told of hints too: its debounce decides about cycles.

    With a `lead` this is one of several processes: one of them looks at the platforms, and what it tells the others
    comes to `heard`.

    Attributes:
        projects: those that are served; broadcast: the events to browsers.
    """

    def __init__(self, projects: Projects, scheduler: Scheduler | None = None, lead: Lead | None = None) -> None:
        self.projects = projects
        self.broadcast = Broadcast()
        self._lead = lead or Lead()
        self._pullers = {
            name: Puller(one, partial(self.broadcast.publish, name), self._lead) for name, one in projects.items()
        }
        self._hints = {name: Hints(one.store, name, partial(self._noted, name)) for name, one in projects.items()}
        kept = () if scheduler is None else scheduler.projects
        self._cycles: dict[str, Callable[[], None]] = {
            one.name: scheduler.hint_of(one) for one in kept if scheduler is not None and one.name in projects
        }

    def router(self, viewer: Endpoint, secret: str | None, public: Callable[[Endpoint], Endpoint]) -> APIRouter:
        """The routes of webhooks and events: see `hitl.service.web.live.routes.router`."""
        from hitl.service.web.live.routes import router

        return router(self, viewer, secret, public)

    def start(self) -> None:
        """Keep up, in threads. Pulls once: what came while nobody listened is not lost."""
        sys.setswitchinterval(min(SWITCH, sys.getswitchinterval()))
        gc.set_threshold(*COLLECT)
        for name, one in self.projects.items():
            one.followed, one.newer = True, self._pullers[name].beliefs.newer
            one.differences, one.tell = partial(self.differences, name), partial(self._tell_work, name)
            self._hints[name].start()
            self._pullers[name].start()
        self._lead.tell({"joined": self._lead.worker})

    def stop(self) -> None:
        """Stop, after all hints taken are durable."""
        self.broadcast.close()
        for hints in self._hints.values():
            hints.stop()
        for puller in self._pullers.values():
            puller.stop()
        for one in self.projects.values():
            one.followed = False

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(puller.is_alive() for puller in self._pullers.values())

    def hint(self, project: str) -> Future[None]:
        """There may be news of a project: look soon. The result is there when that cannot be lost any more.

        Raises KeyError; the result may be a StoreError.
        """
        taken = self._hints[project].take()
        if self._lead.mine():
            self._plan_cycle(project)
        return taken

    def heard(self, message: Mapping[str, Any]) -> None:
        """What another process tells: that it has pulled or could not, written a hint, worked, or begins itself.

        Raises KeyError, TypeError.
        """
        pulled, hinted, work = (message.get(kind, "") for kind in ("pulled", "hinted", "work"))
        if pulled in self._pullers:
            found = Heard(dict.fromkeys(message["items"]), message["annotators"], message["live"])
            self._pullers[pulled].told(found, message["before"], message["after"])
        if hinted in self._pullers and self._lead.mine():
            self._pullers[hinted].wake()
            self._plan_cycle(hinted)
        if work in self.projects and not _goes_on_here(self.projects[work]):
            self.projects[work].work = Work(**message["is"])
        if message.get("looked") in self.projects:
            self.projects[message["looked"]].unread = message["unread"]
        if "joined" in message:
            for puller in self._pullers.values():
                puller.tell_unread()
        for one in self.projects.values():
            if one.work is not None and one.work.ended is None and message.get("joined", 0) == one.work.worker:
                one.work = None  # whoever did it has died

    def _tell_work(self, project: str, work: Work) -> None:
        self._lead.tell({"work": project, "is": {**work.as_json(), "worker": self._lead.worker}})

    def _noted(self, project: str, written: bool) -> None:
        """A hint is durable: whoever leads looks at the platform, and knows already where nothing had to be written."""
        if self._lead.mine():
            self._pullers[project].wake()
        elif written:
            self._lead.tell({"hinted": project})

    def _plan_cycle(self, project: str) -> None:
        if project in self._cycles:
            self._cycles[project]()

    def belief(self, project: str, question: str, item: str) -> Floats | None:
        """(J,) what is believed of an item (by its own id) now; None where it is not known. Raises KeyError."""
        snapshot, beliefs = self.projects[project].snapshot, self._pullers[project].beliefs
        row = None if snapshot is None else snapshot.item_place.get(item)
        return None if snapshot is None or row is None else beliefs.belief(question, snapshot.keys[row])

    def figures(self, project: str) -> Figures:
        """What was done for a project. Raises KeyError."""
        return self._pullers[project].figures

    def differences(self, project: str) -> dict[str, Difference]:
        """Question -> how far the live beliefs were from the last cycle that came. Raises KeyError."""
        return dict(self._pullers[project].beliefs.differences)


def _goes_on_here(one: Watched) -> bool:
    return one.work is not None and one.work.ended is None and one.work.worker is None
