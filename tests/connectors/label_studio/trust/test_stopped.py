"""A process that was stopped past its lease and wakes leaves the work of the next one alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.trust.scenes import Scene, prepared
from tests.connectors.label_studio.trust.stopping import OVERTAKEN, end, stopped

pytestmark = [pytest.mark.server, pytest.mark.journey]

STEPS = (8, 11)
"""Before which requests a later cycle is stopped: some of all that write."""


def test_a_cycle_that_wakes_past_its_lease_changes_nothing(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project()
    scene = prepared(Scene(project, project.server.url, tmp_path), "later cycle")
    overtaken = 0
    for step in STEPS:
        stop = stopped(scene, "later cycle", step)
        if stop.overtaken:
            overtaken += 1
            assert end(stop.said) == OVERTAKEN
        if stop.overtaken or not stop.was_stopped:
            assert scene.differences() == [], f"stopped before request {step}"
        scene.run()
        assert scene.differences() == [], f"stopped before request {step}, after one cycle more"
        scene.answer(1)
    assert overtaken >= 2
