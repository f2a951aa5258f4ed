"""Figures of annotators: accuracy with intervals, typical matrices of groups, who decides alike, accuracy over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

import numpy as np

from hitl.annotations import Floats, Names
from hitl.models.analysis.annotator_profile import AnnotatorProfiles
from hitl.report.plots import COLOURS, LEGEND, PERCENT, Figure, axis, band, end_names, figure, numbers, shown, whiskers

FOREST = 40
"""Annotators in the forest plot: those with most labels."""

MAP = 80
"""Annotators on the map of similarities: those with most labels."""

LINES = 8
"""Annotators in the figure of accuracy over time."""

HEATMAP: Figure = {
    "type": "heatmap",
    "zmin": 0,
    "showscale": False,
    "colorscale": [[0, "--heat0"], [0.5, "--heat1"], [1, "--heat2"]],
}


def forest_figure(found: AnnotatorProfiles) -> Figure:
    """Accuracy of each annotator with its 95 % interval, best on top; colour: the group; cross: to look into."""
    report, main = found.people, found.communities.main
    most = np.argsort(-report.labels, kind="stable")[:FOREST]
    most = most[report.labels[most] > 0]
    order = most[np.argsort(report.accuracy[most], kind="stable")]
    low, high = report.interval
    several = len(found.communities) > 1
    data = []
    for group in range(-1, len(found.communities)):
        rows = [(height, int(k)) for height, k in enumerate(order) if (main[k] if several else -1) == group]
        if not rows:
            continue
        rows.sort(key=lambda row: bool(found.flags(row[1])))  # the legend shows the first symbol
        heights, chosen = map(list, zip(*rows, strict=True))
        colour = f"--c{group % COLOURS}" if group >= 0 else ("--soft" if several else "--c0")
        symbols = ["x" if found.flags(k) else "circle" for k in chosen]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"group {group + 1}" if group >= 0 else "too few labels for a group",
                "x": numbers(report.accuracy[chosen]),
                "y": heights,
                "marker": {"color": colour, "size": 9, "symbol": symbols},
                "error_x": whiskers(report.accuracy[chosen], low[chosen], high[chosen], colour),
                "customdata": [_hover(found, k) for k in chosen],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    names = {"tickvals": list(range(len(order))), "ticktext": [shown(report.names[k], 22) for k in order]}
    x = axis("accuracy (%), with its 95 % interval", range=[0, 1.005], **PERCENT)
    y = axis("annotator", range=[-0.8, len(order) - 0.2], showgrid=False, **names)
    return figure(data, 110 + 17 * len(order), x, y, **LEGEND | {"showlegend": several})


def prototype_figure(prototype_jl: Floats, classes: Names, options: Names) -> Figure:
    """How a group answers: each row a true class, in shares of its labels."""
    j, width = prototype_jl.shape
    heat = HEATMAP | {
        "z": [numbers(row) for row in prototype_jl],
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "texttemplate": "%{z:.0%}" if max(j, width) <= 6 else "",
        "customdata": [[[shown(true), shown(said)] for said in options] for true in classes],
        "hovertemplate": "true %{customdata[0]}: %{z:.1%} said %{customdata[1]}<extra></extra>",
    }
    x = axis("answer", showgrid=False, **_ticks(options))
    y = axis("true class", showgrid=False, autorange="reversed", **_ticks(classes))
    return figure([heat], min(420, 110 + max(18, min(44, 240 // j)) * j), x, y)


def similarity_figure(found: AnnotatorProfiles) -> Figure:
    """Who decides alike: similarity of every two annotators, ordered by group, groups framed."""
    communities, report = found.communities, found.people
    chosen = np.argsort(-report.labels[communities.learned], kind="stable")[:MAP]
    codes = communities.learned[chosen]
    main = communities.main[codes]
    order = np.lexsort((-communities.membership[codes, main], main))
    chosen, codes, main = chosen[order], codes[order], main[order]
    similar = communities.similarity[np.ix_(chosen, chosen)]
    apart = similar[~np.eye(len(similar), dtype=bool)]
    heat = HEATMAP | {
        "z": [numbers(row, 2) for row in similar],
        "zmax": max(0.1, float(apart.max(initial=0.0))),  # all are like themselves: the diagonal is off the scale
        "hovertemplate": "similarity %{z:.2f}<extra></extra>",
    }
    if len(codes) <= 40:  # the names of more pairs would make the page large
        names = [shown(report.names[k], 22) for k in codes]
        heat["customdata"] = [[f"{one} and {other}" for other in names] for one in names]
        heat["hovertemplate"] = "%{customdata}: " + heat["hovertemplate"]
    ends = np.flatnonzero(np.diff(main, append=-2)) + 1
    starts = np.concatenate(([0], ends[:-1]))
    frames = [
        {
            "type": "rect",
            **dict.fromkeys(("x0", "y0"), start - 0.5),
            **dict.fromkeys(("x1", "y1"), end - 0.5),
            "line": {"color": f"--c{main[start] % COLOURS}", "width": 2},
        }
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    groups = {
        "tickvals": ((starts + ends - 1) / 2).tolist(),
        "ticktext": [f"group {main[start] + 1}" for start in starts],
    }
    by_group = axis("annotators, by group", showgrid=False, **groups)
    return figure([heat], 420, by_group, by_group | {"autorange": "reversed"}, shapes=frames)


def drift_figure(found: AnnotatorProfiles, changed: Sequence[int]) -> Figure:
    """Accuracy in windows of time with 95 % bands, a line for each of the first LINES annotators of `changed`."""
    data: list[Figure] = []
    ends = []
    for rank, k in enumerate(changed[:LINES]):
        change, name, colour = found.changes[k], found.names[k], f"--c{rank % COLOURS}"
        assert change is not None
        windows = change.windows
        x = [moment(middle) for middle in ((windows.start + windows.end) / 2).tolist()]
        if len(changed) <= 3:  # more bands would hide each other
            data += band(x, windows.low, windows.high, colour)
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
    accuracy = axis("accuracy (%)", range=[0, 1.02], **PERCENT)
    return figure(data, 340, axis("time of the labels"), accuracy, annotations=end_names(ends, span=1.0))


def moment(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str | float:
    """A time as plotly reads it; what is no time since the epoch stays a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (OverflowError, OSError, ValueError):
        return seconds


def _hover(found: AnnotatorProfiles, k: int) -> str:
    report = found.people
    low, high = report.interval
    lines = [
        f"<b>{shown(report.names[k])}</b>: {report.labels[k]:,} labels, {report.accuracy[k] * 100:.0f} % right "
        f"({low[k] * 100:.0f} to {high[k] * 100:.0f} %), {found.bits[k]:.2f} bits a label",
        *(f"<b>{escape(flag)}</b>" for flag in found.flags(k)),
        *(escape(str(confusion)) for confusion in found.confusions[k]),
    ]
    return "<br>".join(lines)


def _ticks(names: Names) -> Figure:
    codes = range(0, len(names), -(-len(names) // 25))
    return {"tickvals": list(codes), "ticktext": [shown(names[code], 16) for code in codes]}
