"""Accept the client, the scheme and the user that trusted reverse proxies report."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from hitl.errors import BadSettings
from hitl.service.web.access.roles import Role

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proxies:
    """Trusted reverse proxies. Headers from other senders are ignored.

    Attributes:
        networks: addresses of the proxies.
        header: header in which they name the user they have let in; empty if they do not. They must remove this header
            from what browsers send.
        role: role in all projects for named users without an account here; None: these users are refused.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    header: str = ""
    role: Role | None = None

    @classmethod
    def of(cls, addresses: Sequence[str], header: str = "", role: str | None = None) -> Proxies:
        """Parse addresses such as "127.0.0.1" and "10.0.0.0/8".

        Raises BadSettings if one is invalid, for a header without addresses, or for a role without a header.
        """
        try:
            networks = [ip_network(address) for address in addresses]
        except ValueError as error:
            raise BadSettings(f"--proxy: {error}; expected for instance '127.0.0.1' or '10.0.0.0/8'") from None
        if header and not networks:
            raise BadSettings(f"--proxy-header: {header!r} without a proxy: anyone could send it; expected --proxy too")
        if role is not None and not header:
            raise BadSettings(f"--proxy-role: {role!r} without a header that names users; expected --proxy-header too")
        mapped = [
            ip_network(f"::ffff:{one.network_address}/{96 + one.prefixlen}") for one in networks if one.version == 4
        ]
        return cls((*networks, *mapped), header, None if role is None else Role.of(role))

    def __contains__(self, address: str) -> bool:
        with suppress(ValueError):
            return any(ip_address(address) in network for network in self.networks)
        return False


NO_PROXIES = Proxies()


class TrustProxies:
    """ASGI middleware that reads client and scheme from X-Forwarded-For and -Proto, and the user from `Proxies.header`.

    The user's name is stored as `request.state.proxy_user`, or None.
    """

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self._proxies, self._warned = proxies, set[str]()
        self._app: ASGIApp = ProxyHeadersMiddleware(app, [str(each) for each in proxies.networks])  # type: ignore[arg-type, assignment]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["proxy_user"] = self._user(scope)
        await self._app(scope, receive, send)

    def _user(self, scope: Scope) -> str | None:
        """Return the user named by a trusted proxy. None if another sender names one, or if the header is repeated."""
        names = Headers(scope=scope).getlist(self._proxies.header) if self._proxies.header else []
        if not names:
            return None
        if (scope.get("client") or ("",))[0] not in self._proxies:
            self._warn("it did not come from a proxy that is trusted")
            return None
        if len(names) > 1:
            self._warn("it was there twice; the proxy must take out the one of the browser")
            return None
        name = names[0]
        with suppress(UnicodeDecodeError):  # most proxies write UTF-8, others Latin-1
            name = name.encode("latin-1").decode()
        return unicodedata.normalize("NFC", name).strip() or None

    def _warn(self, why: str) -> None:
        """Warn once per reason, because otherwise anyone could fill the log by sending the header."""
        if why not in self._warned:
            self._warned.add(why)
            _log.warning("the header %s of a request was ignored: %s", self._proxies.header, why)
