"""Loops of several projects, and `hitl schedule`, over a real store and real tables."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from urllib.request import Request, urlopen
from zoneinfo import ZoneInfo

import pytest

from hitl import cycle
from hitl.errors import BadInput, BadSettings, Busy, Refused, StoreError, Unreachable
from hitl.platform import PullSummary
from hitl.project import opened
from hitl.service import log
from hitl.service import loop as loops
from hitl.service.loops import Loops, projects_of
from tests.command_line import Run
from tests.scheduled import Told, free_port, project, until

ROOT = Path(__file__).parents[2]


def test_one_project_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    told = Told()
    store = f"sqlite:///{tmp_path}/hitl.db"
    good, bad = project(tmp_path / "good", name="good", store=store), project(tmp_path / "bad", name="bad", store=store)
    (tmp_path / "bad" / "annotations.csv").write_text("nonsense\n")
    with Loops(projects_of([bad, good]), told) as running:
        running.start()
        until(lambda: told["failed"] and told["done"])
        assert running.alive
    assert [(p, s["error"]) for e, p, s in told.events if e == "failed"] == [("bad", "BadTable")]
    assert [p for e, p, _ in told.events if e == "done"] == ["good"]


def test_two_loops_of_one_project_do_not_trip_over_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "run_if_changed", lambda *given, due: cycle.run(*given))  # every one is recorded
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.05)
    config, told = project(tmp_path, 'every = "1s"'), Told()
    with Loops(projects_of([config]), told) as one, Loops(projects_of([config]), told) as two:
        for each in (one, two):
            each.start()
        until(lambda: len(told["done"]) >= 4)
        assert one.alive
        assert two.alive
    names = [said["due"] for said in told["done"]]
    assert len(names) == len(set(names)) >= 4
    assert {said["error"] for said in told["waits"]} <= {"Busy"}
    assert told["failed"] == []


def test_what_only_a_restart_takes_over_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Runs read hitl.toml again. The times of runs, and where events go, are those of the start."""
    config, told = project(tmp_path), Told()
    with Loops(projects_of([config]), told) as running:
        (loop,) = running.loops
        config.write_text(config.read_text().replace('"1h"', '"2h"') + '[[events]]\nname = "chat"\n')
        while not loop.turn():
            pass
    assert len(told["done"]) == 1
    assert f"{config}: restart the service, which works with the old [schedule] and [events]" in caplog.messages


# -- command line ------------------------------------------------------------------------------------------


def test_the_command_keeps_cycles_until_it_is_told_to_stop(tmp_path: Path) -> None:
    """Its first cycle at once, a second one because of a webhook, and its end: real process, connection and signal."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    project(tmp_path, f'every = "1h"\nwebhook = "127.0.0.1:{port}"\ndebounce = "0.1s"')
    process = subprocess.Popen(
        [sys.executable, "-m", "hitl", "schedule", "--json"],
        cwd=tmp_path,
        env=os.environ | {"HITL_WEBHOOK_SECRET": "s3cret"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = [json.loads(process.stderr.readline()) for _ in range(3)]
    address = f"http://127.0.0.1:{port}"
    with urlopen(f"{address}/health") as answer:
        assert json.load(answer) == {"status": "ok"}
    with urlopen(Request(f"{address}/webhook/p", b"{}", {"X-Hitl-Secret": "s3cret"})) as answer:
        assert json.load(answer) == {"queued": True}
    while [line["event"] for line in lines].count("done") < 2:
        lines.append(json.loads(process.stderr.readline()))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    jobs, began, done, again, done_again = (line for line in lines if line["event"] in ("scheduled", "began", "done"))
    end = json.loads(err)
    assert (process.returncode, out, end["event"]) == (0, "", "stopping")
    assert all(one["level"] == "info" and one["timestamp"] for one in (*lines, end))
    assert [job["when"] for job in jobs["jobs"]] == ["every 1h"]
    assert [each["url"] for each in jobs["webhooks"]] == [f"{address}/webhook/p"]
    assert [each["event"] for each in (began, done, again, done_again)] == ["began", "done"] * 2
    assert (done["labels"], done["operations"], done_again["operations"]) == (27, 3, 0)
    assert done["next"] > done["timestamp"]


def test_list_shows_what_is_due(tmp_path: Path, run: Run) -> None:
    project(tmp_path, 'cron = "*/10 8-18 * * mon-fri"\ntimezone = "Europe/Vienna"\nafter_annotations = 50')
    code, out, _ = run("schedule", "--list", "--json")
    rows = {row["kind"]: row for row in json.loads(out)["jobs"]}
    assert code == 0
    assert rows["look"]["when"] == "look every 1m for 50 new annotations"
    when = datetime.fromisoformat(rows["cron"]["next"]).astimezone(ZoneInfo("Europe/Vienna"))
    assert (when.minute % 10, when.weekday() < 5, 8 <= when.hour <= 18) == (0, True, True)
    assert "cron */10 8-18 * * mon-fri (Europe/Vienna); next 20" in run("schedule", "--list")[1]


def test_a_list_needs_no_token_and_a_schedule_does(tmp_path: Path, run: Run) -> None:
    port = free_port()
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\nproject = 1\n'
        '[schedule]\nevery = "15m"\nwebhook = "127.0.0.1:' + f'{port}"\n'
    )
    code, out, error = run("schedule", "--list")
    assert (code, error) == (0, "")
    assert out.startswith("p: every 15m; next 20")
    assert f"p: webhook at 127.0.0.1:{port}" in out
    assert run("status")[1].startswith("p: nothing pulled yet\nNo run yet, ")
    code, out, error = run("schedule")
    assert (code, out) == (78, "")
    assert "HITL_LABEL_STUDIO_TOKEN is not set" in error


def test_lines_say_what_happened(tmp_path: Path, run: Run) -> None:
    from hitl.cli.service import line

    base = {"time": "2026-11-20T12:00:00+00:00", "project": "p"}
    due = {"event": "began", "due": "2026-11-20T11:59:00.000000+00:00"}
    assert line(base | due) == "2026-11-20 12:00:00Z p: run starts, due 2026-11-20 11:59:00Z"
    waits = {"event": "waits", "error": "Busy", "message": "held", "seconds": 5.0}
    assert line(base | waits).endswith("p: Busy: held; again in 5 s")
    failed = {"event": "failed", "error": "Refused", "message": "no", "next": "2026-11-20T13:00:00+00:00"}
    assert line(base | failed).endswith("failed: Refused: no; next 2026-11-20 13:00:00Z")
    done = {"event": "done", "seconds": 0.5, "new": 3, "labels": 27, "done": 6, "items": 9, "asks": 0}
    done |= {"operations": 3, "changed": 21, "stop": None, "idle": "`budget.open_questions` is 0", "lacking": "a skill"}
    assert line(base | done).endswith(
        "0 questions, 3 operations, 21 changes; no questions are sent: `budget.open_questions` is 0"
    )
    ended = done | {"stop": "every item is done", "idle": None, "lacking": None, "next": "2026-11-20T13:00:00+00:00"}
    assert line(base | ended).endswith("; no more questions: every item is done; next 2026-11-20 13:00:00Z")
    assert line(base | done | {"idle": None}).endswith("; some items get none: a skill")
    quiet = done | {"idle": None, "lacking": None, "problems": ["row 3: no class", "row 4: no class"]}
    assert line(base | quiet).endswith("21 changes; row 3: no class; row 4: no class")
    assert line(base | {"event": "looked", "new": 50}).endswith("p: 50 new annotations")
    assert line(base | {"event": "looked", "new": None}).endswith("p: annotations are counted after the first run")


def test_a_scheduled_cycle_that_finds_nothing_new_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what a real cycle reports: it was a cycle that failed, in words and not as JSON."""
    from hitl.cli.service import teller

    project(tmp_path)
    for as_json in (False, False, True):
        with opened(tmp_path / "hitl.toml") as given:
            said = {"seconds": 0.5, **loops.figures(cycle.run_if_changed(*given))}
        with log.lines(as_json):
            teller(as_json)("done", "p", said)
    out, third = capsys.readouterr()
    first, second = out.splitlines()
    assert "run done in 0.5 s" in first
    assert second.endswith("p: nothing has changed (checked in 0.5 s): 0 operations, 0 changes")
    assert json.loads(third)["unchanged"] is True
    with log.lines(True):
        teller(True)("done", "p", {**said, "problems": ["a table is cut"]})
    assert json.loads(capsys.readouterr().err)["level"] == "warning"


def test_problems_of_a_look_are_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    project(tmp_path)
    monkeypatch.setattr(loops, "pull", lambda *_: PullSummary(problems=("a table is cut",)))
    followed = Loops(projects_of([tmp_path / "hitl.toml"]), lambda *_: None, runs=False, follows=True)
    (loop,) = followed.loops
    while loop.figures["pulls_total"] < 3:
        loop.hint()
        loop.turn()
    followed.stop()
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("WARNING", "p: the last pull found problems: a table is cut")
    ]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, 'webhook = "127.0.0.1:1"')
    for name in [name for name in sys.modules if name.startswith(("fastapi", "hitl.service.webhook"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    code, _, error = run("schedule")
    assert (code, error) == (78, "hitl: schedule.webhook needs more packages: pip install 'hitl-toolkit[service]'\n")


@pytest.mark.parametrize("name", ["systemd/hitl@.service", "systemd/hitl-schedule@.service", "README.md"])
def test_what_is_deployed_runs_commands_that_exist(name: str) -> None:
    commands = re.findall(r"/opt/hitl/bin/hitl ((?:run|schedule)[^|>#\n`]*)", (ROOT / "deploy" / name).read_text())
    assert commands
    for command in commands:
        _exists(command.split())


def test_the_cron_job_repeats_only_what_may_pass() -> None:
    text = (ROOT / "deploy" / "kubernetes" / "cronjob.yaml").read_text()
    (command,) = re.findall(r"command: (\[.*\])", text)
    _exists(json.loads(command)[1:])
    (codes,) = re.findall(r"values: (\[.*\])", text)
    assert {Unreachable.exit_code, StoreError.exit_code}.isdisjoint(json.loads(codes))
    assert {BadInput.exit_code, Refused.exit_code, BadSettings.exit_code, Busy.exit_code} == set(json.loads(codes))


def _exists(words: list[str]) -> None:
    command = [sys.executable, "-m", "hitl", words[0], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"})
    for flag in (word for word in words if word.startswith("--")):
        assert flag in done.stdout
