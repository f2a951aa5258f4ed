"""Limit the time of a whole httpx request, headers included. httpx itself limits only the time between two bytes.

client = httpx.Client(transport=BoundedTransport(url))
with within(60.0):
    client.get(...)          is cut off after 60 s, even if the server sends a byte every second
with within(60.0, sending=20.0):
    client.post(...)         sends nothing after 20 s, even if the process was suspended in between
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

CHUNK = 65_536
"""Maximum number of bytes sent at once, so that the deadline also applies to a slow receiver."""
_limits: ContextVar[tuple[float, float]] = ContextVar("limits", default=(math.inf, math.inf))
"""Deadlines of the response and of the last byte sent, by `time.monotonic`."""


@contextmanager
def within(seconds: float, *, sending: float | None = None) -> Iterator[None]:
    """Cut off requests in this block after `seconds`. Their last byte must be sent within `sending` (default: same)."""
    now = time.monotonic()
    before = _limits.set((now + seconds, now + (seconds if sending is None else min(sending, seconds))))
    try:
        yield
    finally:
        _limits.reset(before)


class BoundedTransport(httpx.BaseTransport):
    """Pool of connections to one server, through the environment's proxy, within the deadlines in `_limits`."""

    def __init__(self, url: str) -> None:
        server, proxies = urlsplit(url), getproxies()
        address = None if proxy_bypass(server.hostname or "") else proxies.get(server.scheme, proxies.get("all"))
        proxy = None if address is None else httpx.Proxy(address if "://" in address else f"http://{address}")
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context() if server.scheme == "https" else None,
            proxy=None if proxy is None else httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth),
            keepalive_expiry=5.0,
            network_backend=_Network(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and read its response."""
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        sent: Any = {"headers": request.headers.raw, "content": request.stream, "extensions": request.extensions}
        try:
            # `ConnectionPool.request` would add the header of a chunked body, which Django does not understand.
            with closing(self._pool.handle_request(httpcore.Request(request.method, target, **sent))) as response:
                response.read()
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
            raise getattr(httpx, type(error).__name__)(str(error)) from error  # both libraries use the same names
        return httpx.Response(response.status, headers=response.headers, content=response.content)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _Network(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        left = _left(_limits.get()[0], timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self.close = inner.close  # type: ignore[method-assign]
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, timeout=_left(_limits.get()[0], timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), CHUNK):
            left = _left(_limits.get()[1], timeout, httpcore.WriteTimeout)
            self._inner.write(buffer[start : start + CHUNK], timeout=left)

    def start_tls(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(*arguments, **named))


def _left(until: float, timeout: float | None, error: type[Exception]) -> float | None:
    """Return the seconds left until the deadline, at most `timeout`; None: no limit. Raises `error` after it."""
    left = min(until - time.monotonic(), math.inf if timeout is None else timeout)
    if left <= 0:
        raise error("the request took too long in all")
    return None if left == math.inf else left
