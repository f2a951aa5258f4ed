"""Webhooks over a real server: hints are durable, cause a look, and change nothing wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hitl.connectors.tables import Tables
from hitl.errors import StoreError, Unreachable
from hitl.service.webhook import LARGEST_BODY
from hitl.store import Store
from tests.service.web.live.serving import SECRET, Served, answer, cycle, post, served, tables, until
from tests.store.conftest import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    config = tables(tmp_path / "p")
    cycle(config)
    with served(config) as found:
        yield found


def store_of(service: Served) -> Store:
    return service.projects["p"].store


def config_of(service: Served) -> Path:
    return service.projects["p"].config


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_answer_and_its_hint_change_a_belief(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    url = "sqlite:///hitl.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    config = tables(tmp_path / "p", url=url)
    cycle(config)
    with served(config) as service:
        before = service.belief("i4").copy()
        answer(config, "i4,dee,yes", "i4,eve,yes", "i4,fay,yes")
        assert service.hint() == (200, {"queued": True})
        until(lambda: service.belief("i4")[1] > before[1] + 0.05)
        assert service.live.figures("p").labels >= 1
        until(lambda: store_of(service).hint("p") is None)
        snapshot = until(lambda: service.projects["p"].snapshot)
        row = snapshot.item_place["i4"]
        until(lambda: service.projects["p"].snapshot.view("label").consensus.probabilities[row, 1] > before[1])


def test_forged_unknown_and_malformed_ones_change_nothing(service: Served) -> None:
    pulls = service.live.figures("p").pulls
    for secret in (None, "", "s3cre", "s3cret!", "\xdf"):
        assert service.hint(secret=secret)[0] == 401
        assert service.hint("never", secret=secret)[0] == 401, "who has no secret learns no names"
    assert service.hint("never")[0] == 404
    about_others = json.dumps({"action": "PROJECT_UPDATED"}).encode()
    assert service.hint(body=about_others) == (200, {"queued": False})
    assert store_of(service).hint("p") is None
    assert service.live.figures("p").pulls == pulls
    before = service.belief("i4").tolist()
    for body in (
        b"",
        b"no json",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"action": "ANNOTATION_CREATED"}).encode(),
    ) * 3:
        assert service.hint(body=body) == (200, {"queued": True})
    until(lambda: store_of(service).hint("p") is None)
    assert service.belief("i4").tolist() == before


def test_without_the_secret_no_body_is_read(service: Served) -> None:
    """The answer is there before a byte of the body was sent; a body that is too large is a hint unread."""
    for secret, length, status in (("wrong", 100_000, b"401"), (SECRET, LARGEST_BODY + 1, b"200")):
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as sent:
            head = f"POST /webhook/p HTTP/1.1\r\nHost: x\r\nX-Hitl-Secret: {secret}\r\nContent-Length: {length}\r\n\r\n"
            sent.sendall(head.encode())
            assert status in sent.recv(1000)


def test_a_platform_that_hangs_stalls_no_webhook(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hangs(self: Tables, cursor: Any) -> Iterator[Any]:
        reached.set()
        go_on.wait(60)
        raise Unreachable("it does not answer")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "pull", hangs)
        service.hint()
        assert reached.wait(30)
        for _ in range(20):
            assert service.hint() == (200, {"queued": True})
        answer(config_of(service), "i4,dee,yes", "i4,eve,yes", "i4,fay,yes")
        before = service.belief("i4").tolist()
        go_on.set()
        until(lambda: service.live.figures("p").failures)
        assert store_of(service).hint("p") is not None, "no pull has answered it"
        assert service.live.figures("p").trouble == "it does not answer"
    until(lambda: service.belief("i4").tolist() != before)
    until(lambda: store_of(service).hint("p") is None)
    assert service.live.figures("p").trouble is None


def test_a_hint_that_comes_during_a_pull_is_not_cleared_by_it(service: Served) -> None:
    store = store_of(service)
    assert store.note_hint("q")
    assert not store.note_hint("q"), "a pull will come that begins after both"
    taken = store.take_hint("q")
    assert taken is not None
    assert store.note_hint("q"), "that pull may have begun before the annotation"
    assert not store.clear_hint("q", taken)
    taken = store.take_hint("q")
    assert taken is not None
    assert store.clear_hint("q", taken)
    assert store.hint("q") is None
    assert store.take_hint("q") is None
    store.note_hint("q")
    assert not store.clear_hint("q", taken), "another row of as many hints"


def test_a_hint_counted_ahead_stands_for_those_that_come_during_a_pull(service: Served) -> None:
    """They need no write, and no pull that began before them clears them."""
    store = store_of(service)
    store.note_hint("q")
    taken = store.take_hint("q", ahead=True)
    assert taken is not None
    assert (taken.count, taken.taken) == (2, 1)
    assert not store.note_hint("q"), "counted already"
    assert store.take_hint("q") is not None, "the next pull begins after it"
    assert store.note_hint("q"), "and this one comes after that"
    taken = store.take_hint("q")
    assert taken is not None
    assert store.clear_hint("q", taken)


def test_hints_during_pulls_are_all_answered_in_the_end(service: Served) -> None:
    """Also where each pull meets some, and counts one ahead for the next."""
    for turn in range(60):
        answer(config_of(service), f"i{turn % 8},new{turn},yes")
        assert service.hint() == (200, {"queued": True})
    until(lambda: store_of(service).hint("p") is None)
    there = {row["annotator"] for row in store_of(service).annotations("p", "label").to_pylist()}
    assert {f"new{turn}" for turn in range(60)} <= there


def test_a_hint_that_cannot_be_written_is_refused_and_looked_at(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Store, project: str) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "note_hint", fails)
    before = service.belief("i4").tolist()
    answer(config_of(service), "i4,dee,yes", "i4,eve,yes", "i4,fay,yes")
    assert service.hint()[0] == 503
    until(lambda: service.belief("i4").tolist() != before)


def test_a_hint_that_is_there_at_the_start_is_answered(tmp_path: Path) -> None:
    config = tables(tmp_path / "p")
    cycle(config)
    with Store(f"sqlite:///{tmp_path}/p/hitl.db") as store:
        store.note_hint("p")
    answer(config, "i4,dee,yes")
    with served(config) as service:
        until(lambda: store_of(service).hint("p") is None)
        assert ("i4", "dee") in {
            (row["item"], row["annotator"]) for row in store_of(service).annotations("p", "label").to_pylist()
        }


def test_a_cycle_waits_for_a_pull_that_looks_and_a_look_for_a_cycle(service: Served) -> None:
    store, config = store_of(service), config_of(service)
    held, done = threading.Event(), threading.Event()

    def look() -> None:
        with store.lease("p", brief=True):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=look)
    thread.start()
    assert held.wait(30)
    threading.Timer(0.3, done.set).start()
    cycle(config)  # no Busy
    assert done.is_set()
    thread.join(30)
    with store.lease("p"):
        answer(config, "i4,dee,yes", "i4,eve,yes", "i4,fay,yes")
        before = service.belief("i4").tolist()
        assert service.hint() == (200, {"queued": True})
        threading.Event().wait(0.3)
        assert store.hint("p") is not None
    until(lambda: service.belief("i4").tolist() != before)
    assert service.live.figures("p").failures == 0


def test_several_projects_have_hints_of_their_own(tmp_path: Path) -> None:
    first, second = tables(tmp_path / "p"), tables(tmp_path / "q")
    second.write_text(second.read_text().replace('name = "p"', 'name = "q q"'))
    cycle(first)
    cycle(second)
    with served(first, second) as service:
        answer(second, "i4,dee,yes", "i4,eve,yes")
        before = service.live.belief("q q", "label", "i4")
        assert post(service.port, "q%20q") == (200, {"queued": True})
        until(lambda: service.live.belief("q q", "label", "i4").tolist() != before.tolist())  # type: ignore[union-attr]
        assert service.live.figures("p").pulls == 1
