"""One real Label Studio for the session; each test makes its own project in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer, Person
from tests.connectors.label_studio.conftest import SENTIMENT, Project
from tests.connectors.mlflow import server as mlflow_server
from tests.connectors.phoenix import server as phoenix_server
from tests.security.leaks import leaks

PASSWORD = "a-long-password"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A real server for all tests; what these leave behind, stores, logs and reports, must hold none of its secrets."""
    with LocalServer() as running:
        yield running
        secrets = {"token": running.token, "password": running.admin_password, "password of annotators": PASSWORD}
    found = leaks(tmp_path_factory.getbasetemp(), secrets)
    assert [line for line in found if "/hitl.json: " not in line] == []  # the accounts of servers that are kept


@pytest.fixture(scope="session")
def people(server: LocalServer) -> list[Person]:
    return [server.sign_up(f"annotator{k}@example.com", PASSWORD) for k in range(4)]


@pytest.fixture
def make_project(server: LocalServer, people: list[Person]) -> Callable[..., Project]:
    def make(config: str = SENTIMENT) -> Project:
        number = LabelStudio.create_project(server.url, server.token, "test project", config)
        return Project(server, people, number)

    return make


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mlflow_server.Server]:
    """A real MLflow for all tests; each makes its own experiment in it."""
    with mlflow_server.running(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phoenix_server.Server]:
    """A real Phoenix for all tests; each makes its own project in it."""
    with phoenix_server.running(tmp_path_factory.mktemp("phoenix")) as server:
        yield server
