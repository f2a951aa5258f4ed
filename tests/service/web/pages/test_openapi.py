"""The service answers as its OpenAPI document says, whatever it is sent: schemathesis makes the requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hitl.service.web import background
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.projects import Projects
from hitl.service.web.server import service as full_service
from tests.service.web.served import Served, served_crowd, serving, small

pytestmark = pytest.mark.journey

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SECRET = "the secret of webhooks"

GIVEN: dict[str, Any] = {"project": "p", "item": "item 3", "annotator": "cyd"}


def document() -> dict[str, Any]:
    """The OpenAPI document, which needs no project."""
    projects, accounts = Projects([]), cast("Accounts", None)
    return whole(projects, accounts).openapi()


def whole(projects: Projects, accounts: Accounts) -> FastAPI:
    """The application with all that `hitl serve` puts into it; nothing runs beside it."""
    return full_service(projects, accounts)


DOCUMENT = document()
ROUTES = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A project; what leads start ends at once."""
    config = served_crowd(tmp_path_factory.mktemp("openapi") / "p", small())
    with serving(config) as served, pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "ACTIONS", dict.fromkeys(background.ACTIONS, lambda *_: "done"))
        served.__dict__["app"] = whole(served.projects, served.accounts)
        served.app.state.trouble = lambda: None  # the loops do not run
        yield served


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("here", [True, False], ids=["of a project", "anything"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_answers_are_as_documented(running: Served, method: str, path: str, here: bool, mode: GenerationMode) -> None:
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method.upper()]
    known = {name: value for name, value in GIVEN.items() if f"{{{name}}}" in path} if here else {}
    token = running.client.headers["authorization"]

    @settings(max_examples=8, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(mode, **({"path_parameters": known} if known else {})))
    def asked(case: schemathesis.Case) -> None:
        for headers in ({"Authorization": token}, {"Authorization": ""}):
            sent = case.as_transport_kwargs(base_url="http://testserver", headers=headers)
            sent.pop("cookies", None)
            if isinstance(sent.get("data"), (bytes, str)):
                sent["content"] = sent.pop("data")
            case.validate_response(running.client.request(**sent), checks=CHECKS)

    with suppress(Unsatisfiable):  # where nothing can be wrong about a request
        asked()


def test_every_route_for_programs_is_in_the_document(running: Served) -> None:
    assert {"/projects/{project}/items", "/projects/{project}/plan/approve", "/healthz", "/metrics"} <= set(
        DOCUMENT["paths"]
    )
    found = running.client.get("/openapi.json")
    assert found.json() == running.app.openapi() == DOCUMENT


def test_the_files_of_the_project_are_left_alone(running: Served, tmp_path: Path) -> None:
    """Nothing that was asked has changed what is stored: the acts were replaced."""
    assert running.project().store.revision("p") == running.snapshot().revision
