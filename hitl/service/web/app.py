"""Build the application: routers over the projects, with access control, errors and metrics around them.

    /                                  projects                 /login /account /admin/...   access
    /projects/{project}                overview                 /webhook/{project}           hints of the platform
    /projects/{project}/items ...      items, and one item      /ml/{project}/...            Label Studio's ML backend
    /projects/{project}/annotators     annotators, and one      /healthz /readyz /metrics    for operators
    /projects/{project}/team                                    /openapi.json                the API
    /projects/{project}/models  plan  runs

Requests read snapshots and never wait for the platform.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

import hitl
from hitl.service.web import access, assets, errors, operating
from hitl.service.web.access import routes as access_routes
from hitl.service.web.pages import annotators, deliveries, items, models, overview, plan, rework, runs, team, views
from hitl.service.web.projects import Projects
from hitl.service.web.requests import Measured, Surrounded
from hitl.service.web.studies import Studies
from hitl.service.web.templates import Templates

WHAT = """Labels, annotators and plans of hitl projects.

Give an API token as `Authorization: Bearer hitl_...` (`hitl tokens create`). Every page is an address: add
`?format=json` or `?format=csv`, or say so in the Accept header."""

Trouble = Callable[[], Mapping[str, object] | None]
"""Return what is wrong, or None if all is well."""


@dataclass(frozen=True)
class Parts:
    """Parts of an application.

    Attributes:
        projects: those that are served.
        accounts: users and tokens.
        routers: more routes: webhooks, events, the ML backend.
        collectors: more metrics for Prometheus.
        trouble: returns what is wrong with background work.
        starts, stops: called in order when it starts, and when it stops.
    """

    projects: Projects
    accounts: access.Accounts
    routers: Sequence[APIRouter] = ()
    collectors: Sequence[Collector] = ()
    trouble: Trouble = lambda: None
    starts: Sequence[Callable[[], object]] = ()
    stops: Sequence[Callable[[], object]] = ()


def application(parts: Parts) -> FastAPI:
    """Build the service from these parts. Raises if a route does not declare its access."""
    app = FastAPI(
        title="hitl",
        version=hitl.__version__,
        description=WHAT,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan(parts),
        generate_unique_id_function=lambda route: f"{route.name}_{'_'.join(sorted(route.methods or ())).lower()}",
    )
    registry = CollectorRegistry()
    app.state.accounts, app.state.projects = parts.accounts, parts.projects
    app.state.templates, app.state.registry, app.state.trouble = Templates(), registry, parts.trouble
    app.state.studies = Studies()
    operating.measure(registry, parts.projects)
    for collector in parts.collectors:
        registry.register(collector)
    errors.handle(app)
    pages = (overview, items, annotators, team, models, plan, rework, runs, deliveries, views)
    for router in (*(family.router for family in (operating, assets, access_routes, *pages)), *parts.routers):
        app.include_router(router)
    access.check_declared(app)
    app.add_middleware(Surrounded, measured=Measured(registry))
    return app


def _lifespan(parts: Parts) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for start in (*parts.starts, parts.projects.start):
            start()
        try:
            yield
        finally:
            for stop in (*parts.stops, app.state.studies.stop):
                stop()
            parts.projects.stop()

    return lifespan
