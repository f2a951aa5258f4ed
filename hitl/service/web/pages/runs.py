"""Show past runs, their metrics and failures, and pending changes; start a run by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.metrics import outlook
from hitl.service.web.callers import Lead, OneProject, Shown, Viewer, may_act
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.pages.deliveries import addresses_of
from hitl.service.web.work import begin
from hitl.status import status_of
from hitl.store.results import BASIS

router = pages("runs")

FIGURES = ("labels", "done", "items", "confidence", "agreement", "cost", "stop", "idle")
"""Metrics shown of each run."""


@router.get("/projects/{project}/runs", summary="Cycles", responses=FORMS | responses(401, 404, 422, 503))
def runs(project: str, request: Request, caller: Viewer, one: OneProject, snapshot: Shown) -> Response:
    """The history, newest first, and where the project stands now."""
    status = status_of(snapshot.settings, one.store, stored=snapshot.counts)
    rows = [_line(each) for each in reversed(snapshot.cycles)]
    shown: dict[str, Any] = {"standing": status, "work": one.work, "warning": one.warning}
    shown |= {"may_act": may_act(caller, project), "told": addresses_of(one)}
    return answer(
        request,
        Page("runs.html.j2", "Runs", rows, ("cycle", "recorded_at", *FIGURES), {"status": status.as_json()}, shown),
        caller,
        project,
    )


@router.get(
    "/projects/{project}/runs/{cycle}",
    summary="What a cycle recorded",
    responses=FORMS | responses(401, 404, 422, 503),
)
def recorded(
    project: str, request: Request, caller: Viewer, snapshot: Shown, cycle: Annotated[int, Path(ge=0, le=2**53)]
) -> Response:
    """Its figures, each by its name; those within another have the other's name before a point."""
    found = next((each for each in snapshot.cycles if each.number == cycle), None)
    if found is None:
        raise HTTPException(404, f"no cycle {cycle} of project {project!r} is kept")
    rows = [{"figure": name, "value": value} for name, value in _flat(found.metrics)]
    facts = {"cycle": cycle, "recorded_at": found.recorded_at.isoformat(timespec="seconds")}
    shown = {"words": outlook(found.metrics), "newest": cycle == snapshot.number}
    page = Page("cycle.html.j2", f"Cycle {cycle}", rows, ("figure", "value"), facts, shown)
    return answer(request, page, caller, project)


@router.post("/projects/{project}/runs", summary="Start a cycle", **begin.documented)
def run(project: str, request: Request, caller: Lead, one: OneProject) -> Response:
    """Pull, judge, record and push, as `hitl run` does."""
    return begin(request, one, "run", caller.name)


def _flat(metrics: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every metric with its name, except the digest of the run's inputs."""
    for name, value in metrics.items():
        if isinstance(value, Mapping) and name != BASIS:
            yield from _flat(value, f"{before}{name}.")
        elif name != BASIS:
            yield f"{before}{name}", value


def _line(cycle: Any) -> dict[str, Any]:
    figures = {name: cycle.metrics.get(name) for name in FIGURES if name != BASIS}
    return {"cycle": cycle.number, "recorded_at": cycle.recorded_at.isoformat(timespec="seconds"), **figures}
