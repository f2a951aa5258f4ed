"""Figures of human and model: reliability before and after calibration, accuracy by class and by the model's
confidence, and over the share of items that skip people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hitl.models.analysis.model_profile import Account
from hitl.report.plots import COLOURS, PERCENT, Figure, numbers, shown

if TYPE_CHECKING:
    import pandas as pd

WHO = {"model": ("model alone", "--c1", "square"), "people": ("people alone", "--c2", "diamond")}
WHO |= {"both": ("both", "--c0", "circle")}
"""Series -> name, colour and symbol: told apart without colour."""

LEGEND: Figure = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}


def calibration_figure(calibration: pd.DataFrame) -> Figure:
    """Accuracy by confidence: each model as it comes (dashed), and calibrated; on the diagonal both are equal."""
    data: list[Figure] = []
    lowest = min(1.0, float(calibration[["confidence", "low"]].min().min())) if len(calibration) else 0.0
    floor = max(0.0, np.floor(lowest * 10) / 10)
    data.append(
        {
            "type": "scatter",
            "x": [floor, 1.0],
            "y": [floor, 1.0],
            "mode": "lines",
            "line": {"color": "--soft", "width": 1, "dash": "dot"},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    for rank, (key, rows) in enumerate(calibration.groupby(["when", "model"], sort=False)):
        when, model = key
        before = when == "before"
        colour = f"--c{1 + rank % (COLOURS - 1)}" if before else "--c0"
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{shown(str(model), 24)}, as it comes" if before else "calibrated",
                "x": numbers(rows["confidence"]),
                "y": numbers(rows["accuracy"]),
                "line": {"color": colour, "width": 1.5, "dash": "dash" if before else "solid"},
                "marker": {"color": colour, "size": 7, "symbol": "x" if before else "circle"},
                "error_y": _ends(rows["accuracy"], rows["low"], rows["high"], colour) | {"width": 2},
                "customdata": numbers(rows["items"], 0),
                "hovertemplate": "%{x:.1%} sure: %{y:.1%} right of %{customdata:,d}<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 340,
        "showlegend": True,
        "legend": LEGEND,
        "xaxis": {"title": {"text": "confidence of the model (%)"}, "range": [floor - 0.01, 1.01]} | PERCENT,
        "yaxis": {"title": {"text": "right (%)"}, "range": [floor - 0.02, 1.02]} | PERCENT,
    }
    return {"data": data, "layout": layout}


def class_figure(classes: pd.DataFrame) -> Figure:
    """Accuracy of model, people and both for each true class, from below, with 95 % intervals."""
    data = []
    for rank, who in enumerate(WHO):
        name, colour, symbol = WHO[who]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": numbers(classes[who]),
                "y": [round(height + 0.22 * (rank - 1), 2) for height in range(len(classes))],
                "marker": {"color": colour, "size": 8, "symbol": symbol},
                "error_x": _ends(classes[who], classes[f"{who}_low"], classes[f"{who}_high"], colour),
                "customdata": [
                    f"{shown(row['class'])}: {row[who] * 100:.1f} % right ({row[f'{who}_low'] * 100:.0f} to "
                    f"{row[f'{who}_high'] * 100:.0f} %) of {row['items']:,.0f}"
                    for row in classes.to_dict("records")
                ],
                "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 110 + 34 * len(classes),
        "showlegend": True,
        "legend": LEGEND,
        "xaxis": {"title": {"text": "right (%), with 95 % intervals"}} | PERCENT,
        "yaxis": {
            "title": {"text": "true class"},
            "tickvals": list(range(len(classes))),
            "ticktext": [shown(name, 22) for name in classes["class"]],
            "range": [-0.7, len(classes) - 0.3],
            "showgrid": False,
        },
    }
    return {"data": data, "layout": layout}


def confidence_figure(confidence: pd.DataFrame) -> Figure:
    """Accuracy of model, people and both in groups of equally many items, by rising confidence of the model."""
    ticks = [f"{sure(row['from'])}–{sure(row['to'])}" for row in confidence.to_dict("records")]
    places = list(range(len(confidence)))
    data: list[Figure] = []
    for who, (name, colour, symbol) in WHO.items():
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": places,
                "y": numbers(confidence[who]),
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour, "size": 8, "symbol": symbol},
                "error_y": _ends(confidence[who], confidence[f"{who}_low"], confidence[f"{who}_high"], colour),
                "customdata": [
                    [tick, f"{row['items']:,.0f}"]
                    for tick, row in zip(ticks, confidence.to_dict("records"), strict=True)
                ],
                "hovertemplate": "model %{customdata[0]} % sure: %{y:.1%} right of %{customdata[1]}"
                "<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 340,
        "showlegend": True,
        "legend": LEGEND,
        "xaxis": {
            "title": {"text": "model up to this sure (%)"},
            "tickvals": places,
            "ticktext": [sure(to) for to in confidence["to"]],
            "showgrid": False,
            "range": [-0.4, len(confidence) - 0.6],
        },
        "yaxis": {"title": {"text": "right (%)"}} | PERCENT,
    }
    return {"data": data, "layout": layout}


def deferral_figure(account: Account) -> Figure:
    """Accuracy of all items, with its band, and of those that skip people, over the share that skips."""
    curve = account.deferral
    x = numbers(curve["share"])
    edge: Figure = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    line: Figure = {"type": "scatter", "mode": "lines", "x": x, "hovertemplate": "%{y:.2%}"}
    data = [
        edge | {"x": x, "y": numbers(curve["low"])},
        edge | {"x": x, "y": numbers(curve["high"]), "fill": "tonexty", "fillcolor": "--c0/0.16"},
        line | {"name": "all items", "y": numbers(curve["accuracy"]), "line": {"color": "--c0", "width": 2}},
        line
        | {
            "name": "those that skip people",
            "y": numbers(curve["skipped"]),
            "line": {"color": "--c1", "width": 2, "dash": "dash"},
        },
    ]
    layout = {
        "height": 340,
        "showlegend": True,
        "legend": LEGEND,
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "items that skip people (%)"}, "range": [0, 1.005]} | PERCENT,
        "yaxis": {"title": {"text": "right (%)"}} | PERCENT,
    }
    return {"data": data, "layout": layout}


def sure(share: float) -> str:
    """A confidence in %, with as many digits as tell it from 100, three at most."""
    digits = next((digits for digits in range(4) if round(share * 100, digits) < 100), 0)
    return f"{share * 100:.{digits}f}"


def _ends(value: Any, low: Any, high: Any, colour: str) -> Figure:
    return {
        "array": numbers(np.asarray(high) - np.asarray(value)),
        "arrayminus": numbers(np.asarray(value) - np.asarray(low)),
        "color": f"{colour}/0.5",
        "thickness": 1.5,
        "width": 0,
    }
