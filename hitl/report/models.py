"""Build the section on models: calibration, accuracy compared with annotators, and items that can skip annotators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hitl.active.guarantees.skip_list import SkipList, make_skip_list
from hitl.errors import BadEvidence
from hitl.formatting import sure
from hitl.models.analysis.model_profile import ModelProfile, ModelProfiler
from hitl.report import measures, plots
from hitl.report.contents import QuestionPage
from hitl.report.plots import LEGEND, PERCENT, Figure, axis, figure, numbers, scatter, shown

if TYPE_CHECKING:
    import pandas as pd

CLASSES = 20
"""Maximum number of classes in the figure and the table: those for which annotators add most to the model."""

WHO = {"model": ("model alone", "--c1", "square"), "people": ("annotators alone", "--c2", "diamond")}
WHO |= {"both": ("both", "--c0", "circle")}
"""Series -> name, color and symbol, distinguishable without color."""


@dataclass(frozen=True, eq=False)
class ModelsSection:
    """One question's models, for the template.

    Attributes:
        profile: profile of annotators and models together.
        skips: items that need no annotator.
        classes: table of accuracy by class, first the classes for which annotators add most.
        figures: last part of the id -> figure. Only the first CLASSES classes are drawn.
    """

    profile: ModelProfile
    skips: SkipList
    classes: pd.DataFrame
    figures: dict[str, Figure]


def models_section(page: QuestionPage) -> ModelsSection | None:
    """Profile the models of a question. Return None without a model, or if the method does not use models."""
    found = _profiles(page)
    if found is None or not found[0].best.items:
        return None
    profile, skips = found
    best = profile.best
    classes = best.large_classes()
    figures = {
        "calibration": calibration_figure(best.calibration),
        "by-class": class_figure(classes[:CLASSES][::-1]),
        "by-confidence": confidence_figure(best.confidence),
        "deferral": deferral_figure(best.deferral),
    }
    return ModelsSection(profile, skips, classes, figures)


def _profiles(page: QuestionPage) -> tuple[ModelProfile, SkipList] | None:
    """Measure on held-out truth if there is any, otherwise on the truth that the fit used, hiding it item by item."""
    if not page.evidence.probabilities or not page.evidence.annotations.n_items:
        return None
    evidence, truth = page.evidence, measures.held_out_truth(page)
    held_out = bool((truth >= 0).any())
    if held_out and page.truth is None:  # the consensus was made without the truth in the evidence
        evidence = replace(evidence, truth=None)
    try:
        profile = ModelProfiler().fit(evidence, page.consensus, truth=truth if held_out else None)
        return profile, make_skip_list(evidence, page.consensus, truth=truth if held_out else None)
    except BadEvidence:  # the method does not use models
        return None


def calibration_figure(calibration: pd.DataFrame) -> Figure:
    """Draw accuracy by confidence for each model as it comes (dashed), and calibrated (solid)."""
    lines = [
        (f"{shown(str(model), 24)}, as it comes" if when == "before" else "calibrated", rows)
        for (when, model), rows in calibration.groupby(["when", "model"], sort=False)
    ]
    return plots.reliability_figure(lines, "confidence of the model (%)", "right (%)")


def class_figure(classes: pd.DataFrame) -> Figure:
    """Draw the accuracy of model, annotators and both, with 95 % intervals, per true class, the first at the bottom."""
    data = []
    for rank, (who, (name, colour, symbol)) in enumerate(WHO.items()):
        heights = [round(height + 0.22 * (rank - 1), 2) for height in range(len(classes))]
        tips = [
            f"{shown(row['class'])}: {row[who] * 100:.1f} % right ({row[f'{who}_low'] * 100:.0f} to "
            f"{row[f'{who}_high'] * 100:.0f} %) of {row['items']:,.0f}"
            for row in classes.to_dict("records")
        ]
        more: Figure = {"customdata": tips, "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>"}
        more["error_x"] = plots.whiskers(classes[who], classes[f"{who}_low"], classes[f"{who}_high"], colour)
        data.append(scatter(numbers(classes[who]), heights, "markers", colour, symbol=symbol, name=name, **more))
    x = axis("right (%), with 95 % intervals", **PERCENT)
    names = [shown(name, 22) for name in classes["class"]]
    y = axis("true class", names, range=[-0.7, len(classes) - 0.3])
    return figure(data, 110 + 34 * len(classes), x, y, **LEGEND)


def confidence_figure(confidence: pd.DataFrame) -> Figure:
    """Draw the accuracy of model, annotators and both in groups of equal size, by rising confidence of the model."""
    rows = confidence.to_dict("records")
    groups = [[f"{sure(row['from'])}–{sure(row['to'])}", f"{row['items']:,.0f}"] for row in rows]
    more: Figure
    tip = "model %{customdata[0]} % sure: %{y:.1%} right of %{customdata[1]}<extra>%{fullData.name}</extra>"
    data = []
    for who, (name, colour, symbol) in WHO.items():
        more = {"name": name, "symbol": symbol, "customdata": groups, "hovertemplate": tip}
        more["error_y"] = plots.whiskers(confidence[who], confidence[f"{who}_low"], confidence[f"{who}_high"], colour)
        data.append(scatter(list(range(len(rows))), numbers(confidence[who]), "lines+markers", colour, **more))
    names = [sure(to) for to in confidence["to"]]
    x = axis("model up to this sure (%)", names, range=[-0.4, len(rows) - 0.6])
    return figure(data, 340, x, axis("right (%)", **PERCENT), **LEGEND)


def deferral_figure(curve: pd.DataFrame) -> Figure:
    """Draw the accuracy of all items, with a band, and of items that skip annotators, over the share of the latter."""
    x = numbers(curve["share"])
    tip: Figure = {"hovertemplate": "%{y:.2%}"}
    dashed = {"color": "--c1", "width": 2, "dash": "dash"}
    data = [
        *plots.band(x, curve["low"], curve["high"], "--c0"),
        scatter(x, numbers(curve["accuracy"]), "lines", "--c0", name="all items", **tip),
        scatter(x, numbers(curve["skipped"]), "lines", "--c1", name="those that skip annotators", line=dashed, **tip),
    ]
    skipping = axis("items that skip annotators (%)", range=[0, 1.005], **PERCENT)
    return figure(data, 340, skipping, axis("right (%)", **PERCENT), **LEGEND)
