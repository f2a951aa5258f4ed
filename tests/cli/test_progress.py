"""The progress of long work: shown on a terminal after a second, before the first step is done."""

from __future__ import annotations

import sys
import time

import pytest

from hitl.cli import show


def test_a_long_first_step_is_shown_before_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "SHOW_AFTER", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show.progress() as progress:
        progress("train", 0, 6)
        shown = ""
        for _ in range(600):
            shown += capfd.readouterr().err
            if "0/6" in shown:
                break
            time.sleep(0.05)
        progress("train", 1, 6)
    assert "train" in shown
    assert "0/6" in shown


def test_short_work_and_no_terminal_show_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with show.progress() as progress:
        progress("train", 0, 6)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show.progress() as progress:
        progress("train", 0, 6)
    assert "train" not in capfd.readouterr().err
