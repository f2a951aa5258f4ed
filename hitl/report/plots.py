"""Build figures as plain values (data, layout) in a subset of plotly's format. `figures.js.j2` draws them in the page.

A color is the name of a CSS variable, "--c1", optionally with an opacity, "--c1/0.2", so that a figure works in light
and dark mode. Names are escaped, because they are not trusted.
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
"""Number of series colors in page.css (--c0 ... --c7)."""

PERCENT: Figure = {"tickformat": ".0%"}
LEGEND: Figure = {"showlegend": True}
SILENT: Figure = {"hoverinfo": "skip", "showlegend": False}
"""Options of a trace that has no legend and does not react to the pointer."""

LABEL_GAP = 0.075
"""Minimum distance between two names at the ends of lines, as a fraction of the height."""


# -- parts of figures --------------------------------------------------------------------------------------


def numbers(values: npt.ArrayLike, digits: int = 4) -> list[float | None]:
    """Return a list for JSON, with non-finite values as null."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return [round(float(x), digits) if np.isfinite(x) else None for x in flat]


def cut(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(name: Name, most: int = 40) -> str:
    """Shorten a name to at most `most` characters and escape it."""
    return escape(cut(str(name), most))


def axis(title: str, names: Sequence[str] | None = None, **more: Any) -> Figure:
    """Return an axis with a title, and with `names`, if given, at 0, 1, ..."""
    ticks = {} if names is None else {"showgrid": False, "tickvals": list(range(len(names))), "ticktext": list(names)}
    return {"title": {"text": title}, **ticks, **more}


def figure(data: list[Figure], height: float, x: Figure, y: Figure, **more: Any) -> Figure:
    """Return a figure of traces over two axes; `more` holds other keys of the layout."""
    return {"data": data, "layout": {"height": height, "xaxis": x, "yaxis": y, **more}}


def scatter(x: Any, y: Any, mode: str, colour: str, *, size: int = 8, symbol: Any = "circle", **more: Any) -> Figure:
    """Return a trace of lines, markers or both, in one color."""
    marker = {"color": colour, "size": size, "symbol": symbol}
    trace = {"type": "scatter", "mode": mode, "x": x, "y": y, "line": {"color": colour, "width": 2}, "marker": marker}
    return trace | more


def heatmap(z: Sequence[list[float | None]], most: float, tip: str, **more: Any) -> Figure:
    """Return a heat map of shares from 0 to `most`."""
    heat = {"type": "heatmap", "z": z, "zmin": 0, "zmax": most, "showscale": False}
    return heat | {"hovertemplate": f"{tip}<extra></extra>"} | more


def whiskers(value: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, colour: str) -> Figure:
    """Return the intervals low .. high around `value`, for error_x or error_y."""
    above, below = numbers(np.asarray(high) - value), numbers(value - np.asarray(low))
    return {"array": above, "arrayminus": below, "color": f"{colour}/0.5"}


def band(x: Sequence[Any], low: npt.ArrayLike, high: npt.ArrayLike, colour: str) -> list[Figure]:
    """Return the traces that fill the area between two lines."""
    edge: Figure = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}} | SILENT
    return [edge | {"y": numbers(low)}, edge | {"y": numbers(high), "fill": "tonexty", "fillcolor": f"{colour}/0.16"}]


def end_names(ends: Sequence[tuple[str, Any, float] | None], span: float) -> list[Figure]:
    """Return annotations with the names of lines at their ends, moved apart if the ends are close together.

    `ends`: for each line its escaped name and the (x, y) of its end, or None for a line without a name; the position in
    the list determines the color. `span`: range of the y axis.
    """
    present = sorted((end[2], rank, end) for rank, end in enumerate(ends) if end is not None)
    heights = spread(np.array([y for y, _, _ in present]), LABEL_GAP * span).tolist()
    return [
        {"text": text, "x": x, "y": round(y, 5), "showarrow": False, "font": {"color": f"--c{rank % COLOURS}"}}
        for (_, rank, (text, x, _)), y in zip(present, heights, strict=True)
    ]


def curve_names(curves: Sequence[Curve], span: float) -> list[Figure]:
    """Return annotations with the names of curves at their last finite points."""
    last = [np.flatnonzero(np.isfinite(curve.value))[-1:] for curve in curves]
    ends = [
        (shown(curve.name, 28), float(curve.labels[row[0]]), float(curve.value[row[0]])) if row.size else None
        for curve, row in zip(curves, last, strict=True)
    ]
    return end_names(ends, span)


def spread(sorted_values: Floats, gap: float) -> Floats:
    """Move sorted values apart, around the same center, so that neighbors differ by at least `gap`."""
    steps = gap * np.arange(len(sorted_values))
    pushed = np.maximum.accumulate(sorted_values - steps) + steps
    pulled = np.minimum.accumulate((sorted_values - steps)[::-1])[::-1] + steps
    return np.asarray((pushed + pulled) / 2)


def ticks(low: float, high: float, about: int = 6) -> Floats:
    """Return about `about` round numbers from low to high, 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return np.asarray(np.arange(first, last + 1) * step + 0.0)  # + 0.0 turns -0 into 0


# -- figures -----------------------------------------------------------------------------------------------


def curves_figure(curves: Sequence[Curve], value: str, spent: str = "labels spent") -> Figure:
    """Draw curves with their bands, and a name at the end of each. `value` and `spent` are the titles of the axes."""
    data: list[Figure] = []
    for rank, curve in enumerate(curves):
        x, colour = numbers(curve.labels), f"--c{rank % COLOURS}"
        if curve.low is not None and curve.high is not None:
            data += band(x, curve.low, curve.high, colour)
        mode = "lines" if len(curve.labels) > 1 else "markers"
        named = {"name": shown(curve.name), "hovertemplate": "%{y:.1%}"}
        data.append(scatter(x, numbers(curve.value), mode, colour, size=7, **named))
    values = np.concatenate([v for c in curves for v in (c.value, c.low, c.high) if v is not None] or [np.zeros(1)])
    finite = values[np.isfinite(values)]
    height = float(np.ptp(finite)) if finite.size else 0.0
    most = max((float(np.nanmax(curve.labels)) for curve in curves if len(curve.labels)), default=1.0)
    x_axis = axis(spent, tickformat=",d", range=[0.0, most * 1.005])
    return figure(data, 380, x_axis, axis(escape(value), **PERCENT), annotations=curve_names(curves, height or 0.1))


def history_figure(history: Sequence[Cycle]) -> Figure:
    """Draw mean confidence, agreement and the share of done items after each run, over the labels so far."""

    def metric(key: str) -> Floats:
        return np.array([cycle.metrics.get(key, np.nan) for cycle in history])

    spent = metric("labels")
    by_labels = bool(np.isfinite(spent).all())
    x = spent if by_labels else np.array([cycle.number for cycle in history], dtype=np.float64)
    named = {"confidence": "mean confidence", "agreement": "agreement", "done": "items done"}
    lines = [Curve(name, x, metric(key)) for key, name in named.items() if np.isfinite(metric(key)).any()]
    drawn = curves_figure(lines, "share (%)", "labels so far" if by_labels else "cycle")
    tips = [f"run {cycle.number}, {cycle.when:%Y-%m-%d %H:%M}" for cycle in history]
    for trace in drawn["data"]:
        trace |= {"mode": "lines+markers", "customdata": tips, "hovertemplate": "%{y:.1%} (%{customdata})"}
    return drawn


def confidence_figure(confidence: Floats, n_classes: int, bins: int = 20) -> Figure:
    """Draw a histogram of the confidence of items, from 1/J to 1."""
    edges = np.linspace(1 / n_classes, 1, bins + 1)
    count, _ = np.histogram(np.clip(confidence, edges[0], edges[-1]), edges)
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
    """Draw accuracy by confidence, and the diagonal, where they are equal.

    `lines`: escaped names and tables from `complementarity.reliability`. The last line is solid, earlier ones are
    dashed. `confidence` and `right` are the titles of the axes.
    """
    lowest = min(float(table[["confidence", "low"]].min().min()) for _, table in lines)
    floor = max(0.0, float(np.floor(lowest * 10) / 10))
    ideal = {"type": "scatter", "x": [floor, 1.0], "y": [floor, 1.0], "mode": "lines"}
    data = [ideal | {"line": {"color": "--soft", "width": 1, "dash": "dot"}} | SILENT]
    for rank, (name, table) in enumerate(lines, start=1):
        last = rank == len(lines)
        colour = "--c0" if last else f"--c{1 + (rank - 1) % (COLOURS - 1)}"
        data.append(
            scatter(
                numbers(table["confidence"]),
                numbers(table["accuracy"]),
                "lines+markers",
                colour,
                size=7,
                symbol="circle" if last else "x",
                name=name,
                line={"color": colour, "width": 1.5, "dash": "solid" if last else "dash"},
                error_y=whiskers(table["accuracy"], table["low"], table["high"], colour),
                customdata=numbers(table["items"], 0),
                hovertemplate="%{x:.1%} sure: %{y:.1%} right of %{customdata:,d}<extra>%{fullData.name}</extra>",
            )
        )
    x, y = axis(confidence, range=[floor - 0.01, 1.01], **PERCENT), axis(right, range=[floor - 0.02, 1.02], **PERCENT)
    return figure(data, 340, x, y, **(LEGEND if len(lines) > 1 else {}))


def confusion_values(confusion: Floats) -> list[int | None]:
    """Return a (J, L) confusion matrix row by row, in thousandths, which are short to write, with null for NaN."""
    return [round(float(x) * 1000) if np.isfinite(x) else None for x in confusion.ravel()]
