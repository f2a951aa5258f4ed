"""Bound what clients can take from a server before they log in. `hitl serve` and `hitl schedule` have the same bounds.

connections   CONNECTIONS at most; above that, one that waits for its client is closed: the one that has waited
              longest, of the address that has most of them
headers       HEAD_SECONDS from the start of a connection, or from the response before
body          BODY_SECONDS from its headers
response      STALL_SECONDS in which a client reads none of it
log           see `hitl.service.log`
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from hitl.errors import BadSettings

CONNECTIONS = 256
BACKLOG = 128
"""Maximum connections that wait to be accepted. A few times as many may be open above CONNECTIONS for a moment, which
leaves room for the store below the usual limit of 1,024 open files.
"""
REQUESTS = 4 * CONNECTIONS
"""Maximum requests in progress; others get a 503. Those of closed connections are among them until they have ended."""
HEAD_SECONDS, BODY_SECONDS, STALL_SECONDS = 10.0, 60.0, 30.0
TICK = 0.5  # seconds between two checks of a connection


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


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens here. Raises BadSettings, naming the option, if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadSettings(f"{option}: port {port} of {host} is in use; choose another") from None
        raise BadSettings(f"{option}: cannot listen at {host}:{port}: {error.strerror or error}") from None


def bounds() -> dict[str, Any]:
    """Return the options of uvicorn that bound a server."""
    return {
        "http": Door, "ws": "none", "backlog": BACKLOG, "limit_concurrency": REQUESTS, "log_config": None,
        "access_log": False, "server_header": False, "proxy_headers": False,
    }  # fmt: skip
