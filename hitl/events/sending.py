"""One request to an address, within a time that nothing at the other end can lengthen.

Whatever the receiver does (hang, drip, send for ever), the connection is cut when the time is over. Redirects are not
followed: what is signed goes to the address that was named. Nothing that is said of an attempt holds the address or
what the receiver answers, but for its status.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from urllib.parse import urlsplit

GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        status: of the answer; None: there was none.
        said: it in words.
        retry_after: in how many seconds the receiver wants it again, if it says so.
    """

    status: int | None
    said: str
    retry_after: float | None = None

    @property
    def arrived(self) -> bool:
        """Whether the receiver has it."""
        return self.status is not None and 200 <= self.status < 300


def ask(method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float) -> Answer:
    """What the address answers to one request, in so many seconds. It does not raise."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    cut = threading.Event()
    try:
        with _Connected(parts.hostname or "", parts.port, parts.scheme == "https", seconds, cut) as connection:
            connection.request(method, target, body, {"Connection": "close", "User-Agent": "hitl", **headers})
            response = connection.getresponse()
            if cut.is_set():  # within the headers: they look whole
                raise TimeoutError
            wait = _retry_after(response.getheader("retry-after"))
            return Answer(response.status, _status(response.status), wait)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(None, _in_words(TimeoutError() if cut.is_set() else error, seconds))


class _Connected:
    """A connection that is cut when the time is over, whatever it is doing."""

    def __init__(self, host: str, port: int | None, tls: bool, seconds: float, cut: threading.Event) -> None:
        self._address, self._seconds, self._cut = (host, port or (443 if tls else 80)), seconds, cut
        self._tls = ssl.create_default_context() if tls else None

    def __enter__(self) -> http.client.HTTPConnection:
        host, port = self._address
        raw = socket.create_connection(self._address, self._seconds)
        self._guard = raw.dup()  # the same connection, whatever TLS makes of the first
        self._timer = threading.Timer(self._seconds, self._shut)
        self._timer.daemon = True
        self._timer.start()
        try:
            if self._tls is None:
                self._connection = http.client.HTTPConnection(host, port, timeout=self._seconds)
                self._connection.sock = raw
            else:
                self._connection = http.client.HTTPSConnection(host, port, timeout=self._seconds, context=self._tls)
                self._connection.sock = self._tls.wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            self.__exit__()
            raise
        return self._connection

    def _shut(self) -> None:
        self._cut.set()
        with suppress(OSError):
            self._guard.shutdown(socket.SHUT_RDWR)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._connection.close()
        self._guard.close()


def _status(status: int) -> str:
    """The status and its standard name; what the receiver calls it is left out."""
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


def _retry_after(text: str | None) -> float | None:
    """Seconds, or a date, of the header; None: nothing that can be read."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(parsedate_to_datetime(text).timestamp() - time(), 0.0)
    return None


def _in_words(error: Exception, seconds: float) -> str:
    """Why there is no answer."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {error.reason or 'TLS failed'}"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.HTTPException):
        return "what answers does not speak HTTP"
    return (error.strerror if isinstance(error, OSError) else None) or "the connection failed"
