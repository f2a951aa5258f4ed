"""What the page says of annotators and models together: calibration, who is right where, what can skip annotators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hitl.errors import BadEvidence
from hitl.models.analysis.model_profile import ModelProfile, ModelProfiler
from hitl.report import measures, models_plots
from hitl.report.contents import QuestionPage
from hitl.report.plots import Figure

if TYPE_CHECKING:
    import pandas as pd

CLASSES = 20
"""Classes in the figure and the table: those where annotators add most."""


@dataclass(frozen=True, eq=False)
class ModelsSection:
    """What the template needs of one question's models.

    Attributes:
        profile: everything known of annotators and models together.
        classes: who is right on items of each class, those where annotators add most first.
        figures: by the last part of their id; they show the first CLASSES classes.
    """

    profile: ModelProfile
    classes: pd.DataFrame
    figures: dict[str, Figure]


def models_section(page: QuestionPage) -> ModelsSection | None:
    """The models of a question; None without a model, or where the method behind the labels takes none."""
    profile = _profile(page)
    if profile is None or not profile.best.items:
        return None
    account = profile.best
    classes = account.classes[account.classes["items"] >= 0.5]
    classes = classes.sort_values("people_add", ascending=False, kind="stable")
    figures = {
        "calibration": models_plots.calibration_figure(account.calibration),
        "by-class": models_plots.class_figure(classes[:CLASSES][::-1]),
        "by-confidence": models_plots.confidence_figure(account.confidence),
        "deferral": models_plots.deferral_figure(account.deferral),
    }
    return ModelsSection(profile, classes, figures)


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
