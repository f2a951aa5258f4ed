"""A real Label Studio, its webhooks and the service: what pages show changes, and the order, without any poll."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.connectors.label_studio.conftest import Project
from tests.scheduled import until
from tests.service.web.served import run as cycle
from tests.service.web.test_live import SECRET, Served, served

pytestmark = [pytest.mark.server, pytest.mark.journey]


@pytest.fixture
def config(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", SECRET)
    path = tmp_path / "hitl.toml"
    path.write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\n'
        f'url = "{project.server.url}"\nproject = {project.number}\nabstain = ["Unsure"]\n'
        '[schedule]\npoll = "1h"\ndebounce = "1s"\n'
    )
    return path


@contextmanager
def serving(project: Project, config: Path) -> Iterator[Served]:
    with served(config) as service:
        hook = {"url": f"http://127.0.0.1:{service.port}/webhook/p", "headers": {"X-Hitl-Secret": SECRET}}
        wanted = {"project": project.number, "send_payload": True, "send_for_all_actions": True}
        project.admin.post("/api/webhooks/", {**wanted, **hook})
        yield service


def test_an_annotation_changes_what_pages_show(project: Project, config: Path) -> None:
    tasks = project.add(6)
    for k in range(3):
        for n, task in enumerate(tasks):
            project.answer(k, task, "good" if n % 2 else "bad")
    cycle(config)
    with serving(project, config) as service:
        store = service.projects["p"].store
        annotation = project.answer(3, tasks[0], "good")
        until(lambda: service.projects["p"].snapshot.counts["labels"] == 19)  # type: ignore[union-attr]
        project.person(3).delete(f"/api/annotations/{annotation['id']}/")
        until(lambda: service.projects["p"].snapshot.counts["labels"] == 18)  # type: ignore[union-attr]
        project.skip(3, tasks[1])
        until(lambda: store.counts("p")["skips"] == 1)
        assert service.figures()["failures_total"] == 0
