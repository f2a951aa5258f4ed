"""The cookie of a session, and whether an unsafe request is meant by a page of ours.

A browser sends the cookie with every request, also with those that a page of somebody else makes: an unsafe one
(anything but GET, HEAD and OPTIONS) must show the CSRF token of the session too, which such a page cannot read.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from hitl.service.web.access.accounts import LIFETIME
from hitl.service.web.access.credentials import is_loopback
from hitl.service.web.access.proxies import Proxies

PLAIN, SECURE = "hitl-session", "__Host-hitl-session"
"""Names of the cookie, over http on this machine and otherwise: browsers set the second one over https alone."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


def is_secure(request: HTTPConnection, proxies: Proxies) -> bool:
    """Whether the cookie is for https alone: always, but for a browser on this machine that came over http."""
    return proxies.scheme(request) == "https" or not is_loopback(request.url.hostname or "")


def cookie_name(request: HTTPConnection, proxies: Proxies) -> str:
    """What the cookie is called for this request."""
    return SECURE if is_secure(request, proxies) else PLAIN


def set_cookie(response: Response, request: HTTPConnection, proxies: Proxies, secret: str) -> None:
    """Have the browser keep a session."""
    response.set_cookie(
        cookie_name(request, proxies),
        secret,
        max_age=int(LIFETIME),
        path="/",
        secure=is_secure(request, proxies),
        httponly=True,
        samesite="lax",
    )


def delete_cookie(response: Response, request: HTTPConnection, proxies: Proxies) -> None:
    """Have the browser forget its session."""
    secure = is_secure(request, proxies)
    response.delete_cookie(cookie_name(request, proxies), path="/", secure=secure, httponly=True, samesite="lax")


def is_own(request: HTTPConnection) -> bool:
    """Whether a page of ours made the request, or no page at all, as far as the browser says.

    Browsers say it in Sec-Fetch-Site, over https and on this machine; otherwise by the origin of the page, which is
    compared without its scheme: a proxy may have taken the https away.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    if origin is None:
        return True
    parts, host = _parts(origin), _parts(f"//{request.headers.get('host', '')}")
    if parts is None or host is None or parts.hostname is None:
        return False
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.hostname, parts.port or usual) == (host.hostname, host.port or usual)


def _parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts
