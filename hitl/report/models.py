"""What the page says of human and model together: calibration, who is right where, what could skip people."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hitl.annotations import Name
from hitl.errors import BadEvidence
from hitl.models.analysis.model_profile import ModelProfile, ModelProfiler
from hitl.report import measures, models_plots
from hitl.report.contents import QuestionPage
from hitl.report.plots import Figure

CLASSES = 20
"""Classes in the figure and the table: those where people add most."""

WHO = ("model", "people", "both")


@dataclass(frozen=True)
class Accuracy:
    """How often a label is right, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TogetherRow:
    """A group of items: how many, how right model, people and both are, and what people add to the model."""

    name: Name
    items: float
    model: Accuracy
    people: Accuracy
    both: Accuracy
    people_add: Accuracy


@dataclass(frozen=True)
class ModelsSection:
    """Everything the template needs of one question's models.

    Attributes:
        measured: whether known truth says what is right; else the consensus does.
        items: how many are compared.
        overall, classes, confidence: accuracies; classes where people add most first, groups by rising confidence.
        n_classes: how many there are.
        bound: Theorem 1.
        error: calibration error in words: of each model before, and after.
        skips: at each target what can skip people.
        dependence: of every two judges, given the class.
        figures: by the last part of their id.
    """

    measured: bool
    items: int
    overall: TogetherRow
    classes: tuple[TogetherRow, ...]
    confidence: tuple[TogetherRow, ...]
    n_classes: int
    bound: Any
    error: tuple[tuple[str, float], ...]
    skips: tuple[dict[Hashable, Any], ...]
    dependence: tuple[dict[Hashable, Any], ...]
    figures: dict[str, Figure]


def models_section(page: QuestionPage) -> ModelsSection | None:
    """Human and model of a question; None without a model, or where the method behind the labels takes none."""
    found = _profile(page)
    if found is None or not found.best.items:
        return None
    account = found.best
    classes = account.classes.sort_values("people_add", ascending=False, kind="stable")
    classes = classes[classes["items"] >= 0.5]
    return ModelsSection(
        measured=found.measured is not None,
        items=account.items,
        overall=_row("all items", account.overall.iloc[0]),
        classes=tuple(_row(row["class"], row) for _, row in classes[:CLASSES].iterrows()),
        confidence=tuple(_row(_between(row), row) for _, row in account.confidence.iterrows()),
        n_classes=len(classes),
        bound=account.bound,
        error=tuple(account.error.items()),
        skips=tuple(account.skips.to_dict("records")),
        dependence=tuple(account.dependence.to_dict("records")),
        figures={
            "calibration": models_plots.calibration_figure(account.calibration),
            "by-class": models_plots.class_figure(classes[:CLASSES][::-1]),
            "by-confidence": models_plots.confidence_figure(account.confidence),
            "deferral": models_plots.deferral_figure(account),
        },
    )


def _profile(page: QuestionPage) -> ModelProfile | None:
    """By the truth held out where there is some, else by the truth of the fit, hidden item by item."""
    if not page.evidence.probabilities or not page.evidence.annotations.n_items:
        return None
    evidence, truth = page.evidence, measures.held_out_truth(page)
    held_out = bool((truth >= 0).any())
    if held_out and page.truth is None:  # the consensus was made without what the evidence knows
        evidence = replace(evidence, truth=None)
    try:
        return ModelProfiler().fit(evidence, page.consensus, truth=truth if held_out else None)
    except BadEvidence:  # the method does not judge by models
        return None


def _between(row: Any) -> str:
    return f"{models_plots.sure(row['from'])} to {models_plots.sure(row['to'])}"


def _row(name: Name, row: Any) -> TogetherRow:
    figures = [
        Accuracy(float(row[figure]), float(row[f"{figure}_low"]), float(row[f"{figure}_high"]))
        for figure in (*WHO, "people_add")
    ]
    return TogetherRow(name, float(np.round(row["items"])), *figures)
