"""An action that is stopped (SIGSTOP) before one of its requests, past its lease, and wakes after another's cycle.

The one that is stopped: `python -m tests.connectors.label_studio.trust.stopping` with a JSON object as its argument.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hitl.errors import StoreError
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.trust.scenes import ACTIONS, Scene

ROOT = Path(__file__).parents[4]
LEASE = 1.0
"""Seconds of the lease that is slept through."""

LOCKED = "has kept the database locked"
"""What a cycle says that a transaction of another process keeps from the store (SQLite)."""

OK, OVERTAKEN = "ok", "LeaseLost"
"""How it ends when it came to its end, and when it was overtaken."""


def end(said: str) -> str:
    """How a process ended by what it said: ok, or the name of an error; warnings may stand before it."""
    lines = [line for line in said.splitlines() if line.strip()]
    return "Traceback" if "Traceback" in said else lines[-1].split()[0] if lines else "nothing said"


@dataclass(frozen=True)
class Stop:
    """What became of an action that was to be stopped before a request.

    Attributes:
        was_stopped: whether it came to that request.
        overtaken: whether another's cycle went by meanwhile. None can where one of several requests at a time was
            stopped while the answer to another was being written down: SQLite lets one transaction write at a time.
        said: what it printed.
    """

    was_stopped: bool
    overtaken: bool
    said: str


def stopped(scene: Scene, action: str, step: int) -> Stop:
    """Stop an action before its request `step`, let a cycle overtake it, and wake it."""
    project = scene.project
    said = {
        "url": project.server.url,
        "token": project.server.token,
        "project": project.number,
        "folder": str(scene.folder),
        "people": [person.email for person in project.people],
        "tasks": scene.tasks,
        "action": action,
        "step": step,
    }
    module = "tests.connectors.label_studio.trust.stopping"
    child = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(said)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.stdout is not None
            return Stop(False, False, child.stdout.read())
        time.sleep(1.3 * LEASE)
        scene.answer(1)
        overtaken = True
        try:
            scene.run()
        except StoreError as error:
            if LOCKED not in str(error):
                raise
            overtaken = False
        os.kill(child.pid, signal.SIGCONT)
        words, _ = child.communicate(timeout=120)
        return Stop(True, overtaken, words)
    finally:
        if child.poll() is None:
            child.kill()
        if child.stdout is not None:
            child.stdout.close()


def main() -> None:
    """An action whose process stops itself before a request; prints ok, or which error it ended with."""
    import httpx

    from hitl import manual_operations
    from hitl import project as projects
    from hitl.connectors.label_studio.connections import BoundedTransport
    from hitl.errors import HitlError
    from hitl.store import Store

    said: dict[str, Any] = json.loads(sys.argv[1])
    requests, send = 0, BoundedTransport.handle_request

    def handle(self: BoundedTransport, request: httpx.Request) -> httpx.Response:
        nonlocal requests
        requests += 1
        if requests == said["step"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        return send(self, request)

    BoundedTransport.handle_request = handle  # type: ignore[method-assign]
    for module in (projects, manual_operations):
        module.lease_seconds = lambda _: LEASE  # type: ignore[attr-defined]
    Store._kept = lambda *_: nullcontext()  # type: ignore[method-assign] # no stop within a transaction: SQLite waits
    server = SimpleNamespace(url=said["url"], token=said["token"])
    people = [SimpleNamespace(email=email) for email in said["people"]]
    project = Project(cast("Any", server), cast("Any", people), said["project"])
    scene = Scene(project, said["url"], Path(said["folder"]))
    scene.page_size = 500  # one page: nothing is fetched while a page is saved
    scene.tasks = said["tasks"]
    try:
        ACTIONS[said["action"]](scene)
        print(OK)
    except HitlError as error:
        print(type(error).__name__, error)
    finally:
        scene.store.close()


if __name__ == "__main__":
    main()
