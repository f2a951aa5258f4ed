"""Passwords: kept by Argon2id alone, and compared in the same time whether there is such a user or not."""

from __future__ import annotations

import secrets
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING

from hitl.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST = 12
"""Characters of a password, at least."""

LONGEST = 1_000
"""Characters of a password, at most: hashing a longer one takes time and gains nothing."""


def require_good(password: str) -> None:
    """Raise BadInput for a password that is too short or too long; the message does not show it."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise BadInput(f"password: {len(password):,} characters; expected {SHORTEST} to {LONGEST:,}")


class Passwords:
    """Hashes with the present parameters of argon2-cffi (Argon2id, RFC 9106), and compares."""

    def hash(self, password: str) -> str:
        """What is kept of a password. Raises BadInput where its length is wrong."""
        require_good(password)
        return self._hasher.hash(_spelled(password))

    def matches(self, kept: str | None, password: str) -> bool:
        """Whether this is the password; takes as long where there is nothing to compare with (None)."""
        from argon2.exceptions import InvalidHashError, VerificationError

        text = _spelled(password[:LONGEST])
        try:
            right = self._hasher.verify(self._nobody if kept is None else kept, text)
        except (VerificationError, InvalidHashError):
            return False
        return right and kept is not None and len(password) <= LONGEST

    def is_old(self, kept: str) -> bool:
        """Whether it was hashed with other parameters than the present ones."""
        return self._hasher.check_needs_rehash(kept)

    @cached_property
    def _hasher(self) -> PasswordHasher:
        try:
            from argon2 import PasswordHasher
        except ImportError:
            raise MissingExtra("users with passwords need argon2: pip install 'hitl-toolkit[service]'") from None
        return PasswordHasher()

    @cached_property
    def _nobody(self) -> str:
        """The hash of a password that nobody knows."""
        return self._hasher.hash(secrets.token_hex())


def _spelled(password: str) -> str:
    """One spelling of letters that keyboards compose in different ways."""
    return unicodedata.normalize("NFKC", password)
