"""Write the report of a replay: a page with figures, or one SVG for documents that accept images but no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.report import plots
from hitl.report.contents import Curve
from hitl.report.page import document, templates, write_text

BOX = {"width": 760, "height": 360, "left": 62, "right": 570, "top": 34, "bottom": 314}
"""Size of a panel of the SVG, and the ends of its axes, in pixels."""

COLOUR = ("#0072b2", "#d55e00", "#00875f", "#b5538e", "#b98300", "#3a8fc7", "#6d6d6d", "#7a5cc0")
"""Series colors of page.css in light mode."""


@dataclass(frozen=True)
class Row:
    """Row of the table, as text: labels and cost that a strategy needed to reach a target, and its saving."""

    target: str
    strategy: str
    labels: str
    cost: str
    saving: str


@dataclass(frozen=True, eq=False)
class ReplayReport:
    """Contents of the page.

    Attributes:
        title, subtitle: heading, and the line under it.
        by_labels: one curve per strategy, over labels.
        by_cost: one curve per strategy, over cost; empty if all labels cost the same.
        rows: labels and cost that each strategy needed.
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
        """Title, title of the x axis, and curves of each figure."""
        panels = [("Accuracy against labels", "labels", self.by_labels)]
        return [*panels, ("Accuracy against cost", "cost", self.by_cost)] if self.by_cost else panels


def write_page(report: ReplayReport, path: str | Path) -> None:
    """Write a self-contained HTML page, completely or not at all."""
    figures = {f"curves{rank}": figure(axis, curves) for rank, (_, axis, curves) in enumerate(report.panels)}
    titles = [(f"curves{rank}", title) for rank, (title, _, _) in enumerate(report.panels)]
    page = document("replay.html.j2", {"figures": figures}, report=report, panels=titles, generated=datetime.now(UTC))
    write_text(path, page)


def write_svg(report: ReplayReport, path: str | Path) -> None:
    """Write the figures, stacked vertically, as one SVG, completely or not at all."""
    panels = [_panel(*panel) for panel in report.panels]
    write_text(path, templates().get_template("replay.svg.j2").render(panels=panels, box=BOX))


def figure(axis: str, curves: Sequence[Curve]) -> plots.Figure:
    """Draw the curves with a name beside each. The y axis leaves out their steep starts."""
    drawn = plots.curves_figure(curves, "accuracy (%)", axis)
    low, high = ends_of(curves)
    names = plots.curve_names(curves, high - low)
    gap = plots.LABEL_GAP * (high - low)
    for rank, name in enumerate(names):  # from the lowest: keep names in the range, where they are visible
        above = len(names) - 1 - rank
        name["y"] = min(max(name["y"], low + rank * gap), high - above * gap)
    drawn["layout"]["yaxis"]["range"] = [low, high]
    drawn["layout"]["annotations"] = names
    return drawn


def ends_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the ends of the y axis: below the lowest point after the first twentieth, and above the highest point."""
    low = min(float(np.min((c.value if c.low is None else c.low)[len(c.value) // 20 :])) for c in curves)
    high = max(float(np.max(c.value if c.high is None else c.high)) for c in curves)
    return float(max(0.0, np.floor(low * 50) / 50 - 0.01)), float(min(1.005, np.ceil(high * 100) / 100 + 0.005))


def _panel(title: str, axis: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Return the title, ticks, lines and names of a panel, with their places in the SVG."""
    most = max(float(curve.labels[-1]) for curve in curves) or 1.0
    floor, top = ends_of(curves)

    def x(value: Floats | float) -> Any:
        return BOX["left"] + (BOX["right"] - BOX["left"]) * np.asarray(value) / most

    def y(value: Floats | float) -> Any:
        return BOX["bottom"] + (BOX["top"] - BOX["bottom"]) * (np.asarray(value) - floor) / (top - floor)

    def path(labels: Floats, values: Floats) -> str:
        return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x(labels), y(values), strict=True))

    lines = []
    for rank, curve in enumerate(curves):
        area = ""
        if curve.low is not None and curve.high is not None:
            area = f"{path(curve.labels, curve.high)}L{path(curve.labels[::-1], curve.low[::-1])}"
        lines.append((area, path(curve.labels, curve.value), COLOUR[rank % plots.COLOURS]))
    names = [
        (x(end["x"]), y(end["y"]), unescape(end["text"]), COLOUR[int(end["font"]["color"][3:])])
        for end in plots.curve_names(curves, top - floor)
    ]
    return {
        "title": title,
        "axis": axis,
        "x_ticks": [(x(tick), f"{tick:,.6g}") for tick in plots.ticks(0, most).tolist()],
        "y_ticks": [(y(tick), f"{tick * 100:.4g} %") for tick in plots.ticks(floor, top).tolist()],
        "lines": lines,
        "names": names,
    }
