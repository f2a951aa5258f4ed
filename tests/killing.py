"""A command that is killed after a step: `run_until(STEP, ARGUMENTS...)` is `hitl ARGUMENTS...` until then.

A step is a write to the store, a file put in its place, or an answer of a platform. At STEP 0 it is not killed; the
number of steps is the last line on standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hitl.cli import main
from hitl.store import Store
from tests.command_line import forked
from tests.of_the_day import DAY

EVERY = pytest.mark.parametrize(
    "every",
    [
        pytest.param(3, id="every third step", marks=pytest.mark.journey),
        pytest.param(1, id="every step", marks=pytest.mark.trust),
    ],
)
"""After which steps a test kills: after every third (`make journeys`), or after each (`make trust`)."""


def fatal_steps(steps: int, every: int) -> range:
    """The steps, counted from 1, after which a command is killed: others each day, unless it is after every one."""
    return range(1 + DAY % min(every, steps), steps + 1, every)


def kill_after(last: int) -> list[str]:
    """From now on note each step; kill this process after the last."""
    steps: list[str] = []

    def noted(owner: Any, name: str) -> None:
        does = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = does(*arguments, **named)
            if str(arguments[-1]).endswith((".nbi", ".nbc")):  # compiled code is put in its place once, not in each run
                return result
            steps.append(name)
            if len(steps) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, call)

    for name in ("queue", "renew", "confirm", "save_page", "record_cycle"):
        noted(Store, name)
    noted(os, "replace")
    try:
        from hitl.connectors.label_studio.connections import BoundedTransport
    except ImportError:
        return steps
    noted(BoundedTransport, "handle_request")
    return steps


def run_until(
    step: int, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in this folder."""
    code, environment = "from tests.killing import run; run()", {**os.environ, **(environment or {})}
    return forked(code, str(step), *arguments, folder=folder, environment=environment)


def steps_of(done: subprocess.CompletedProcess[str]) -> int:
    """How many steps a command took that was not killed."""
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def run() -> None:
    """What `run_until` starts."""
    steps = kill_after(int(sys.argv.pop(1)))
    sys.argv[0] = "hitl"
    try:
        main()
    finally:
        print(len(steps), file=sys.stderr)
