"""Requests whose whole duration is bounded, headers included: httpx bounds only the time between two bytes.

with within(60.0):
    client.get(...)          cut off after 60 s, even where the server sends a byte each second

with within(60.0, sending=20.0):
    client.post(...)         nothing is sent after 20 s: not by a process that was stopped meanwhile and wakes
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PIECE = 65_536
"""Bytes that are sent at once: a server that takes them slowly is cut off too."""

_this = threading.local()


@contextmanager
def within(seconds: float, *, sending: float | None = None) -> Iterator[None]:
    """Requests of this thread end within so many seconds; the last byte is sent within `sending`."""
    before = _limits()
    now = time.monotonic()
    _this.limits = (now + seconds, now + (seconds if sending is None else min(sending, seconds)))
    try:
        yield
    finally:
        _this.limits = before


def bounded(client: Any) -> None:
    """Have an httpx.Client obey `within`; one with a transport of another kind (tests) stays as it is."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None and hasattr(pool, "_network_backend"):
            pool._network_backend = _Network(pool._network_backend)


def _limits() -> tuple[float, float]:
    """When requests of this thread end at the latest, and when their last byte is sent."""
    limits: tuple[float, float] = getattr(_this, "limits", (math.inf, math.inf))
    return limits


def _left(until: float, timeout: float | None, error: type[Exception]) -> float | None:
    """The time that is left, the usual timeout at most."""
    left = until - time.monotonic()
    if left <= 0:
        raise error("the request took too long in all")
    return timeout if left == math.inf or (timeout is not None and timeout < left) else left


class _Network:
    """A network backend of httpcore whose streams obey `within`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> Any:
        from httpcore import ConnectTimeout

        return _Stream(
            self._inner.connect_tcp(host, port, timeout=_left(_limits()[0], timeout, ConnectTimeout), **more)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Stream:
    """One connection."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        from httpcore import ReadTimeout

        return self._inner.read(max_bytes, timeout=_left(_limits()[0], timeout, ReadTimeout))  # type: ignore[no-any-return]

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        from httpcore import WriteTimeout

        for start in range(0, len(buffer), PIECE):
            left = _left(_limits()[1], timeout, WriteTimeout)
            self._inner.write(buffer[start : start + PIECE], timeout=left)

    def start_tls(self, *arguments: Any, **named: Any) -> Any:
        return _Stream(self._inner.start_tls(*arguments, **named))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
