"""Read the address of a project as it is copied from a browser."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from hitl.errors import BadSettings
from hitl.formatting import plain

_AROUND = " \t\r\n<>\"'`,;\u200b\ufeff\xa0"
"""Characters that are often copied along with an address."""
_PROJECT = re.compile(r"(?P<server>.*)/projects/(?P<number>[1-9][0-9]{0,17})(/.*)?")
_PAGE = re.compile(r"(?P<server>.*?)/(projects|user|organization|people|home|api)(/.*)?")


def read_address(text: str) -> tuple[str, int | None]:
    """Return the address of the server, and the number of the project if the address is of one of its pages.

    Raises BadSettings if the text is not the address of a server, or if it holds a password.

    Example:
        >>> read_address("https://example.com/labels/projects/12/data?tab=3#task")
        ('https://example.com/labels', 12)
    """
    address = text.strip(_AROUND)
    wrong = f"{plain(text)!r}: expected the address of a Label Studio, http://... or https://..."
    if not re.match("[a-z][a-z0-9+.-]*://", address, re.IGNORECASE):
        address = address.lstrip("/")
        address = f"{'http' if _is_local(address) else 'https'}://{address}"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadSettings(f"{wrong} ({error})") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", address):
        raise BadSettings(wrong)
    if "@" in parts.netloc:  # it would end up in messages and the store, and override the token in requests
        raise BadSettings(f"{plain(text)!r}: it holds a name or a password; expected none, a token is enough")
    path = next(iter(parse_qs(parts.query).get("next", ())), parts.path)  # a login page names the page that follows
    page = _PROJECT.fullmatch(path) or _PAGE.fullmatch(path)
    server = (page["server"].removesuffix("/api") if page else path).rstrip("/")
    number = page.groupdict().get("number") if page else None
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return f"{parts.scheme}://{netloc}{server}", None if number is None else int(number)


def _is_local(address: str) -> bool:
    """Return True if an address without a scheme is rather http: one with a port, of this machine, or a number."""
    netloc = address.partition("/")[0]
    host = re.sub(r":\d+$", "", netloc)
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return host != netloc or "." not in host
    return True
