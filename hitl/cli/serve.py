"""Define `hitl serve`: the pages and the API of projects, including their scheduler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Access, Json, examples
from hitl.errors import BadSettings, MissingExtra

EXAMPLES = examples(
    "hitl serve  # http://127.0.0.1:8500",
    "hitl serve -c a/hitl.toml -c b/hitl.toml --address 0.0.0.0:8500 --access postgresql://user@host/database",
    "hitl serve --no-scheduler  # where `hitl schedule` runs apart",
)

NEEDED = {  # may be missing without the extra `service`
    "fastapi",
    "uvicorn",
    "structlog",
    "prometheus_client",
    "argon2",
    "multipart",
    "python_multipart",
}


def serve(
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="A project's hitl.toml; repeat for several.", envvar="HITL_CONFIG"),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Where to listen: host:port.", envvar="HITL_SERVE_ADDRESS")
    ] = "127.0.0.1:8500",
    access: Access = None,
    scheduler: Annotated[
        bool, typer.Option("--scheduler/--no-scheduler", help="Run the cycles that \\[schedule] wants.")
    ] = True,
    proxies: Annotated[
        list[str] | None,
        typer.Option("--proxy", help="Address of a reverse proxy to trust; repeat.", envvar="HITL_SERVE_PROXY"),
    ] = None,
    proxy_header: Annotated[
        str,
        typer.Option(help="Header in which that proxy names the user it let in.", envvar="HITL_SERVE_PROXY_HEADER"),
    ] = "",
    proxy_role: Annotated[
        str | None,
        typer.Option(
            help="Role of users named there that are not known here; else they are refused.",
            envvar="HITL_SERVE_PROXY_ROLE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve pages and an API: where projects stand, items, annotators, models, plans; live while annotation goes on.

    Until SIGTERM or SIGINT. It serves HTTP: put a server for HTTPS in front of it where others can reach it.
    """
    try:
        from hitl.service.web import server
        from hitl.service.web.access.proxies import Proxies
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise MissingExtra("hitl serve needs more packages: pip install 'hitl-toolkit[service]'") from None
    host, port = _split(address)
    trusted = Proxies.of(proxies or (), proxy_header, proxy_role)
    server.serve(
        configs or [HERE], host, port, _say, access=access, scheduler=scheduler, proxies=trusted, as_json=as_json
    )


def _say(text: str) -> None:
    """Print a line and flush it, so that it appears at once even in a file."""
    show.line(text)
    sys.stdout.flush()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise BadSettings(f"--address: found {address!r}; expected host:port, as 127.0.0.1:8500")
    return host.strip("[]"), int(port)
