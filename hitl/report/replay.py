"""Replay report: a page with figures, or the figures alone as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hitl.report import plots, svg
from hitl.report.contents import Curve
from hitl.report.page import document, write_text


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


def write_page(report: ReplayReport, path: str | Path) -> None:
    """Write a self-contained HTML page, completely or not at all."""
    panels = {f"curves{rank}": panel for rank, panel in enumerate(_panels(report))}
    figures = {key: figure(axis, curves) for key, (_, axis, curves) in panels.items()}
    titles = [(key, title) for key, (title, _, _) in panels.items()]
    page = document("replay.html.j2", {"figures": figures}, report=report, panels=titles, generated=datetime.now(UTC))
    write_text(path, page)


def write_svg(report: ReplayReport, path: str | Path) -> None:
    """Write the figures as one SVG, completely or not at all."""
    panels = [(title, axis, curves, ends_of(curves)) for title, axis, curves in _panels(report)]
    write_text(path, svg.curves(panels))


def figure(axis: str, curves: Sequence[Curve]) -> plots.Figure:
    """Draw the curves, cutting off the steep start at the bottom, with a name beside every line."""
    drawn = plots.curves_figure(curves, "accuracy (%)", axis)
    low, high = ends_of(curves)
    names = plots.end_names(plots.line_ends(curves), high - low)
    gap = plots.LABEL_GAP * (high - low)
    for rank, name in enumerate(names):  # from the lowest; plotly hides names outside the range
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


def _panels(report: ReplayReport) -> list[tuple[str, str, tuple[Curve, ...]]]:
    """Return title, name of the x axis, and curves of each figure."""
    panels = [("Accuracy against labels", "labels", report.by_labels)]
    return [*panels, ("Accuracy against cost", "cost", report.by_cost)] if report.by_cost else panels
