"""Collect the access that each route declares. A route that declares none is an error at startup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import BaseRoute

from hitl.errors import BadSettings
from hitl.service.web.access.roles import Role

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_PUBLIC = "hitl_public"
_REQUIRED = "hitl_required"


def public(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint, or a mounted application, as open to everybody."""
    setattr(endpoint, _PUBLIC, True)
    return endpoint


def marked(dependency: Endpoint, role: Role, everywhere: bool = False) -> Endpoint:
    """Mark a dependency that requires at least this role; `everywhere`: in all projects."""
    setattr(dependency, _REQUIRED, (role, everywhere or role > Role.VIEWER))
    return dependency


@dataclass(frozen=True, slots=True)
class Declared:
    """Declared access of a route. `role` None: open to everybody.

    Attributes:
        path: as declared, with parameters such as `{project}`.
        everywhere: if the path names no project, the role is required in all projects instead of in any.
        mounted: the path is a whole application, such as static files.
    """

    path: str
    methods: tuple[str, ...]
    role: Role | None
    everywhere: bool = False
    mounted: bool = False

    @property
    def of_project(self) -> bool:
        """True if the role is required in the project that the path names."""
        return "{project}" in self.path or "{project:" in self.path


def check_declared(app: FastAPI) -> None:
    """Raise BadSettings naming the routes that have neither `requires(...)` nor `@public`, or both."""
    declared(app)


def declared(app: FastAPI) -> list[Declared]:
    """Return the access of every route, in order of the routes. Raises BadSettings as `check_declared` does."""
    found: list[Declared] = []
    wrong: list[str] = []
    for path, route in _walk(app.routes, ""):
        try:
            found.append(_of_route(path, route))
        except BadSettings as error:
            wrong.append(str(error))
    if getattr(app.router, "_low_priority_routes", ()):  # routes of `FastAPI.frontend`
        wrong.append("a frontend: it cannot say who may see it; mount it")
    if wrong:
        raise BadSettings("access: " + "; ".join(wrong))
    return found


def _walk(routes: Sequence[BaseRoute], prefix: str) -> Iterator[tuple[str, RouteContext]]:
    """Yield every route with its full path, including those of mounted applications that are not public as a whole."""
    for route in iter_route_contexts(routes):
        path, inner = prefix + (route.path or ""), getattr(route, "app", None)
        routes_within = getattr(inner, "routes", None)
        if isinstance(route.original_route, APIRoute) or routes_within is None or getattr(inner, _PUBLIC, False):
            yield path, route
        else:
            yield from _walk(routes_within, path)


def _of_route(path: str, route: RouteContext) -> Declared:
    if not isinstance(route.original_route, APIRoute):
        opened = getattr(route, "app", None) if route.endpoint is None else route.endpoint
        if not getattr(opened, _PUBLIC, False):
            raise BadSettings(f"{path}: it is no route of FastAPI, so that it must be marked as public")
        return Declared(path, tuple(sorted(route.methods or ("GET",))), None, mounted=route.endpoint is None)
    asked = list(_required(route.dependant))
    is_public = getattr(route.endpoint, _PUBLIC, False)
    if bool(asked) == is_public:
        both = "has both requires(...) and @public" if is_public else "has neither requires(...) nor @public"
        raise BadSettings(f"{path}: {both}; expected one of them")
    role, everywhere = max((role for role, _ in asked), default=None), any(everywhere for _, everywhere in asked)
    made = Declared(path, tuple(sorted(route.methods or ())), role, everywhere)
    if role is not None and not made.of_project and not everywhere and _names_project(route.dependant):
        raise BadSettings(f"{path}: its project is no part of the path, so that no role in it is asked for")
    return made


def _required(dependant: Dependant) -> Iterator[tuple[Role, bool]]:
    """Yield the roles that a route's dependencies require, recursively, and whether in all projects."""
    for inner in dependant.dependencies:
        asked = getattr(inner.call, _REQUIRED, None)
        if asked is not None:
            yield asked
        yield from _required(inner)


def _names_project(dependant: Dependant) -> bool:
    given = (*dependant.query_params, *dependant.body_params, *dependant.header_params, *dependant.cookie_params)
    return any(field.alias == "project" for field in given)
