"""What the attacks on one action have in common: a scene for each try, the arguments, and how the figures are told.

An attack disturbs an action (`scenes.ACTIONS`) at one request after the other, and counts how each try ended.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer
from tests.bench import results
from tests.connectors.label_studio.conftest import SENTIMENT, Project
from tests.connectors.label_studio.trust.scenes import ACTIONS, Scene, prepared

REPEATED = frozenset({"later cycle"})
"""Actions that one project can take again and again; any other takes a new project each time."""


@dataclass
class Outcome:
    """How the tries of one action ended, and what was wrong."""

    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Stage:
    """The scenes of one action on a server, each just before the action. `url`: where projects are reached."""

    def __init__(self, server: LocalServer, action: str, folder: Path, seconds: float) -> None:
        name = action.replace(" ", "-")
        self.people = [server.sign_up(f"{name}{k}@example.com", "a-long-password") for k in range(4)]
        self.server = server
        self.action = action
        self.folder = folder
        self.url = server.url
        self._until = time.monotonic() + seconds
        self._scene: Scene | None = None
        self._made = 0

    @property
    def over(self) -> bool:
        """Whether the time of this action has passed."""
        return time.monotonic() > self._until

    def next(self) -> Scene:
        """A scene that has not seen the action yet; of an action that repeats itself, the same with one answer more."""
        if self._scene is not None and self.action in REPEATED:
            self._scene.answer(1)
            return self._scene
        self.close()
        self._made += 1
        number = LabelStudio.create_project(self.server.url, self.server.token, "test project", SENTIMENT)
        scene = Scene(Project(self.server, self.people, number), self.url, self.folder / str(self._made))
        self._scene = prepared(scene, self.action)
        return self._scene

    def close(self) -> None:
        """Close the store of the last scene."""
        if self._scene is not None:
            self._scene.store.close()
            self._scene = None


Attack = Callable[[Stage, int, int], Outcome]
"""Disturb an action at every so many requests, but for so many at first."""


def main(name: str, what: str, doc: str | None, attack: Attack, arguments: Sequence[str] | None) -> int:
    """Print a line for each action; with --save also write docs/benchmarks/trust_<name>.*; 1 where anything is wrong.

    `what` is done, in words, at every so many requests, from the one numbered --first (from 0).
    """
    options = results.options(doc, arguments, every=1, first=0, action=list(ACTIONS), seconds=3600.0)
    page, figures = results.Page(), dict[str, Any]()
    page.tell(f"{datetime.now(UTC):%Y-%m-%d}, {what} every {options.every}. request, from {options.first}")
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        for action in options.action:
            stage = Stage(server, action, Path(folder) / action, options.seconds)
            found = attack(stage, options.every, options.first)
            stage.close()
            figures[action] = {"ended": dict(sorted(found.ended.items())), "wrong": found.wrong}
            ended = ", ".join(f"{how} {n}" for how, n in figures[action]["ended"].items())
            page.tell(f"{action:<12} {ended}", *found.wrong)
    wrong = sum(len(each["wrong"]) for each in figures.values())
    page.tell("", f"wrong: {wrong}")
    if options.save:
        page.save(f"trust_{name}", figures, f"trust.{name} --save")
    return min(wrong, 1)
