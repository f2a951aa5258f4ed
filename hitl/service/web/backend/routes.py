"""Serve the five routes of a model backend, under /ml/<project>, as Label Studio 1.23 calls them.

    GET  /health     before each prediction                        {"status": "UP", "model_class": "hitl"}
    POST /setup      before each prediction                        {"model_version": "..."}
    POST /predict    a task that is opened, or a batch             {"results": [...]}, one entry per task, in order
    GET  /versions   available versions                            {"versions": ["..."]}
    POST /webhook    any event in the project, unrequested         {"status": "ok"}

Responses are looked up in the newest snapshot, without asking the platform or the store. Label Studio sends a name and
a password (basic authentication) except to /webhook. Anyone can send to /webhook, so it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, Field, ValidationError

from hitl.connectors.label_studio import LabelStudioSettings
from hitl.connectors.label_studio.predictions import SUGGESTS, form_of, suggestion
from hitl.service.web.access import public
from hitl.service.web.backend.suggestions import Suggestions
from hitl.service.web.errors import Problem
from hitl.service.web.projects import Watched

LARGEST_BODY = 64 * 2**20
"""Maximum bytes of a request. Label Studio sends tasks with all their annotations."""

Allowed = Callable[[str, str, str], bool]
"""Return True if this user with this password may ask for suggestions in the named project."""


class Health(BaseModel):
    """Health of the backend."""

    status: str = "UP"
    model_class: str = "hitl"


class Setup(BaseModel):
    """Current version of the suggestions."""

    model_version: str = Field(examples=["hitl-suggests-model-0c1f5e8a77d2"])


class Versions(BaseModel):
    """Available versions of the suggestions; there is one."""

    versions: list[str] = Field(examples=[["hitl-suggests-model-0c1f5e8a77d2"]])


class Heard(BaseModel):
    """Confirmation of a message."""

    status: str = "ok"


class Prediction(BaseModel):
    """Suggestion for one task, in the format of Label Studio's annotations."""

    result: list[dict[str, Any]]
    score: float
    model_version: str


class Predictions(BaseModel):
    """One suggestion per task, in order; an empty list for a task without one."""

    results: list[Prediction | list[Prediction]]


class Task(BaseModel):
    """A task. Only its number is read from what Label Studio sends."""

    id: int | str


class Asked(BaseModel):
    """Request of Label Studio: tasks, and the current labeling configuration."""

    tasks: list[Task]
    label_config: str | None = None


_REFUSED: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "No name and password, or wrong ones"},
    404: {"model": Problem, "description": "No project of this name that comes from Label Studio"},
}
_UNREAD: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "Not the body that Label Studio sends"},
    413: {"model": Problem, "description": f"More than {LARGEST_BODY} bytes"},
}
_TASK = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
_ASKED = {
    "type": "object",
    "required": ["tasks"],
    "properties": {
        "tasks": {"type": "array", "items": _TASK},
        "label_config": {"type": "string", "description": "The labeling configuration as it is now"},
    },
    "example": {
        "tasks": [{"id": 12, "data": {"text": "Lovely."}}],
        "label_config": '<View><Text name="text" value="$text"/><Choices name="mood" toName="text">'
        '<Choice value="good"/><Choice value="bad"/></Choices></View>',
    },
}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _ASKED}}}}


def router(projects: Mapping[str, Watched], allowed: Allowed) -> APIRouter:
    """Return the routes for these projects. They are public to the service's guard, and check passwords themselves."""
    basic = Depends(HTTPBasic(auto_error=False, realm="hitl"))

    def admitted(project: str, given: HTTPBasicCredentials | None = basic) -> Watched:
        if given is None or not allowed(given.username, given.password, project):
            why = "expected an API token of hitl as the password of basic authentication"
            raise HTTPException(401, why, headers={"WWW-Authenticate": 'Basic realm="hitl"'})
        found = projects.get(project)
        if found is None or not isinstance(found.settings.source, LabelStudioSettings):
            raise HTTPException(404, f"no project {project!r} that comes from Label Studio is served here")
        return found

    routes = APIRouter(prefix="/ml/{project}", tags=["Label Studio's model backend"])
    of_project = Depends(admitted)

    @routes.get("/health", responses=_REFUSED)
    @public
    def health(one: Watched = of_project) -> Health:
        """Say that hitl is there."""
        return Health()

    @routes.post("/setup", responses=_REFUSED)
    @public
    def setup(one: Watched = of_project) -> Setup:
        """Say which version the suggestions have now. The body, which holds a token of Label Studio, is not read."""
        return Setup(model_version=_version(one))

    @routes.get("/versions", responses=_REFUSED)
    @public
    def versions(one: Watched = of_project) -> Versions:
        """Say which version there is."""
        return Versions(versions=[_version(one)])

    @routes.post("/predict", responses=_REFUSED | _UNREAD, openapi_extra=_BODY, response_model=Predictions)
    @public
    async def predict(request: Request, one: Watched = of_project) -> Any:
        """Suggest answers to tasks."""
        body = await _body(request)
        if body is None:
            raise HTTPException(413, f"expected {LARGEST_BODY} bytes at most: ask for fewer tasks at a time")
        return await run_in_threadpool(_predicted, one, body)

    @routes.post("/webhook", name="backend_webhook")
    @public
    async def webhook(project: str, request: Request) -> Heard:
        """Take what Label Studio tells every backend, without a password: nothing follows from it."""
        await _body(request, keep=False)
        return Heard()

    return routes


def _suggestions(one: Watched) -> Suggestions | None:
    """Return the current suggestions, or None if nothing has been loaded yet."""
    return None if one.snapshot is None else one.snapshot.suggestions


def _version(one: Watched) -> str:
    found = _suggestions(one)
    return f"{SUGGESTS}nothing" if found is None else found.version


def _predicted(one: Watched, body: bytes) -> Any:
    """Build the response to /predict."""
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(400, f"{place}: {first['msg']}; expected what Label Studio sends") from None
    found, source = _suggestions(one), one.settings.source
    if found is None or asked.label_config is None or not isinstance(source, LabelStudioSettings):
        return {"results": [[] for _ in asked.tasks]}
    form = form_of(asked.label_config, source.control, source.abstain)
    said = (suggestion(form, found.of(str(task.id)), found.version) for task in asked.tasks)
    return {"results": [[] if each is None else each for each in said]}


async def _body(request: Request, *, keep: bool = True) -> bytes | None:
    """Read the whole body. Return None if it is too large, or if it should not be kept."""
    read, parts = 0, []
    async for part in request.stream():
        read += len(part)
        if read > LARGEST_BODY:
            return None
        if keep:
            parts.append(part)
    return b"".join(parts) if keep else None
