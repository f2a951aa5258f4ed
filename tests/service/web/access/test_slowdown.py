"""How long a login waits, by what was tried before, and that counting takes bounded memory."""

from __future__ import annotations

import pytest

from hitl.service.web.access import logins as module
from hitl.service.web.access.accounts import TooManyLogins
from hitl.service.web.access.logins import FORGOTTEN, FREE, LONGEST_WAIT, Slowdown, network_of
from tests.service.web.access.serving import Clock


def waits(slowdown: Slowdown, clock: Clock, name: str, address: str, tries: int) -> list[float]:
    """What each try is told to wait, when all of them wait as long as they are told."""
    told = []
    for _ in range(tries):
        wait = slowdown.begin(name, address)
        told.append(wait)
        if wait:
            clock.now += wait
            assert slowdown.begin(name, address) == 0
    return told


def test_a_wait_is_never_told_as_none() -> None:
    assert str(TooManyLogins(0.2)) == "too many failed logins; try again in 1 s"


def test_each_failure_doubles_the_wait(clock: Clock) -> None:
    slowdown = Slowdown(clock)
    told = waits(slowdown, clock, "ann", "10.0.0.1", FREE + 12)
    assert told[:FREE] == [0.0] * FREE
    assert told[FREE : FREE + 9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert told[FREE + 9 :] == [LONGEST_WAIT] * 3


def test_it_counts_by_name_and_by_address(clock: Clock) -> None:
    slowdown = Slowdown(clock)
    for n in range(FREE):
        assert slowdown.begin("ann", f"10.0.0.{n}") == 0
    assert slowdown.begin("ANN", "10.9.9.9") > 0, "one name from many addresses"
    for n in range(FREE):
        assert slowdown.begin(f"user{n}", "10.1.1.1") == 0
    assert slowdown.begin("cyd", "10.1.1.1") > 0, "one address with many names"
    assert slowdown.begin("cyd", "10.2.2.2") == 0, "what an address waits for does not count for the name"


def test_attempts_at_once_gain_nothing(clock: Clock) -> None:
    """They count when they begin, not when they have failed."""
    slowdown = Slowdown(clock)
    assert [slowdown.begin("ann", "10.0.0.1") == 0 for _ in range(100)].count(True) == FREE


def test_a_success_takes_back_its_own_attempt_alone(clock: Clock) -> None:
    """Who has a password of their own cannot wipe out the failures of their address."""
    slowdown = Slowdown(clock)
    for n in range(100):
        wait = slowdown.begin(f"victim{n}", "10.0.0.1")
        if wait:
            break
        if slowdown.begin("mallory", "10.0.0.1") == 0:
            slowdown.succeeded("mallory", "10.0.0.1")
    assert n == FREE
    clock.now += FORGOTTEN + 1
    assert slowdown.begin("ann", "10.0.0.1") == 0


def test_others_do_not_keep_a_user_out_of_a_known_address(clock: Clock) -> None:
    slowdown = Slowdown(clock)
    assert slowdown.begin("ann", "10.0.0.1") == 0
    slowdown.succeeded("ann", "10.0.0.1")
    for n in range(50):
        slowdown.begin("ann", f"10.6.6.{n}")
    assert slowdown.begin("ann", "10.7.7.7") > 0
    assert slowdown.begin("ann", "10.0.0.1") == 0
    assert max(waits(slowdown, clock, "ann", "10.0.0.1", FREE + 1)) > 0, "which has a count of its own"


def test_all_is_forgotten_after_an_hour(clock: Clock) -> None:
    slowdown = Slowdown(clock)
    waits(slowdown, clock, "ann", "10.0.0.1", FREE + 9)
    clock.now += FORGOTTEN + 1
    assert waits(slowdown, clock, "ann", "10.0.0.1", FREE + 1) == [0.0] * FREE + [1.0]


def test_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 100)
    slowdown = Slowdown(clock)
    for n in range(1_000):
        slowdown.begin(f"name{n}" * 1_000, f"10.0.{n // 250}.{n % 250}")
        slowdown.succeeded(f"good{n}", f"10.1.{n // 250}.{n % 250}")
    for counted in (slowdown._counts, slowdown._good):
        assert len(counted) == 100
    assert max(len(str(key)) for key in slowdown._counts) <= module.LONGEST_NAME + 20


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(address: str, network: str) -> None:
    assert network_of(address) == network
