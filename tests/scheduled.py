"""What the tests of the scheduler share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hitl.project import stored
from hitl.service import loop as loops


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


T0 = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROWS = [f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}" for n in range(9) for who in ("ann", "bob", "cyd")]


def project(folder: Path, schedule: str = 'every = "1h"', name: str = "p", store: str = "sqlite:///hitl.db") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,label", *ROWS]) + "\n")
    config = folder / "hitl.toml"
    config.write_text(
        f'name = "{name}"\nstore = "{store}"\n[source]\nkind = "tables"\npath = "."\n[schedule]\n{schedule}\n'
    )
    return config


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, Mapping[str, Any]]] = []

    def __call__(self, event: str, project: str, said: Mapping[str, Any]) -> None:
        self.events.append((event, project, said))

    def __getitem__(self, event: str) -> list[Mapping[str, Any]]:
        return [said for name, _, said in self.events if name == event]


class Clock:
    """The time that loops read, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = T0
        monkeypatch.setattr(loops, "clock", lambda: self.now)

    def later(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


def history(config: Path) -> list[dict[str, Any]]:
    """What each recorded cycle of the project noted."""
    with stored(config) as (settings, store):
        return [dict(each.metrics) for each in store.cycles(settings.name)]


def until(what: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until it is true (a first cycle compiles); return what it says."""
    for _ in range(int(seconds / 0.02)):
        found = what()
        if found:
            return found
        threading.Event().wait(0.02)
    raise AssertionError("it did not come to that")
