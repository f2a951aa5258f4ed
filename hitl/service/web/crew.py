"""Which process of a service does what only one has to: look at the platforms, run the cycles, deliver the events.

A service of one process does it all. Of several, the one that leads does; a process that leads no more, because its
connection broke, ends and is started again, so that nothing of it goes on beside the next one that leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from hitl.service.web.live import Lead
from hitl.store.bus import Bus, Message
from hitl.store.database import Database


class Part(Protocol):
    """What runs in one process alone."""

    def start(self) -> object:
        """Start it, in threads."""

    def stop(self) -> object:
        """Stop it, also where it was not started."""


class Crew:
    """This process among those of its service.

    Attributes:
        heard: takes what another process tells.
        end: ends this process.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self._number = parts, 0
        self._bus: Bus | None = None
        self._log = structlog.get_logger("hitl.serve")
        self.heard: Callable[[Message], None] = lambda message: None
        self.end: Callable[[], object] = lambda: None

    def join(self, number: int, database: Database, service: str) -> None:
        """Be one of several: those of one service, by its name, in one database on PostgreSQL."""
        self._number = number
        self._bus = Bus(database, service, lambda message: self.heard(message), self._begin, self._over)

    @property
    def leads(self) -> bool:
        """Whether this process does what only one has to."""
        return self._bus is None or self._bus.leads

    @property
    def lead(self) -> Lead:
        """The same for live updates."""
        return Lead() if self._bus is None else Lead(lambda: self.leads, self._bus.tell, self._number)

    def start(self) -> None:
        """Do it, or try to lead."""
        if self._bus is None:
            for part in self._parts:
                part.start()
        else:
            self._bus.start()

    def stop(self) -> None:
        """Stop all; only then may another process lead."""
        for part in self._parts:
            part.stop()
        if self._bus is not None:
            self._bus.stop()

    def _begin(self) -> None:
        self._log.info("this worker leads: it looks at the platforms, runs cycles and delivers events")
        try:
            for part in self._parts:
                part.start()
        except Exception as error:
            self._log.error("this worker cannot lead", error=type(error).__name__, message=str(error))
            self.end()

    def _over(self) -> None:
        self._log.warning("this worker leads no more: its connection to the database broke; it starts again")
        self.end()
