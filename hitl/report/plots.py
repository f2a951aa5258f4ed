"""The figures, as values in the form of plotly (data, layout), a subset: `figures.js.j2` draws them.

Colours are names of CSS variables.

A colour "--c1/0.2" is the variable --c1 at opacity 0.2, so that one figure serves light and dark. Names from
outside are escaped, for plotly reads text as HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name
from hitl.report.contents import Curve, Cycle

if TYPE_CHECKING:
    import pandas as pd

Figure = dict[str, Any]

COLOURS = 8
"""How many series colours page.css has (--c0 ... --c7)."""

PERCENT: Figure = {"tickformat": ".0%"}
LEGEND: Figure = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}}
SILENT: Figure = {"hoverinfo": "skip", "showlegend": False}
"""A trace that is drawn only: no legend, no hover."""

LABEL_GAP = 0.075
"""Least distance of two names at the ends of lines, as a share of the height."""


# -- parts of figures --------------------------------------------------------------------------------------------


def numbers(values: npt.ArrayLike, digits: int = 4) -> list[float | None]:
    """A list for JSON; what is not finite becomes null."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return [round(float(x), digits) if np.isfinite(x) else None for x in flat]


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(name: Name, most: int = 40) -> str:
    """A name as plotly text: escaped, cut to `most` characters."""
    return escape(cut(str(name), most))


def axis(title: str, **more: Any) -> Figure:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def figure(data: list[Figure], height: float, x: Figure, y: Figure, **more: Any) -> Figure:
    """Traces over two axes; `more`: other keys of the layout."""
    return {"data": data, "layout": {"height": height, "xaxis": x, "yaxis": y, **more}}


def whiskers(value: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, colour: str) -> Figure:
    """The intervals of points, as plotly's error_x or error_y."""
    value = np.asarray(value)
    return {
        "array": numbers(np.asarray(high) - value),
        "arrayminus": numbers(value - np.asarray(low)),
        "color": f"{colour}/0.5",
        "thickness": 1.5,
        "width": 0,
    }


def band(x: Sequence[Any], low: npt.ArrayLike, high: npt.ArrayLike, colour: str) -> list[Figure]:
    """The area between two lines."""
    edge: Figure = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}} | SILENT
    filled = {"fill": "tonexty", "fillcolor": f"{colour}/0.16"}
    return [edge | {"y": numbers(low)}, edge | {"y": numbers(high)} | filled]


def end_names(ends: Sequence[tuple[str, Any, float] | None], span: float) -> list[Figure]:
    """Names (escaped) at the (x, y) where lines end, moved apart where they end close together.

    The colour is that of the place in the list; None has no end. `span` is the height of the figure in y.
    """
    there = sorted((end[2], rank, end) for rank, end in enumerate(ends) if end is not None)
    at = spread(np.array([y for y, _, _ in there]), LABEL_GAP * span)
    return [
        {
            "text": text,
            "x": x,
            "y": round(y, 5),
            "xanchor": "left",
            "xshift": 6,
            "showarrow": False,
            "align": "left",
            "font": {"color": f"--c{rank % COLOURS}"},
        }
        for (_, rank, (text, x, _)), y in zip(there, at.tolist(), strict=True)
    ]


def line_ends(curves: Sequence[Curve]) -> list[tuple[str, float, float] | None]:
    """The name of each curve and its last point that has a value, for `end_names`."""
    known = [np.flatnonzero(np.isfinite(curve.value)) for curve in curves]
    return [
        (shown(curve.name, 28), float(curve.labels[rows[-1]]), float(curve.value[rows[-1]])) if rows.size else None
        for curve, rows in zip(curves, known, strict=True)
    ]


def spread(sorted_values: Floats, gap: float) -> Floats:
    """Rising values moved as little as needed so that neighbours are `gap` apart, around the same centre."""
    steps = gap * np.arange(len(sorted_values))
    pushed = np.maximum.accumulate(sorted_values - steps) + steps
    pulled = np.minimum.accumulate((sorted_values - steps)[::-1])[::-1] + steps
    return np.asarray((pushed + pulled) / 2)


# -- figures -----------------------------------------------------------------------------------------------------


def curves_figure(curves: Sequence[Curve], value: str, spent: str = "labels spent") -> Figure:
    """Lines over labels spent, each with its band and its name at its end; `value` and `spent` name the axes."""
    data: list[Figure] = []
    for rank, curve in enumerate(curves):
        data += _line(curve, f"--c{rank % COLOURS}")
    names = line_ends(curves)
    most = max((float(np.nanmax(curve.labels)) for curve in curves if len(curve.labels)), default=1.0)
    x = axis(spent, tickformat=",d", range=[0.0, most * 1.005])
    y = axis(escape(value), **PERCENT)
    ends = end_names(names, _height(curves)) if any(names) else []
    return figure(data, 380, x, y, annotations=ends, hovermode="x unified")


def history_figure(history: Sequence[Cycle]) -> Figure:
    """Mean confidence, agreement and done share after each cycle, over the labels so far."""
    spent = np.array([cycle.metrics.get("labels", np.nan) for cycle in history])
    by_labels = bool(np.isfinite(spent).all())
    x = spent if by_labels else np.array([cycle.number for cycle in history], dtype=np.float64)
    lines = []
    for key, name in (("confidence", "mean confidence"), ("agreement", "agreement"), ("done", "items done")):
        value = np.array([cycle.metrics.get(key, np.nan) for cycle in history])
        if np.isfinite(value).any():
            lines.append(Curve(name, x, value))
    drawn = curves_figure(lines, "share (%)", "labels so far" if by_labels else "cycle")
    for trace in drawn["data"]:
        trace |= {
            "mode": "lines+markers",
            "customdata": [f"cycle {cycle.number}, {cycle.when:%Y-%m-%d %H:%M}" for cycle in history],
            "hovertemplate": "%{y:.1%} (%{customdata})",
        }
    return drawn


def confidence_figure(confidence: Floats, n_classes: int, bins: int = 20) -> Figure:
    """How many items have which confidence, from 1/J to 1."""
    edges = np.linspace(1 / n_classes, 1, bins + 1)
    clipped = np.clip(confidence, edges[0], edges[-1])
    count, _ = np.histogram(clipped, edges)
    bar = {
        "type": "bar",
        "x": numbers((edges[1:] + edges[:-1]) / 2),
        "y": count.tolist(),
        "width": float(edges[1] - edges[0]) * 0.94,
        "marker": {"color": "--c0"},
        "customdata": [numbers(pair) for pair in pairwise(edges)],
        "hovertemplate": "%{y:,d} items with confidence %{customdata[0]:.1%} to %{customdata[1]:.1%}<extra></extra>",
    }
    x = axis("confidence in the label (%)", range=[float(edges[0]) - 0.005, 1.005], **PERCENT)
    return figure([bar], 340, x, axis("items", tickformat=",d", rangemode="tozero"))


def reliability_figure(lines: Sequence[tuple[str, pd.DataFrame]], confidence: str, right: str) -> Figure:
    """Accuracy of items of similar confidence; on the diagonal confidence is what it says.

    Each line is a name (escaped) and what `complementarity.reliability` found. The last is solid, those before it are
    dashed. `confidence` and `right` name the axes.
    """
    lowest = min(float(frame[["confidence", "low"]].min().min()) for _, frame in lines)
    floor = max(0.0, float(np.floor(lowest * 10) / 10))
    ideal = {"type": "scatter", "x": [floor, 1.0], "y": [floor, 1.0], "mode": "lines"}
    data = [ideal | {"line": {"color": "--soft", "width": 1, "dash": "dot"}} | SILENT]
    for rank, (name, frame) in enumerate(lines, start=1):
        last = rank == len(lines)
        colour = "--c0" if last else f"--c{1 + (rank - 1) % (COLOURS - 1)}"
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": numbers(frame["confidence"]),
                "y": numbers(frame["accuracy"]),
                "line": {"color": colour, "width": 1.5, "dash": "solid" if last else "dash"},
                "marker": {"color": colour, "size": 7, "symbol": "circle" if last else "x"},
                "error_y": whiskers(frame["accuracy"], frame["low"], frame["high"], colour),
                "customdata": numbers(frame["items"], 0),
                "hovertemplate": "%{x:.1%} sure: %{y:.1%} right of %{customdata:,d}<extra>%{fullData.name}</extra>",
            }
        )
    x = axis(confidence, range=[floor - 0.01, 1.01], **PERCENT)
    y = axis(right, range=[floor - 0.02, 1.02], **PERCENT)
    return figure(data, 340, x, y, **(LEGEND if len(lines) > 1 else {}))


def confusion_values(confusion: Floats) -> list[int | None]:
    """A (J, L) confusion matrix row by row, in thousandths (null for NaN): a quarter of the size of fractions."""
    return [round(float(x) * 1000) if np.isfinite(x) else None for x in confusion.ravel()]


def _line(curve: Curve, colour: str) -> list[Figure]:
    x = numbers(curve.labels)
    line = {
        "type": "scatter",
        "mode": "lines" if len(curve.labels) > 1 else "markers",
        "name": shown(curve.name),
        "x": x,
        "y": numbers(curve.value),
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour},
        "hovertemplate": "%{y:.1%}",
    }
    if curve.low is None or curve.high is None:
        return [line]
    return [*band(x, curve.low, curve.high, colour), line]


def _height(curves: Sequence[Curve]) -> float:
    """From the lowest to the highest of what is drawn, never 0."""
    drawn = np.concatenate([v for c in curves for v in (c.value, c.low, c.high) if v is not None])
    return float(np.nanmax(drawn) - np.nanmin(drawn)) or 0.1
