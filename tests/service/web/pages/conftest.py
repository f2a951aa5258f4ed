"""A small project behind the application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.web.served import Served, served_crowd, serving, small


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`small`, after its first cycle; no test changes it."""
    with serving(served_crowd(tmp_path_factory.mktemp("project") / "p", small())) as found:
        yield found
