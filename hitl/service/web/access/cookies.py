"""Set the session cookie, and check that unsafe requests come from our own pages.

A browser sends the cookie with every request, including those made by other sites' pages. An unsafe request (anything
but GET, HEAD and OPTIONS) must therefore include the session's CSRF token, which other sites cannot read.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from hitl.service.web.access.accounts import LIFETIME
from hitl.service.web.access.credentials import is_loopback
from hitl.service.web.access.proxies import Proxies

PLAIN, SECURE = "hitl-session", "__Host-hitl-session"
"""Names of the cookie: over http on this machine, and otherwise. Browsers accept the second one only over https."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


def is_secure(request: HTTPConnection, proxies: Proxies) -> bool:
    """Return True if the cookie is restricted to https: always, except for a browser on this machine using http."""
    return proxies.scheme(request) == "https" or not is_loopback(request.url.hostname or "")


def cookie_name(request: HTTPConnection, proxies: Proxies) -> str:
    """Return the name of the cookie for this request."""
    return SECURE if is_secure(request, proxies) else PLAIN


def set_cookie(response: Response, request: HTTPConnection, proxies: Proxies, secret: str) -> None:
    """Store the session in the browser."""
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
    """Delete the session from the browser."""
    secure = is_secure(request, proxies)
    response.delete_cookie(cookie_name(request, proxies), path="/", secure=secure, httponly=True, samesite="lax")


def is_own(request: HTTPConnection) -> bool:
    """Return True if the request comes from one of our pages, or not from a page, according to the browser.

    Browsers report this in Sec-Fetch-Site, over https and on this machine. Otherwise, the page's origin is compared,
    without its scheme because a proxy may have terminated https.
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
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts
