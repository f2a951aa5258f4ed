"""The command line as a test calls it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
"""`run("combine", "a.csv")` in an empty folder -> exit code, standard output, standard error."""


def caller(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """What the fixture `run` gives."""
    from hitl.cli import main

    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("COLUMNS", "140")
    for name in [name for name in os.environ if name.startswith("HITL_") and name not in ("HITL_HOME", "HITL_DATA")]:
        monkeypatch.delenv(name)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["hitl", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call
