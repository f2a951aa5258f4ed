"""Check passwords with Argon2id, and slow down logins that fail.

Attempts are counted per name and per address. The first few cause no wait, and each further one doubles it. An attempt
counts when it begins, so that parallel attempts gain nothing, and is uncounted if it succeeds. Counts are in memory and
limited in number; the oldest are dropped first.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hitl.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 1_000
"""Minimum and maximum characters of a password. Hashing longer ones takes time and adds no security."""
FREE = 5  # attempts without a wait
LONGEST_WAIT = 300.0  # maximum seconds to wait
FORGOTTEN = 3600.0  # seconds without an attempt after which the count resets
KEPT = 20_000  # maximum counts kept, and also maximum (name, network) pairs kept that have logged in
LONGEST_NAME = 200  # maximum characters of a name that are compared


class Passwords:
    """Hash and compare passwords, with the current parameters of argon2-cffi (Argon2id, RFC 9106)."""

    def hash(self, password: str) -> str:
        """Return the hash of a password. Raises BadInput if its length is wrong, without showing it."""
        if not SHORTEST <= len(password) <= LONGEST:
            raise BadInput(f"password: {len(password):,} characters; expected {SHORTEST} to {LONGEST:,}")
        return self._hasher.hash(_normalized(password))

    def matches(self, stored: str | None, password: str) -> bool:
        """Return True if the password is right. Takes equally long if there is no hash to compare with (None)."""
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            right = self._hasher.verify(stored or self._hash_of_nobody, _normalized(password[:LONGEST]))
        except (VerificationError, InvalidHashError):
            return False
        return right and stored is not None and len(password) <= LONGEST

    @cached_property
    def _hasher(self) -> PasswordHasher:
        try:
            from argon2 import PasswordHasher
        except ImportError:
            raise MissingExtra("users with passwords need argon2: pip install 'hitl-toolkit[service]'") from None
        return PasswordHasher()

    @cached_property
    def _hash_of_nobody(self) -> str:
        return self._hasher.hash(secrets.token_hex())


def _normalized(password: str) -> str:
    """Normalize letters that keyboards compose in different ways."""
    return unicodedata.normalize("NFKC", password)


class Slowdown:
    """Delays for logins, based on earlier attempts; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._counts: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()  # key -> attempts, time of the last
        self._good: OrderedDict[Hashable, None] = OrderedDict()  # (name, network) that have logged in

    def begin(self, name: str, address: str) -> float:
        """Count an attempt and return 0, or return the seconds to wait without counting it."""
        with self._lock:
            now, keys = self._clock(), self._keys(name, address)
            wait = max(self._wait(key, now) for key in keys)
            for key in keys if not wait else ():
                _put(self._counts, key, (self._attempts(key, now) + 1, now))
            return wait

    def succeeded(self, name: str, address: str) -> None:
        """Subtract a successful attempt from the count of the address, and clear the count of the name."""
        with self._lock:
            by_name, by_address = self._keys(name, address)
            self._counts.pop(by_name, None)
            if by_address in self._counts:
                attempts, last = self._counts[by_address]
                self._counts[by_address] = attempts - 1, last
            _put(self._good, (_shortened(name), network_of(address)), None)

    def _keys(self, name: str, address: str) -> tuple[Hashable, Hashable]:
        """Return the two keys under which an attempt is counted: for the name, and for the address.

        If the name has logged in from this network before, the first key is the pair of both. Failed attempts from
        elsewhere then do not lock the user out.
        """
        pair = _shortened(name), network_of(address)
        return pair if pair in self._good else ("name", pair[0]), ("address", pair[1])

    def _attempts(self, key: Hashable, now: float) -> int:
        attempts, last = self._counts.get(key, (0, now))
        return attempts if now - last <= FORGOTTEN else 0

    def _wait(self, key: Hashable, now: float) -> float:
        attempts = self._attempts(key, now)
        if attempts < FREE:
            return 0.0
        pause = min(2.0 ** min(attempts - FREE, 20), LONGEST_WAIT)
        return max(0.0, self._counts[key][1] + pause - now)


def _put(bounded: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    bounded[key] = value
    bounded.move_to_end(key)
    while len(bounded) > KEPT:
        bounded.popitem(last=False)


def _shortened(name: str) -> str:
    return name.casefold()[:LONGEST_NAME]


def network_of(address: str) -> str:
    """Return the network that an address is counted as: IPv4 as is, IPv6 as its /64, which one customer has."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
