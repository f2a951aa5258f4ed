"""Render the pages' templates. Autoescape is on because names, labels and texts come from outside."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup

import hitl
from hitl import report
from hitl.events.bodies import DOTS, path
from hitl.report.page import FILTERS, GLOBALS, coded
from hitl.service.web.access.roles import Caller, Role

FOLDER = Path(__file__).parent

REPORT = FileSystemLoader(Path(report.__file__).parent)  # templates of reports that pages include, as `report/<file>`


class Templates:
    """All templates of the service."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(FOLDER / "templates"), PrefixLoader({"report": REPORT})]),
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        own = {each.__name__: each for each in (ago, hours, path, query, ratio, when, figure)}
        self._environment.filters |= FILTERS | own
        self._environment.globals |= GLOBALS | {"version": hitl.__version__, "may_act": may_act}

    def render(self, name: str, **values: Any) -> str:
        """Render a page. Layout values that are not given are empty."""
        around = {"caller": None, "project": None, "request": None, "figures": "{}", "title": "", "here": ""}
        return self._environment.get_template(name).render(**{**around, **values})


def may_act(caller: Caller, project: str) -> bool:
    """Return True if the caller has at least the role of a lead in the project."""
    return (caller.role_in(project) or 0) >= Role.LEAD


def ago(when: datetime | float | None) -> str:
    """Return how long ago it was, in one unit."""
    if when is None:
        return "never"
    then = when if isinstance(when, datetime) else datetime.fromtimestamp(when, UTC)
    seconds = (datetime.now(UTC) - then).total_seconds()
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number:,} {unit}{'s' if number > 1 else ''} ago"
    return "just now"


def when(text: str) -> str:
    """Format the time of a row, "2026-11-23T20:37:37+00:00", for pages."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def hours(number: float) -> str:
    """Format a duration in hours, in one unit."""
    if number < 1:
        return f"{number * 60:.0f} min"
    return f"{number:.0f} h" if number < 48 else f"{number / 24:,.0f} days"


def ratio(weight: float) -> str:
    """Format log odds of either sign as odds."""
    odds = math.exp(min(abs(weight), 10.0))
    return "more than 1,000 to 1" if odds > 1000 else f"{odds:,.1f} to 1"


def figure(value: Any) -> Markup | str:
    """Format a recorded value for pages."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return coded(value if isinstance(value, str) else ", ".join(map(str, value)) or "–")


def named(part: str) -> str:
    """Undo the escape of `path` for names made of dots. The server has already decoded the rest of the URL."""
    return part[1:] if part.startswith("~") and DOTS.fullmatch(part) else part


def query(values: dict[str, Any]) -> str:
    """Return the values as a query string, or "" if all are empty. Empty values (None, "", False) are left out."""
    given = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(given)}" if given else ""
