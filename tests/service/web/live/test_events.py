"""Events to browsers, over a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hitl.service.web.live import broadcast
from tests.service.web.live.serving import Events, Served, answer, cycle, served, tables, until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    config = tables(tmp_path / "p")
    cycle(config)
    with served(config) as found:
        yield found


Listen = Callable[..., Events]


@pytest.fixture
def listen(service: Served) -> Iterator[Listen]:
    """A browser more; all are gone at the end."""
    there: list[Events] = []

    def one_more(last: str | None = None) -> Events:
        there.append(Events(service.port, last))
        return there[-1]

    yield one_more
    for each in there:
        each.close()


def test_a_browser_is_told_of_beliefs_and_cycles(service: Served, listen: Listen) -> None:
    events = listen()
    assert events.status == 200
    assert events.answer.headers["content-type"].startswith("text/event-stream")
    config = service.projects["p"].config
    answer(config, "i4,dee,yes", "i6,dee,no")
    service.hint()
    first, name, data = events.next()
    assert (name, data["question"], sorted(data["items"])) == ("belief", "label", ["i4", "i6"])
    cycle(config)
    found = [events.next() for _ in range(2)]
    assert [(name, data) for _, name, data in found] == [("cycle", {"number": 2}), ("plan", {"number": 2})]
    again = listen(last=first)
    assert [again.next()[0] for _ in range(2)] == [number for number, _, _ in found]


def test_who_was_away_too_long_is_told_to_reload(service: Served, listen: Listen) -> None:
    publish = service.live.broadcast.publish
    publish("p", "belief", {"question": "label", "items": ["i1"]})
    listening = listen()
    publish("p", "belief", {"question": "label", "items": ["i2"]})
    last = listening.next()[0]
    for n in range(broadcast.KEPT + 1):
        publish("p", "belief", {"question": "label", "items": [f"i{n}"]})
    for missed in (last, "another-7", "x", last.partition("-")[0] + "-999999"):
        assert listen(last=missed).next()[1] == "reload"
    publish("p", "belief", {"question": "label", "items": [f"i{n}" for n in range(broadcast.ITEMS + 1)]})
    assert listen(last=last).next()[1] == "reload"


def test_a_slow_browser_is_told_to_reload(service: Served, listen: Listen) -> None:
    """Its queue is bounded, and what it missed is not made up."""
    listening = listen()
    until(lambda: service.live.broadcast.clients == 1)
    client = next(iter(service.live.broadcast._clients["p"]))
    event = broadcast.Event(1, "belief", {})
    done = threading.Event()

    def flood() -> None:
        for _ in range(broadcast.WAITING + 5):
            client.put(event)
        assert len(client.queue) <= broadcast.WAITING
        done.set()

    client.loop.call_soon_threadsafe(flood)
    assert done.wait(30)
    assert listening.next()[1] == "reload"


def test_no_more_listen_than_may_and_who_goes_makes_room(
    service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "CLIENTS", 2)
    monkeypatch.setattr(broadcast, "HEARTBEAT", 0.1)
    first, second = listen(), listen()
    assert (first.status, second.status, listen().status) == (200, 200, 503)
    first.close()
    until(lambda: service.live.broadcast.clients == 1)
    assert listen().status == 200


def test_one_caller_leaves_room_for_others(service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "EACH", 2)
    assert [listen().status for _ in range(3)] == [200, 200, 503]
    assert service.live.broadcast.clients == 2


def test_a_heartbeat_keeps_the_connection(service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "HEARTBEAT", 0.05)
    listening = listen()
    lines = [listening.answer.readline() for _ in range(6)]
    assert lines.count(b": still here\n") >= 2


def test_a_connection_ends_after_its_time_and_when_the_service_stops(
    service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(broadcast, "LONGEST", 0.2)
        assert listen().answer.read().startswith(b"retry")
    listening = listen()
    until(lambda: service.live.broadcast.clients >= 1)
    service.live.broadcast.close()
    assert listening.answer.read().startswith(b"retry")
    assert listen().status == 503
