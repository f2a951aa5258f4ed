"""A cycle stopped (SIGSTOP) past its lease before every request, with another one meanwhile.

    python -m tests.bench.trust.stopped [--save] [--every N]

After it wakes, the platform has to be as the store says, at once and after one cycle more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer
from tests.bench import results
from tests.connectors.label_studio.conftest import SENTIMENT, Project
from tests.connectors.label_studio.trust.scenes import Scene, prepared
from tests.connectors.label_studio.trust.stopping import stopped


def stops(server: LocalServer, folder: Path, every: int) -> tuple[Counter[str], list[str]]:
    """How the cycles ended that were stopped, and what was wrong on the platform."""
    people = [server.sign_up(f"annotator{k}@example.com", "a-long-password") for k in range(4)]
    number = LabelStudio.create_project(server.url, server.token, "test project", SENTIMENT)
    scene = prepared(Scene(Project(server, people, number), server.url, folder), "later cycle")
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    step, missed = 1, 0
    while missed < 2:  # the cycle after two states takes more requests than the one after the other
        was_stopped, said = stopped(scene, folder, step)
        missed = 0 if was_stopped else missed + 1
        ended["overtaken" if "LeaseLost" in said else "not stopped" if not was_stopped else "other end"] += 1
        for when in ("at once", "after one cycle more"):
            wrong += [f"request {step}, {when}: {line}" for line in scene.differences()]
            scene.run()
        scene.answer(1)
        step += every
    scene.store.close()
    return ended, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; with --save also write docs/benchmarks/trust_stopped.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        ended, wrong = stops(server, Path(folder), chosen.every)
    head = f"{datetime.now(UTC):%Y-%m-%d}, stopped before every {chosen.every}. request of a later cycle"
    lines = [head, "", ", ".join(f"{how} {n}" for how, n in sorted(ended.items())), f"wrong ends: {len(wrong)}", *wrong]
    print("\n".join(lines))
    if chosen.save:
        results.save("trust_stopped", lines, {**ended, "wrong": wrong}, f"trust.stopped --every {chosen.every} --save")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
