"""Define `hitl schedule`, which repeats runs and prints one line for each that begins, ends, fails or waits."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Json

if TYPE_CHECKING:
    from hitl.service.loops import Loops

_one_line = threading.Lock()


def schedule(
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="A project's hitl.toml; repeat for several.", envvar="HITL_CONFIG"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show what is due next, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Keep cycles going: at intervals or by cron, after new annotations, on webhooks; see \\[schedule] in hitl.toml.

    Until SIGTERM or SIGINT: a running cycle is left at its next step, and resumed at the next start.
    """
    from hitl.service.loops import GRACE, Loops, projects_of, require_secrets

    loops: Loops
    projects = projects_of(configs or [HERE])
    if not listing:
        require_secrets(projects)
    loops = Loops(projects, teller(as_json, lambda project: loops.next_run(project)))
    if listing:
        _list(loops, as_json)
        loops.stop()
        return
    _stop_on_signals(loops)
    try:
        loops.prepare()
        _list(loops, as_json)
        loops.start()
        loops.wait()
    finally:
        if not loops.stop():
            print(f"hitl: a cycle took no step for {GRACE:g} s and was given up", file=sys.stderr)


def _stop_on_signals(loops: Loops) -> None:
    """Stop gracefully at the first signal. A second one ends the process, which is safe."""

    def ask(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        loops.ask_to_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


def _list(loops: Loops, as_json: bool) -> None:
    rows = loops.next_runs()
    webhooks = loops.webhooks()
    data = {
        "jobs": [{**row, "next": row["next"].isoformat()} for row in rows],
        "webhooks": show.without_passwords(webhooks),
    }
    lines = [f"{row['project']}: {row['when']}; next {_time(row['next'])}" for row in rows]
    lines += [
        f"{row['project']}: webhook at {row['listens']}; give the platform {row['url']} and the header X-Hitl-Secret"
        for row in webhooks
    ]
    show.result(data, lines, as_json)
    sys.stdout.flush()


def teller(as_json: bool, next_run: Callable[[str], datetime | None]) -> Callable[[str, str, Mapping[str, Any]], None]:
    """Return a function that prints each event of a run as one line."""

    def tell(event: str, project: str, said: Mapping[str, Any]) -> None:
        now = datetime.now(UTC)
        data = {"time": now.isoformat(timespec="seconds"), "event": event, "project": project, **said}
        if event in ("done", "failed"):
            following = next_run(project)
            data["next"] = None if following is None else following.isoformat(timespec="seconds")
        text = json.dumps(data, ensure_ascii=False, default=str) if as_json else line(data)
        with _one_line:  # several projects print from their own threads
            show.line(text)
            sys.stdout.flush()

    return tell


def line(data: Mapping[str, Any]) -> str:
    """Format an event in words."""
    head = f"{_time(datetime.fromisoformat(data['time']))} {data['project']}:"
    following = data.get("next")
    tail = f"; next {_time(datetime.fromisoformat(following))}" if following else ""
    if data["event"] == "began":
        return f"{head} cycle begins, due {_time(datetime.fromisoformat(data['due']))}"
    if data["event"] == "looked":
        new = data["new"]
        return f"{head} {'no cycle has counted annotations yet' if new is None else f'{new:,} new annotations'}"
    if data["event"] == "waits":
        return f"{head} {data['error']}: {data['message']}; again in {data['seconds']:g} s"
    if data["event"] == "failed":
        return f"{head} failed: {data['error']}: {data['message']}{tail}"
    tail += "".join(f"; {problem}" for problem in data.get("problems", ()))
    pushed = f"{data['operations']} operations, {data['changed']:,} changes"
    if data.get("unchanged"):
        return f"{head} nothing has changed (a look of {data['seconds']:g} s): {pushed}{tail}"
    for why, key in (("the project is done", "stop"), ("nothing is asked", "idle"), ("left aside", "lacking")):
        if data.get(key):
            tail = f"; {why}: {data[key]}{tail}"
            break
    return (
        f"{head} cycle done in {data['seconds']:g} s: {data['new']:,} rows new, {data['labels']:,} labels, "
        f"{data['done']:,} of {data['items']:,} items done, {data['asks']:,} asked, {pushed}{tail}"
    )


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
