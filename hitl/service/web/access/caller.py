"""Who sends a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hitl.service.web.access.roles import EVERY, Role, role_in

How = Literal["session", "token", "proxy"]
"""By a login of ours, by an API token, or by a reverse proxy that has checked who it is."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, and what they may do.

    Attributes:
        name: of the user or of the token.
        roles: project -> role; `EVERY` stands for all projects.
        how: what the name is known by.
        csrf: what forms of this caller send back as `csrf_token`; empty where none is needed.
    """

    name: str
    roles: Mapping[str, Role]
    how: How
    csrf: str = field(default="", repr=False)

    def role_in(self, project: str | None) -> Role | None:
        """The role in this project, in all of them for None; None where the caller has none there."""
        return role_in(self.roles, project)

    @property
    def highest(self) -> Role | None:
        """The largest of the roles, whatever the project."""
        return max(self.roles.values(), default=None)

    @property
    def every(self) -> bool:
        """Whether the caller sees all projects."""
        return EVERY in self.roles
