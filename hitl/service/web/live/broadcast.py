"""Events to browsers: server-sent events of a project, each with a number, so that who was away takes up where it was.

    belief   {"question", "items"}    what is believed of these items (own ids) has changed
    cycle    {"number"}               a cycle has come to its end
    plan     {"number"}               what is asked next is that of this cycle
    reload   {}                       more has changed than can be said, or was missed: read everything again

Published from any thread, read by connections of one event loop or several.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

CLIENTS = 200
"""How many may listen at a time."""

EACH = CLIENTS // 4
"""How many of them may be of one caller, so that others find room."""

WAITING = 64
"""Events that wait for a client; a slower one is told to reload."""

KEPT = 256
"""Events of a project that are kept for those who come back."""

HEARTBEAT = 15.0
"""Seconds after which something is sent in any case, so that nobody on the way takes the connection for dead."""

LONGEST = 900.0
"""Seconds after which a connection is ended: the browser comes back, and whether it may is looked at again."""

ITEMS = 1_000
"""Items that one event names; of more, all are to be read again."""


class TooMany(Exception):
    """As many listen as may."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its number among those of the project, its name, and JSON values."""

    number: int
    name: str
    data: Mapping[str, Any]


class Client:
    """A connection; touched in its own event loop alone."""

    def __init__(self, who: str = "") -> None:
        self.who = who
        self.loop = asyncio.get_running_loop()
        self.queue: deque[Event | None] = deque()
        self.news = asyncio.Event()
        self.behind = False

    def put(self, event: Event | None) -> None:
        """One more event; None ends the connection."""
        if len(self.queue) >= WAITING:
            self.queue.clear()
            self.behind = True
        self.queue.append(event)
        self.news.set()


class Broadcast:
    """The events of all projects of one process."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._lock = threading.Lock()
        self._number = 0
        self._kept: dict[str, deque[Event]] = {}
        self._clients: dict[str, set[Client]] = {}
        self._closed = False

    @property
    def clients(self) -> int:
        """How many listen."""
        return sum(len(clients) for clients in self._clients.values())

    def publish(self, project: str, event: str, data: Mapping[str, Any]) -> None:
        """Tell all who listen to a project; from any thread."""
        if event == "belief" and len(data.get("items", ())) > ITEMS:
            event, data = "reload", {}
        with self._lock:
            self._number += 1
            made = Event(self._number, event, data)
            self._kept.setdefault(project, deque(maxlen=KEPT)).append(made)
            for client in self._clients.get(project, ()):
                self._put(client, made)

    def close(self) -> None:
        """End all connections: a server that stops would wait for them."""
        with self._lock:
            self._closed = True
            for clients in self._clients.values():
                for client in clients:
                    self._put(client, None)

    def subscribe(self, project: str, last: str | None = None, who: str = "") -> Client:
        """One more client; `last`: the Last-Event-ID that it brings; `who` it is. Raises TooMany."""
        with self._lock:
            own = sum(client.who == who for clients in self._clients.values() for client in clients)
            if self._closed or self.clients >= CLIENTS or own >= EACH:
                raise TooMany
            client = Client(who)
            self._clients.setdefault(project, set()).add(client)
            for missed in self._since(project, last):
                client.put(missed)
        return client

    def leave(self, project: str, client: Client) -> None:
        """A client has gone."""
        with self._lock:
            self._clients[project].discard(client)

    def _put(self, client: Client, event: Event | None) -> None:
        if not client.loop.is_closed():
            client.loop.call_soon_threadsafe(client.put, event)

    def _since(self, project: str, last: str | None) -> list[Event]:
        """What a client has missed; what cannot be told is a reload."""
        run, _, number = (last or "").partition("-")
        if not run:
            return []
        kept = list(self._kept.get(project, ()))
        known = run == self._run and number.isascii() and number.isdigit() and int(number) <= self._number
        missed = [event for event in kept if known and event.number > int(number)]
        forgotten = len(kept) == KEPT and missed == kept
        if known and not forgotten and len(missed) < WAITING:
            return missed
        return [Event(self._number, "reload", {})]

    async def sent(self, client: Client) -> AsyncIterator[str]:
        """What to send to a client, as it comes."""
        until = time.monotonic() + LONGEST
        yield "retry: 2000\n\n"
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(HEARTBEAT, left)):
                    await client.news.wait()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            client.news.clear()
            if client.behind:
                client.behind = False
                yield self._text(Event(self._number, "reload", {}))
            while client.queue:
                event = client.queue.popleft()
                if event is None:
                    return
                yield self._text(event)

    def _text(self, event: Event) -> str:
        return f"id: {self._run}-{event.number}\nevent: {event.name}\ndata: {json.dumps(event.data)}\n\n"
