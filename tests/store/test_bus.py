"""Several processes of one service on a real PostgreSQL: one leads, all hear one another, another leads after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from hitl.store import Store
from hitl.store.bus import LONGEST, Bus


class Member:
    """One process."""

    def __init__(self, store: Store, service: str = "p") -> None:
        self.heard: list[Any] = []
        self.led, self.lost = threading.Event(), threading.Event()
        self.bus = Bus(store.database, service, self.heard.append, self.led.set, self.lost.set)
        self.bus.start()

    def hears(self, message: Any) -> bool:
        return until(lambda: message in self.heard)


def until(what: Callable[[], bool]) -> bool:
    """Whether it comes to that."""
    for _ in range(3000):
        if what():
            return True
        threading.Event().wait(0.01)
    return False


@pytest.fixture
def join(postgres_url: str) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []
    with Store(postgres_url) as store:

        def join(service: str = "p") -> Member:
            made.append(Member(store, service))
            return made[-1]

        yield join
        for one in made:
            one.bus.stop()


def test_one_leads_and_another_after_it(join: Callable[..., Member]) -> None:
    first = join()
    assert first.led.wait(30)
    second, other = join(), join("another service")
    assert other.led.wait(30), "each service has its own"
    assert not second.led.wait(1.5)
    first.bus.stop()
    assert not first.lost.is_set(), "it was told to stop"
    assert second.led.wait(30)
    assert second.bus.leads
    assert not first.bus.leads


def test_all_others_hear_what_one_tells(join: Callable[..., Member]) -> None:
    one, two, other = join(), join(), join("another service")
    assert until(lambda: _hear(one, two))
    assert one.bus.tell({"pulled": "p", "items": ["ünï'", "x"]})
    assert two.hears({"pulled": "p", "items": ["ünï'", "x"]})
    assert not other.heard
    assert not [message for message in one.heard if "pulled" in message], "who tells knows"
    assert not one.bus.tell({"items": ["x" * LONGEST]}), "they find out by looking"


def test_what_nobody_understands_ends_nothing(join: Callable[..., Member]) -> None:
    one, two = join(), join()
    assert until(lambda: _hear(one, two))
    taken = two.bus._heard

    def refuses(message: Any) -> None:
        two.bus._heard = taken
        raise KeyError("items")

    two.bus._heard = refuses
    one.bus.tell({"of": "a newer version"})
    assert until(lambda: two.bus._heard == taken)
    one.bus.tell({"n": 2})
    assert two.hears({"n": 2})


def test_whoever_loses_the_connection_leads_no_more(join: Callable[..., Member], postgres_url: str) -> None:
    first = join()
    assert first.led.wait(30)
    second = join()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    assert first.lost.wait(30)
    assert until(lambda: first.bus.leads != second.bus.leads), "one of them leads again"
    assert until(lambda: _hear(first, second))


def _hear(one: Member, two: Member) -> bool:
    """Whether each hears the other: what is told before somebody listens is not heard."""
    one.bus.tell({"hello": 1})
    two.bus.tell({"hello": 2})
    return {"hello": 2} in one.heard and {"hello": 1} in two.heard
