"""Show how reliable each model is, and where it helps."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi.responses import Response

from hitl.models.analysis.complementarity import reliability
from hitl.report.measures import model_rows
from hitl.report.models import ModelsSection, models_section
from hitl.report.plots import reliability_figure
from hitl.service.web.snapshot import QuestionView
from hitl.service.web.visits import PAGE, QuestionName, Viewing, pages

router = pages("models")

COLUMNS = ("model", "items", "agreement", "temperature", "verdict")

DISAGREEMENTS = 20  # maximum items shown where a model confidently disagrees with the consensus


@router.get("/projects/{project}/models", summary="Models", responses=PAGE)
def models(visit: Viewing, question: QuestionName = None) -> Response:
    """Show how often each model agrees with the labels, and its confidence."""
    name, view = visit.view(question)
    rows = [dict(zip(COLUMNS, _cells(row), strict=True)) for row in model_rows(view.page)]
    study = visit.request.app.state.studies.of("models", visit.one.name, view, together)
    drawn = {} if study.result is None else study.result.figures
    return visit.page(
        "models.html.j2",
        "Models",
        rows,
        COLUMNS,
        {"question": name},
        figures=_figures(view) | {f"models-{part}": figure for part, figure in drawn.items()},
        busy=study.busy,
        q={"together": study.result, "id": "models"},
        against={row["model"]: _against(view, row["model"], visit.snapshot.texts) for row in rows},
    )


def together(view: QuestionView) -> ModelsSection | None:
    """Return where models help annotators and annotators help models. None if no model contributes to the labels."""
    return models_section(view.page)


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return str(row["name"]), int(row["items"]), float(row["agreement"]), float(row["temperature"]), row["verdict"]


def _figures(view: QuestionView) -> dict[str, Any]:
    """Plot how often the model's label is the consensus label, by the model's confidence, for items with labels."""
    labeled, lines = view.evidence.annotations.labels_per_item > 0, []
    for model, p_nj in view.evidence.probabilities.items():
        rows = labeled & ~np.isnan(p_nj[:, 0])
        if rows.any():
            same = p_nj[rows].argmax(axis=1) == view.consensus.codes[rows]
            lines.append((model, reliability(p_nj[rows].max(axis=1), same)))
    figure = reliability_figure(lines, "confidence of the model (%)", "same as the label (%)") if lines else None
    return {} if figure is None else {"reliability": figure}


def _against(view: QuestionView, model: str, texts: Any) -> list[dict[str, Any]]:
    """Return items with labels where the model disagrees with the consensus, most confident first."""
    consensus, p_nj = view.consensus, view.evidence.probabilities.get(model)
    if p_nj is None:
        return []
    labeled = (view.evidence.annotations.labels_per_item > 0) & ~np.isnan(p_nj[:, 0])
    own = np.where(labeled, np.nan_to_num(p_nj).argmax(axis=1), consensus.codes)
    rows = np.flatnonzero(own != consensus.codes)
    return [
        {
            "item": str(consensus.items[n]),
            "text": texts[int(n)].as_py(),
            "model_says": str(consensus.classes[own[n]]),
            "probability": float(p_nj[n, own[n]]),
            "label": str(consensus.classes[consensus.codes[n]]),
            "confidence": float(consensus.confidence[n]),
        }
        for n in rows[np.argsort(-p_nj[rows, own[rows]], kind="stable")][:DISAGREEMENTS]
    ]
