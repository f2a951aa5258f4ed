"""One real Label Studio for the session; each test makes its own project in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer, Person
from tests.connectors.label_studio.conftest import SENTIMENT, Project


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    with LocalServer() as running:
        yield running


@pytest.fixture(scope="session")
def people(server: LocalServer) -> list[Person]:
    return [server.sign_up(f"annotator{k}@example.com", "a-long-password") for k in range(4)]


@pytest.fixture
def make_project(server: LocalServer, people: list[Person]) -> Callable[..., Project]:
    def make(config: str = SENTIMENT) -> Project:
        number = LabelStudio.create_project(server.url, server.token, "test project", config)
        return Project(server, people, number)

    return make
