"""`hitl users` and `hitl tokens`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from hitl.cli import access as commands
from hitl.errors import BadInput, BadSettings
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.proxies import Proxies
from hitl.service.web.access.roles import Role
from tests.command_line import Run
from tests.scheduled import project
from tests.security.leaks import leaks
from tests.service.web.access.serving import PASSWORD


@pytest.fixture
def call(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in the folder of a project; the last argument may be what it reads from standard input."""
    project(tmp_path, name="rte")

    def called(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return run(*arguments)

    return called


@pytest.fixture
def accounts(call: Run, tmp_path: Path) -> Iterator[Accounts]:
    """Those of the project, as the service opens them."""
    with Accounts(f"sqlite:///{tmp_path}/hitl.db") as accounts:
        yield accounts


def test_users_from_adding_to_removing(call: Run, accounts: Accounts) -> None:
    added = call("users", "add", "ann", "--role", "admin", "--password-stdin", typed=PASSWORD + "\n")
    assert added == (0, "added ann: admin of all projects\n", "")
    code, out, _ = call("users", "add", "bob", "--role", "lead", "--project", "rte", "--no-password")
    assert (code, out) == (0, "added bob: lead of rte\n")
    session = accounts.log_in("ann", PASSWORD)
    code, out, _ = call("users", "list", "--json")
    found = json.loads(out)["users"]
    assert [user.pop("added")[:2] for user in found] == ["20", "20"]
    assert found == [
        {"name": "ann", "roles": [{"project": None, "role": "admin"}], "password": True},
        {"name": "bob", "roles": [{"project": "rte", "role": "lead"}], "password": False},
    ]
    out = call("users", "list")[1]
    assert "admin of all projects" in out
    assert "lead of rte" in out
    assert call("users", "role", "bob", "viewer")[1] == "bob is now viewer of all projects\n"
    assert call("users", "role", "bob", "none", "--project", "rte")[1] == "bob is now without a role of rte\n"
    assert accounts.users()[1].roles == {"": Role.VIEWER}
    new = "another good password"
    said = call("users", "password", "ann", "--password-stdin", typed=new)[1]
    assert said == "ann: password changed; all sessions have ended\n"
    assert accounts.in_session(session) is None
    assert accounts.log_in("ann", new)
    assert call("users", "remove", "bob")[1] == "removed bob\n"
    assert [user.name for user in accounts.users()] == ["ann"]


def test_tokens_from_making_to_revoking(call: Run, accounts: Accounts) -> None:
    code, out, err = call("tokens", "create", "ci", "--role", "viewer", "--project", "rte")
    assert code == 0
    assert err == "hitl: ci: viewer of rte. Store the token now: it is shown only once\n"
    secret = out.strip()
    caller = accounts.with_token(secret)
    assert caller is not None
    assert caller.role_in("rte") is Role.VIEWER
    made = json.loads(call("tokens", "create", "etl", "--role", "lead", "--json")[1])
    assert made | {"token": ""} == {"name": "etl", "role": "lead", "project": None, "token": ""}
    assert accounts.with_token(made["token"]) is not None
    listed = call("tokens", "list", "--json")[1]
    assert secret not in listed
    ids = {token["name"]: token["id"] for token in json.loads(listed)["tokens"]}
    assert set(ids) == {"ci", "etl"}
    assert call("tokens", "add", "ops", "--role", "viewer")[0] == 0, "as `hitl users add`"
    assert ids["ci"] in call("tokens", "list")[1]
    assert call("tokens", "revoke", ids["ci"])[1] == f"revoked {ids['ci']}\n"
    assert accounts.with_token(secret) is None


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "words"),
    [
        (("users", "add", "ann", "--role", "boss", "--no-password"), "", 65, "expected one of viewer, lead, admin"),
        (("users", "add", "ann", "--role", "lead"), PASSWORD, 78, "no terminal to ask for it; use --password-stdin"),
        (("users", "add", "ann", "--role", "lead", "--password-stdin"), "short\n", 65, "5 characters; expected 12"),
        (("users", "role", "ann", "lead"), "", 65, "there is no 'ann'; `hitl users list` shows all"),
        (("tokens", "revoke", "0"), "", 65, "there is no '0'; `hitl tokens list` shows all"),
        (("users", "list", "--config", "no.toml"), "", 78, "no.toml: no such file"),
        (("users", "add", "ann"), "", 2, "--role"),
    ],
)
def test_what_cannot_be_done(
    call: Run, accounts: Accounts, arguments: tuple[str, ...], typed: str, code: int, words: str
) -> None:
    ended, _, err = call(*arguments, typed=typed)
    assert (ended, words in err) == (code, True), err
    assert (accounts.users(), accounts.tokens()) == ([], [])


def test_a_password_is_asked_for_twice(call: Run, accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, bool]] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def prompt(text: str, **how: bool) -> str:
        asked.append(how)
        return PASSWORD

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(commands.sys, "stdin", Terminal())
    assert commands._password(False) == PASSWORD
    assert asked == [{"hide_input": True, "confirmation_prompt": True}]


def test_a_password_and_a_token_are_in_no_file(call: Run, accounts: Accounts, tmp_path: Path) -> None:
    call("users", "add", "ann", "--role", "admin", "--password-stdin", typed=PASSWORD)
    token = call("tokens", "create", "ci", "--role", "viewer")[1].strip()
    session = accounts.log_in("ann", PASSWORD)
    accounts.database.engine.dispose()
    secrets = {"password": PASSWORD, "token": token.removeprefix("hitl_"), "session": session}
    assert leaks(tmp_path, secrets) == []


def test_access_may_be_kept_elsewhere(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several projects with stores of their own have one list of users, and it takes none of their hitl.toml."""
    team = f"sqlite:///{tmp_path}/team.db"
    assert call("users", "add", "ann", "--role", "admin", "--no-password", "--access", team)[0] == 0
    assert json.loads(call("users", "list", "--json")[1]) == {"users": []}
    (tmp_path / "hitl.toml").unlink()
    monkeypatch.setenv("HITL_SERVE_ACCESS", team)
    assert [user["name"] for user in json.loads(call("users", "list", "--json")[1])["users"]] == ["ann"]
    assert call("tokens", "create", "ci", "--role", "viewer")[0] == 0
    with Accounts(team) as accounts:
        assert [token.name for token in accounts.tokens()] == ["ci"]


def test_proxies_are_named_by_addresses() -> None:
    made = Proxies.of(["10.0.0.0/8", "::1"], "X-User", "viewer")
    assert ["10.1.2.3" in made, "::1" in made, "11.0.0.1" in made, "" in made] == [True, True, False, False]
    for given, words in (
        ((["10.0.0.1/8"],), "--proxy: 10.0.0.1/8 has host bits set; expected for instance '127.0.0.1'"),
        ((["proxy"],), "--proxy: 'proxy' does not appear to be an IPv4 or IPv6 network"),
        (([], "X-User"), "--proxy-header: 'X-User' without a proxy: anyone could send it"),
        ((["::1"], "", "viewer"), "--proxy-role: 'viewer' without a header"),
    ):
        with pytest.raises(BadSettings) as caught:
            Proxies.of(*given)
        assert words in str(caught.value)
    with pytest.raises(BadInput, match="'boss' is unknown"):
        Proxies.of(["::1"], "X-User", "boss")


@pytest.mark.parametrize("group", ["users", "tokens"])
def test_each_command_has_an_example(call: Run, group: str) -> None:
    for command in [one for one in getattr(commands, group).registered_commands if not one.hidden]:
        out = " ".join(call(group, command.name, "--help")[1].split())
        assert f"hitl {group} {command.name}" in out.partition("Example")[2]
