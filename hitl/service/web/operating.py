"""Serve endpoints for operators, and the files that pages load.

/healthz        the process responds
/readyz         every project has data to show, and background work is fine; else 503 with the reason
/metrics        Prometheus: requests, and figures of each project (needs an API token)
/openapi.json   the API
/static/...     styles and scripts; some are shared with reports
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from hitl.service import log
from hitl.service.web.access.guard import public, requires
from hitl.service.web.access.roles import Caller, Role
from hitl.service.web.projects import Projects, Watched
from hitl.service.web.responses import responses
from hitl.status import last_of

router = APIRouter(tags=["operating"])
_log = logging.getLogger("hitl.serve")

FIGURES = ("items", "done", "labels", "confidence", "agreement", "cost")  # metrics of a run that are single numbers

HELP = {
    "project_items": "Items of the project at its last run.",
    "project_done": "Items done at the last run.",
    "project_labels": "Labels at the last run.",
    "project_confidence": "Mean confidence of the labels at the last run, 0 to 1.",
    "project_agreement": "Agreement of annotators at the last run, 0 to 1.",
    "project_cost": "Cost of all labels at the last run, in the unit of crew.cost.",
    "project_expected_accuracy": "Share of labels believed to be right at the last run, 0 to 1.",
    "project_failed": "1 if the last run failed, else 0.",
    "project_cycle": "Number of the last recorded run.",
    "project_cycle_timestamp_seconds": "Time of the last recorded run, in seconds since 1970.",
    "project_finished_timestamp_seconds": "End of the last run that succeeded, in seconds since 1970.",
    "project_pending_operations": "Operations that have not been sent to the platform yet.",
    "live_loads_total": "Times that hitl serve has loaded the project's pages from the store.",
    "live_load_seconds": "Seconds that the last such load took.",
    "live_pulls_total": "Successful pulls from the platform by hitl serve between runs.",
    "live_failures_total": "Failed pulls from the platform by hitl serve between runs, after all retries.",
    "live_pull_seconds": "Seconds that the last such pull took.",
    "live_pulled_timestamp_seconds": "Time of the last such pull, in seconds since 1970; 0: none yet.",
    "events_delivered_total": "Events that this address has accepted.",
    "events_failed_total": "Events to this address that were given up.",
    "events_waiting": "Events to this address that are still to be sent.",
}
"""Metric without hitl_ -> its meaning."""

FILES = {
    "service.css": "text/css",
    "service.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "page.css": "text/css",
    "figures.js": "text/javascript",
}
OF_REPORTS = {"page.css": "page.css", "figures.js": "figures.js.j2"}
"""Name -> file of `hitl.report`. Pages and reports look alike, and one script draws the figures of both."""


NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "Not yet, or no longer", "content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.get("/healthz", summary="Is the process alive?")
@public
def healthz() -> dict[str, str]:
    """Confirm that the process answers."""
    return {"status": "ok"}


@router.get("/readyz", summary="Does it serve?", responses=NOT_READY)
@public
def readyz(request: Request) -> JSONResponse:
    """Check that every project has something to show, and that background work is fine.

    Names of projects are not for everybody, so they go to the log.
    """
    waiting = [name for name, one in request.app.state.projects.items() if one.snapshot is None]
    loading, trouble = len(waiting), request.app.state.trouble()
    why = {key: value for key, value in (trouble or {}).items() if key != "status"} | {"loading": waiting}
    if why != request.app.state.last_trouble:
        request.app.state.last_trouble = why
        ready = not (loading or trouble)
        log.event(_log, "ready" if ready else "not ready", logging.INFO if ready else logging.WARNING, **why)
    if loading or trouble:
        return JSONResponse({"status": "not ready", "loading": loading, "late": bool(trouble)}, 503)
    return JSONResponse({"status": "ok"})


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={**responses(401, 403), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request, caller: Annotated[Caller, Depends(requires(Role.VIEWER, everywhere=True))]) -> Response:
    """Show figures of requests and projects. It shows all projects, so the role must be for all."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", summary="The API", include_in_schema=False)
def openapi(request: Request, caller: Annotated[Caller, Depends(requires(Role.VIEWER))]) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/static/{name}", include_in_schema=False)
@public
def static(name: str, request: Request) -> Response:
    """Return a file; the browser stores it for an hour."""
    if name not in FILES:
        raise HTTPException(404, f"no file {name!r} here")
    body, tag = _file(name)
    headers = {"ETag": tag, "Cache-Control": "max-age=3600"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=FILES[name], headers=headers)


@cache
def _file(name: str) -> tuple[bytes, str]:
    """Return the content of a file and its tag."""
    of_report = OF_REPORTS.get(name)
    folder = files("hitl.report") if of_report else files("hitl.service.web").joinpath("static")
    body = folder.joinpath(of_report or name).read_bytes()
    if name == "figures.js":
        body = b'"use strict";\n' + body + b"\nwindow.drawFigure = drawFigure;\n"
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'


class ProjectFigures(Collector):
    """Figures of each project for Prometheus: last run, pulls, loads, and events."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family per figure."""
        families: dict[str, Any] = {}

        def add(name: str, value: float, **labels: str) -> None:
            family: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = family(f"hitl_{name.removesuffix('_total')}", HELP[name], labels=list(labels))
            families.setdefault(name, metric).add_metric(list(labels.values()), value)

        for name, one in self._projects.items():
            for figure, value in _run_figures(one).items():
                add(f"project_{figure}", value, project=name)
            live = {"loads_total": one.loads, "load_seconds": one.load_seconds}
            for figure, value in (live | (one.loop.figures if one.loop is not None else {})).items():
                add(f"live_{figure}", value, project=name)
            for row in one.addresses:
                for figure, end in (("delivered", "_total"), ("failed", "_total"), ("waiting", "")):
                    add(f"events_{figure}{end}", row[figure], project=name, address=row["address"])
        yield from families.values()


def _run_figures(one: Watched) -> dict[str, float]:
    """Return figures of the last run. `finished` includes runs that found nothing new."""
    snapshot, figures = one.snapshot, {"failed": float(one.store.failure(one.name) is not None)}
    if snapshot is None or not snapshot.cycles:
        return figures
    last = snapshot.cycles[-1]
    expected = last.metrics.get("expected") or {}
    numbers = {name: last.metrics.get(name) for name in FIGURES} | {"expected_accuracy": expected.get("accuracy")}
    figures |= {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    figures |= {"cycle": last.number, "cycle_timestamp_seconds": last.recorded_at.timestamp()}
    times = [*(each.recorded_at for each in snapshot.cycles), one.store.looked_at(one.name)]
    if (finished := last_of(times, time.time())) is not None:
        figures["finished_timestamp_seconds"] = finished.timestamp()
    figures["pending_operations"] = sum(one.store.count_pending(one.name).values())
    return figures
