"""Define callers and their roles, in one project or in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from hitl.errors import BadInput

EVERY = ""  # key of a role in all projects; no project has this name


class Role(IntEnum):
    """Roles in ascending order; each includes the permissions of the one before.

    A viewer may read. A lead may also approve plans, send items back and start runs. An admin may also grant access."""

    VIEWER = 1
    LEAD = 2
    ADMIN = 3

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


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request and their permissions.

    Attributes:
        name: name of the user or of the token.
        roles: project -> role; `EVERY` stands for all projects.
        how: how they were authenticated: by our own login, an API token, or a reverse proxy.
        csrf: value that the caller's forms send back as `csrf_token`; empty if not needed.
    """

    name: str
    roles: Mapping[str, Role]
    how: Literal["session", "token", "proxy"]
    csrf: str = field(default="", repr=False)

    def role_in(self, project: str | None) -> Role | None:
        """Return the caller's role in this project (None: in all projects), or None.

        A role in all projects counts if it is higher.
        """
        return max((self.roles[name] for name in {EVERY, project or EVERY} if name in self.roles), default=None)

    @property
    def highest(self) -> Role | None:
        """Highest role in any project."""
        return max(self.roles.values(), default=None)
