"""Stores and projects that tell others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hitl.settings import BudgetSettings, Settings
from hitl.store import Store
from tests import projects
from tests.events.receivers import SECRET
from tests.store.conftest import postgres, postgres_url, sqlite_url, url

__all__ = ["postgres", "postgres_url", "sqlite_url", "url"]

Telling = Callable[..., Settings]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Each test that takes it runs on both databases."""
    with Store(url) as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return projects.folder_with_tables(tmp_path / "p")


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> Telling:
    """`telling({"url": ...}, ...)`: a project of tables that tells these addresses: one is called ci, the next ci1."""

    def settings(*addresses: dict[str, Any], budget: dict[str, Any] | None = None, **changes: Any) -> Settings:
        named = [{"name": f"ci{n or ''}", **one} for n, one in enumerate(addresses)]
        for one in named:
            monkeypatch.setenv(f"HITL_EVENTS_{one['name'].upper()}_SECRET", SECRET)
        made = projects.settings(events=named, **changes)
        wanted = {"open_questions": 6, "target_confidence": 0.6} | (budget or {})
        return made.model_copy(update={"budget": BudgetSettings(**wanted)})

    return settings
