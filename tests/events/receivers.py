"""Receivers of events on this machine that answer, refuse, hang, redirect or drip; and a verification of signatures.

The verification is written from the Standard Webhooks specification and shares nothing with `hitl.events.sender`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from typing import Any

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(40, 80))).decode()

Act = Callable[[http.server.BaseHTTPRequestHandler], None]


@dataclass
class Got:
    """A request as it came."""

    path: str
    headers: Message
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """One address; `acts` are what it does with the next requests, `act` with the others."""

    act: Act
    url: str = ""
    acts: list[Act] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def kinds(self) -> list[str]:
        return [one.event["type"] for one in self.got]


def answers(status: int, **headers: str) -> Act:
    def act(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return act


def drips(request: http.server.BaseHTTPRequestHandler) -> None:
    """A header that never ends, byte by byte."""
    receiver: Receiver = request.receiver  # type: ignore[attr-defined]
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not receiver.released.wait(0.05):
        request.wfile.write(b"a")
        request.wfile.flush()


def hangs(request: http.server.BaseHTTPRequestHandler) -> None:
    receiver: Receiver = request.receiver  # type: ignore[attr-defined]
    receiver.released.wait(60)


def hangs_up(request: http.server.BaseHTTPRequestHandler) -> None:
    """Closes the connection without a word."""


def speaks_something_else(request: http.server.BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"220 mail.example ESMTP\r\n")


def echoes(request: http.server.BaseHTTPRequestHandler) -> None:
    """Sends back what it got, an address that may hold a secret among it."""
    request.wfile.write(f"{request.requestline}\r\n\r\n".encode())


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, receiver: Receiver, *arguments: Any) -> None:
        self.receiver = receiver
        super().__init__(*arguments)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.receiver.got.append(Got(self.path, self.headers, body))
        act = self.receiver.acts.pop(0) if self.receiver.acts else self.receiver.act
        act(self)

    def do_GET(self) -> None:
        self.receiver.other.append(f"{self.command} {self.path}")
        answers(405)(self)

    do_HEAD = do_GET

    def log_message(self, *said: object) -> None: ...


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *said: object) -> None: ...


@contextmanager
def receiving(act: Act | int = 204, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that does this with every request; with TLS where there is a context."""
    receiver = Receiver(answers(act) if isinstance(act, int) else act)
    server = _Server(("127.0.0.1", 0), partial(_Handler, receiver))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}/hook/T0/secret-part?a=b"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def verified(one: Got, secret: str, now: float, tolerance: float = 300.0) -> bool:
    """As the specification has it: signature scheme, then verification of timestamp and signatures."""
    identity, stamp = one.headers["webhook-id"], one.headers["webhook-timestamp"]
    if "." in identity or not stamp.isdecimal() or abs(now - int(stamp)) > tolerance:
        return False
    prefix, _, encoded = secret.partition("_")
    assert prefix == "whsec"
    key = base64.standard_b64decode(encoded)
    content = b".".join((identity.encode("ascii"), stamp.encode("ascii"), one.body))
    expected = hmac.new(key, content, hashlib.sha256).digest()
    for each in one.headers["webhook-signature"].split(" "):
        version, comma, given = each.partition(",")
        if version == "v1" and comma and hmac.compare_digest(base64.standard_b64decode(given), expected):
            return True
    return False
