"""Describe who sends a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hitl.service.web.access.roles import EVERY, Role, role_in

How = Literal["session", "token", "proxy"]
"""Credential of a caller: our own login, an API token, or a reverse proxy that has authenticated them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request and their permissions.

    Attributes:
        name: of the user or of the token.
        roles: project -> role; `EVERY` stands for all projects.
        how: credential that identified the caller.
        csrf: value that the caller's forms send back as `csrf_token`; empty if none is needed.
    """

    name: str
    roles: Mapping[str, Role]
    how: How
    csrf: str = field(default="", repr=False)

    def role_in(self, project: str | None) -> Role | None:
        """Return the caller's role in this project, or in all of them for None. None: no role there."""
        return role_in(self.roles, project)

    @property
    def highest(self) -> Role | None:
        """Highest role in any project."""
        return max(self.roles.values(), default=None)

    @property
    def every(self) -> bool:
        """True if the caller sees all projects."""
        return EVERY in self.roles
