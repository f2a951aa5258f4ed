"""The command line as a test calls it."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
"""`run("combine", "a.csv")` in an empty folder -> exit code, standard output, standard error."""

COMMAND = "import sys; sys.argv[0] = 'hitl'; from hitl.cli import main; main()"
"""`forked(COMMAND, ARGUMENTS...)` is `hitl ARGUMENTS...`."""

ROOT = Path(__file__).parents[1]
_LOADED = get_context("forkserver")
_LOADED.set_forkserver_preload(
    [
        *("tests.killing", "hitl.cli.app", "hitl.cycle", "hitl.manual_operations", "hitl.models.default", "pandas"),
        *("hitl.connectors.tables", "hitl.connectors.label_studio", "label_studio_sdk", "sklearn.linear_model"),
    ]
)


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


def forked(
    code: str, *arguments: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -c CODE ARGUMENTS...` in this folder, forked from a process that has loaded hitl: that takes longest."""
    with tempfile.TemporaryDirectory() as place:
        said = [Path(place) / name for name in ("output", "error")]
        given = (code, arguments, folder, dict(os.environ if environment is None else environment), said)
        process = _LOADED.Process(target=_run, args=given)
        process.start()
        process.join()
        assert process.exitcode is not None
        output, error = (path.read_text() if path.exists() else "" for path in said)
        done = subprocess.CompletedProcess([code, *arguments], process.exitcode, output, error)
        process.close()
    return done


def _run(code: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], said: list[Path]) -> None:
    for number, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})


def command_of(words: Sequence[str]) -> tuple[Any, str, list[str]]:
    """The last command that these words behind `hitl` name, its name, and the words behind it."""
    command, name, rest = _commands(), "hitl", list(words)
    while hasattr(command, "get_command") and rest:
        context = command.make_context(name, list(rest))
        name, *rest = rest
        command = command.get_command(context, name)
        assert command is not None, f"hitl {shlex.join(words)}: there is no command {name}"
    return command, name, rest


@cache
def _commands() -> Any:
    import typer.main

    from hitl.cli.app import app

    return typer.main.get_command(app)
