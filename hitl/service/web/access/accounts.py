"""Manage users, sessions and API tokens in tables of a store's database.

    user      a name and an Argon2id hash of the password; a user without a password can log in only through a proxy
    grant     a role of a user in one project, or in all of them
    session   a login: 256 random bits, stored as SHA-256; it ends after 12 hours, after 2 hours without a request, on
              logout, and when the password changes
    token     a credential for programs: `hitl_` and 256 random bits, stored as SHA-256; with its own role

All accounts are in one database, however many projects are served. Permissions are read on each request, so revoking
one takes effect at once.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from hitl.errors import BadInput, StoreError
from hitl.service import log
from hitl.service.web.access.logins import Passwords, Slowdown
from hitl.service.web.access.roles import EVERY, Caller, Role
from hitl.store.database import Database
from hitl.store.schema import grant, session, token, user

LIFETIME = 12 * 3600.0  # seconds after which a session ends
IDLE = 2 * 3600.0  # seconds without a request after which a session ends
AHEAD = 300.0
"""Maximum seconds that a session's start may lie in the future. A session from a clock set further ahead is refused."""
TOUCH = 60.0  # precision of the time of last use, in seconds
TOKEN_PREFIX = "hitl_"  # prefix of API tokens, so that a leaked one is recognized
LONGEST_NAME = 100  # maximum characters of the name of a user or a token

_log = logging.getLogger(__name__)


class WrongLogin(BadInput):
    """Unknown user or wrong password."""


class TooManyLogins(BadInput):
    """Logins under this name, or from this address, failed too often. Wait `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many failed logins; try again in {math.ceil(seconds)} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class User:
    """A user; times are seconds since the epoch."""

    name: str
    roles: Mapping[str, Role]
    has_password: bool
    created: float


@dataclass(frozen=True, slots=True)
class Token:
    """An API token without its secret; `project` None: all projects. Times are seconds since the epoch."""

    id: str
    name: str
    role: Role
    project: str | None
    created: float
    used: float | None

    @property
    def made(self) -> str:
        """Creation time, to the minute."""
        return _minute(self.created)

    @property
    def last_used(self) -> str:
        """Time of last use, to the minute; empty if never used."""
        return "" if self.used is None else _minute(self.used)


class Accounts:
    """Users, sessions and API tokens.

    `database` is an open database, or the address of one, which is opened here and closed by `close`. `clock` returns
    seconds since the epoch. Raises StoreError if the database cannot be used, here or later.
    """

    def __init__(
        self, database: Database | str, *, clock: Callable[[], float] = time.time, slowdown: Slowdown | None = None
    ) -> None:
        self._own = isinstance(database, str)
        self.database = Database(database) if isinstance(database, str) else database
        self._clock, self._passwords, self._slowdown = clock, Passwords(), slowdown or Slowdown()
        self._proxy_key = secrets.token_bytes(32)
        self._touched: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hitl-touches")

    def __repr__(self) -> str:
        return f"Accounts({self.database.name!r})"

    def __enter__(self) -> Accounts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write pending times of use, and close connections that were opened here."""
        self._thread.shutdown()
        if self._own:
            self.database.close()

    def add_user(self, name: str, password: str | None, role: Role, project: str | None = None) -> None:
        """Add a user with a role in one project, or in all (None).

        A user without a password can log in only through a proxy. Raises BadInput if the name is taken or the length of
        the password is wrong.
        """
        _require_name("user", name)
        hashed = None if password is None else self._passwords.hash(password)
        row = {"name": name, "password": hashed, "created": self._clock()}
        with self.database.write() as connection:
            insert = self.database.insert(user).values(row).on_conflict_do_nothing()
            if connection.execute(insert.execution_options(preserve_rowcount=True)).rowcount != 1:
                raise BadInput(f"user: {name!r} exists already; `hitl users role` changes its role")
            self._grant(connection, name, role, project)

    def set_role(self, name: str, role: Role | None, project: str | None = None) -> None:
        """Set a user's role in a project, or in all (None). Role None removes it.

        Raises BadInput if there is no such user.
        """
        with self.database.write() as connection:
            _require_user(connection, name)
            self._grant(connection, name, role, project)

    def set_password(self, name: str, password: str) -> None:
        """Change a user's password and end all of the user's sessions.

        Raises BadInput if there is no such user or the length of the password is wrong.
        """
        hashed = self._passwords.hash(password)
        with self.database.write() as connection:
            _require_user(connection, name)
            _replace_password(connection, name, hashed)

    def remove_user(self, name: str) -> None:
        """Remove a user, with roles and sessions. Raises BadInput if there is no such user."""
        with self.database.write() as connection:
            _require_user(connection, name)
            for table in (session, grant, user):
                connection.execute(sa.delete(table).where(table.c.name == name))

    def users(self) -> list[User]:
        """Return all users, by name."""
        query = sa.select(user, grant.c.project, grant.c.role).join_from(
            user, grant, user.c.name == grant.c.name, isouter=True
        )
        by_name: dict[str, list[Any]] = {}
        for row in self.database.rows(query.order_by(user.c.name)):
            by_name.setdefault(row.name, []).append(row)
        return [
            User(name, _roles(rows), rows[0].password is not None, rows[0].created) for name, rows in by_name.items()
        ]

    def anyone(self) -> bool:
        """Return True if there is a user or a token."""
        return any(self.database.scalar(sa.select(sa.exists(sa.select(table)))) for table in (user, token))

    def _grant(self, connection: sa.Connection, name: str, role: Role | None, project: str | None) -> None:
        where = project or EVERY
        if role is None:
            connection.execute(sa.delete(grant).where(grant.c.name == name, grant.c.project == where))
            return
        self.database.upsert(connection, grant, [{"name": name, "project": where, "role": role.word}])

    def log_in(self, name: str, password: str, address: str = "") -> str:
        """Begin a session and return the secret for its cookie.

        Raises WrongLogin, or TooManyLogins after too many failures. Unknown names take as long as known ones, so that
        the time does not reveal which names exist.
        """
        stored = self._checked(name, password, address)
        with self.database.write() as connection:
            _require_unchanged(connection, name, stored)
            return self._begin(connection, name)

    def change_password(self, name: str, old: str, new: str, address: str = "") -> str:
        """Change the password of a user who knows the old one. All sessions end, and a new one begins.

        Raises WrongLogin and TooManyLogins as `log_in` does, and BadInput if the length of the new password is wrong.
        """
        stored = self._checked(name, old, address)
        renewed = self._passwords.hash(new)
        with self.database.write() as connection:
            _require_unchanged(connection, name, stored)
            _replace_password(connection, name, renewed)
            return self._begin(connection, name)

    def log_out(self, secret: str) -> None:
        """End a session."""
        with self.database.write() as connection:
            connection.execute(sa.delete(session).where(session.c.digest == _digest(secret)))

    def in_session(self, secret: str) -> Caller | None:
        """Return the caller of this session, or None if it is unknown or has ended."""
        query = sa.select(session, grant.c.project, grant.c.role).where(session.c.digest == _digest(secret))
        rows = self.database.rows(query.join_from(session, grant, session.c.name == grant.c.name, isouter=True))
        if not rows:
            return None
        first, now = rows[0], self._clock()
        if not (-AHEAD <= now - first.created < LIFETIME and -AHEAD <= now - first.seen < IDLE):
            return None
        self._touch(session.c.seen, first.digest, first.seen)
        return Caller(first.name, _roles(rows), "session", first.csrf)

    def by_proxy(self, name: str, role: Role | None) -> Caller | None:
        """Return the caller for a user let in by a reverse proxy, or None if the user has no access.

        An unknown user gets `role` in all projects, or no access if `role` is None or if the name looks like that of a
        known user (`_alike`).
        """
        if not _is_name(name):
            return None
        users = {one.name: one for one in self.users()}
        roles = users[name].roles if name in users else {} if role is None else {EVERY: role}
        if name not in users and (role is None or _alike(name) in map(_alike, users)):
            return None
        csrf = hmac.new(self._proxy_key, name.encode(), "sha256").hexdigest()
        return Caller(name, roles, "proxy", csrf)

    def _checked(self, name: str, password: str, address: str) -> str:
        wait = self._slowdown.begin(name, address)
        if wait:
            raise TooManyLogins(wait)
        query = sa.select(user.c.password).where(user.c.name == name)
        stored = self.database.scalar(query) if _is_name(name) else None  # a database may reject other names
        if not self._passwords.matches(stored, password) or stored is None:
            # Others may have typed their password here, so only names of users are logged.
            log.event(_log, "login failed", logging.WARNING, client=address, user=name if stored else None)
            raise WrongLogin("name or password is wrong")
        self._slowdown.succeeded(name, address)
        return str(stored)

    def _begin(self, connection: sa.Connection, name: str) -> str:
        """Begin a session and return its secret. Delete sessions that have ended or began while the clock was ahead."""
        secret, now = secrets.token_urlsafe(32), self._clock()
        over = (session.c.created <= now - LIFETIME) | (session.c.seen <= now - IDLE)
        ahead = (session.c.created > now + AHEAD) | (session.c.seen > now + AHEAD)
        connection.execute(sa.delete(session).where(over | ahead))
        row = {"digest": _digest(secret), "name": name, "csrf": secrets.token_urlsafe(32), "created": now, "seen": now}
        connection.execute(sa.insert(session).values(row))
        return secret

    def create_token(self, name: str, role: Role, project: str | None = None) -> str:
        """Create an API token for one project, or for all (None). It is returned once; only its SHA-256 is stored."""
        _require_name("token", name)
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        row = {"token": secrets.token_hex(4), "digest": _digest(secret), "name": name, "role": role.word}
        with self.database.write() as connection:
            more = {"project": project or EVERY, "created": self._clock(), "used": None}
            connection.execute(sa.insert(token).values(row | more))
        return secret

    def tokens(self) -> list[Token]:
        """Return all tokens, oldest first."""
        return [
            Token(row.token, row.name, Role.of(row.role), row.project or None, row.created, row.used)
            for row in self.database.rows(sa.select(token).order_by(token.c.created, token.c.token))
        ]

    def revoke(self, token_id: str) -> None:
        """Revoke a token by its id. Raises BadInput if there is no such token."""
        with self.database.write() as connection:
            if connection.execute(sa.delete(token).where(token.c.token == token_id)).rowcount != 1:
                raise BadInput(f"token: there is no {token_id!r}; `hitl tokens list` shows all")

    def with_token(self, secret: str) -> Caller | None:
        """Return the caller this token belongs to, or None if it is unknown or revoked."""
        if not secret.startswith(TOKEN_PREFIX):
            return None
        for row in self.database.rows(sa.select(token).where(token.c.digest == _digest(secret))):
            self._touch(token.c.used, row.digest, row.used or 0.0)
            return Caller(row.name, {row.project: Role.of(row.role)}, "token")
        return None

    def wait(self) -> None:
        """Wait for pending times of use to be written."""
        self._thread.submit(lambda: None).result()

    def _touch(self, column: sa.Column[Any], digest: str, last: float) -> None:
        """Record a use, at most once a minute, in the background because a run may hold the write lock."""
        now = self._clock()
        if now - max(last, self._touched.get(digest, 0.0)) < TOUCH:
            return
        self._touched[digest] = now
        row = (column.table.c.digest == digest, sa.or_(column.is_(None), column < now))
        self._thread.submit(self._write, sa.update(column.table).where(*row).values({column: now}))

    def _write(self, update: sa.Update) -> None:
        try:
            with self.database.write() as connection:
                connection.execute(update)
        except StoreError as error:
            _log.warning("the time of a request was not noted: %s", error)


def _require_user(connection: sa.Connection, name: str) -> None:
    """Raise unless the user exists, and lock it until the transaction ends."""
    if connection.execute(sa.select(user.c.name).where(user.c.name == name).with_for_update()).first() is None:
        raise BadInput(f"user: there is no {name!r}; `hitl users list` shows all")


def _require_unchanged(connection: sa.Connection, name: str, stored: str) -> None:
    """Raise if the password has changed since it was checked, so that no session begins with the old password."""
    query = sa.select(user.c.password).where(user.c.name == name).with_for_update()
    if connection.execute(query).scalar() != stored:
        raise WrongLogin("name or password is wrong")


def _replace_password(connection: sa.Connection, name: str, hashed: str) -> None:
    connection.execute(sa.update(user).where(user.c.name == name).values(password=hashed))
    connection.execute(sa.delete(session).where(session.c.name == name))


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _digest(secret: str) -> str:
    """Return the stored form of a secret. Its 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _roles(rows: Iterable[Any]) -> dict[str, Role]:
    return {row.project: Role.of(row.role) for row in rows if row.role is not None}


def _alike(name: str) -> str:
    """Normalize case and Unicode composition, so that similar names compare equal."""
    return unicodedata.normalize("NFC", name).casefold()


def _is_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name == name.strip() and name.isprintable()


def _require_name(noun: str, name: str) -> None:
    if not _is_name(name):
        raise BadInput(
            f"{noun}: {name!r} is no name; expected 1 to {LONGEST_NAME} characters, without spaces at the ends"
        )
