"""Each kind of fault at every request of a cycle against a real Label Studio: `python -m tests.bench.trust.faults`.

    python -m tests.bench.trust.faults [--save] [--every N] [--action "later cycle"]

After each fault a cycle that says ok must leave the platform as the store says (`hitl audit`), and no error that is not
ours may come out. The answers change back and forth between two states, so that every cycle has something to push.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio import client as client_module
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import HitlError
from tests.bench import results
from tests.connectors.label_studio.conftest import SENTIMENT, Project
from tests.connectors.label_studio.trust.faults import KINDS, FaultyProxy
from tests.connectors.label_studio.trust.scenes import ACTIONS, Scene, prepared

REPEATED = frozenset({"later cycle"})
"""Actions that one project can take again and again; any other takes a new project each time."""


def attack(
    server: LocalServer, action: str, every: int, folder: Path, seconds: float
) -> tuple[Counter[str], list[str]]:
    """Every fault at every `every`-th request, for so long at most: how each ended, and what went wrong."""
    people = [server.sign_up(f"{action.replace(' ', '-')}{k}@example.com", "a-long-password") for k in range(4)]
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    until = time.monotonic() + seconds

    def fresh(name: str) -> Scene:
        number = LabelStudio.create_project(server.url, server.token, "test project", SENTIMENT)
        return prepared(Scene(Project(server, people, number), proxy.url, folder / name), action)

    with FaultyProxy(server.url) as proxy:
        scene = fresh("first")
        proxy.inject()
        ACTIONS[action](scene)
        requests = len(proxy.requests)
        for number, (at, kind) in enumerate((at, kind) for at in range(1, requests + 1) for kind in KINDS):
            if (number * 5) % every:  # all kinds and all requests have their turn
                continue
            if time.monotonic() > until:
                ended["left out"] += 1
                continue
            if action in REPEATED:
                scene.answer(1)
            else:
                scene.store.close()
                scene = fresh(f"{number}")
            proxy.inject(kind, at)
            try:
                ACTIONS[action](scene)
                how = "ok at once" if proxy.hit else "not reached"
            except HitlError:
                how = "reported"
            except Exception as error:
                how = "foreign error"
                wrong.append(f"{kind} at {at} {proxy.hit}: {error!r}")
            hit = proxy.hit
            proxy.inject()
            try:
                scene.run()
                found = scene.differences()
            except Exception as error:
                found = [repr(error)]
            if found:
                how = "wrong end"
                wrong.append(f"{kind} at {at} {hit}: {'; '.join(found)}")
            ended[how] += 1
        scene.store.close()
    return ended, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each action; with --save also write docs/benchmarks/trust_faults.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--action", action="append", choices=list(ACTIONS))
    parser.add_argument("--seconds", type=float, default=3600.0, help="the most that one action may take")
    chosen = parser.parse_args(arguments)
    client_module.WAITS = (0.0,) * 4
    client_module.REQUEST_SECONDS = 4.0
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, {len(KINDS)} kinds of fault at every {chosen.every}. request", ""]
    figures, bad = {}, 0
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        for action in chosen.action or ACTIONS:
            ended, wrong = attack(server, action, chosen.every, Path(folder) / action, chosen.seconds)
            lines += [f"{action:<12} {', '.join(f'{how} {n}' for how, n in sorted(ended.items()))}", *wrong]
            figures[action] = {**ended, "wrong": wrong}
            bad += len(wrong)
            print("\n".join(lines[-1 - len(wrong) :]), flush=True)
    if chosen.save:
        results.save("trust_faults", lines, figures, f"trust.faults --every {chosen.every} --save")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
