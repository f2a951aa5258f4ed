"""No service for everybody: where others can reach the address, somebody must be able to say who they are."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.service.web.access.accounts import Accounts
    from hitl.service.web.access.proxies import Proxies


def must_have_credentials(host: str, accounts: Accounts, proxies: Proxies | None = None) -> None:
    """Raise BadSettings where others reach the host and there is no user, no token and no login by a proxy."""
    if is_loopback(host) or (proxies is not None and proxies.header) or accounts.anybody():
        return
    raise BadSettings(
        f"serve: others can reach {host or 'every address'}, and there is no user and no token yet. Make one with "
        "`hitl users add NAME --role admin`, or listen at 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Whether this machine alone reaches the host."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
