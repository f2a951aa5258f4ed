"""The pages' templates. Autoescape is on: names, labels and texts come from outside."""

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
"""Parts of reports that pages have too: `report/<file>`."""


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
        """A page. What pages have around them is empty where it is not given."""
        around = {"caller": None, "project": None, "request": None, "figures": "{}", "title": "", "here": ""}
        return self._environment.get_template(name).render(**{**around, **values})


def ratio(weight: float) -> str:
    """A log of odds, of either sign, as odds.

    Example:
        >>> ratio(0.6931), ratio(-12.0)
        ('2.0 to 1', 'more than 1,000 to 1')
    """
    odds = math.exp(min(abs(weight), 10.0))
    return "more than 1,000 to 1" if odds > 1000 else f"{odds:,.1f} to 1"


def coded(text: str) -> Markup:
    """Words of the command line: what is between two ` is code.

    Example:
        >>> str(coded("see `hitl models` & more"))
        'see <code>hitl models</code> &amp; more'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def figure(value: Any) -> Markup | str:
    """A recorded value, as people read it.

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
    """The name that `path` has written, after the server has decoded the address."""
    return part[1:] if part.startswith("~") and DOTS.fullmatch(part) else part


def query(values: dict[str, Any]) -> str:
    """These as a query, without those that are empty."""
    kept = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(kept)}" if kept else ""
