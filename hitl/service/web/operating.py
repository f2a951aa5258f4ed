"""Serve endpoints for operators: liveness, readiness, metrics and the API description.

/healthz        the process responds
/readyz         every project has data to show, and background work is fine; else 503 with the reason
/metrics        Prometheus: requests, and the metrics of each project's last run (needs an API token)
/openapi.json   the API
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hitl.service.web.access import Caller, Role, public, requires
from hitl.service.web.callers import Viewer
from hitl.service.web.errors import responses
from hitl.service.web.projects import Projects
from hitl.status import last_of

router = APIRouter(tags=["operating"])

FIGURES = ("items", "done", "labels", "confidence", "agreement", "cost")
"""Metrics of a run that are single numbers."""

OTHERS = (
    "cycle",
    "cycle_timestamp_seconds",
    "finished_timestamp_seconds",
    "failed",
    "expected_accuracy",
    "pending_operations",
)
"""Other metrics of a project. `finished` includes runs that found nothing new; `failed` is 1 if the last run failed."""


@router.get("/healthz", summary="Is the process alive?")
@public
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", summary="Does it serve?", responses={503: {"description": "Not yet, or no longer"}})
@public
def readyz(request: Request) -> JSONResponse:
    """Whether every project has something to show, and what runs beside is well."""
    projects: Projects = request.app.state.projects
    lacking = sorted(name for name, one in projects.items() if one.snapshot is None)
    trouble = request.app.state.trouble()
    if lacking or trouble:
        return JSONResponse({"status": "not ready", "loading": len(lacking), "late": bool(trouble)}, 503)
    return JSONResponse({"status": "ok"})


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={**responses(401, 403), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request, caller: Annotated[Caller, Depends(requires(Role.VIEWER, everywhere=True))]) -> Response:
    """Requests and projects in the text format of Prometheus. It shows all projects: the role must be for all."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", summary="The API", include_in_schema=False)
def openapi(request: Request, caller: Viewer) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


def measure(registry: CollectorRegistry, projects: Projects) -> None:
    """Register a collector for these projects."""
    registry.register(_OfProjects(projects))


class _OfProjects(Collector):
    """Metrics of each project's last run, as gauges."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    def collect(self) -> Iterable[Any]:
        """Yield all gauges, read from the snapshots."""
        gauges = {
            name: GaugeMetricFamily(f"hitl_project_{name}", f"{name}, by the last cycle", labels=["project"])
            for name in (*FIGURES, *OTHERS)
        }
        for name, one in self._projects.items():
            for figure, value in _figures(one).items():
                gauges[figure].add_metric([name], value)
        return gauges.values()


def _figures(one: Any) -> dict[str, float]:
    snapshot, failed = one.snapshot, {"failed": float(one.store.failure(one.name) is not None)}
    if snapshot is None or not snapshot.cycles:
        return failed
    last = snapshot.cycles[-1]
    found = {name: float(last.metrics[name]) for name in FIGURES if isinstance(last.metrics.get(name), (int, float))}
    expected = last.metrics.get("expected")
    if isinstance(expected, dict) and isinstance(expected.get("accuracy"), (int, float)):
        found["expected_accuracy"] = float(expected["accuracy"])
    found |= {"cycle": last.number, "cycle_timestamp_seconds": last.recorded_at.timestamp()}
    finished = last_of([*(each.recorded_at for each in snapshot.cycles), one.store.looked_at(one.name)], time.time())
    if finished is not None:
        found["finished_timestamp_seconds"] = finished.timestamp()
    return found | failed | {"pending_operations": sum(one.store.count_pending(one.name).values())}
