"""An action stopped (SIGSTOP) past its lease before every request, with a cycle of another process meanwhile.

    python -m tests.bench.trust.stopped [--save] [--every N] [--first K] [--action "later cycle"] [--seconds S]

After it wakes, the platform has to be as the store says (`hitl audit`), at once and after one cycle more. What `add`
and `gold` were to bring has to be there once, after the command was given again where it ended with an error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.bench.trust import attacks
from tests.bench.trust.attacks import Outcome, Stage
from tests.connectors.label_studio.trust.scenes import ACTIONS, Scene
from tests.connectors.label_studio.trust.stopping import OK, OVERTAKEN, Stop, end, stopped


def attack(stage: Stage, every: int, first: int) -> Outcome:
    """How the action ended, stopped before every `every`-th request from `first` on, and what was wrong there."""
    found = Outcome()
    step, missed = 1 + first, 0
    while missed < 2:  # the cycle after two states takes more requests than the one after the other
        if stage.over:
            found.ended["out of time"] += 1
            break
        scene = stage.next()
        stop = stopped(scene, stage.action, step)
        missed = 0 if stop.was_stopped else missed + 1
        how = {OVERTAKEN: "overtaken", OK: "went on"}.get(end(stop.said), end(stop.said))
        found.ended[how if stop.was_stopped else "not stopped"] += 1
        if how == "Traceback":
            found.wrong.append(f"request {step}: {stop.said}")
        found.wrong += [f"request {step}, {line}" for line in wrong_ends(scene, stage.action, stop)]
        step += every
    return found


def wrong_ends(scene: Scene, action: str, stop: Stop) -> list[str]:
    """What is wrong once the process that woke is gone, and after a cycle more.

    An answer that came while it was stopped and nothing overtook it waits for the next pull. An action that said that
    it could not be done is not over before the next cycle.
    """
    by_hand = action in ("add", "gold")
    waits = by_hand or (stop.was_stopped and not stop.overtaken)
    is_over = end(stop.said) in (OK, OVERTAKEN)
    found = [f"at once: {line}" for line in scene.differences(pushed=waits)] if is_over else []
    if by_hand and end(stop.said) != OK:
        ACTIONS[action](scene)
    scene.run()
    return found + [f"after one cycle more: {line}" for line in (*scene.differences(), *scene.lacks(action))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each action; with --save also write docs/benchmarks/trust_stopped.*."""
    return attacks.main("stopped", "stopped before", __doc__, attack, arguments)


if __name__ == "__main__":
    sys.exit(main())
