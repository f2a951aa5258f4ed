"""Settings and fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.command_line import Run, caller

# A first call compiles kernels, and machines are noisy: time is not what these properties are about.
settings.register_profile("hitl", deadline=None)
settings.load_profile("hitl")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side (`make test`): a file stays together for what it sets up, and one worker has the Label Studio."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            served = item.get_closest_marker("server") is not None or item.path.parent.name == "label_studio"
            item.add_marker(pytest.mark.xdist_group("Label Studio" if served else str(item.path)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("combine", "a.csv")` in an empty folder -> exit code, standard output, standard error."""
    return caller(tmp_path, monkeypatch, capfd)
