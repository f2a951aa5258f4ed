"""Show how reliable each model is, and where it helps."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import Response

from hitl.models.analysis.complementarity import reliability
from hitl.report.models import ModelsSection, models_section
from hitl.report.plots import reliability_figure
from hitl.report.tables import model_rows
from hitl.service.web.callers import QuestionName, Shown, Viewer, question_of
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.snapshot import QuestionView

router = pages("models")

COLUMNS = ("model", "items", "agreement", "temperature", "verdict")

DISAGREEMENTS = 20
"""Maximum items shown where a model confidently disagrees with the consensus."""


@router.get("/projects/{project}/models", summary="Models", responses=FORMS | responses(401, 404, 422, 503))
def models(
    project: str,
    request: Request,
    caller: Viewer,
    snapshot: Shown,
    question: QuestionName = None,
) -> Response:
    """How often each model agrees with the labels, and how sure it is of itself."""
    name, view = question_of(snapshot, question)
    rows = [_line(view, row) for row in model_rows(view.page)]
    study = request.app.state.studies.of("models", project, view, together)
    shown = {
        "questions": list(snapshot.views),
        "busy": study.busy,
        "q": {"together": study.found, "id": "models"},
        "against": {row["model"]: _against(view, row["model"], snapshot.texts) for row in rows},
    }
    figures = _figures(view)
    if study.found is not None:
        figures |= {f"models-{part}": drawn for part, drawn in study.found.figures.items()}
    page = Page("models.html.j2", "Models", rows, COLUMNS, {"question": name}, shown, figures)
    return answer(request, page, caller, project)


def together(view: QuestionView) -> ModelsSection | None:
    """Return where models help annotators, and annotators models. None if no model contributes to the labels."""
    return models_section(view.page)


def _line(view: QuestionView, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": str(row["name"]),
        "items": int(row["items"]),
        "agreement": float(row["agreement"]),
        "temperature": float(row["temperature"]),
        "verdict": row["verdict"],
    }


def _figures(view: QuestionView) -> dict[str, Any]:
    """Plot, for items with labels, how often the consensus label is the model's, by the model's confidence."""
    labeled = np.diff(view.evidence.annotations.item_start) > 0
    lines = []
    for model, p_nj in view.evidence.probabilities.items():
        rows = labeled & ~np.isnan(p_nj[:, 0])
        if rows.any():
            same = p_nj[rows].argmax(axis=1) == view.consensus.labels[rows]
            lines.append((model, reliability(p_nj[rows].max(axis=1), same)))
    if not lines:
        return {}
    return {"reliability": reliability_figure(lines, "confidence of the model (%)", "same as the label (%)")}


def _against(view: QuestionView, model: str, texts: Any) -> list[dict[str, Any]]:
    """Return items with labels where the model disagrees with the consensus, most confident first."""
    p_nj = view.evidence.probabilities.get(model)
    if p_nj is None:
        return []
    consensus = view.consensus
    labeled = (np.diff(view.evidence.annotations.item_start) > 0) & ~np.isnan(p_nj[:, 0])
    own = np.where(labeled, np.nan_to_num(p_nj).argmax(axis=1), consensus.labels)
    rows = np.flatnonzero(own != consensus.labels)
    sure = p_nj[rows, own[rows]]
    return [
        {
            "item": str(consensus.items[n]),
            "text": texts[int(n)].as_py(),
            "model_says": str(consensus.classes[own[n]]),
            "probability": float(p_nj[n, own[n]]),
            "label": str(consensus.classes[consensus.labels[n]]),
            "confidence": float(consensus.confidence[n]),
        }
        for n in rows[np.argsort(-sure, kind="stable")][:DISAGREEMENTS]
    ]
