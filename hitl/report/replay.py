"""Replay report: a page with figures, or the curves as one SVG, for documents that accept images but no scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import numpy as np

from hitl.annotations import Floats
from hitl.report import plots
from hitl.report.contents import Curve
from hitl.report.page import document, write_text

WIDTH, HEIGHT = 760.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 190.0, 34.0, 46.0
COLOUR = ("#0072b2", "#d55e00", "#00875f", "#b5538e", "#b98300", "#3a8fc7", "#6d6d6d", "#7a5cc0")
"""Series colors of page.css in light mode."""

INK, SOFT, GRID = "#1b1f24", "#5b6570", "#e2e5e9"


@dataclass(frozen=True)
class Row:
    """Row of the table, as text: labels and cost that one strategy needed for one target."""

    target: str
    strategy: str
    labels: str
    cost: str
    saving: str


@dataclass(frozen=True, eq=False)
class ReplayReport:
    """Contents of the page.

    Attributes:
        title, subtitle: the heading and a line under it.
        by_labels: a curve per strategy, over labels.
        by_cost: a curve per strategy, over cost; empty if all labels cost the same.
        rows: labels and cost each strategy needed.
        band: meaning of the bands ("lowest to highest of 5 seeds").
        command: the command line.
    """

    title: str
    subtitle: str
    by_labels: tuple[Curve, ...]
    by_cost: tuple[Curve, ...]
    rows: tuple[Row, ...]
    band: str
    command: str

    @property
    def panels(self) -> list[tuple[str, str, tuple[Curve, ...]]]:
        """Title, name of the x axis, and curves of each figure."""
        panels = [("Accuracy against labels", "labels", self.by_labels)]
        return [*panels, ("Accuracy against cost", "cost", self.by_cost)] if self.by_cost else panels


def write_page(report: ReplayReport, path: str | Path) -> None:
    """Write a self-contained HTML page, completely or not at all."""
    figures = {f"curves{rank}": figure(axis, curves) for rank, (_, axis, curves) in enumerate(report.panels)}
    titles = [(f"curves{rank}", title) for rank, (title, _, _) in enumerate(report.panels)]
    page = document("replay.html.j2", {"figures": figures}, report=report, panels=titles, generated=datetime.now(UTC))
    write_text(path, page)


def figure(axis: str, curves: Sequence[Curve]) -> plots.Figure:
    """Draw the curves, cutting off the steep start at the bottom, with a name beside every line."""
    drawn = plots.curves_figure(curves, "accuracy (%)", axis)
    low, high = ends_of(curves)
    names = plots.end_names(plots.line_ends(curves), high - low)
    gap = plots.LABEL_GAP * (high - low)
    for rank, name in enumerate(names):  # from the lowest; names outside the range are hidden
        above = len(names) - 1 - rank
        name["y"] = min(max(name["y"], low + rank * gap), high - above * gap)
    drawn["layout"]["yaxis"]["range"] = [low, high]
    drawn["layout"]["annotations"] = names
    return drawn


def ends_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the ends of the y axis: below the lowest curve without its first twentieth, above the highest."""
    low = min(float(np.min((c.value if c.low is None else c.low)[len(c.value) // 20 :])) for c in curves)
    high = max(float(np.max(c.value if c.high is None else c.high)) for c in curves)
    return float(max(0.0, np.floor(low * 50) / 50 - 0.01)), float(min(1.005, np.ceil(high * 100) / 100 + 0.005))


# -- SVG ---------------------------------------------------------------------------------------------------


def write_svg(report: ReplayReport, path: str | Path) -> None:
    """Write the figures, stacked vertically, as one SVG, completely or not at all."""
    height = HEIGHT * len(report.panels)
    inside = f"M{LEFT:g} {TOP:g}H{WIDTH:g}V{HEIGHT - BOTTOM:g}H{LEFT:g}Z"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH:g}" height="{height:g}" fill="#ffffff"/>',
        f'<clipPath id="inside"><path d="{inside}"/></clipPath>',
    ]
    for rank, panel in enumerate(report.panels):
        parts += [f'<g transform="translate(0 {rank * HEIGHT:g})">', *_panel(*panel), "</g>"]
    write_text(path, "\n".join([*parts, "</svg>\n"]))


def _panel(title: str, axis: str, lines: Sequence[Curve]) -> Iterator[str]:
    most = max(float(line.labels[-1]) for line in lines) or 1.0
    floor, top = ends_of(lines)
    x, y = _scale(0.0, most, LEFT, WIDTH - RIGHT), _scale(floor, top, HEIGHT - BOTTOM, TOP)
    yield _text(LEFT, 20, escape(title), INK, "start", ' font-size="14" font-weight="600"')
    for tick in plots.ticks(floor, top).tolist():
        yield f'<path d="M{LEFT:g} {y(tick):.1f}H{WIDTH - RIGHT:g}" stroke="{GRID}"/>'
        yield _text(LEFT - 8, y(tick) + 4, f"{tick * 100:.4g} %", SOFT, "end")
    for tick in plots.ticks(0, most).tolist():
        yield _text(x(tick), HEIGHT - BOTTOM + 18, f"{tick:,.6g}", SOFT, "middle")
    yield _text(x(most / 2), HEIGHT - 8, escape(axis), SOFT, "middle")
    yield '<g clip-path="url(#inside)">'
    for rank, line in enumerate(lines):
        if line.low is not None and line.high is not None:
            there, back = _path(x(line.labels), y(line.high)), _path(x(line.labels)[::-1], y(line.low)[::-1])
            yield f'<path d="M{there}L{back}Z" fill="{COLOUR[rank % plots.COLOURS]}" fill-opacity="0.16"/>'
    for rank, line in enumerate(lines):
        path = _path(x(line.labels), y(line.value))
        yield f'<path d="M{path}" fill="none" stroke="{COLOUR[rank % plots.COLOURS]}" stroke-width="2"/>'
    yield "</g>"
    for end in plots.end_names(plots.line_ends(lines), top - floor):
        colour = COLOUR[int(end["font"]["color"][3:])]
        yield _text(x(end["x"]) + 6, y(end["y"]) + 4, end["text"], colour, "start")


def _scale(low: float, high: float, start: float, end: float) -> Callable[[Floats | float], Floats]:
    """Return a function that maps values between low and high to positions in the image."""
    return lambda value: np.asarray(start + (end - start) * (np.asarray(value) - low) / (high - low))


def _path(x: Floats, y: Floats) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _text(x: Floats | float, y: Floats | float, escaped: str, colour: str, anchor: str, more: str = "") -> str:
    return f'<text x="{float(x):.1f}" y="{float(y):.1f}" fill="{colour}" text-anchor="{anchor}"{more}>{escaped}</text>'
