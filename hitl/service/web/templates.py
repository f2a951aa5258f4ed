"""Render the pages' templates. Autoescape is on because names, labels and texts come from outside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup, escape

import hitl
from hitl import report
from hitl.events.bodies import DOTS
from hitl.events.bodies import path as path
from hitl.report.page import FILTERS, GLOBALS
from hitl.service.web.ages import ago, hours, when
from hitl.service.web.callers import may_act

FOLDER = Path(__file__).parent

REPORT = FileSystemLoader(Path(report.__file__).parent)
"""Templates of reports that pages include, as `report/<file>`."""


class Templates:
    """All templates of the service."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(FOLDER / "templates"), PrefixLoader({"report": REPORT})]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        own = {"ago": ago, "path": path, "query": query, "ratio": ratio, "hours": hours, "when": when, "coded": coded}
        self._environment.filters |= FILTERS | own | {"figure": figure}
        self._environment.globals |= GLOBALS | {"version": hitl.__version__, "may_act": may_act}

    def render(self, name: str, **values: Any) -> str:
        """Render a page. Layout values that are not given are empty."""
        around = {"caller": None, "project": None, "request": None, "figures": "{}", "title": "", "here": ""}
        return self._environment.get_template(name).render(**{**around, **values})


def ratio(weight: float) -> str:
    """Format log odds of either sign as odds.

    Example:
        >>> ratio(0.6931), ratio(-12.0)
        ('2.0 to 1', 'more than 1,000 to 1')
    """
    odds = math.exp(min(abs(weight), 10.0))
    return "more than 1,000 to 1" if odds > 1000 else f"{odds:,.1f} to 1"


def coded(text: str) -> Markup:
    """Mark up a command-line message: text between backticks becomes code.

    Example:
        >>> str(coded("see `hitl models` & more"))
        'see <code>hitl models</code> &amp; more'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def figure(value: Any) -> Markup | str:
    """Format a recorded value for people.

    Example:
        >>> str(figure(1234567)), str(figure(0.123456)), str(figure(None))
        ('1,234,567', '0.1235', '–')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return coded(value if isinstance(value, str) else ", ".join(map(str, value)) or "–")


def named(part: str) -> str:
    """Decode a name that `path` has escaped, after the server has decoded the URL."""
    return part[1:] if part.startswith("~") and DOTS.fullmatch(part) else part


def query(values: dict[str, Any]) -> str:
    """Return the values as a query string, without empty ones."""
    kept = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(kept)}" if kept else ""
