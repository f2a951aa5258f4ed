"""Accounts in SQLite and in a real PostgreSQL, and an application to log in to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI

from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.logins import Passwords, Slowdown
from tests.service.web.access.serving import Clock, application
from tests.store.conftest import postgres, postgres_url, sqlite_url, url

__all__ = ["postgres", "postgres_url", "sqlite_url", "url"]


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of Argon2id with parameters that take no time; test_passwords.py looks at the real ones."""
    monkeypatch.setattr(Passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(url: str, clock: Clock) -> Iterator[Accounts]:
    """Each test that takes it runs on both databases."""
    with Accounts(url, clock=clock, slowdown=Slowdown(clock)) as accounts:
        yield accounts


@pytest.fixture
def here(sqlite_url: str, clock: Clock) -> Iterator[Accounts]:
    """In SQLite alone, for tests of what does not depend on the database."""
    with Accounts(sqlite_url, clock=clock, slowdown=Slowdown(clock)) as accounts:
        yield accounts


@pytest.fixture
def app(here: Accounts) -> FastAPI:
    return application(here)
