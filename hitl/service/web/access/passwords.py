"""Hash passwords with Argon2id, and compare them in the same time whether or not the user exists."""

from __future__ import annotations

import secrets
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING

from hitl.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST = 12
"""Minimum characters of a password."""

LONGEST = 1_000
"""Maximum characters of a password. Hashing longer ones takes time and adds no security."""


def require_good(password: str) -> None:
    """Raise BadInput if a password is too short or too long. The message does not show it."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise BadInput(f"password: {len(password):,} characters; expected {SHORTEST} to {LONGEST:,}")


class Passwords:
    """Hash and compare passwords, with the current parameters of argon2-cffi (Argon2id, RFC 9106)."""

    def hash(self, password: str) -> str:
        """Return the hash of a password. Raises BadInput if its length is wrong."""
        require_good(password)
        return self._hasher.hash(_spelled(password))

    def matches(self, kept: str | None, password: str) -> bool:
        """Return True if the password is right. Takes equally long if there is no hash to compare with (None)."""
        from argon2.exceptions import InvalidHashError, VerificationError

        text = _spelled(password[:LONGEST])
        try:
            right = self._hasher.verify(self._nobody if kept is None else kept, text)
        except (VerificationError, InvalidHashError):
            return False
        return right and kept is not None and len(password) <= LONGEST

    def is_old(self, kept: str) -> bool:
        """Return True if it was hashed with other than the current parameters."""
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
        """Hash of a password that nobody knows."""
        return self._hasher.hash(secrets.token_hex())


def _spelled(password: str) -> str:
    """Normalize letters that keyboards compose in different ways."""
    return unicodedata.normalize("NFKC", password)
