"""A cycle that is stopped (SIGSTOP) before one of its requests, past its lease, and wakes when another has been there.

The one that is stopped: `python -m tests.connectors.label_studio.trust.stopping URL TOKEN PROJECT FOLDER STEP CREW...`
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from tests.connectors.label_studio.trust.scenes import Scene

ROOT = Path(__file__).parents[4]
LEASE = 1.0
"""Seconds of the lease that is slept through."""


def stopped(scene: Scene, folder: Path, step: int) -> tuple[bool, str]:
    """Stop a cycle before its request `step`, let another cycle overtake it, and wake it: whether, and what it said."""
    server, crew = scene.project.server, scene.settings.crew.annotators
    place = [server.url, server.token, str(scene.project.number), str(folder), str(step), *crew]
    module = "tests.connectors.label_studio.trust.stopping"
    child = subprocess.Popen(
        [sys.executable, "-m", module, *place], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.stdout is not None
            return False, child.stdout.read()
        time.sleep(1.3 * LEASE)
        scene.answer(1)
        scene.run()
        os.kill(child.pid, signal.SIGCONT)
        said, _ = child.communicate(timeout=120)
        return True, said
    finally:
        if child.poll() is None:
            child.kill()
        if child.stdout is not None:
            child.stdout.close()


def main() -> None:
    """A cycle whose process stops itself before a request; prints how many there were, or which error it ended with."""
    import httpx

    from hitl import cycle
    from hitl.connectors.label_studio import LabelStudio
    from hitl.errors import HitlError
    from hitl.store import Store
    from tests.connectors.label_studio.projects import settings_for
    from tests.connectors.label_studio.trust.scenes import NOON

    url, token, number, folder, step, *crew = sys.argv[1:]
    requests, send = 0, httpx.HTTPTransport.handle_request

    def handle(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        nonlocal requests
        requests += 1
        if requests == int(step):
            os.kill(os.getpid(), signal.SIGSTOP)
        return send(self, request)

    httpx.HTTPTransport.handle_request = handle  # type: ignore[method-assign]
    cycle.lease_seconds = lambda _: LEASE  # type: ignore[assignment]
    Store._kept = lambda *_: nullcontext()  # type: ignore[method-assign] # no stop within a transaction: SQLite waits
    connector = LabelStudio(
        url, token, int(number), abstain=("Unsure",)
    )  # one page: nothing is fetched while a page is saved
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        try:
            cycle.run(settings_for(int(number), crew, labels=6), store, connector, now=NOON)
            print(requests)
        except HitlError as error:
            print(type(error).__name__, error)


if __name__ == "__main__":
    main()
