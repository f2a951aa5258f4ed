"""Serve Label Studio's model backend: five routes under /ml/<project>, as Label Studio 1.23 calls them.

    GET  /health     before each prediction                        {"status": "UP", "model_class": "hitl"}
    POST /setup      before each prediction                        {"model_version": "..."}
    POST /predict    a task that is opened, or a batch             {"results": [...]}, one entry per task, in order
    GET  /versions   available versions                            {"versions": ["..."]}
    POST /webhook    any event in the project, unrequested         {"status": "ok"}

Responses come from the newest snapshot, without asking the platform or the store. Label Studio sends a name and a
password (basic authentication) except to /webhook. Anyone can send to /webhook, so it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, ValidationError

from hitl.connectors.label_studio import LabelStudioSettings
from hitl.connectors.label_studio.predictions import SUGGESTS, form_of, suggestion
from hitl.service.web.access.guard import public
from hitl.service.web.projects import Watched
from hitl.service.web.responses import responses
from hitl.service.webhook import read_body

LARGEST_BODY = 64 * 2**20
"""Maximum bytes of a request. Label Studio sends tasks with all their annotations."""

Allowed = Callable[[str, str, str], bool]
"""Function of (user, password, project) that returns True if the user may ask for suggestions in the project."""


class Task(BaseModel):
    """A task. Only its number is read from what Label Studio sends."""

    id: int | str


class Tasks(BaseModel):
    """Request of Label Studio: tasks, and the current labeling configuration."""

    tasks: list[Task]
    label_config: str | None = None


_REFUSED = responses(401, 404)
_SCHEMA = {
    "type": "object",
    "required": ["tasks"],
    "properties": {
        "tasks": {
            "type": "array",
            "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
        },
        "label_config": {"type": "string", "description": "The labeling configuration as it is now"},
    },
}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}


def router(projects: Mapping[str, Watched], allowed: Allowed) -> APIRouter:
    """Return the routes for these projects. They are marked as public and check passwords themselves."""
    basic = Depends(HTTPBasic(auto_error=False, realm="hitl"))

    def admitted(project: str, given: HTTPBasicCredentials | None = basic) -> Watched:
        if given is None or not allowed(given.username, given.password, project):
            why = "expected an API token of hitl as the password of basic authentication"
            raise HTTPException(401, why, headers={"WWW-Authenticate": 'Basic realm="hitl"'})
        one = projects.get(project)
        if one is None or not isinstance(one.settings.source, LabelStudioSettings):
            raise HTTPException(404, f"no project {project!r} that comes from Label Studio is served here")
        return one

    routes = APIRouter(prefix="/ml/{project}", tags=["Label Studio's model backend"])
    of_project = Depends(admitted)

    @routes.get("/health", responses=_REFUSED)
    @public
    def health(one: Watched = of_project) -> dict[str, str]:
        """Confirm that hitl is there."""
        return {"status": "UP", "model_class": "hitl"}

    @routes.post("/setup", responses=_REFUSED)
    @public
    def setup(one: Watched = of_project) -> dict[str, str]:
        """Return the version of the suggestions. The body, which holds a token of Label Studio, is not read."""
        return {"model_version": _version(one)}

    @routes.get("/versions", responses=_REFUSED)
    @public
    def versions(one: Watched = of_project) -> dict[str, list[str]]:
        """List the versions, of which there is one."""
        return {"versions": [_version(one)]}

    @routes.post("/predict", responses=responses(400, 401, 404, 413), openapi_extra=_BODY)
    @public
    async def predict(request: Request, one: Watched = of_project) -> dict[str, list[Any]]:
        """Suggest answers to tasks."""
        body = await read_body(request, LARGEST_BODY)
        if body is None:
            raise HTTPException(413, f"expected {LARGEST_BODY} bytes at most: ask for fewer tasks at a time")
        return await run_in_threadpool(_predicted, one, body)

    @routes.post("/webhook", name="backend_webhook")
    @public
    async def webhook(project: str, request: Request) -> dict[str, str]:
        """Take what Label Studio tells every backend, without a password: nothing follows from it."""
        await read_body(request, LARGEST_BODY, keep=False)
        return {"status": "ok"}

    return routes


def _version(one: Watched) -> str:
    return f"{SUGGESTS}nothing" if one.snapshot is None else one.snapshot.suggestions.version


def _predicted(one: Watched, body: bytes) -> dict[str, list[Any]]:
    try:
        asked = Tasks.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(400, f"{place}: {first['msg']}; expected what Label Studio sends") from None
    source = one.settings.source
    if one.snapshot is None or asked.label_config is None or not isinstance(source, LabelStudioSettings):
        return {"results": [[] for _ in asked.tasks]}
    form, suggestions = form_of(asked.label_config, source.control, source.abstain), one.snapshot.suggestions
    made = (suggestion(form, suggestions.of(str(task.id)), suggestions.version) for task in asked.tasks)
    return {"results": [[] if each is None else each for each in made]}
