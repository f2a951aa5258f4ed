"""Bound what clients can take from a server before they log in. `hitl serve` and `hitl schedule` have the same bounds.

connections   CONNECTIONS at most; above that, one that waits for its client is closed: the one that has waited
              longest, of the address that has most of them
headers       HEAD_SECONDS from the start of a connection, or from the response before
body          BODY_SECONDS from its headers
response      STALL_SECONDS in which a client reads none of it
log           BURST lines of each kind, then a few per second; the next line says how many were left out
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import MutableMapping
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 256
BACKLOG = 128
"""Maximum connections that wait to be accepted. A few times as many may be open above CONNECTIONS for a moment, which
leaves room for the store below the usual limit of 1,024 open files.
"""
REQUESTS = 4 * CONNECTIONS
"""Maximum requests in progress; others get a 503. Those of closed connections are among them until they have ended."""
HEAD_SECONDS, BODY_SECONDS, STALL_SECONDS = 10.0, 60.0, 30.0
TICK = 0.5  # seconds between two checks of a connection
BURST = 100  # lines of one kind that are logged at any rate


class Door(H11Protocol):
    """HTTP/1.1 protocol that closes the connections of clients who keep it waiting. Uvicorn would wait forever."""

    _phase: object = None
    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room if there are too many connections."""
        super().connection_made(transport)
        self._check()
        if len(self.connections) > CONNECTIONS:
            _close_one([one for one in cast("set[Door]", self.connections) if one.waits_for])

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def waits_for(self) -> tuple[float, object] | None:
        """Seconds that the client has for what we wait for, and what that is. None while a response is computed."""
        unread = self.transport.get_write_buffer_size()
        if unread:
            return STALL_SECONDS, unread
        if self.conn.their_state is h11.SEND_BODY:
            return BODY_SECONDS, self.cycle
        if self.cycle is None or self.cycle.response_complete:
            return HEAD_SECONDS, self.cycle
        return None

    def waited(self) -> float:
        """Return for how many seconds the client has kept us waiting."""
        return self.loop.time() - self._since

    def _check(self) -> None:
        phase = self.waits_for
        if phase is None or phase != self._phase:
            self._phase, self._since = phase, self.loop.time()
        elif self.waited() > phase[0]:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(TICK, self._check)


def _close_one(waiting: list[Door]) -> None:
    """Close the connection that has waited longest, of the address with most connections."""
    of_address = Counter(one.client and one.client[0] for one in waiting)
    if waiting:
        longest = max(waiting, key=lambda one: (of_address[one.client and one.client[0]], one.waited()))
        longest.connections.discard(longest)
        longest.transport.abort()


class LineLimit(logging.Filter):
    """Limit on the lines of each kind: BURST, then `per_second`. Thread-safe.

    It is a filter of the standard library's log, where a kind is a logger, and a processor of structlog, where it is an
    event.
    """

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._per_second, self._lock = per_second, threading.Lock()
        self._kinds: dict[str, tuple[float, float, int]] = {}  # lines to spare, since when, lines left out

    def left_out(self, kind: str) -> int | None:
        """Return how many lines were left out before this one; None if it is to be left out too."""
        with self._lock:
            now = time.monotonic()
            spare, since, left_out = self._kinds.get(kind, (BURST, now, 0))
            spare = min(BURST, spare + (now - since) * self._per_second)
            self._kinds[kind] = (spare - 1, now, 0) if spare >= 1 else (spare, now, left_out + 1)
            return left_out if spare >= 1 else None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False if the line is to be left out."""
        left_out = self.left_out(record.name)
        if left_out:
            record.msg = f"{record.msg} ({left_out} lines like this were left out)"
        return left_out is not None

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return the line, or raise DropEvent."""
        left_out = self.left_out(str(event["event"]))
        if left_out is None:
            from structlog import DropEvent

            raise DropEvent
        return {**event, "left_out": left_out} if left_out else event


_warnings = LineLimit(per_second=1.0)


def bounds() -> dict[str, Any]:
    """Return the options of uvicorn that bound a server, and limit the lines of the standard library's log."""
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None:
            handler.addFilter(_warnings)
    return {
        "http": Door, "ws": "none", "backlog": BACKLOG, "limit_concurrency": REQUESTS, "log_config": None,
        "access_log": False, "server_header": False, "proxy_headers": False,
    }  # fmt: skip
