"""Reverse proxies: which are trusted, what they say of the browser behind them, and whom they have let in."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.requests import HTTPConnection

from hitl.errors import BadSettings
from hitl.service.web.access.roles import Role

_log = logging.getLogger(__name__)
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Proxies:
    """Trusted reverse proxies: what they add to a request is believed, what others add is not.

    Attributes:
        networks: their addresses.
        header: where they name the user whom they have let in; empty: they do not. They must take it out of what
            browsers send.
        role: of users who are named there and are not known here, in all projects; None: these are refused.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    header: str = ""
    role: Role | None = None

    @classmethod
    def of(cls, addresses: Sequence[str], header: str = "", role: str | None = None) -> Proxies:
        """From texts such as "127.0.0.1" and "10.0.0.0/8". Raises BadSettings for others, and without any."""
        try:
            networks = tuple(ip_network(address) for address in addresses)
        except ValueError as error:
            raise BadSettings(f"--proxy: {error}; expected for instance '127.0.0.1' or '10.0.0.0/8'") from None
        if header and not networks:
            raise BadSettings(f"--proxy-header: {header!r} without a proxy: anyone could send it; expected --proxy too")
        if role is not None and not header:
            raise BadSettings(f"--proxy-role: {role!r} without a header that names users; expected --proxy-header too")
        return cls(networks, header, None if role is None else Role.of(role))

    def __contains__(self, address: object) -> bool:
        try:
            found = ip_address(str(address))
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self.networks)

    def sent(self, request: HTTPConnection) -> bool:
        """Whether the request comes from one of them."""
        return request.client is not None and request.client.host in self

    def address(self, request: HTTPConnection) -> str:
        """Where a request comes from: of a trusted proxy the nearest address that is none (X-Forwarded-For)."""
        if request.client is None:
            return ""
        if not self.sent(request):
            return request.client.host
        hops = [_host(hop) for line in request.headers.getlist("x-forwarded-for") for hop in line.split(",")]
        return next((hop for hop in reversed(hops) if hop and hop not in self), request.client.host)

    def scheme(self, request: HTTPConnection) -> str:
        """http or https, as the browser sees it (X-Forwarded-Proto of a trusted proxy)."""
        said = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        return said if self.sent(request) and said in ("http", "https") else request.url.scheme

    def name(self, request: HTTPConnection) -> str | None:
        """Whom a proxy names; None where no trusted one does, or two headers do."""
        said = request.headers.getlist(self.header) if self.header else []
        if not said:
            return None
        if not self.sent(request):
            self._warn("it did not come from a proxy that is trusted")
            return None
        if len(said) > 1:
            self._warn("it was there twice; the proxy must take out the one of the browser")
            return None
        return _text(said[0]).strip() or None

    def _warn(self, why: str) -> None:
        """Once for each reason: anyone who sends the header could fill the log."""
        if why not in _warned:
            _warned.add(why)
            _log.warning("the header %s of a request was ignored: %s", self.header, why)


def _host(hop: str) -> str:
    """An address without the port that some proxies write behind it.

    Example:
        >>> _host(" 10.0.0.1:4000"), _host("[2001:db8::1]:80"), _host("2001:db8::1")
        ('10.0.0.1', '2001:db8::1', '2001:db8::1')
    """
    hop = hop.strip()
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _text(header: str) -> str:
    """What a proxy that writes UTF-8 means by a header, which is read as Latin-1; in one spelling."""
    with suppress(UnicodeDecodeError):  # it is Latin-1
        header = header.encode("latin-1").decode()
    return unicodedata.normalize("NFC", header)
