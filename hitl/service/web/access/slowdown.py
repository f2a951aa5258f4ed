"""Slow down failed logins by name and by address: the first few are free, and each further one doubles the wait.

An attempt counts when it begins, so that parallel attempts gain nothing, and is taken back when it succeeds. Each
process counts separately. The number of counts is bounded, and those of the oldest attempts are dropped first.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

FREE = 5
"""Attempts without a wait."""

LONGEST = 300.0
"""Maximum seconds to wait."""

FORGOTTEN = 3600.0
"""Seconds without an attempt after which the count resets."""

KEPT = 10_000
"""Maximum names counted, and also maximum addresses counted."""


LONGEST_NAME = 200
"""Maximum characters of a name that are compared."""


@dataclass(slots=True)
class _Count:
    attempts: int
    last: float

    def wait(self, now: float) -> float:
        """Return the seconds before the next attempt is allowed."""
        if self.attempts < FREE:
            return 0.0
        pause = min(2.0 ** min(self.attempts - FREE, 20), LONGEST)
        return max(0.0, self.last + pause - now)


class _Counts:
    """Attempts by key, the latest last."""

    def __init__(self) -> None:
        self._of: OrderedDict[Hashable, _Count] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        count = self._of.get(key)
        return 0.0 if count is None or now - count.last > FORGOTTEN else count.wait(now)

    def add(self, key: Hashable, now: float) -> None:
        count = self._of.pop(key, None)
        known = 0 if count is None or now - count.last > FORGOTTEN else count.attempts
        self._of[key] = _Count(known + 1, now)
        while len(self._of) > KEPT:
            self._of.popitem(last=False)

    def take_back(self, key: Hashable) -> None:
        count = self._of.get(key)
        if count is not None:
            count.attempts -= 1
            if count.attempts <= 0:
                del self._of[key]

    def forget(self, key: Hashable) -> None:
        self._of.pop(key, None)


class Slowdown:
    """Delays for logins, based on earlier attempts; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._names, self._addresses = _Counts(), _Counts()
        self._good: OrderedDict[Hashable, None] = OrderedDict()

    def begin(self, name: str, address: str) -> float:
        """Count an attempt and return 0, or return the seconds to wait without counting it."""
        where = network_of(address)
        with self._lock:
            now, key = self._clock(), self._key(name, where)
            wait = max(self._addresses.wait(where, now), self._names.wait(key, now))
            if not wait:
                self._addresses.add(where, now)
                self._names.add(key, now)
            return wait

    def succeeded(self, name: str, address: str) -> None:
        """Take a successful attempt off the count of the address, and clear the failures of the name."""
        where = network_of(address)
        with self._lock:
            self._addresses.take_back(where)
            self._names.forget(self._key(name, where))
            self._good[_pair(name, where)] = None
            self._good.move_to_end(_pair(name, where))
            while len(self._good) > KEPT:
                self._good.popitem(last=False)

    def _key(self, name: str, where: str) -> Hashable:
        """Return the key under which a name is counted. Addresses that it has logged in from are counted separately.

        Someone who tries passwords elsewhere therefore cannot lock the user out.
        """
        pair = _pair(name, where)
        return pair if pair in self._good else pair[0]


def _pair(name: str, where: str) -> tuple[str, str]:
    return name.casefold()[:LONGEST_NAME], where


def network_of(address: str) -> str:
    """Return the network an address is counted as: IPv4 as is, IPv6 by the /64 that one customer has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
