"""List the projects, and show the state of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import Response

from hitl.metrics import outlook
from hitl.report.contents import Cycle
from hitl.report.plots import confidence_figure, history_figure
from hitl.report.stored import shares
from hitl.report.tables import class_rows
from hitl.service.web.callers import OneProject, Shown, Viewer
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.pages.items import CHANGED
from hitl.service.web.snapshot import QuestionView, Snapshot
from hitl.status import status_of

router = pages("projects")

COLUMNS = ("project", "items", "labels", "annotators", "done", "confidence", "cycle", "recorded_at", "trouble")

CLASSES_SHOWN = 12
MOST_QUEUES = 30


@router.get("/", summary="The projects", responses=FORMS | responses(401, 403, 422))
def projects(request: Request, caller: Viewer) -> Response:
    """Each project that the caller may see, and how it stands."""
    served = request.app.state.projects
    rows = [_line(name, one.snapshot, one.warning) for name, one in served.items() if caller.role_in(name) is not None]
    return answer(request, Page("projects.html.j2", "Projects", rows, COLUMNS), caller)


def _line(name: str, snapshot: Snapshot | None, trouble: str | None) -> dict[str, Any]:
    if snapshot is None:
        return {**dict.fromkeys(COLUMNS), "project": name, "trouble": trouble or "it is being loaded"}
    view = snapshot.view(None)
    last = snapshot.cycles[-1] if snapshot.cycles else None
    return {
        "project": name,
        "items": len(snapshot.keys),
        "labels": sum(len(each.evidence.annotations) for each in snapshot.views.values()),
        "annotators": snapshot.counts["annotators_with_labels"],
        "done": None if snapshot.plan is None else len(snapshot.plan.done),
        "confidence": float(view.consensus.confidence.mean()) if len(snapshot.keys) else None,
        "cycle": snapshot.number,
        "recorded_at": None if last is None else last.recorded_at.isoformat(timespec="seconds"),
        "trouble": trouble,
    }


@router.get("/projects/{project}", summary="How a project stands", responses=FORMS | responses(401, 404, 422, 503))
def overview(project: str, request: Request, caller: Viewer, one: OneProject, snapshot: Shown) -> Response:
    """Items done, expected accuracy, what is asked, what it has cost, and how it went."""
    status = status_of(snapshot.settings, one.store, stored=snapshot.counts)
    history = [Cycle(each.number, each.recorded_at, shares(each.metrics)) for each in snapshot.cycles]
    figures: dict[str, Any] = {}
    questions = []
    for rank, view in enumerate(snapshot.views.values(), start=1):
        figures[f"confidence-{rank}"] = confidence_figure(view.consensus.confidence, len(view.consensus.classes))
        questions.append(_question(rank, view))
    if len(history) > 1:
        figures["history"] = history_figure(history)
    page = Page(
        "overview.html.j2",
        "Overview",
        [{key: value for key, value in each.items() if key not in ("classes", "rank")} for each in questions],
        (),
        {"status": status.as_json()},
        {
            "questions": questions,
            "outlook": outlook(snapshot.cycles[-1].metrics) if snapshot.cycles else [],
            "line": _line(project, snapshot, one.warning),
            "queues": [queue for queue in status.queues if queue.annotator is not None][:MOST_QUEUES],
            "links": {} if status.pages is None else status.pages.links,
            "standing": status,
            "changed": CHANGED,
            "history": len(history) > 1,
        },
        figures,
    )
    return answer(request, page, caller, project)


@router.get("/projects/{project}/state", summary="Whether a project has news", responses=responses(401, 404))
def state(project: str, caller: Viewer, one: OneProject) -> dict[str, object]:
    """Return what differs when the pages of the project show something else; they ask for it while they are open."""
    work = None if one.work is None else one.work.ended
    return {"loads": one.loads, "warning": one.warning, "work": work}


def _question(rank: int, view: QuestionView) -> dict[str, Any]:
    consensus, annotations = view.consensus, view.evidence.annotations
    many = annotations.labels_per_item
    expected = view.expected
    agreed = float(np.mean(many[many > 0])) if (many > 0).any() else 0.0
    return {
        "rank": rank,
        "question": view.page.name,
        "items": len(consensus.items),
        "labels": len(annotations),
        "labels_per_labeled_item": agreed,
        "unlabeled": int((many == 0).sum()),
        "annotators": view.n_labeling,
        "contested": len(view.contested),
        "changed": int((view.changed > CHANGED).sum()),
        "confidence": float(consensus.confidence.mean()) if len(consensus.items) else None,
        "expected_accuracy": None if expected is None else expected.accuracy,
        "expected_low": None if expected is None else expected.low,
        "expected_high": None if expected is None else expected.high,
        "unknowable": None if expected is None else expected.unknowable,
        "classes": class_rows(view.page, CLASSES_SHOWN),
    }
