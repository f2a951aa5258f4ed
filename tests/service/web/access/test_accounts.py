"""Users, sessions and tokens in both databases: what begins, what ends, and what is kept of a secret."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from hitl.errors import BadInput, BadSettings
from hitl.service.web.access.accounts import IDLE, LIFETIME, Accounts, WrongLogin
from hitl.service.web.access.logins import LONGEST, SHORTEST, Passwords
from hitl.service.web.access.proxies import Proxies
from hitl.service.web.access.roles import EVERY, Role
from hitl.service.web.server import require_credentials
from hitl.store import schema
from tests.service.web.access.serving import PASSWORD, Clock

OTHER = "another good password"


@pytest.fixture
def ann(accounts: Accounts) -> Accounts:
    accounts.add_user("ann", PASSWORD, Role.LEAD, "rte")
    return accounts


def stored(accounts: Accounts) -> str:
    """All that the tables of access hold, as text."""
    tables = (schema.user, schema.grant, schema.session, schema.token)
    return "\n".join(str(tuple(row)) for table in tables for row in accounts.database.rows(table.select()))


# -- users -------------------------------------------------------------------------------------------------


def test_what_is_no_user_is_an_error(ann: Accounts) -> None:
    for name in ("", " ann", "ann ", "a\nb", "a" * 101, "x\u202ey"):
        with pytest.raises(BadInput, match="is no name; expected 1 to 100 characters"):
            ann.add_user(name, PASSWORD, Role.VIEWER)
    with pytest.raises(BadInput, match="'ann' exists already"):
        ann.add_user("ann", PASSWORD, Role.ADMIN)
    assert ann.users()[0].roles == {"rte": Role.LEAD}, "it changed nothing"


@pytest.mark.parametrize("length", [0, SHORTEST - 1, LONGEST + 1])
def test_a_password_has_a_length(here: Accounts, length: int) -> None:
    secret = "§" * length
    with pytest.raises(BadInput, match=f"password: {length:,} characters; expected 12 to 1,000") as caught:
        here.add_user("ann", secret, Role.VIEWER)
    assert not secret or secret not in str(caught.value)
    assert here.users() == []


def test_a_removed_user_is_gone_at_once(ann: Accounts) -> None:
    session = ann.log_in("ann", PASSWORD)
    ann.remove_user("ann")
    assert ann.in_session(session) is None
    with pytest.raises(WrongLogin):
        ann.log_in("ann", PASSWORD)
    ann.add_user("ann", OTHER, Role.VIEWER)
    assert ann.in_session(session) is None
    assert ann.users()[0].roles == {EVERY: Role.VIEWER}, "nothing is left of the former roles"


# -- logins ------------------------------------------------------------------------------------------------


def test_letters_may_be_composed_in_either_way(here: Accounts) -> None:
    here.add_user("ann", "p\u00e4ssw\u00f6rter sind gut", Role.VIEWER)
    assert here.log_in("ann", "pa\u0308sswo\u0308rter sind gut")


def test_a_user_without_a_password_cannot_log_in(here: Accounts) -> None:
    here.add_user("ann", None, Role.ADMIN)
    for password in ("", PASSWORD):
        with pytest.raises(WrongLogin):
            here.log_in("ann", password)


def test_an_unknown_name_takes_the_same_work(here: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """One comparison with a hash of the present parameters, whether there is such a user or not."""
    here.add_user("ann", PASSWORD, Role.VIEWER)
    here.add_user("bob", None, Role.VIEWER)
    compared: list[str] = []
    verify = PasswordHasher.verify

    def counted(self: PasswordHasher, hash: str, password: str) -> bool:
        compared.append(hash.rsplit("$", 2)[0])
        return verify(self, hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    for name in ("ann", "bob", "nobody"):
        with pytest.raises(WrongLogin):
            here.log_in(name, OTHER)
    assert len(compared) == 3
    assert len(set(compared)) == 1


def test_a_session_ends_after_its_time(ann: Accounts, clock: Clock) -> None:
    session = ann.log_in("ann", PASSWORD)
    begun = clock.now
    while clock.now + IDLE / 2 < begun + LIFETIME:
        clock.now += IDLE / 2
        assert ann.in_session(session) is not None, "each request puts off the end"
        ann.wait()
    clock.now = begun + LIFETIME
    assert ann.in_session(session) is None


def test_a_session_ends_without_requests(ann: Accounts, clock: Clock) -> None:
    session = ann.log_in("ann", PASSWORD)
    clock.now += IDLE - 1
    assert ann.log_in("ann", PASSWORD), "another session, which puts off nothing"
    clock.now += 1
    assert ann.in_session(session) is None
    assert len(ann.database.rows(schema.session.select())) == 2
    ann.log_in("ann", PASSWORD)
    assert len(ann.database.rows(schema.session.select())) == 2, "what is over is deleted"


def test_a_session_that_began_while_the_clock_was_ahead_does_not_outlive_it(ann: Accounts, clock: Clock) -> None:
    ahead, now = 365 * 86400.0, clock.now
    clock.now += ahead
    session = ann.log_in("ann", PASSWORD)
    assert ann.by_proxy("ann", None) is not None
    clock.now = now
    assert ann.in_session(session) is None
    found = ann.by_proxy("ann", None)
    assert found is not None
    assert found.csrf, "a new session has begun"
    assert len(ann.database.rows(schema.session.select())) == 1, "those of the future are deleted"


def test_a_password_that_changes_during_a_login_lets_nobody_in(ann: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    matches = Passwords.matches

    def meanwhile(self: Passwords, kept: str | None, password: str) -> bool:
        found = matches(self, kept, password)
        monkeypatch.setattr(Passwords, "matches", matches)
        ann.set_password("ann", OTHER)
        return found

    monkeypatch.setattr(Passwords, "matches", meanwhile)
    with pytest.raises(WrongLogin):
        ann.log_in("ann", PASSWORD)
    assert ann.database.rows(schema.session.select()) == []


# -- tokens ------------------------------------------------------------------------------------------------


def test_what_is_no_token_is_refused(ann: Accounts) -> None:
    secret = ann.create_token("ci", Role.VIEWER)
    for text in ("", "hitl_", secret[:-1], secret + "x", secret.upper(), secret[5:], "hitl_\ud800", "hitl_' OR 1=1"):
        assert ann.with_token(text) is None
    with pytest.raises(BadInput, match="token: '' is no name"):
        ann.create_token("", Role.VIEWER)


def test_when_a_token_was_last_used_is_noted_once_a_minute(ann: Accounts, clock: Clock) -> None:
    secret, begun = ann.create_token("ci", Role.VIEWER), clock.now

    def used() -> float | None:
        ann.wait()
        return ann.tokens()[0].used

    assert used() is None
    ann.with_token(secret)
    assert used() == begun
    clock.now += 59
    ann.with_token(secret)
    assert used() == begun
    clock.now += 1
    ann.with_token(secret)
    assert used() == begun + 60


# -- what is kept ------------------------------------------------------------------------------------------


def test_no_secret_is_kept(ann: Accounts) -> None:
    session, token = ann.log_in("ann", PASSWORD), ann.create_token("ci", Role.VIEWER)
    text = stored(ann)
    assert "ann" in text
    assert "$argon2id$" in text
    for secret in (PASSWORD, session, token, token.removeprefix("hitl_")):
        assert secret not in text
    caller = ann.in_session(session)
    assert caller is not None
    assert caller.csrf not in repr(caller)


def test_secrets_are_of_256_bits(here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    made = [here.log_in("ann", PASSWORD) for _ in range(3)]
    made += [here.create_token("ci", Role.VIEWER).removeprefix("hitl_") for _ in range(3)]
    assert [len(secret) for secret in made] == [43] * 6, "32 bytes in base64"
    assert len(set(made)) == 6


def test_the_hash_is_argon2id_with_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kept = Passwords().hash(PASSWORD)
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert Passwords().matches(kept, PASSWORD)
    assert not Passwords().matches(kept, OTHER)


# -- the database ------------------------------------------------------------------------------------------


def test_a_database_that_is_locked_stops_no_request(sqlite_url: str, here: Accounts, clock: Clock) -> None:
    """A cycle that saves holds the lock for writing: who is logged in already reads on."""
    here.add_user("ann", PASSWORD, Role.VIEWER)
    session, token = here.log_in("ann", PASSWORD), here.create_token("ci", Role.VIEWER)
    clock.now += 600
    locker = sqlite3.connect(Path(sqlite_url.removeprefix("sqlite:///")), isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    try:
        for _ in range(3):
            assert here.in_session(session) is not None
            assert here.with_token(token) is not None
    finally:
        locker.execute("ROLLBACK")
        locker.close()
    here.wait()
    assert here.tokens()[0].used == clock.now, "it is noted when the lock is free"


def test_several_threads_at_once(ann: Accounts) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                session = ann.log_in("ann", PASSWORD)
                assert ann.in_session(session) is not None
                ann.log_out(session)
                assert ann.in_session(session) is None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ann.database.rows(schema.session.select()) == []


# -- a service for everybody -------------------------------------------------------------------------------


def test_a_service_that_others_reach_needs_credentials(here: Accounts) -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"):
        require_credentials(host, here)
    for host in ("0.0.0.0", "::", "", "10.0.0.1", "example.com", "localhost.example.com", "fe80::1"):
        with pytest.raises(BadSettings, match=r"serve: others can reach .* Make one with `hitl users add"):
            require_credentials(host, here)
    require_credentials("0.0.0.0", here, Proxies.of(["10.0.0.1"], "X-Forwarded-User"))
    with pytest.raises(BadSettings):
        require_credentials("0.0.0.0", here, Proxies.of(["10.0.0.1"]))
    secret = here.create_token("ci", Role.VIEWER)
    assert secret
    require_credentials("0.0.0.0", here)
    here.revoke(here.tokens()[0].id)
    here.add_user("ann", PASSWORD, Role.VIEWER)
    require_credentials("0.0.0.0", here)
