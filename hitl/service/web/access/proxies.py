"""Read what trusted reverse proxies say about the browser behind them and the user they let in."""

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
    """Trusted reverse proxies. Headers from other senders are ignored.

    Attributes:
        networks: their addresses.
        header: names the user whom they have let in; empty if they send none. They must remove this header from what
            browsers send.
        role: role in all projects of named users who have no account here; None: they are refused.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    header: str = ""
    role: Role | None = None

    @classmethod
    def of(cls, addresses: Sequence[str], header: str = "", role: str | None = None) -> Proxies:
        """Parse addresses such as "127.0.0.1" and "10.0.0.0/8". Raises BadSettings if one is invalid, or none given."""
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
        """Return True if the request comes from a trusted proxy."""
        return request.client is not None and request.client.host in self

    def address(self, request: HTTPConnection) -> str:
        """Return the client's address. Behind trusted proxies, it is the nearest untrusted one (X-Forwarded-For)."""
        if request.client is None:
            return ""
        if not self.sent(request):
            return request.client.host
        hops = [_host(hop) for line in request.headers.getlist("x-forwarded-for") for hop in line.split(",")]
        return next((hop for hop in reversed(hops) if hop and hop not in self), request.client.host)

    def scheme(self, request: HTTPConnection) -> str:
        """Return http or https, as seen by the browser (X-Forwarded-Proto of a trusted proxy)."""
        said = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        return said if self.sent(request) and said in ("http", "https") else request.url.scheme

    def name(self, request: HTTPConnection) -> str | None:
        """Return the user whom a trusted proxy names. None if there is no such proxy, or if two headers name a user."""
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
        """Warn once per reason, because anyone who sends the header could fill the log."""
        if why not in _warned:
            _warned.add(why)
            _log.warning("the header %s of a request was ignored: %s", self.header, why)


def _host(hop: str) -> str:
    """Remove the port that some proxies append to an address.

    Example:
        >>> _host(" 10.0.0.1:4000"), _host("[2001:db8::1]:80"), _host("2001:db8::1")
        ('10.0.0.1', '2001:db8::1', '2001:db8::1')
    """
    hop = hop.strip()
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _text(header: str) -> str:
    """Decode a header of a proxy that writes UTF-8, which was read as Latin-1. Normalize its Unicode form."""
    with suppress(UnicodeDecodeError):  # it really is Latin-1
        header = header.encode("latin-1").decode()
    return unicodedata.normalize("NFC", header)
