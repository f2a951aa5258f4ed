"""Refuse requests that address the service by a name that is not its own.

A page of another site may point its name at this machine, so that browsers take the service for a part of that site.
An outsider cannot do this with an address or a name without a dot, such as `localhost` or a container's name.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hitl.service.web.access.guard import is_loopback
from hitl.service.web.access.proxies import NO_PROXIES, Proxies
from hitl.service.web.responses import problem
from hitl.settings import ServeSettings

ANY = "*"
_HOST = re.compile(r"([a-z0-9_.-]{1,255}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


def own_names(settings: Iterable[ServeSettings], host: str, proxies: Proxies = NO_PROXIES) -> frozenset[str]:
    """Return the names of a service that listens on `host`: those of `serve.url` and `serve.hosts`.

    ANY is among them if neither is set and others can reach the service, by its address or through a trusted proxy.
    """
    names = set[str]()
    for each in settings:
        names |= {(urlsplit(each.url or "").hostname or "").rstrip("."), *map(str.lower, each.hosts)} - {""}
    return frozenset(names or ({ANY} if proxies.networks or not is_loopback(host) else ()))


class OwnHosts:
    """ASGI middleware that answers 400 to requests for a host that is not among `names`."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        host = Headers(scope=scope).get("host", "localhost") if scope["type"] == "http" else "localhost"
        if self._is_own(host):
            await self._app(scope, receive, send)
            return
        message = "this Host is not allowed; to allow it, add it to `serve.hosts` in hitl.toml"
        await problem(Request(scope), 400, "host", message)(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        if "." not in name or name == socket.gethostname().lower() or self._names & {name, ANY}:
            return True
        with suppress(ValueError):
            return bool(ip_address(name.strip("[]")))
        return False
