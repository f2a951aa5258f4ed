"""The thread that keeps a project up to date goes on, whatever fails."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from hitl.service.web.live import puller as live
from hitl.service.web.live.puller import Lead, Puller
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


def test_a_platform_that_cannot_be_read_is_said_and_so_is_that_it_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = CROWD.written(tmp_path).parent / "labels" / "annotations.csv"
    whole, said = answers.read_text(), []
    one = Watched(tmp_path / "hitl.toml", lambda snapshot: None)
    puller = Puller(one, lambda event, data: None, Lead(tell=said.append, worker=1))
    with caplog.at_level(logging.INFO):
        puller.turn()
        assert (one.warning, puller.figures.pulled_at > 0) == (None, True)
        answers.write_text("item,annotator\na,ann\n")
        for _ in range(2):
            _again(puller)
        assert one.warning is not None
        assert one.warning.startswith("the last look at the platform failed, so that new answers may be missing: ")
        assert "label" in one.warning
        answers.write_text(whole)
        _again(puller)
        assert one.warning is None
    assert [message["unread"] is None for message in said if "looked" in message] == [True, False, True]
    mine = [False]
    taking_over = Puller(one, lambda event, data: None, Lead(lambda: mine[0], said.append, 1))
    taking_over.wake()
    taking_over.turn()
    said.clear()
    mine[0] = True
    _again(taking_over)
    assert {"looked": "p", "unread": None} in said, "the others may know otherwise from the process that led before"
    logged = [record.getMessage() for record in caplog.records]
    assert [text.partition(": the platform")[2][:18] for text in logged if "the platform" in text] == [
        " cannot be read: " + logged[-2].rpartition("read: ")[2][:1],
        " is read again",
    ]
    one.store.close()


def _again(puller: Puller) -> None:
    """A look at once."""
    puller._not_before = 0.0
    puller.wake()
    puller.turn()
