"""Refuse to start a service that others can reach when nobody could log in."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.service.web.access.accounts import Accounts
    from hitl.service.web.access.proxies import Proxies


def must_have_credentials(host: str, accounts: Accounts, proxies: Proxies | None = None) -> None:
    """Raise BadSettings if others can reach the host and there is no user, token or proxy login."""
    if is_loopback(host) or (proxies is not None and proxies.header) or accounts.anybody():
        return
    raise BadSettings(
        f"serve: others can reach {host or 'every address'}, and there is no user and no token yet. Make one with "
        "`hitl users add NAME --role admin`, or listen at 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
