"""The thread that keeps a project up to date goes on, whatever fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hitl.service.web.live import puller as live
from hitl.service.web.live.puller import Puller
from hitl.service.web.projects import Watched
from tests.service.web.served import Crowd

CROWD = Crowd([(item, who, "yes" if item != "c" else "no") for item in "abc" for who in ("ann", "bob")])


def test_an_error_that_nobody_foresaw_ends_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK", 0.01)
    one = Watched(CROWD.written(tmp_path), lambda snapshot: None)
    puller, looked, look = Puller(one, lambda event, data: None), threading.Event(), Puller._look

    def once(self: Puller) -> None:
        if not self.figures.failures:
            raise RuntimeError("as never before")
        look(self)
        looked.set()

    monkeypatch.setattr(Puller, "_look", once)
    puller.start()
    assert looked.wait(30)
    assert puller.is_alive()
    assert puller.figures.failures == 1
    puller.stop()
    assert not puller.is_alive()
    assert one.snapshot is not None
    one.store.close()
