"""Figures of annotators and models: reliability before and after calibration, accuracy by class and by the model's
confidence, and over the share of items that skip annotators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl.report.plots import LEGEND, PERCENT, Figure, axis, band, figure, numbers, reliability_figure, shown, whiskers

if TYPE_CHECKING:
    import pandas as pd

WHO = {"model": ("model alone", "--c1", "square"), "people": ("annotators alone", "--c2", "diamond")}
WHO |= {"both": ("both", "--c0", "circle")}
"""Series -> name, colour and symbol: told apart without colour."""


def calibration_figure(calibration: pd.DataFrame) -> Figure:
    """Accuracy by confidence: each model as it comes (dashed), and calibrated."""
    lines = [
        (f"{shown(str(model), 24)}, as it comes" if when == "before" else "calibrated", rows)
        for (when, model), rows in calibration.groupby(["when", "model"], sort=False)
    ]
    return reliability_figure(lines, "confidence of the model (%)", "right (%)")


def class_figure(classes: pd.DataFrame) -> Figure:
    """Accuracy of model, annotators and both for each true class, from below, with 95 % intervals."""
    data = []
    for rank, who in enumerate(WHO):
        points = _series(who) | {
            "mode": "markers",
            "x": numbers(classes[who]),
            "y": [round(height + 0.22 * (rank - 1), 2) for height in range(len(classes))],
            "error_x": _whiskers(classes, who),
            "customdata": [
                f"{shown(row['class'])}: {row[who] * 100:.1f} % right ({row[f'{who}_low'] * 100:.0f} to "
                f"{row[f'{who}_high'] * 100:.0f} %) of {row['items']:,.0f}"
                for row in classes.to_dict("records")
            ],
            "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>",
        }
        data.append(points)
    ticks = {"tickvals": list(range(len(classes))), "ticktext": [shown(name, 22) for name in classes["class"]]}
    x = axis("right (%), with 95 % intervals", **PERCENT)
    y = axis("true class", range=[-0.7, len(classes) - 0.3], showgrid=False, **ticks)
    return figure(data, 110 + 34 * len(classes), x, y, **LEGEND)


def confidence_figure(confidence: pd.DataFrame) -> Figure:
    """Accuracy of model, annotators and both in groups of equally many items, by rising confidence of the model."""
    places = list(range(len(confidence)))
    groups = [
        [f"{sure(row['from'])}–{sure(row['to'])}", f"{row['items']:,.0f}"] for row in confidence.to_dict("records")
    ]
    data = [
        _series(who)
        | {
            "mode": "lines+markers",
            "x": places,
            "y": numbers(confidence[who]),
            "error_y": _whiskers(confidence, who),
            "customdata": groups,
            "hovertemplate": "model %{customdata[0]} % sure: %{y:.1%} right of %{customdata[1]}"
            "<extra>%{fullData.name}</extra>",
        }
        for who in WHO
    ]
    ticks = {"tickvals": places, "ticktext": [sure(to) for to in confidence["to"]]}
    x = axis("model up to this sure (%)", range=[-0.4, len(confidence) - 0.6], showgrid=False, **ticks)
    return figure(data, 340, x, axis("right (%)", **PERCENT), **LEGEND)


def deferral_figure(curve: pd.DataFrame) -> Figure:
    """Accuracy of all items, with its band, and of those that skip annotators, over the share that skips."""
    x = numbers(curve["share"])
    line: Figure = {"type": "scatter", "mode": "lines", "x": x, "hovertemplate": "%{y:.2%}"}
    colours = {"color": "--c0", "width": 2}, {"color": "--c1", "width": 2, "dash": "dash"}
    data = [
        *band(x, curve["low"], curve["high"], "--c0"),
        line | {"name": "all items", "y": numbers(curve["accuracy"]), "line": colours[0]},
        line | {"name": "those that skip annotators", "y": numbers(curve["skipped"]), "line": colours[1]},
    ]
    skipping = axis("items that skip annotators (%)", range=[0, 1.005], **PERCENT)
    return figure(data, 340, skipping, axis("right (%)", **PERCENT), hovermode="x unified", **LEGEND)


def sure(share: float) -> str:
    """A confidence in %, with as many digits as tell it from 100, three at most."""
    digits = next((digits for digits in range(4) if round(share * 100, digits) < 100), 0)
    return f"{share * 100:.{digits}f}"


def _series(who: str) -> Figure:
    name, colour, symbol = WHO[who]
    marker = {"color": colour, "size": 8, "symbol": symbol}
    return {"type": "scatter", "name": name, "line": {"color": colour, "width": 2}, "marker": marker}


def _whiskers(table: pd.DataFrame, who: str) -> Figure:
    return whiskers(table[who], table[f"{who}_low"], table[f"{who}_high"], WHO[who][1])
