"""The figures, as plotly.js values (data, layout). Colours are names of CSS variables: `page.js.j2` resolves them.

A colour "--c1/0.2" is the variable --c1 at opacity 0.2, so that one figure serves light and dark. Names from
outside are escaped, for plotly reads text as HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name
from hitl.report.contents import Curve, Cycle
from hitl.report.measures import Bin

Figure = dict[str, Any]

COLOURS = 8
"""How many series colours page.css has (--c0 ... --c7)."""

PERCENT: Figure = {"tickformat": ".0%"}
LABEL_GAP = 0.075
"""Least distance of two names at the ends of lines, as a share of the height."""


def numbers(values: npt.ArrayLike, digits: int = 4) -> list[float | None]:
    """A list for JSON; what is not finite becomes null."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return [round(float(x), digits) if np.isfinite(x) else None for x in flat]


def shown(name: Name, most: int = 40) -> str:
    """A name as plotly text: escaped, cut to `most` characters."""
    text = str(name)
    return escape(text if len(text) <= most else text[: most - 1] + "…")


def curves_figure(curves: Sequence[Curve], axis: str) -> Figure:
    """Lines over labels spent, each with its band and its name at its end."""
    data: list[Figure] = []
    for rank, curve in enumerate(curves):
        data += _line(curve, f"--c{rank % COLOURS}")
    layout = {
        "height": 380,
        "xaxis": {"title": {"text": "labels spent"}, "tickformat": ",d", "range": _from_zero(curves)},
        "yaxis": {"title": {"text": escape(axis)}} | PERCENT,
        "annotations": _end_names(curves),
        "hovermode": "x unified",
    }
    return {"data": data, "layout": layout}


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
    figure = curves_figure(lines, "share (%)")
    for trace in figure["data"]:
        trace |= {
            "mode": "lines+markers",
            "customdata": [f"cycle {cycle.number}, {cycle.when:%Y-%m-%d %H:%M}" for cycle in history],
            "hovertemplate": "%{y:.1%} (%{customdata})",
        }
    figure["layout"]["xaxis"]["title"]["text"] = "labels so far" if by_labels else "cycle"
    return figure


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
    layout = {
        "height": 300,
        "xaxis": {
            "title": {"text": "confidence in the label (%)"},
            "range": [float(edges[0]) - 0.005, 1.005],
        }
        | PERCENT,
        "yaxis": {"title": {"text": "items"}, "tickformat": ",d", "rangemode": "tozero"},
    }
    return {"data": [bar], "layout": layout}


def reliability_figure(bins: Sequence[Bin]) -> Figure:
    """Measured accuracy of items of similar confidence; on the diagonal confidence is what it says."""
    x = np.array([b.confidence for b in bins])
    y = np.array([b.share.value for b in bins])
    low, high = (np.array([b.share.interval[side] for b in bins]) for side in (0, 1))
    floor = max(0.0, float(np.floor(min(x.min(), low.min()) * 10) / 10))
    ends = [floor, 1.0]
    ideal = {
        "x": ends,
        "y": ends,
        "mode": "lines",
        "line": {"color": "--soft", "width": 1, "dash": "dash"},
        "hoverinfo": "skip",
    }
    points = {
        "x": numbers(x),
        "y": numbers(y),
        "mode": "lines+markers",
        "marker": {"color": "--c0", "size": 8},
        "line": {"color": "--c0", "width": 1.5},
        "error_y": {
            "array": numbers(high - y),
            "arrayminus": numbers(y - low),
            "color": "--c0/0.6",
            "thickness": 1.2,
            "width": 3,
        },
        "customdata": [[b.share.right, b.share.total] for b in bins],
        "hovertemplate": "confidence %{x:.1%}: %{customdata[0]:,d} of %{customdata[1]:,d} right (%{y:.1%})"
        "<extra></extra>",
    }
    layout = {
        "height": 300,
        "xaxis": {"title": {"text": "confidence in the label (%)"}, "range": [floor - 0.01, 1.01]} | PERCENT,
        "yaxis": {"title": {"text": "labels that are right (%)"}, "range": [floor - 0.02, 1.02]} | PERCENT,
    }
    return {"data": [ideal | {"type": "scatter"}, points | {"type": "scatter"}], "layout": layout}


def confusion_values(confusion: Floats) -> list[int | None]:
    """A (J, L) confusion matrix row by row, in thousandths (null for NaN): a quarter of the size of fractions."""
    return [round(float(x) * 1000) if np.isfinite(x) else None for x in confusion.ravel()]


def _line(curve: Curve, colour: str) -> list[Figure]:
    x = numbers(curve.labels)
    band: list[Figure] = []
    if curve.low is not None and curve.high is not None:
        edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        band = [
            edge | {"x": x, "y": numbers(curve.low)},
            edge | {"x": x, "y": numbers(curve.high), "fill": "tonexty", "fillcolor": f"{colour}/0.16"},
        ]
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
    return [*band, line]


def _from_zero(curves: Sequence[Curve]) -> list[float]:
    most = max((float(np.nanmax(curve.labels)) for curve in curves if len(curve.labels)), default=1.0)
    return [0.0, most * 1.005]


def _end_names(curves: Sequence[Curve]) -> list[Figure]:
    """The name of each line at its last point, in the order of the curves."""
    ends = [
        (shown(c.name, 24), float(c.labels[keep[-1]]), float(c.value[keep[-1]])) if keep.size else None
        for c in curves
        for keep in [np.flatnonzero(np.isfinite(c.value))]
    ]
    if not any(ends):
        return []
    drawn = np.concatenate([v for c in curves for v in (c.value, c.low, c.high) if v is not None])
    return end_names(ends, span=float(np.nanmax(drawn) - np.nanmin(drawn)) or 0.1)


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


def spread(sorted_values: Floats, gap: float) -> Floats:
    """Rising values moved as little as needed so that neighbours are `gap` apart, around the same centre."""
    steps = gap * np.arange(len(sorted_values))
    pushed = np.maximum.accumulate(sorted_values - steps) + steps
    pulled = np.minimum.accumulate((sorted_values - steps)[::-1])[::-1] + steps
    return np.asarray((pushed + pulled) / 2)
