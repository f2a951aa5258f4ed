"""Define `hitl users` and `hitl tokens`, which control access to `hitl serve`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Access, Config, Json, grouped, in_group, one_of, opt, starting
from hitl.cli.store import url_of_store
from hitl.errors import BadSettings
from hitl.service.web.access.roles import EVERY, Role

if TYPE_CHECKING:
    from hitl.service.web.access.accounts import Accounts

ROLES = tuple(role.word for role in Role)
NONE = "none"

users = typer.Typer(
    name="users", no_args_is_help=True, help="Manage the users of `hitl serve`, their roles and passwords."
)
tokens = typer.Typer(name="tokens", no_args_is_help=True, help="Manage the API tokens of `hitl serve`.")

Name = Annotated[str, typer.Argument(help="Name of the user.")]
OneRole = Annotated[str, one_of("Role, one of: {}.", ROLES)]
OneProject = Annotated[str | None, opt("Project name; default: all projects.")]
FromInput = Annotated[bool, opt("Read the password from standard input.", "--password-stdin")]


@dataclass(frozen=True)
class Where:
    """Options that name the database of users and tokens."""

    config: Config = HERE
    access: Access = None

    def opened(self) -> Accounts:
        """Open the database."""
        from hitl.service.web.access.accounts import Accounts

        return Accounts(self.access or url_of_store(self.config))


@in_group(users, "add")
def add_user(
    name: Name,
    role: OneRole,
    where: Where,
    project: OneProject = None,
    password_stdin: FromInput = False,
    no_password: Annotated[
        bool, opt("No password: the user logs in through the reverse proxy only; see `hitl serve`.", "--no-password")
    ] = False,
    if_missing: Annotated[bool, opt("Do nothing if the user exists, for deployments.", "--if-missing")] = False,
) -> None:
    """Add a user with a role; asks for the password."""
    wanted = Role.of(role)
    with where.opened() as accounts:
        if if_missing and any(one.name == name for one in accounts.users()):
            show.line(f"{name} exists already")
            return
        accounts.add_user(name, None if no_password else _password(password_stdin), wanted, project)
    show.line(f"added {name}: {_in_words(wanted, project)}")


@in_group(users, "list")
def list_users(where: Where, as_json: Json = False) -> None:
    """Show all users with their roles."""
    with where.opened() as accounts:
        there = accounts.users()
    data, rows = [], []
    for one in there:
        roles = [(None if project == EVERY else project, role) for project, role in sorted(one.roles.items())]
        words = ", ".join(_in_words(role, project) for project, role in roles) or NONE
        rows.append((one.name, words, "yes" if one.has_password else "no", _time(one.created)[:10]))
        named = [{"project": project, "role": role.word} for project, role in roles]
        data.append({"name": one.name, "roles": named, "password": one.has_password, "added": _time(one.created)})
    header = ("name", "roles", "password", "added")
    show.result({"users": data}, [show.Table("Users", header, rows, header)], as_json)


@in_group(users, "role")
def set_role(
    name: Name,
    role: Annotated[
        str, typer.Argument(help=f"One of: {', '.join((*ROLES, NONE))}.", autocompletion=starting((*ROLES, NONE)))
    ],
    where: Where,
    project: OneProject = None,
) -> None:
    """Change a user's role in one project or in all. The role `none` removes access."""
    wanted = None if role == NONE else Role.of(role)
    with where.opened() as accounts:
        accounts.set_role(name, wanted, project)
    show.line(f"{name} is now {_in_words(wanted, project)}")


@in_group(users, "password")
def set_password(name: Name, where: Where, password_stdin: FromInput = False) -> None:
    """Give a user another password; all its sessions end."""
    with where.opened() as accounts:
        accounts.set_password(name, _password(password_stdin))
    show.line(f"{name}: password changed; all sessions have ended")


@in_group(users, "remove")
def remove_user(name: Name, where: Where) -> None:
    """Remove a user, and end its sessions."""
    with where.opened() as accounts:
        accounts.remove_user(name)
    show.line(f"removed {name}")


@in_group(tokens, "create")
def create_token(
    name: Annotated[str, typer.Argument(help="Purpose of the token.")],
    role: OneRole,
    where: Where,
    project: OneProject = None,
    as_json: Json = False,
) -> None:
    """Create an API token and print it. It is shown only once."""
    wanted = Role.of(role)
    with where.opened() as accounts:
        made = accounts.create_token(name, wanted, project)
    show.result({"name": name, "role": wanted.word, "project": project, "token": made}, [made], as_json)
    if not as_json:  # standard output holds only the token
        show.error(f"{name}: {_in_words(wanted, project)}. Store the token now: it is shown only once")


tokens.command("add", hidden=True)(grouped(create_token))  # as `hitl users add`


@in_group(tokens, "list")
def list_tokens(where: Where, as_json: Json = False) -> None:
    """Show all API tokens, without their secrets."""
    with where.opened() as accounts:
        there = accounts.tokens()
    data, rows = [], []
    for one in there:
        times = {"made": _time(one.created), "used": None if one.used is None else _time(one.used)}
        data.append({"id": one.id, "name": one.name, "role": one.role.word, "project": one.project, **times})
        rows.append((one.id, one.name, _in_words(one.role, one.project), one.made, one.last_used or "never"))
    header = ("id", "name", "role", "made", "last used")
    show.result({"tokens": data}, [show.Table("API tokens", header, rows, header)], as_json)


@in_group(tokens, "revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Token id, from `hitl tokens list`.")], where: Where
) -> None:
    """Revoke an API token. Programs that use it are refused at once."""
    with where.opened() as accounts:
        accounts.revoke(token)
    show.line(f"revoked {token}")


def _password(from_input: bool) -> str:
    """Return the password typed twice without echo, or the first line of standard input."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise BadSettings("password: no terminal to ask for it; use --password-stdin")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed


def _in_words(role: Role | None, project: str | None) -> str:
    return f"{'without a role' if role is None else role.word} of {project or 'all projects'}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
