"""What Prometheus is told of a project."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hitl.project import opened
from hitl.store.schema import cycle, project
from tests.service.web.served import run, served_crowd, serving, small

YEAR = 365 * 24 * 3600.0


@pytest.mark.parametrize("looked", [True, False])
def test_a_cycle_of_a_clock_that_was_ahead_is_not_the_last_that_finished(tmp_path: Path, *, looked: bool) -> None:
    now = time.time()

    def afterwards(config: Path) -> None:
        run(config)
        with opened(config) as (_, store, _), store.database.write() as connection:
            connection.execute(sa.update(cycle).values(recorded_at=now + YEAR))
            connection.execute(sa.update(project).values(looked_at=now - 3600.0 if looked else None))

    with serving(served_crowd(tmp_path / "p", small(), afterwards)) as served:
        text = served.client.get("/metrics").text
    told = [float(line.split()[1]) for line in text.splitlines() if line.startswith("hitl_project_finished_timestamp")]
    assert told == ([pytest.approx(now - 3600.0)] if looked else [])
    assert 'hitl_project_failed{project="p"} 0.0' in text
