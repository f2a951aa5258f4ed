"""Serve styles, scripts and htmx from the package; some are shared with reports."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.service.web.access import public

router = APIRouter(include_in_schema=False)

KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

OURS = ("service.css", "service.js", "htmx.min.js", "icon.svg")
OF_REPORTS = {"page.css": "page.css", "figures.js": "figures.js.j2"}
"""Name -> file of `hitl.report`. Pages and reports look alike, and one script draws the figures of both."""


@router.get("/static/{name}")
@public
def asset(name: str, request: Request) -> Response:
    """One of them; the browser keeps it for an hour."""
    if name not in (*OURS, *OF_REPORTS):
        raise HTTPException(404, f"no file {name!r} here")
    small = _takes_gzip(request.headers.get("accept-encoding", ""))
    body, tag = _packed(name) if small else _read(name)
    headers = {"ETag": tag, "Cache-Control": "max-age=3600", "Vary": "Accept-Encoding"}
    if _is_there(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if small:
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=KINDS[name[name.rindex(".") :]], headers=headers)


def _is_there(tag: str, known: str) -> bool:
    """Return True if the browser has the current version, by the header If-None-Match.

    Example:
        >>> _is_there('"a"', 'W/"a", "b"'), _is_there('"a"', "*"), _is_there('"a"', '"b"')
        (True, True, False)
    """
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in known.split(","))


def _takes_gzip(accepted: str) -> bool:
    """Return True if the header Accept-Encoding allows gzip.

    Example:
        >>> _takes_gzip("br, gzip"), _takes_gzip("gzip;q=0"), _takes_gzip("")
        (True, False, False)
    """
    for part in accepted.split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


@cache
def _packed(name: str) -> tuple[bytes, str]:
    """Compress a file. Pages stay uncompressed: their length could reveal a secret next to text from the URL."""
    body, tag = _read(name)
    return gzip.compress(body, 9, mtime=0), f'{tag[:-1]}-gzip"'


@cache
def _read(name: str) -> tuple[bytes, str]:
    of_report = OF_REPORTS.get(name)
    folder = files("hitl.service.web").joinpath("static") if of_report is None else files("hitl.report")
    body = folder.joinpath(of_report or name).read_bytes()
    if name == "figures.js":
        body = b'"use strict";\n' + body + b"\nwindow.drawFigure = drawFigure;\n"
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
