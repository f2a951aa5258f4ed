"""Define `hitl schedule` and `hitl serve`, which run until a signal, and `hitl events`, which shows sent events."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Access, Config, Configs, Json, LogLevel, opt
from hitl.errors import BadSettings, MissingExtra, Unreachable
from hitl.project import stored

if TYPE_CHECKING:
    from hitl.service.loops import Loops

NEEDED = {"fastapi", "uvicorn", "prometheus_client", "argon2", "multipart", "python_multipart"}
"""Packages that are missing if the extra `service` is not installed."""

_one_line = threading.Lock()
_log = logging.getLogger("hitl.schedule")


# -- schedule ----------------------------------------------------------------------------------------------


def schedule(
    configs: Configs = None,
    listing: Annotated[bool, opt("Show when the next run is due, and exit.", "--list")] = False,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Repeat `hitl run`: at intervals, by cron, after new annotations or on webhooks; see \\[schedule] in hitl.toml.

    SIGTERM or SIGINT stops it. A run in progress stops at its next step and is resumed at the next start.
    """
    from hitl.service import log
    from hitl.service.loops import Loops, projects_of

    if listing:
        loops = Loops(projects_of(configs or [HERE]), teller(as_json))
        show.result(*_next_runs(loops), as_json)
        loops.stop()
        return
    with log.lines(as_json, log_level):
        _keep_running(configs or [HERE], as_json)


def _keep_running(configs: Sequence[Path], as_json: bool) -> None:
    from hitl.service import log
    from hitl.service.loops import GRACE, Loops, projects_of, require_secrets

    projects = projects_of(configs)
    require_secrets(projects)
    loops = Loops(projects, teller(as_json, lambda project: loops.next_run(project)))

    def ask(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process, which is safe
        loops.ask_to_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    try:
        loops.prepare()
        data, words = _next_runs(loops)
        if as_json:
            log.event(_log, "scheduled", **data)
        else:
            show.result(data, words, as_json)
        loops.start()
        loops.wait()
        log.event(_log, "stopping")
    finally:
        if not loops.stop():
            _log.warning("a run made no progress for %g s and was stopped", GRACE)


def _next_runs(loops: Loops) -> tuple[dict[str, Any], list[str]]:
    rows, webhooks = loops.next_runs(), loops.webhooks()
    jobs = [{**row, "next": row["next"].isoformat()} for row in rows]
    lines = [f"{row['project']}: {row['when']}; next {_time(row['next'])}" for row in rows]
    lines += [
        f"{row['project']}: webhook at {row['listens']}; give the platform {row['url']} and the header X-Hitl-Secret"
        for row in webhooks
    ]
    return {"jobs": jobs, "webhooks": show.without_passwords(webhooks)}, lines


def teller(
    as_json: bool, next_run: Callable[[str], datetime | None] = lambda project: None
) -> Callable[[str, str, Mapping[str, Any]], None]:
    """Return a function that prints each event of a run as one line, or logs it as JSON."""
    from hitl.service import log

    def tell(event: str, project: str, details: Mapping[str, Any]) -> None:
        now = datetime.now(UTC)
        data = {"time": now.isoformat(timespec="seconds"), "event": event, "project": project, **details}
        if event in ("done", "failed"):
            following = next_run(project)
            data["next"] = None if following is None else following.isoformat(timespec="seconds")
        if as_json:
            log.run(event, project, data)
            return
        with _one_line:  # each project prints from a thread of its own
            show.line(line(data))

    return tell


def line(data: Mapping[str, Any]) -> str:
    """Format an event in words."""
    head = f"{_time(datetime.fromisoformat(data['time']))} {data['project']}:"
    following = data.get("next")
    tail = f"; next {_time(datetime.fromisoformat(following))}" if following else ""
    if data["event"] == "began":
        return f"{head} run starts, due {_time(datetime.fromisoformat(data['due']))}"
    if data["event"] == "looked":
        new = data["new"]
        return f"{head} {'annotations are counted after the first run' if new is None else f'{new:,} new annotations'}"
    if data["event"] == "waits":
        return f"{head} {data['error']}: {data['message']}; again in {data['seconds']:g} s"
    if data["event"] == "failed":
        return f"{head} failed: {data['error']}: {data['message']}{tail}"
    tail += "".join(f"; {problem}" for problem in data.get("problems", ()))
    pushed = f"{data['operations']} operations, {data['changed']:,} changes"
    if data.get("unchanged"):
        return f"{head} nothing has changed (checked in {data['seconds']:g} s): {pushed}{tail}"
    for why, key in (
        ("no more questions", "stop"),
        ("no questions are sent", "idle"),
        ("some items get none", "lacking"),
    ):
        if data.get(key):
            tail = f"; {why}: {data[key]}{tail}"
            break
    return (
        f"{head} run done in {data['seconds']:g} s: {data['new']:,} new rows, {data['labels']:,} labels, "
        f"{data['done']:,} of {data['items']:,} items done, {data['asks']:,} questions, {pushed}{tail}"
    )


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


# -- serve -------------------------------------------------------------------------------------------------


def serve(
    configs: Configs = None,
    address: Annotated[str, opt("Address to listen on, host:port.", envvar="HITL_SERVE_ADDRESS")] = "127.0.0.1:8500",
    access: Access = None,
    scheduler: Annotated[bool, opt("Also run projects as \\[schedule] says.", "--scheduler/--no-scheduler")] = True,
    proxies: Annotated[
        list[str] | None,
        opt("Address of a trusted reverse proxy. Repeat for more.", "--proxy", envvar="HITL_SERVE_PROXY"),
    ] = None,
    proxy_header: Annotated[
        str, opt("Header in which the proxy names the user.", envvar="HITL_SERVE_PROXY_HEADER")
    ] = "",
    proxy_role: Annotated[
        str | None,
        opt(
            "Role of unknown users named by the proxy; default: refuse them.",
            envvar="HITL_SERVE_PROXY_ROLE",
        ),
    ] = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Serve web pages and an API for projects, items, annotators, models and plans.

    SIGTERM or SIGINT stops it. It serves plain HTTP: if others can reach it, put an HTTPS server in front.

    For monitoring: /healthz, /readyz, and /metrics with a token of `hitl tokens create NAME --role viewer`. If there is
    no user yet (`hitl users add NAME --role admin`) and only this machine can reach the address, the start logs a
    one-time password.
    """
    from hitl.service import log

    try:
        from hitl.service.web import server
        from hitl.service.web.access.proxies import Proxies
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise MissingExtra("hitl serve needs extra packages: pip install 'hitl-toolkit[service]'") from None
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise BadSettings(f"--address: found {address!r}; expected host:port, as 127.0.0.1:8500")

    def say(data: Mapping[str, str], line: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        show.result({"timestamp": now, "level": "info", **data}, [line], as_json)

    with log.lines(as_json, log_level):
        server.serve(
            configs or [HERE],
            host.strip("[]"),
            int(port),
            say,
            access=access,
            scheduler=scheduler,
            proxies=Proxies.of(proxies or (), proxy_header, proxy_role),
        )


# -- events ------------------------------------------------------------------------------------------------


def events(
    test: Annotated[bool, opt("Send a ping to every address and show the response.", "--test")] = False,
    resend: Annotated[bool, opt("Send failed events again.", "--resend")] = False,
    rows: Annotated[int, opt("Number of deliveries to show.", min=1)] = 20,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Show the events sent to chat tools and pipelines, and whether they arrived; see \\[\\[events]] in hitl.toml."""
    from hitl.events.sender import address_rows, addresses_of, deliver

    with stored(config) as (settings, store):
        if not settings.events:
            raise BadSettings("events: no address to send to; add [[events]] with name and url to hitl.toml")
        if test:
            _show_answers(addresses_of(settings, store), as_json)
            return
        if resend:
            store.resend(settings.name)
            deliver(settings, store)
        addresses = address_rows(settings, store)
        deliveries = [one.as_json() for one in store.deliveries(settings.name, rows)]
    lines: list[show.Line] = []
    for one in addresses:
        counted = f"{one['delivered']:,} delivered, {one['waiting']:,} waiting, {one['failed']:,} failed for good"
        lines.append(f"{one['address']} ({one['at']}): {one['lacks'] or counted}")
    if deliveries:
        columns = ("at", "kind", "address", "state", "attempts", "said")
        cells = [[str(one[name]) for name in columns] for one in deliveries]
        lines.append(show.Table("Last deliveries", columns, cells, (*columns[:4], columns[5])))
    show.result(show.without_passwords({"addresses": addresses, "deliveries": deliveries}), lines, as_json)


def _show_answers(addresses: Sequence[Any], as_json: bool) -> None:
    """Send a ping to each address and show the responses.

    Exit with the code of Unreachable if an address does not accept it.
    """
    answers = []
    for one in addresses:
        answer = None if one.to.lacks else one.test()
        said = str(one.to.lacks) if answer is None else answer.said
        ok = bool(answer and answer.arrived)
        answers.append({"address": one.to.name, "at": one.to.shown, "ok": ok, "said": said})
    lines = [f"{'ok  ' if one['ok'] else 'FAIL'}  {one['address']} ({one['at']}): {one['said']}" for one in answers]
    all_ok = all(one["ok"] for one in answers)
    show.result(show.without_passwords({"ok": all_ok, "addresses": answers}), lines, as_json)
    if not all_ok:
        raise typer.Exit(Unreachable.exit_code)
