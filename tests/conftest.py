"""Settings and fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hitl.store import Store
from tests.command_line import Run, caller
from tests.projects import folder_with_tables

# A first call compiles kernels, and machines are noisy: time is not what these properties are about. The examples are
# the same in each run, so that one that fails is known to the change that brought it. `--hypothesis-profile=random`, as
# `make trust` has it, draws others each time, and more.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("hitl", settings.get_profile("random"), derandomize=True, max_examples=40)
settings.load_profile("hitl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for Label Studio comes first: side by side (`make test`), long files at the end would leave a gap."""
    items.sort(key=lambda item: item.get_closest_marker("server") is None)  # keeps the order of either kind


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("combine", "a.csv")` in an empty folder -> exit code, standard output, standard error."""
    return caller(tmp_path, monkeypatch, capfd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of tables of the project of `tests.projects`."""
    return folder_with_tables(tmp_path / "p")


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """Store of that project, in its folder."""
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        yield store
