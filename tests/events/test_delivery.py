"""The queue and its deliveries, on both databases: nothing lost, retried by the schedule, given up, switched off."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from hitl.events import sender
from hitl.events.bodies import body_of
from hitl.events.sender import PAUSES, Sender, addresses_of, deliver, pause
from hitl.plan import Plan
from hitl.settings import Settings
from hitl.store import CycleRecord, Store
from hitl.store.events import KEPT, Announcement, Event
from tests.events.conftest import Telling
from tests.events.receivers import SECRET, answers, drips, hangs, receiving, verified

NOW = 1_700_000_000.0
FAR = 4_000_000_000.0


def announce(store: Store, *events: Event, told: Any = None) -> None:
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({}, Plan(), told=Announcement(events, told)))


def event(kind: str = "plan.waits", at: float | None = None, to: tuple[str, ...] = ("ci",)) -> Event:
    at = time.time() if at is None else at
    return Event(kind, at, body_of(kind, at, {"project": "p", "questions": 3, "url": None}), to)


def states(store: Store) -> list[tuple[str, str, int]]:
    return [(one.kind, one.state, one.attempts) for one in reversed(store.deliveries("p"))]


def one_try(store: Store, settings: Settings, now: float = FAR) -> None:
    """The attempt that is due at this time."""
    (address,) = addresses_of(settings, store)
    it = store.claim("p", "ci", 60.0, now)
    if it is not None:
        answer = address.send(it, 5.0)
        address.settle(it, answer)


def test_what_is_announced_arrives_once_signed_and_in_order(store: Store, telling: Telling) -> None:
    with receiving() as to:
        settings = telling({"url": to.url})
        announce(store, event("run.failed"), event("run.recovered"), event())
        deliver(settings, store)
        deliver(settings, store)
        assert to.kinds == ["run.failed", "run.recovered", "plan.waits"]
        assert all(verified(one, SECRET, time.time()) for one in to.got)
        assert [one.headers["content-type"] for one in to.got] == ["application/json"] * 3
        assert len({one.id for one in to.got}) == 3
        assert store.count_deliveries("p")["ci"].delivered == 3


def test_a_failure_is_sent_again_with_the_same_id_and_body_and_another_time(store: Store, telling: Telling) -> None:
    with receiving() as to:
        to.acts = [answers(500), answers(302, Location=to.url), answers(200)]
        settings = telling({"url": to.url})
        announce(store, event())
        for _ in range(4):
            one_try(store, settings)
        assert states(store) == [("plan.waits", "delivered", 3)]
        assert len(to.got) == 3
        assert len({(one.id, one.body) for one in to.got}) == 1
        assert all(verified(one, SECRET, time.time()) for one in to.got)


def test_it_is_not_sent_before_it_is_due_nor_while_somebody_else_sends_it(store: Store, telling: Telling) -> None:
    with receiving(503) as to:
        settings = telling({"url": to.url})
        announce(store, event())
        deliver(settings, store)
        deliver(settings, store)
        assert len(to.got) == 1
    it = store.claim("p", "ci", 60.0, FAR)
    assert it is not None
    assert store.claim("p", "ci", 60.0, FAR + 59.0) is None
    again = store.claim("p", "ci", 60.0, FAR + 61.0)  # whoever had it was killed
    assert again is not None
    assert (again.event, again.body, again.attempts) == (it.event, it.body, it.attempts + 1)
    store.lost("p", it, "too late to say so")
    assert states(store) == [("plan.waits", "waiting", 3)]
    store.arrived("p", again, "200 OK")
    assert states(store) == [("plan.waits", "delivered", 3)]


def test_two_who_claim_at_once_do_not_get_the_same(store: Store, url: str) -> None:
    announce(store, *(event() for _ in range(30)))
    got: list[str] = []

    def claim() -> None:
        with Store(url) as other:
            while (it := other.claim("p", "ci", 60.0)) is not None or len(got) < 30:
                if it is not None:
                    got.append(it.event)

    threads = [threading.Thread(target=claim, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == len(set(got)) == 30


def test_after_the_last_pause_it_is_given_up_and_said_and_can_be_sent_again(
    store: Store, telling: Telling, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving(500) as to:
        settings = telling({"url": to.url})
        announce(store, event())
        with caplog.at_level(logging.WARNING):
            for _ in range(len(PAUSES) + 5):
                one_try(store, settings)
        assert len(to.got) == len(PAUSES) + 1
        assert states(store) == [("plan.waits", "failed", len(PAUSES) + 1)]
        assert "given up" in store.deliveries("p")[0].said
        assert "given up: 500 Internal Server Error" in caplog.text
        assert "secret-part" not in caplog.text
        assert store.count_deliveries("p")["ci"].failed == 1
        to.act = answers(200)
        assert store.resend("p") == 1
        deliver(settings, store)
        assert states(store) == [("plan.waits", "delivered", 1)]


def test_pauses_grow_by_the_schedule_with_jitter_and_the_receiver_may_ask_for_more(store: Store) -> None:
    for attempts, least in enumerate(PAUSES, start=1):
        found = [pause(attempts) for _ in range(50)]
        assert least <= min(found) < max(found) <= 1.2 * least
    assert sum(PAUSES) > 2 * 24 * 3600
    assert pause(1, 3600.0) == 3600.0
    assert pause(1, 1e12) == sender.LONGEST_WAIT
    announce(store, event())
    it = store.claim("p", "ci", 60.0, NOW)
    assert it is not None
    store.later("p", it, "503", 300.0, NOW)
    assert store.claim("p", "ci", 60.0, NOW + 299.0) is None
    assert store.claim("p", "ci", 60.0, NOW + 300.0) is not None


def test_an_address_that_answers_again_gets_what_waits_at_once(store: Store, telling: Telling) -> None:
    with receiving() as to:
        to.acts = [answers(503)]
        settings = telling({"url": to.url})
        announce(store, event("run.failed"))
        deliver(settings, store)
        assert states(store) == [("run.failed", "waiting", 1)]
        announce(store, event("run.recovered"))
        deliver(settings, store)
        assert to.kinds == ["run.failed", "run.recovered", "run.failed"]
        assert {state for _, state, _ in states(store)} == {"delivered"}


def test_410_switches_an_address_off_until_its_url_is_another(store: Store, telling: Telling) -> None:
    with receiving(410) as to, receiving() as another:
        settings = telling({"url": to.url})
        announce(store, event(), event())
        for _ in range(2):
            deliver(settings, store)
            announce(store, event())
        assert len(to.got) == 1
        assert {state for _, state, _ in states(store)[:2]} == {"failed"}
        deliver(telling({"url": another.url}), store)
        assert another.kinds


@pytest.mark.parametrize("act", [hangs, drips])
def test_one_that_hangs_holds_up_no_other_and_is_left_when_the_time_is_over(
    store: Store, telling: Telling, monkeypatch: pytest.MonkeyPatch, act: Any
) -> None:
    monkeypatch.setattr(sender, "SECONDS", 1.5)
    with receiving(act) as slow, receiving() as fast:
        settings = telling({"url": slow.url}, {"url": fast.url})
        announce(store, *(event(to=("ci", "ci1")) for _ in range(3)))
        deliver(settings, store)
        assert len(fast.got) == 3
        assert len(slow.got) == 1
    counts = store.count_deliveries("p")
    assert (counts["ci1"].delivered, counts["ci"].waiting) == (3, 3)
    assert store.deliveries("p")[-2].said in ("", "no answer within 1.5 s")


def test_they_are_sent_until_they_are_stopped(store: Store, telling: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TURN", 0.02)
    with receiving() as to:
        running = Sender([(telling({"url": to.url}), store)])
        running.start()
        for n in range(3):
            announce(store, event())
            until = time.monotonic() + 30
            while len(to.got) <= n and time.monotonic() < until:
                time.sleep(0.01)
        running.stop(30.0)
        announce(store, event())
        assert len(to.got) == 3
        assert not any(thread.is_alive() for thread in running.threads)


def test_an_event_that_cannot_be_written_is_an_attempt_that_failed(store: Store, telling: Telling) -> None:
    """As one of another version, whose data have other names."""
    with receiving() as to:
        settings = telling({"url": to.url, "template": "slack"})
        other = event()
        announce(store, replace(other, body=body_of("plan.waits", other.at, {"project": "p"})))
        deliver(settings, store)
        assert (to.got, states(store)) == ([], [("plan.waits", "waiting", 1)])
        assert "hitl cannot write this event (KeyError" in store.deliveries("p")[-1].said


def test_a_courier_goes_on_after_an_error_that_nobody_expects(
    store: Store, telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "TURN", 0.02)
    claim, failed = store.claim, list[int]()

    def fails_once(*given: Any) -> Any:
        if not failed:
            failed.append(1)
            raise ZeroDivisionError
        return claim(*given)

    monkeypatch.setattr(store, "claim", fails_once)
    with receiving() as to:
        announce(store, event())
        running = Sender([(telling({"url": to.url}), store)])
        running.start()
        until = time.monotonic() + 30
        while not to.got and time.monotonic() < until:
            time.sleep(0.01)
        running.stop(30.0)
        assert len(to.got) == 1


@pytest.mark.parametrize("lost", ["secret", "address"])
def test_what_cannot_be_sent_waits_and_is_given_up_after_days(store: Store, telling: Telling, lost: str) -> None:
    with receiving() as to:
        settings = telling({"url": to.url})
        (one,) = settings.events
        changed = one.model_copy(update={"secret": None} if lost == "secret" else {"name": "another"})
        announce(store, event(at=time.time() - 6 * 24 * 3600), event())
        deliver(settings.model_copy(update={"events": (changed,)}), store)
        assert to.got == []
        assert [state for _, state, _ in states(store)] == ["failed", "waiting"]
        assert ("HITL_EVENTS_CI_SECRET" if lost == "secret" else "no longer in hitl.toml") in store.deliveries("p")[
            -1
        ].said
        deliver(settings, store)
        assert len(to.got) == 1


def test_events_are_forgotten_after_a_month_and_what_was_told_stays(store: Store) -> None:
    now = time.time()
    announce(store, event(at=now - KEPT - 60), event(at=now - KEPT + 60), told={"reached": [""]})
    store.give_up("p", "ci", "given up")
    announce(store, event("run.failed"))
    assert [kind for kind, _, _ in states(store)] == ["plan.waits", "run.failed"]
    assert store.told("p") == {"reached": [""]}
    announce(store, told={})
    assert store.told("p") == {}


def test_a_clock_that_was_ahead_costs_no_event(store: Store, telling: Telling) -> None:
    """An event that still waits stays, however old it is; one that was claimed in the future is not held until then."""
    now = time.time()
    announce(store, event("run.failed", at=now - KEPT - 60))
    announce(store, event("run.recovered", at=now + KEPT + 24 * 3600.0))
    assert [kind for kind, _, _ in states(store)] == ["run.failed", "run.recovered"]
    assert store.claim("p", "ci", sender.HELD, now + 365 * 24 * 3600.0) is not None
    with receiving() as to:
        deliver(telling({"url": to.url}), store)
        assert to.kinds == ["run.failed", "run.recovered"]


def test_nothing_is_announced_where_the_cycle_is_not_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from hitl.store import results

    def broken(*arguments: Any) -> None:
        announce_it(*arguments)
        raise RuntimeError("killed here")

    announce_it = results.announce
    monkeypatch.setattr(results, "announce", broken)
    with pytest.raises(RuntimeError):
        announce(store, event(), told={"reached": [""]})
    assert store.deliveries("p") == []
    assert store.told("p") == {}
    assert store.last_cycle("p") is None


def test_projects_of_one_store_do_not_see_each_other(store: Store, telling: Telling) -> None:
    with receiving() as to:
        announce(store, event())
        other = telling({"url": to.url}).model_copy(update={"name": "q"})
        deliver(other, store)
        assert to.got == []
        assert store.deliveries("q") == []
