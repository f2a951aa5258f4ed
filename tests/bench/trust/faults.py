"""Each kind of fault at every request of a cycle against a real Label Studio: `python -m tests.bench.trust.faults`.

    python -m tests.bench.trust.faults [--save] [--every N] [--first K] [--action "later cycle"] [--seconds S]

After each fault a cycle that says ok must leave the platform as the store says (`hitl audit`), and no error that is not
ours may come out. The answers change back and forth between two states, so that every cycle has something to push.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hitl.connectors.label_studio import client as client_module
from hitl.errors import HitlError
from tests.bench.trust import attacks
from tests.bench.trust.attacks import Outcome, Stage
from tests.connectors.label_studio.trust.faults import KINDS, FaultyProxy
from tests.connectors.label_studio.trust.scenes import ACTIONS


def attack(stage: Stage, every: int, first: int) -> Outcome:
    """Every fault at every `every`-th request from `first` on: how each ended, and what went wrong."""
    found, action = Outcome(), ACTIONS[stage.action]
    with FaultyProxy(stage.server.url) as proxy:
        stage.url = proxy.url
        scene = stage.next()
        proxy.inject()
        action(scene)
        requests = len(proxy.requests)
        for number, (at, kind) in enumerate((at, kind) for at in range(1, requests + 1) for kind in KINDS):
            if (number * 5 - first) % every:  # all kinds and all requests have their turn
                continue
            if stage.over:
                found.ended["left out"] += 1
                continue
            scene = stage.next()
            proxy.inject(kind, at)
            try:
                action(scene)
                how = "ok at once" if proxy.hit else "not reached"
            except HitlError:
                how = "reported"
            except Exception as error:
                how = "foreign error"
                found.wrong.append(f"{kind} at {at} {proxy.hit}: {error!r}")
            hit = proxy.hit
            proxy.inject()
            try:
                scene.run()
                differences = scene.differences()
            except Exception as error:
                differences = [repr(error)]
            if differences:
                how = "wrong end"
                found.wrong.append(f"{kind} at {at} {hit}: {'; '.join(differences)}")
            found.ended[how] += 1
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each action; with --save also write docs/benchmarks/trust_faults.*."""
    client_module.WAITS = (0.0,) * 4
    client_module.REQUEST_SECONDS = 4.0
    return attacks.main("faults", f"{len(KINDS)} kinds of fault at", __doc__, attack, arguments)


if __name__ == "__main__":
    sys.exit(main())
