"""Define the roles of callers, in one project or in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from hitl.errors import BadInput

EVERY = ""
"""Key of a role in all projects; no project has this name."""


class Role(IntEnum):
    """Roles in ascending order; each includes the permissions of the one before.

    Example:
        >>> Role.VIEWER < Role.LEAD < Role.ADMIN
        True
        >>> Role.of("lead").word
        'lead'
    """

    VIEWER = 1
    """May read."""
    LEAD = 2
    """May approve plans, send items back and start runs."""
    ADMIN = 3
    """May grant and revoke access."""

    @property
    def word(self) -> str:
        """Role as a word."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role:
        """Return the role for a word. Raises BadInput if there is none."""
        for role in cls:
            if role.word == word:
                return role
        raise BadInput(f"role: {word!r} is unknown; expected one of {', '.join(role.word for role in cls)}")


def role_in(roles: Mapping[str, Role], project: str | None) -> Role | None:
    """Return the higher of the roles in this project and in all of them. `project` None: only the latter."""
    found = [roles[name] for name in {EVERY, project or EVERY} if name in roles]
    return max(found, default=None)
