"""What each route of an application asks of its caller; a route that does not say so is an error at the start."""

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
    """Marks an endpoint, or an application that is mounted, as open to everybody."""
    setattr(endpoint, _PUBLIC, True)
    return endpoint


def marked(dependency: Endpoint, role: Role, everywhere: bool = False) -> Endpoint:
    """A dependency that lets in callers of at least this role; `everywhere`: in all projects."""
    setattr(dependency, _REQUIRED, (role, everywhere or role > Role.VIEWER))
    return dependency


@dataclass(frozen=True, slots=True)
class Declared:
    """What a route says of its access. `role` None: it is open to everybody.

    Attributes:
        path: as it was declared, with `{project}` and others to fill in.
        everywhere: where the path names no project, the role is asked for in all of them, not in any.
        mounted: a whole application behind the path, such as static files.
    """

    path: str
    methods: tuple[str, ...]
    role: Role | None
    everywhere: bool = False
    mounted: bool = False

    @property
    def of_project(self) -> bool:
        """Whether the role is asked for in the project that the path names."""
        return "{project}" in self.path or "{project:" in self.path


def check_declared(app: FastAPI) -> None:
    """Raise BadSettings naming the routes that have neither `requires(...)` nor `@public`, or both."""
    declared(app)


def declared(app: FastAPI) -> list[Declared]:
    """The access of every route, in the order of the routes. Raises BadSettings as `check_declared` does."""
    found: list[Declared] = []
    wrong: list[str] = []
    for path, route in _walk(app.routes, ""):
        try:
            found.append(_of_route(path, route))
        except BadSettings as error:
            wrong.append(str(error))
    if getattr(app.router, "_low_priority_routes", ()):  # what `FastAPI.frontend` serves
        wrong.append("a frontend: it cannot say who may see it; mount it")
    if wrong:
        raise BadSettings("access: " + "; ".join(wrong))
    return found


def _walk(routes: Sequence[BaseRoute], prefix: str) -> Iterator[tuple[str, RouteContext]]:
    """Every route with its whole path; those of a mounted application in its place, unless it is public as a whole."""
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
    """The roles that a route's dependencies ask for, and theirs, and whether in all projects."""
    for inner in dependant.dependencies:
        asked = getattr(inner.call, _REQUIRED, None)
        if asked is not None:
            yield asked
        yield from _required(inner)


def _names_project(dependant: Dependant) -> bool:
    given = (*dependant.query_params, *dependant.body_params, *dependant.header_params, *dependant.cookie_params)
    return any(field.alias == "project" for field in given)
