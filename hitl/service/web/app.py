"""The application: routers over the projects, with access, errors and measurements around them.

    /                                  projects                 /login /account /admin/...   access
    /projects/{project}                overview                 /webhook/{project}           hints of the platform
    /projects/{project}/items ...      items, and one item      /ml/{project}/...            Label Studio's ML backend
    /projects/{project}/annotators     annotators, and one      /healthz /readyz /metrics    for whoever runs it
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
from hitl.service.web.pages import annotators, deliveries, items, models, overview, plan, rework, runs, team
from hitl.service.web.projects import Projects
from hitl.service.web.requests import Measured, Surrounded
from hitl.service.web.studies import Studies
from hitl.service.web.templates import Templates

WHAT = """Labels, annotators and plans of hitl projects.

Give an API token as `Authorization: Bearer hitl_...` (`hitl tokens create`). Every page is an address: add
`?format=json` or `?format=csv`, or say so in the Accept header."""

Trouble = Callable[[], Mapping[str, object] | None]
"""What is wrong; None: all is well."""


@dataclass(frozen=True)
class Parts:
    """What an application is put together from.

    Attributes:
        projects: those that are served.
        accounts: who may come in.
        routers: more routes: webhooks, events, the ML backend.
        collectors: more figures for Prometheus.
        trouble: what is wrong with what runs beside it.
        starts, stops: called when it starts, and when it stops, in order.
    """

    projects: Projects
    accounts: access.Accounts
    routers: Sequence[APIRouter] = ()
    collectors: Sequence[Collector] = ()
    trouble: Trouble = lambda: None
    starts: Sequence[Callable[[], object]] = ()
    stops: Sequence[Callable[[], object]] = ()


def application(parts: Parts) -> FastAPI:
    """The service over these parts. Raises where a route does not say who may use it."""
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
    pages = (overview, items, annotators, team, models, plan, rework, runs, deliveries)
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
