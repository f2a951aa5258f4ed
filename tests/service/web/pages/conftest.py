"""A small project behind the application; its log stays silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.service.web.served import Served, served_crowd, serving, small


@pytest.fixture(scope="session", autouse=True)
def _silent() -> None:
    structlog.configure(processors=[lambda *_: (_ for _ in ()).throw(structlog.DropEvent)])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`small`, after its first cycle; no test changes it."""
    with serving(served_crowd(tmp_path_factory.mktemp("project") / "p", small())) as found:
        yield found
