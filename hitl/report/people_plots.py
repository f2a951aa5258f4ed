"""Figures of people: accuracy with intervals, typical matrices of groups, who decides alike, accuracy over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

import numpy as np

from hitl.annotations import Floats, Name, Names
from hitl.models.analysis.annotator_profile import AnnotatorProfiles
from hitl.models.analysis.drift import Windows
from hitl.report.plots import COLOURS, PERCENT, Figure, end_names, numbers, shown

FOREST = 40
"""People in the forest plot: those with most labels."""

MAP = 80
"""People on the map of similarities: those with most labels."""

LINES = 8
"""People in the figure of accuracy over time."""

HEAT = [[0, "--heat0"], [0.5, "--heat1"], [1, "--heat2"]]


def forest_figure(found: AnnotatorProfiles) -> Figure:
    """Accuracy of each annotator with its 95 % interval, best on top; colour: the group; cross: to look into."""
    people, main = found.people, found.communities.main
    most = np.argsort(-people.labels, kind="stable")[:FOREST]
    most = most[people.labels[most] > 0]
    order = most[np.argsort(people.accuracy[most], kind="stable")]
    low, high = people.interval
    several = len(found.communities) > 1
    data = []
    for group in range(-1, len(found.communities)):
        rows = [(height, int(k)) for height, k in enumerate(order) if (main[k] if several else -1) == group]
        if not rows:
            continue
        rows.sort(key=lambda row: bool(found.flags(row[1])))  # the legend shows the first symbol
        height, chosen = [at for at, _ in rows], np.array([k for _, k in rows])
        colour = f"--c{group % COLOURS}" if group >= 0 else ("--soft" if several else "--c0")
        accuracy = people.accuracy[chosen]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"group {group + 1}" if group >= 0 else "too few labels for a group",
                "x": numbers(accuracy),
                "y": height,
                "marker": {
                    "color": colour,
                    "size": 9,
                    "symbol": ["x" if found.flags(int(k)) else "circle" for k in chosen],
                },
                "error_x": {
                    "array": numbers(high[chosen] - accuracy),
                    "arrayminus": numbers(accuracy - low[chosen]),
                    "color": f"{colour}/0.55",
                    "thickness": 2,
                    "width": 0,
                },
                "customdata": [_hover(found, int(k)) for k in chosen],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    layout = {
        "height": 110 + 17 * len(order),
        "showlegend": several,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "xaxis": {"title": {"text": "accuracy (%), with its 95 % interval"}, "range": [0, 1.005]} | PERCENT,
        "yaxis": {
            "title": {"text": "annotator"},
            "tickvals": list(range(len(order))),
            "ticktext": [shown(people.names[k], 22) for k in order],
            "range": [-0.8, len(order) - 0.2],
            "showgrid": False,
        },
    }
    return {"data": data, "layout": layout}


def prototype_figure(prototype_jl: Floats, classes: Names, options: Names) -> Figure:
    """How a group answers: each row a true class, in shares of its labels."""
    j, width = prototype_jl.shape
    small = max(j, width) <= 6
    tips = [[[shown(true), shown(said)] for said in options] for true in classes]
    heat = {
        "type": "heatmap",
        "z": [numbers(row) for row in prototype_jl],
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "colorscale": HEAT,
        "texttemplate": "%{z:.0%}" if small else "",
        "customdata": tips,
        "hovertemplate": "true %{customdata[0]}: %{z:.1%} said %{customdata[1]}<extra></extra>",
    }
    layout = {
        "height": min(420, 110 + max(18, min(44, 240 // j)) * j),
        "xaxis": {"title": {"text": "answer"}, "showgrid": False} | _ticks(options),
        "yaxis": {"title": {"text": "true class"}, "showgrid": False, "autorange": "reversed"} | _ticks(classes),
    }
    return {"data": [heat], "layout": layout}


def similarity_figure(found: AnnotatorProfiles) -> Figure:
    """Who decides alike: similarity of every two annotators, ordered by group, groups framed."""
    communities, people = found.communities, found.people
    chosen = np.argsort(-people.labels[communities.learned], kind="stable")[:MAP]
    codes = communities.learned[chosen]
    main = communities.main[codes]
    share = communities.membership[codes, main]
    order = np.lexsort((-share, main))
    chosen, codes, main = chosen[order], codes[order], main[order]
    similar = communities.similarity[np.ix_(chosen, chosen)]
    apart = similar[~np.eye(len(similar), dtype=bool)]
    names = [shown(people.names[k], 22) for k in codes]
    heat = {
        "type": "heatmap",
        "z": [numbers(row, 2) for row in similar],
        "zmin": 0,
        "zmax": max(0.1, float(apart.max(initial=0.0))),  # everybody is like themselves: the diagonal is off the scale
        "showscale": False,
        "colorscale": HEAT,
        "customdata": [[f"{one} and {other}" for other in names] for one in names] if len(names) <= 40 else None,
        "hovertemplate": ("%{customdata}: " if len(names) <= 40 else "") + "similarity %{z:.2f}<extra></extra>",
    }
    ends = np.flatnonzero(np.diff(main, append=-2)) + 1
    starts = np.concatenate(([0], ends[:-1]))
    frames = [
        {
            "type": "rect",
            "x0": int(start) - 0.5,
            "x1": int(end) - 0.5,
            "y0": int(start) - 0.5,
            "y1": int(end) - 0.5,
            "line": {"color": f"--c{main[start] % COLOURS}", "width": 2},
        }
        for start, end in zip(starts, ends, strict=True)
    ]
    middle = [(float(start) + float(end) - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    groups = [f"group {main[start] + 1}" for start in starts]
    axis = {"showgrid": False, "tickvals": middle, "ticktext": groups}
    layout = {
        "height": 420,
        "shapes": frames,
        "xaxis": {"title": {"text": "annotators, by group"}} | axis,
        "yaxis": {"title": {"text": "annotators, by group"}, "autorange": "reversed"} | axis,
    }
    return {"data": [{key: value for key, value in heat.items() if value is not None}], "layout": layout}


def drift_figure(people: Sequence[tuple[Name, Windows]]) -> Figure:
    """Accuracy in windows of time with 95 % bands, a line for each of the first LINES people."""
    data: list[Figure] = []
    ends = []
    for rank, (name, windows) in enumerate(people[:LINES]):
        colour = f"--c{rank % COLOURS}"
        x = [_moment((a + b) / 2) for a, b in zip(windows.start.tolist(), windows.end.tolist(), strict=True)]
        edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        if len(people) <= 3:  # more bands would hide each other
            data.append(edge | {"x": x, "y": numbers(windows.low)})
            data.append(edge | {"x": x, "y": numbers(windows.high), "fill": "tonexty", "fillcolor": f"{colour}/0.14"})
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": shown(name),
                "x": x,
                "y": numbers(windows.accuracy),
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour, "size": 6},
                "customdata": [
                    [int(many), f"{a * 100:.0f} to {b * 100:.0f} %"]
                    for many, a, b in zip(windows.labels, windows.low, windows.high, strict=True)
                ],
                "hovertemplate": "%{fullData.name}: %{y:.0%} (%{customdata[1]}) of %{customdata[0]} labels"
                "<extra></extra>",
            }
        )
        ends.append((shown(name, 24), x[-1], float(windows.accuracy[-1])))
    layout = {
        "height": 340,
        "xaxis": {"title": {"text": "time of the labels"}},
        "yaxis": {"title": {"text": "accuracy (%)"}, "range": [0, 1.02]} | PERCENT,
        "annotations": end_names(ends, span=1.0),
    }
    return {"data": data, "layout": layout}


def _hover(found: AnnotatorProfiles, k: int) -> str:
    people = found.people
    low, high = people.interval
    lines = [
        f"<b>{shown(people.names[k])}</b>: {people.labels[k]:,} labels, {people.accuracy[k] * 100:.0f} % right "
        f"({low[k] * 100:.0f} to {high[k] * 100:.0f} %), {found.bits[k]:.2f} bits a label",
        *(f"<b>{escape(flag)}</b>" for flag in found.flags(k)),
        *(escape(str(confusion)) for confusion in found.confusions[k]),
    ]
    return "<br>".join(lines)


def _ticks(names: Names) -> Figure:
    step = -(-len(names) // 25)
    codes = list(range(0, len(names), step))
    return {"tickvals": codes, "ticktext": [shown(names[code], 16) for code in codes]}


def _moment(seconds: float) -> str | float:
    """A time as plotly reads it; what is no time since the epoch stays a number."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return seconds
