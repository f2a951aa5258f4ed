"""Show annotators: their accuracy by class, and one page each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.service.web.callers import QuestionName, Shown, Viewer, question_of
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.snapshot import QuestionView
from hitl.service.web.templates import named

router = pages("annotators")

Sort = Literal["labels", "accuracy", "worst", "name"]

COLUMNS = ("annotator", "labels", "accuracy", "low", "high", "bits", "typical_error")

ANSWER = ("item", "text", "said", "label", "confidence")
"""Columns of an answer that the consensus contradicts."""

DRIFT_BINS = 8
CELLS = 30
"""Maximum classes shown of a confusion matrix."""


@router.get("/projects/{project}/annotators", summary="Annotators", responses=FORMS | responses(401, 404, 422, 503))
def annotators(
    project: str,
    request: Request,
    caller: Viewer,
    snapshot: Shown,
    question: QuestionName = None,
    q: Annotated[str, Query(max_length=200, description="Part of a name")] = "",
    sort: Annotated[Sort, Query(description="What comes first")] = "labels",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """How accurate each annotator is, how sure that is, and their typical error."""
    name, view = question_of(snapshot, question)
    found = _order(view, sort)
    if q:
        part = q.casefold()
        found = np.array([k for k in found if part in str(view.consensus.annotators.names[k]).casefold()], np.intp)
    rows = [line(view, int(k)) for k in found[(page - 1) * size : page * size]]
    facts = {"question": name, "found": len(found), "page": page, "pages": max(1, -(-len(found) // size))}
    given = {
        "question": question,
        "q": q,
        "sort": None if sort == "labels" else sort,
        "size": None if size == 50 else size,
    }
    chance = 1 / max(len(view.consensus.classes), 1)
    shown = {"given": given, "sort": sort, "q": q, "questions": list(snapshot.views), "chance": chance}
    return answer(request, Page("annotators.html.j2", "Annotators", rows, COLUMNS, facts, shown), caller, project)


@router.get(
    "/projects/{project}/annotators/{annotator:named}",
    summary="The story of one annotator",
    responses=FORMS | responses(401, 404, 422, 503),
)
def annotator(
    project: str,
    annotator: str,
    request: Request,
    caller: Viewer,
    snapshot: Shown,
    question: QuestionName = None,
) -> Response:
    """What each true class is answered with, how that changed, and the items where the consensus says otherwise."""
    name, view = question_of(snapshot, question)
    annotator = named(annotator)
    report = view.consensus.annotators
    k = view.reported_place.get(annotator)
    asks = [ask for ask in (snapshot.plan.asks if snapshot.plan else ()) if str(ask.annotator) == annotator]
    if k is None:
        if not asks and annotator not in map(str, snapshot.settings.crew.annotators):
            raise HTTPException(404, f"no annotator {annotator!r} in project {project!r}")
        new = {"annotator": {"annotator": annotator, "labels": 0}, "question": name, "confusion": []}
        return answer(
            request, Page("annotator_new.html.j2", annotator, (), ANSWER, new, {"asks": asks}), caller, project
        )
    cells = confusion(view, k)
    disagreed = [_answer(view, int(place), snapshot.texts) for place in disagreements(view, annotator)[:50]]
    facts = {"annotator": line(view, k), "question": name, "confusion": cells}
    parts = over_time(view, annotator)
    shown = {
        "classes": list(map(str, report.classes)),
        "cells": CELLS,
        "options": list(map(str, report.options)),
        "disagreed": disagreed,
        "questions": list(snapshot.views),
        "asks": asks,
        "over_time": parts,
    }
    page = Page("annotator.html.j2", annotator, disagreed, ANSWER, facts, shown, _drift_figure(parts))
    return answer(request, page, caller, project)


def line(view: QuestionView, k: int) -> dict[str, Any]:
    """Return the table row of one annotator."""
    report = view.consensus.annotators
    low, high = report.interval
    true, said, often = view.typical_confusions
    typical = None
    if report.labels[k] and often[k] >= 0.005:
        typical = {"true": str(report.classes[true[k]]), "said": str(report.options[said[k]]), "often": float(often[k])}
    return {
        "annotator": str(report.names[k]),
        "labels": int(report.labels[k]),
        "accuracy": float(report.accuracy[k]),
        "low": float(low[k]),
        "high": float(high[k]),
        "bits": float(view.bits[k]),
        "typical_error": typical,
    }


def confusion(view: QuestionView, k: int) -> list[dict[str, Any]]:
    """Return a row per true class: the probability of each option, and label counts with the consensus as truth."""
    report, annotations = view.consensus.annotators, view.evidence.annotations
    code = view.annotator_place.get(str(report.names[k]))
    counts = np.zeros((len(report.classes), len(report.options)))
    if code is not None:
        rows = view.rows_of(code)
        np.add.at(counts, (view.consensus.labels[annotations.item[rows]], annotations.label[rows]), 1)
    return [
        {
            "true": str(name),
            "labels": int(counts[j].sum()),
            "said": [
                {"option": str(option), "share": float(report.confusion[k, j, s]), "labels": int(counts[j, s])}
                for s, option in enumerate(report.options[:CELLS])
            ],
        }
        for j, name in enumerate(report.classes[:CELLS])
    ]


def disagreements(view: QuestionView, annotator: str) -> np.ndarray[Any, Any]:
    """Return indices of the annotator's answers that the consensus contradicts, most confident consensus first."""
    code = view.annotator_place.get(annotator)
    if code is None:
        return np.zeros(0, np.intp)
    annotations, consensus = view.evidence.annotations, view.consensus
    rows = view.rows_of(code)
    items = annotations.item[rows]
    wrong = annotations.label[rows] != consensus.labels[items]
    order = np.argsort(-consensus.confidence[items[wrong]], kind="stable")
    found: np.ndarray[Any, Any] = rows[wrong][order]
    return found


def over_time(view: QuestionView, annotator: str) -> list[dict[str, float]]:
    """Return agreement with the consensus in equal parts of the annotator's answers, oldest first; [] without times."""
    annotations = view.evidence.annotations
    code = view.annotator_place.get(annotator)
    if code is None or annotations.time is None:
        return []
    rows = view.rows_of(code)
    rows = rows[np.isfinite(annotations.time[rows])]
    if len(rows) < 2 * DRIFT_BINS:
        return []
    rows = rows[np.argsort(annotations.time[rows], kind="stable")]
    agreed = annotations.label[rows] == view.consensus.labels[annotations.item[rows]]
    parts = np.array_split(np.arange(len(rows)), DRIFT_BINS)
    return [
        {
            "time": float(annotations.time[rows[part]].mean()),
            "agreement": float(agreed[part].mean()),
            "labels": len(part),
        }
        for part in parts
    ]


def _drift_figure(parts: list[dict[str, float]]) -> dict[str, Any]:
    from hitl.annotations import Floats
    from hitl.report.contents import Curve
    from hitl.report.plots import curves_figure

    if not parts:
        return {}
    through: Floats = np.cumsum([part["labels"] for part in parts]).astype(float)
    value = np.array([part["agreement"] for part in parts])
    spread = 1.96 * np.sqrt(np.maximum(value * (1 - value), 0.01) / np.array([part["labels"] for part in parts]))
    curve = Curve("agreement", through, value, np.clip(value - spread, 0, 1), np.clip(value + spread, 0, 1))
    return {"drift": curves_figure([curve], "agreement with the consensus (%)", "labels given, oldest first")}


def _answer(view: QuestionView, place: int, texts: Any) -> dict[str, Any]:
    annotations, consensus = view.evidence.annotations, view.consensus
    n = int(annotations.item[place])
    return {
        "item": str(consensus.items[n]),
        "text": texts[n].as_py(),
        "said": str(annotations.options[annotations.label[place]]),
        "label": str(consensus.classes[consensus.labels[n]]),
        "confidence": float(consensus.confidence[n]),
    }


def _order(view: QuestionView, sort: Sort) -> Any:
    report = view.consensus.annotators
    if sort == "accuracy":
        return np.argsort(-report.accuracy, kind="stable")
    if sort == "worst":
        labeled = np.flatnonzero(report.labels > 0)
        return labeled[np.argsort(report.accuracy[labeled], kind="stable")]
    if sort == "name":
        return np.array(sorted(range(len(report.names)), key=lambda k: str(report.names[k])), np.intp)
    return np.argsort(-report.labels, kind="stable")
