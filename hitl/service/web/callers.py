"""Provide what routes need: the caller, and the project in the path."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.exceptions import HTTPException

from hitl.service.web.access import Caller, Role, requires
from hitl.service.web.projects import Watched
from hitl.service.web.snapshot import QuestionView, Snapshot

Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Lead = Annotated[Caller, Depends(requires(Role.LEAD))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]


def _watched(project: str, request: Request) -> Watched:
    found = request.app.state.projects.get(project)
    if found is None:
        raise HTTPException(404, f"no project {project!r} is served here")
    return found  # type: ignore[no-any-return]


def _snapshot(watched: Annotated[Watched, Depends(_watched)]) -> Snapshot:
    if watched.snapshot is None:
        said = watched.trouble or "it is being loaded; try again in a moment"
        raise HTTPException(503, f"project {watched.name!r} has nothing to show: {said}", {"Retry-After": "2"})
    return watched.snapshot


def may_act(caller: Caller, project: str) -> bool:
    """Return True if the caller is a lead of the project."""
    role = caller.role_in(project)
    return role is not None and role >= Role.LEAD


def question_of(snapshot: Snapshot, question: str | None) -> tuple[str, QuestionView]:
    """Return the name and view of a question; None: the first. Raises 404."""
    try:
        view = snapshot.view(question)
    except KeyError:
        names = ", ".join(map(repr, snapshot.views))
        raise HTTPException(404, f"no question {question!r} in this project; expected one of {names}") from None
    return view.page.name, view


QuestionName = Annotated[str | None, Query(description="One of the project's questions; else the first")]
OneProject = Annotated[Watched, Depends(_watched)]
Shown = Annotated[Snapshot, Depends(_snapshot)]
