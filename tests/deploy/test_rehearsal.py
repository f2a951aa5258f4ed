"""The steps of the compose file and of the chart as processes: started, healthy, a cycle done, watched, stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.deploy.rehearsal import rehearse
from tests.deploy.test_files import expressions, metrics_in


@pytest.mark.journey
@pytest.mark.server
def test_what_the_files_start_works_and_stops(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    pytest.importorskip("helm_python")
    found = rehearse(tmp_path, Path(sys.executable))
    assert found["tasks"] == 6
    assert found["status"]["cycles"] >= 1
    assert found["status"]["stored"]["items"] == 6
    assert found["status"]["pending"] == 0
    assert 'hitl_project_failed{project="reviews"} 0.0' in found["metrics"]
    assert {path.name[:4] for path in found["backups"]} == {"b.zi", "hitl"}
    watched = {name for what, text in expressions().items() if what != "HitlDown" for name in metrics_in(text)}
    assert {name for name in watched if name.removesuffix("_total") not in found["metrics"]} == set()
