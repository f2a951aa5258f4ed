"""The ear for webhooks: one POST route a project and /health, on the standard library's server.

A webhook is a hint, unsigned and sent once, and the platform's annotator waits for the answer: it is answered at once,
and what it says is looked up on the platform afterwards. Of the body only the action is read.

    POST /webhook/<project>   X-Hitl-Secret: ...       200 {"queued": true}; false: nothing that concerns labels
    GET  /health                                       200 {"status": "ok"}; 503 and what is wrong

Whoever can reach the port can send anything: the secret is compared before the body is read, and each request has a
time, each body a size and all connections a number that they may not exceed. It serves HTTP; put a server for HTTPS in
front of it.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from hitl.errors import BadSettings

SECRET_HEADER = "X-Hitl-Secret"

LARGEST_BODY = 1_000_000
"""Bytes of a body that are read for its action; a larger one counts as a hint unread."""

SECONDS = 10.0
"""How long a connection may take in all, however slowly it sends."""

CONNECTIONS = 32
"""How many may be open at a time; one more is closed unanswered (a webhook is only a hint)."""

CONCERNS_LABELS = ("ANNOTATION", "TASK")
"""How Label Studio's actions begin that can change a plan; what a cycle pushes raises none of them."""

Hint = Callable[[], None]
Trouble = Callable[[], Mapping[str, object] | None]
"""What is wrong; None: all is well."""


class Webhooks:
    """A server of one address; `hints` by project, called at once and quick; `trouble` for /health.

    Raises BadSettings where it cannot listen, and for a secret that no header can carry.
    """

    def __init__(self, address: str, secret: str, hints: Mapping[str, Hint], trouble: Trouble) -> None:
        if not secret.isascii():
            raise BadSettings(
                "schedule.webhook: the secret has letters that headers of HTTP do not carry; expected letters, digits "
                "and signs of an English keyboard"
            )
        host, _, port = address.rpartition(":")
        handler = type(
            "Handler", (_Handler,), {"secret": secret, "hints": dict(hints), "trouble": staticmethod(trouble)}
        )
        try:
            kind = _ServerIPv6 if ":" in host else _Server
            self._server = kind((host.strip("[]"), int(port)), handler)
        except OSError as error:
            raise BadSettings(f"schedule.webhook: cannot listen at {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="hitl webhook", daemon=True
        )

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def url_of(address: str, project: str) -> str:
    """What to enter as the URL on the platform; an address that stands for all is this machine's name there."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("0.0.0.0", "::"):  # nosec B104  # compared, not bound to
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/webhook/{quote(project, safe='')}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle it in a thread, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle it, and cut it off when its time is over: a timeout of the socket begins anew with each byte."""
        limit = threading.Timer(SECONDS, _cut_off, (request,))
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


def _cut_off(request: socket.socket) -> None:
    """End both directions: closing alone leaves a thread that reads at it for as long as something comes."""
    with suppress(OSError):  # it is over already
        request.shutdown(socket.SHUT_RDWR)


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = SECONDS
    secret: str
    hints: Mapping[str, Hint]
    trouble: Trouble

    def do_GET(self) -> None:
        if urlsplit(self.path).path != "/health":
            self._answer(404, {"error": "not found; expected /health"})
            return
        trouble = self.trouble()
        self._answer(503 if trouble else 200, trouble or {"status": "ok"})

    def do_POST(self) -> None:
        given = self.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode("latin-1"), self.secret.encode()):
            self._answer(401, {"error": f"the header {SECRET_HEADER} is missing or wrong"})
            return
        route, _, project = urlsplit(self.path).path.removeprefix("/").partition("/")
        hint = self.hints.get(unquote(project))
        if route != "webhook" or hint is None:
            self._answer(404, {"error": "not found; expected /webhook/<project>"})
            return
        concerned = concerns_labels(self._body())
        if concerned:
            hint()
        self._answer(200, {"queued": concerned})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        wanted = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0
        return self.rfile.read(wanted) if wanted <= LARGEST_BODY else b""

    def _answer(self, status: int, data: Mapping[str, object]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line says when a cycle begins."""


def concerns_labels(body: bytes) -> bool:
    """Whether the action of a body may change a plan; one without an action may."""
    try:
        data = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return True
    action = data.get("action") if isinstance(data, dict) else None
    return not isinstance(action, str) or action.upper().startswith(CONCERNS_LABELS)
