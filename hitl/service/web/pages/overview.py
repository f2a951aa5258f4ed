"""List the projects, and show the state of one, its runs, and the events sent for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Path, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.metrics import outlook
from hitl.report.contents import Cycle
from hitl.report.measures import class_rows
from hitl.report.plots import confidence_figure, history_figure
from hitl.report.stored import shares
from hitl.service.web import background
from hitl.service.web.access.guard import requires
from hitl.service.web.access.roles import Caller, Role
from hitl.service.web.pages.items import CHANGED
from hitl.service.web.pages.people import team_of, to_talk_to
from hitl.service.web.projects import Watched
from hitl.service.web.responses import responses
from hitl.service.web.snapshot import QuestionView
from hitl.service.web.visits import ACTION, PAGE, Leading, Size, Viewing, page, pages
from hitl.status import status_of
from hitl.store.results import BASIS

router = pages("projects")

COLUMNS = ("project", "items", "labels", "annotators", "done", "confidence", "cycle", "recorded_at", "trouble")
RUN = ("cycle", "recorded_at", "labels", "done", "items", "confidence", "agreement", "cost", "stop", "idle")
DELIVERY = ("event", "kind", "at", "address", "state", "attempts", "tried", "next", "said")
"""Columns of a project, a run and a delivery."""

CLASSES_SHOWN = 12
MOST_QUEUES = 30


@router.get("/", summary="The projects", responses=PAGE)
def projects(request: Request, caller: Annotated[Caller, Depends(requires(Role.VIEWER))]) -> Response:
    """Show each project that the caller may see, and its state."""
    served = request.app.state.projects
    rows = [_line(one) for name, one in served.items() if caller.role_in(name) is not None]
    return page(request, caller, "projects.html.j2", "Projects", rows, COLUMNS)


@router.get("/projects/{project}", summary="How a project stands", responses=PAGE)
def overview(visit: Viewing) -> Response:
    """Show items done, believed accuracy, open questions, cost and history."""
    snapshot = visit.snapshot
    status = status_of(snapshot.settings, visit.one.store, stored=snapshot.counts)
    history = [Cycle(each.number, each.recorded_at, shares(each.metrics)) for each in snapshot.cycles]
    views = list(snapshot.views.values())
    rows = [_question(view) for view in views]
    figures: dict[str, Any] = {"history": history_figure(history)} if len(history) > 1 else {}
    shown = []
    for rank, (view, row) in enumerate(zip(views, rows, strict=True), start=1):
        figures[f"confidence-{rank}"] = confidence_figure(view.consensus.confidence, len(view.consensus.classes))
        shown.append({**row, "rank": rank, "classes": class_rows(view.page, CLASSES_SHOWN)})
    last = snapshot.cycles[-1].metrics if snapshot.cycles else {}
    studies = [visit.request.app.state.studies.of("team", visit.one.name, view, team_of) for view in views]
    ready = [(view, study.result.section) for view, study in zip(views, studies, strict=True) if study.result]
    people = to_talk_to(ready)
    return visit.page(
        "overview.html.j2",
        "Overview",
        rows,
        (),
        {"status": status.as_json()},
        figures=figures,
        questions=shown,
        outlook=outlook(snapshot.cycles[-1].metrics) if snapshot.cycles else [],
        line=_line(visit.one),
        queues=[queue for queue in status.queues if queue.annotator is not None][:MOST_QUEUES],
        links={} if status.pages is None else status.pages.links,
        heading=(status.pages and status.pages.title) or visit.one.name,
        standing=status,
        summary=status.summary(),
        progress={name or views[0].page.name: one for name, one in last.get("questions", {}).items()},
        people=people,
        last_models=bool(last.get("models")),
        training=bool(ready),
        changed=CHANGED,
        history=len(history) > 1,
    )


@router.get("/projects/{project}/state", summary="Whether a project has news", responses=responses(401, 403, 404, 422))
def state(visit: Viewing) -> dict[str, object]:
    """Return what differs when the pages of the project show something else. Open pages poll it."""
    one = visit.one
    return {"loads": one.loads, "warning": one.warning, "work": None if one.work is None else one.work.ended}


@router.get("/projects/{project}/runs", summary="Runs", responses=PAGE)
def runs(visit: Viewing) -> Response:
    """Show the history, newest first, the present state, and how the work that a lead started last goes (`work`)."""
    snapshot, one = visit.snapshot, visit.one
    status = status_of(snapshot.settings, one.store, stored=snapshot.counts)
    rows = [
        {"cycle": each.number, "recorded_at": _time(each), **{name: each.metrics.get(name) for name in RUN[2:]}}
        for each in reversed(snapshot.cycles)
    ]
    shown = {"standing": status, "work": one.work, "warning": one.warning, "told": one.addresses}
    facts = {"status": status.as_json(), "work": None if one.work is None else vars(one.work)}
    return visit.page("runs.html.j2", "Runs", rows, RUN, facts, **shown)


@router.get("/projects/{project}/runs/{cycle}", summary="One run", responses=PAGE)
def recorded(visit: Viewing, cycle: Annotated[int, Path(ge=0, le=2**53)]) -> Response:
    """Show its figures by name. Those within another have the other's name before a point."""
    run = next((each for each in visit.snapshot.cycles if each.number == cycle), None)
    if run is None:
        raise HTTPException(404, f"project {visit.one.name!r}: no run {cycle} is stored")
    rows = [{"figure": name, "value": value} for name, value in _flat(run.metrics)]
    facts = {"cycle": cycle, "recorded_at": _time(run)}
    shown = {"words": outlook(run.metrics), "newest": cycle == visit.snapshot.number}
    return visit.page("cycle.html.j2", f"Run {cycle}", rows, ("figure", "value"), facts, **shown)


@router.post("/projects/{project}/runs", summary="Start a run", status_code=202, responses=ACTION)
def run(visit: Leading) -> Response:
    """Pull, judge, record and push, as `hitl run` does. `work` of `GET` says how it goes and ends."""
    return visit.done("runs", vars(background.start(visit.one, "run", visit.caller.name)), 202)


@router.get("/projects/{project}/deliveries", summary="What chat tools and pipelines were told", responses=PAGE)
def deliveries(visit: Viewing, size: Size = 100) -> Response:
    """Show the last deliveries, newest event first, and the counts of each address."""
    rows = [each.as_json() for each in visit.one.store.deliveries(visit.one.name, size)]
    return visit.page("deliveries.html.j2", "Events", rows, DELIVERY, {"addresses": visit.one.addresses})


def _line(one: Watched) -> dict[str, Any]:
    snapshot = one.snapshot
    if snapshot is None:
        return {**dict.fromkeys(COLUMNS), "project": one.name, "trouble": one.warning or "it is being loaded"}
    return {
        "project": one.name,
        "items": len(snapshot.keys),
        "labels": snapshot.counts["labels"],
        "annotators": snapshot.counts["annotators_with_labels"],
        "done": None if snapshot.plan is None else len(snapshot.plan.done),
        "confidence": float(snapshot.view(None).consensus.confidence.mean()) if snapshot.keys else None,
        "cycle": snapshot.number,
        "recorded_at": _time(snapshot.cycles[-1]) if snapshot.cycles else None,
        "trouble": one.warning,
    }


def _question(view: QuestionView) -> dict[str, Any]:
    consensus, annotations, expected = view.consensus, view.evidence.annotations, view.expected
    many = annotations.labels_per_item
    return {
        "question": view.page.name,
        "items": len(consensus.items),
        "labels": len(annotations),
        "labels_per_labeled_item": float(np.mean(many[many > 0])) if (many > 0).any() else 0.0,
        "unlabeled": int((many == 0).sum()),
        "annotators": view.n_labeling,
        "contested": int(view.is_contested.sum()),
        "changed": int((view.changed > CHANGED).sum()),
        "confidence": float(consensus.confidence.mean()) if len(consensus.items) else None,
        "expected_accuracy": None if expected is None else expected.accuracy,
    }


def _flat(metrics: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every metric with its name, except the digest of the run's inputs."""
    for name, value in metrics.items():
        if name == BASIS:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _time(cycle: Any) -> str:
    return str(cycle.recorded_at.isoformat(timespec="seconds"))
