"""Choose between HTML for browsers, and JSON and CSV for programs.

`?format=json` or `?format=csv` chooses the format, else the Accept header, else HTML. All three have the same rows. In
CSV, cells that a spreadsheet would run as a formula are defused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

import pyarrow as pa
from fastapi import Request
from pyarrow import csv

from hitl.events.bodies import json_value
from hitl.tables.write import defused

Format = Literal["html", "json", "csv"]

ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "object"}}}, "required": ["rows"]}
FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The page, its rows as JSON, or as CSV",
        "content": {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {"schema": ROWS},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}
"""OpenAPI description of a page."""


def format_of(request: Request) -> Format:
    """Return the requested format."""
    named = request.query_params.get("format")
    if named in ("html", "json", "csv"):
        return cast("Format", named)
    wanted = [part.split(";")[0].strip() for part in request.headers.get("accept", "").split(",")]
    for kind, name in (("text/html", "html"), ("application/json", "json"), ("text/csv", "csv")):
        if kind in wanted:
            return cast("Format", name)
    return "html"


def is_page(request: Request) -> bool:
    """Return True if a browser asks for a page. After an action, it is redirected to one."""
    return "text/html" in request.headers.get("accept", "") and format_of(request) == "html"


def here(request: Request) -> str:
    """Return the path of the request as links have it, with names still escaped."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.url.path) if raw is None else quote(raw.partition(b"?")[0], safe="/%~")


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> bytes:
    """Return the rows as CSV. Lists and objects are JSON within their cell."""
    names = list(rows[0] if rows else columns)
    table = {name: pa.array([_cell(row.get(name)) for row in rows], pa.string()) for name in names}
    sink = io.BytesIO()
    if names:
        csv.write_csv(defused(pa.table(table)), sink)
    return sink.getvalue()


def _cell(value: Any) -> str | None:
    value = json_value(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
