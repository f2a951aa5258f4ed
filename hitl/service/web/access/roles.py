"""Roles: what a caller may do in a project, or in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from hitl.errors import BadInput

EVERY = ""
"""Stands for all projects where a role is kept; no project has this name."""


class Role(IntEnum):
    """Each may do what the one before it may.

    Example:
        >>> Role.VIEWER < Role.LEAD < Role.ADMIN
        True
        >>> Role.of("lead").word
        'lead'
    """

    VIEWER = 1
    """Reads."""
    LEAD = 2
    """Approves plans, sends items back, starts cycles."""
    ADMIN = 3
    """Gives and takes access."""

    @property
    def word(self) -> str:
        """How it is written."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role:
        """The role that is written so. Raises BadInput where there is none."""
        for role in cls:
            if role.word == word:
                return role
        raise BadInput(f"role: {word!r} is unknown; expected one of {', '.join(role.word for role in cls)}")


def role_in(roles: Mapping[str, Role], project: str | None) -> Role | None:
    """The larger of the role in this project and the role in all of them; `project` None: that in all of them."""
    found = [roles[name] for name in {EVERY, project or EVERY} if name in roles]
    return max(found, default=None)
