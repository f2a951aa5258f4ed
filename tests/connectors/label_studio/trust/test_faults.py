"""One wrong answer at one request: no foreign error, and after the next cycle all is as if it had not been.

Here each kind of fault is met once; every one at every request: `python -m tests.bench.trust.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hitl.connectors.label_studio import client as client_module
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import HitlError
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import shown
from tests.connectors.label_studio.trust.faults import KINDS, FaultyProxy
from tests.connectors.label_studio.trust.scenes import ACTIONS, Scene, prepared
from tests.of_the_day import of_the_day

pytestmark = [pytest.mark.server, pytest.mark.journey]


@pytest.fixture
def proxy(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    monkeypatch.setattr(client_module, "WAITS", (0.0,) * 4)
    monkeypatch.setattr(client_module, "REQUEST_SECONDS", 8.0)  # less than the 20 s of a slow drip
    with FaultyProxy(server.url) as running:
        yield running


def ends(scene: Scene, action: str) -> dict[str, object]:
    """The end state: the next cycle says ok, and the platform is as the store says."""
    scene.run()
    assert scene.differences() == []
    listed = scene.project.admin.get("/api/tasks", project=scene.project.number, page_size=100)["tasks"]
    state = shown(scene.project, sorted(int(task["id"]) for task in listed))
    return {**state, "counts": scene.store.counts("p")}


@pytest.mark.parametrize("action", of_the_day(ACTIONS, 2))
def test_after_a_fault_the_next_cycle_ends_as_if_there_had_been_none(
    make_project: Callable[..., Project], proxy: FaultyProxy, tmp_path: Path, action: str
) -> None:
    make_project().add(1000)  # from here on all task numbers have as many digits: ties are broken by their text
    twin = prepared(Scene(make_project(), proxy.url, tmp_path / "twin"), action)
    proxy.inject()
    ACTIONS[action](twin)
    requests = len(proxy.requests)
    writes = [n for n, (method, _) in enumerate(proxy.requests, start=1) if method != "GET"]
    undisturbed = ends(twin, action)
    places = [*writes, *range(1, requests + 1)]
    for number, kind in enumerate(KINDS[list(ACTIONS).index(action) :: len(ACTIONS)]):
        scene = prepared(Scene(make_project(), proxy.url, tmp_path / kind), action)
        at = places[number % len(writes)] if number % 2 == 0 else 1 + (number * 7) % requests
        proxy.inject(kind, at)
        with suppress(HitlError):
            ACTIONS[action](scene)
        what = f"{kind} at request {at} of {requests}, {proxy.hit}"
        proxy.inject()
        assert ends(scene, action) == undisturbed, what
