"""A proxy on loopback in front of a real Label Studio that answers one request wrongly.

`with FaultyProxy(server.url) as proxy` carries requests on; `proxy.inject(kind, at)` spoils the at-th from now on.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

KINDS = (
    "reset",
    "429",
    "500",
    "502",
    "503",
    "504",
    "slow drip",
    "truncated",
    "HTML 200",
    "login redirect",
    "empty list",
    "wrong shape",
    "duplicated",
    "lost after it was applied",
)
"""What can go wrong with one request. Those up to "504", the pages and the shapes do not reach the server."""

APPLIED = frozenset({"slow drip", "truncated", "empty list", "duplicated", "lost after it was applied"})
"""The kinds whose request does reach the server."""

LOGIN = b"<!DOCTYPE html><html><body><form action='/user/login/'>Please log in</form></body></html>"
SHAPES: tuple[Any, ...] = ({"unexpected": True}, [1, 2], "text", None, 7, [{"id": "seven"}], {"tasks": {"id": 1}})
"""JSON that is no answer to anything; each fault takes the next."""

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "host"})
Answer = tuple[int, list[tuple[str, str]], bytes]


class FaultyProxy:
    """The proxy: `url` is where it listens, `requests` what came since the last `inject`, `hit` what it spoiled."""

    def __init__(self, target: str) -> None:
        self.host, self.port = urlsplit(target).hostname or "", urlsplit(target).port or 80
        self.requests: list[tuple[str, str]] = []
        self.hit: tuple[str, str] | None = None
        self._lock = threading.Lock()
        self._kind, self._at, self._count = "", 0, 0
        self._shape = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two pieces: the second would wait 40 ms

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has given up
                    self.close_connection = True

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: proxy._handle(self)
                raise AttributeError(name)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def inject(self, kind: str = "", at: int = 0) -> None:
        """Spoil the at-th request from now on (counted from 1); without arguments spoil none."""
        with self._lock:
            self._kind, self._at, self._count = kind, at, 0
            self.requests, self.hit = [], None

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        with self._lock:
            self._count += 1
            request = (handler.command, handler.path.partition("?")[0])
            self.requests.append(request)
            kind = self._kind if self._count == self._at else ""
            if kind:
                self.hit = request
        answer = self._forward(handler, body) if not kind or kind in APPLIED else None
        if kind == "duplicated":
            answer = self._forward(handler, body)
        if kind == "empty list" and answer is not None:
            answer = (answer[0], answer[1], _emptied(answer[2]))
        if kind in ("", "duplicated", "empty list") and answer is not None:
            _send(handler, *answer)
        else:
            self._spoil(handler, kind, answer)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
            connection.request(handler.command, handler.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
            kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _HOP]
            return response.status, kept, content
        finally:
            connection.close()

    def _spoil(self, handler: BaseHTTPRequestHandler, kind: str, answer: Answer | None) -> None:
        if kind == "reset" or kind == "lost after it was applied":
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
        elif kind.isdigit():
            after = [("Retry-After", "0")] if kind == "429" else []
            detail = json.dumps({"status_code": int(kind), "detail": "injected"}).encode()
            _send(handler, int(kind), [*after, ("Content-Type", "application/json")], detail)
        elif kind == "HTML 200":
            _send(handler, 200, [("Content-Type", "text/html")], LOGIN)
        elif kind == "login redirect":
            if handler.path.startswith("/user/login/"):
                _send(handler, 200, [("Content-Type", "text/html")], LOGIN)
            else:
                _send(handler, 302, [("Location", "/user/login/?next=/api/")], b"")
        elif kind == "wrong shape":
            self._shape += 1
            said = json.dumps(SHAPES[self._shape % len(SHAPES)]).encode()
            _send(handler, 200, [("Content-Type", "application/json")], said)
        elif answer is not None:
            _send_slowly(handler, answer, drip=kind == "slow drip")


def _send(handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    handler.send_response_only(status)
    for name, value in headers:
        handler.send_header(name, value)
    if status != 204:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD" and status != 204:
        handler.wfile.write(body)


def _send_slowly(handler: BaseHTTPRequestHandler, answer: Answer, drip: bool) -> None:
    """All of it byte by byte until the client gives up, or half of it and no more."""
    status, headers, body = answer
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers)]
    lines.append(f"Content-Length: {len(body) + (0 if drip else 1)}")
    whole = "\r\n".join([*lines, "", ""]).encode() + body
    handler.close_connection = True
    if not drip:
        handler.wfile.write(whole[: len(whole) - len(body) // 2])
        return
    for n in range(min(len(whole), 400)):
        handler.wfile.write(whole[n : n + 1])
        time.sleep(0.05)


def _emptied(body: bytes) -> bytes:
    """The answer with every list in it, or the whole mapping of names to counts, empty."""
    try:
        said = json.loads(body)
    except ValueError:
        return body
    if isinstance(said, list):
        said = []
    elif isinstance(said, dict) and "tasks" in said:
        said = {**said, "tasks": [], "total": 0}
    elif isinstance(said, dict) and all(isinstance(value, int | list) for value in said.values()):
        said = {}
    return json.dumps(said).encode()
