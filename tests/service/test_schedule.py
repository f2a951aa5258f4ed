"""What is due, durable; the workers, the scheduler and the command, over a real store and real tables."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from zoneinfo import ZoneInfo

import pytest

from hitl import cycle
from hitl.errors import BadInput, BadSettings, Busy, Refused, StoreError, Unreachable
from hitl.service.scheduling import scheduler as scheduling
from hitl.service.scheduling import worker as workers
from hitl.service.scheduling.jobs import Jobs, job_id, next_run
from hitl.service.scheduling.ledger import Ledger, name_of
from hitl.service.scheduling.scheduler import Scheduler, projects_of
from hitl.service.scheduling.triggers import Soon
from hitl.store import Store
from hitl.store.database import Database
from tests.command_line import Run
from tests.scheduled import T0, Told, clockwork, free_port, make_due, plainly, project

ROOT = Path(__file__).parents[2]


# -- jobs and ledger ---------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/hitl.db")
    yield database
    database.close()


def test_missed_runs_are_one_and_late_is_better_than_never(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(database, ["p"])
    clock = clockwork(jobs, monkeypatch)
    clock.every("p", 900)
    assert clock.tick(T0) == scheduling.LONGEST  # the clock may be set meanwhile
    assert clock.next_run() == T0 + timedelta(seconds=900)
    assert jobs.ledger.pending("p") == name_of(T0)
    jobs.ledger.done("p", name_of(T0))
    clock.tick(T0 + timedelta(days=3, seconds=5))
    assert clock.next_run() == T0 + timedelta(days=3, seconds=900)
    assert clock.woken == ["every:p", "every:p"]
    due = jobs.ledger.pending("p")
    assert due == name_of(T0 + timedelta(seconds=900))
    jobs.ledger.done("p", due)
    assert jobs.ledger.pending("p") is None


def test_what_is_due_is_written_down_before_the_job_moves_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(database, ["p"])
    clock = clockwork(jobs, monkeypatch)
    clock.every("p", 900)
    seen = []
    moved = Jobs.update_job
    monkeypatch.setattr(Jobs, "update_job", lambda self, job: (seen.append(self.ledger.pending("p")), moved(self, job)))
    with monkeypatch.context() as broken:

        def fail(*arguments: Any) -> None:
            raise StoreError("disk full")

        broken.setattr(Ledger, "mark", fail)
        assert clock.tick(T0) == scheduling.RETRY
    assert clock.woken == seen == []
    (job,) = jobs.get_all_jobs()
    assert job.next_run_time == T0
    clock.tick(T0 + timedelta(seconds=10))
    assert seen == [name_of(T0)]


def test_a_clock_outlives_its_database(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(database, ["p"])
    clock = clockwork(jobs, monkeypatch)
    clock.every("p", 900)
    with monkeypatch.context() as broken:
        broken.setattr(Jobs, "get_next_run_time", lambda self: 1 / 0)
        assert clock.tick(T0) == scheduling.RETRY
    clock.tick(T0)
    assert clock.next_run() == T0 + timedelta(seconds=900)


def test_schedulers_see_the_jobs_of_their_own_projects(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Jobs(database, ["p"]), Jobs(database, ["q"])
    clockwork(theirs, monkeypatch).every("q", 900)
    clock = clockwork(ours, monkeypatch)
    clock.every("p", 60)
    clock.tick(T0 + timedelta(hours=1))
    assert clock.woken == ["every:p"]
    assert theirs.get_next_run_time() == T0
    assert ours.ledger.pending("q") is None
    ours.clean([job_id("p", "every")])
    assert [job.id for job in ours.get_all_jobs()] == ["every:p"]
    ours.clean([])
    assert ours.get_all_jobs() == []
    assert [job.id for job in theirs.get_all_jobs()] == ["every:q"]


def test_a_job_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    config, told = project(tmp_path), Told()
    database = Database(f"sqlite:///{tmp_path}/hitl.db")
    Jobs(database, ["p"])
    with database.write() as connection:
        row = {"id": job_id("p", "every"), "time": float("-inf"), "said": "every 1h", "config": str(config)}
        connection.execute(next_run.insert().values(row))
    database.close()
    scheduler = Scheduler(projects_of([config]), told)
    scheduler.start()
    settled(scheduler)
    assert [row["when"] for row in scheduler.next_runs()] == ["every 1h"]
    scheduler.stop()
    assert len(told["done"]) == 1


def test_two_schedulers_of_one_project_do_not_trip_over_each_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read the same due job before either has moved it on, or removed it."""
    one, two = Jobs(database, ["p"]), Jobs(database, ["p"])
    clock = clockwork(one, monkeypatch)
    hint = {"args": ("x",), "id": job_id("p", "hint"), "name": "h", "next_run_time": T0}
    clock.clock.add_job(workers.once, Soon(120.0), **hint)
    two.start(clock.clock, "default")
    (stale,) = two.get_due_jobs(T0)
    clock.tick(T0)
    two.update_job(stale)
    two.remove_job(stale.id)
    assert two.ledger.pending("p") == name_of(T0)


def test_the_ledger_knows_the_newest_due_time_and_nothing_is_done_twice(database: Database) -> None:
    Jobs(database, [])
    ledger = Ledger(database)
    times = [T0 + timedelta(minutes=n) for n in range(4)]
    now = times[3]
    ledger.mark([("p", times[1]), ("q", times[0])], now)
    ledger.mark([("p", times[0])], now)
    assert (ledger.pending("p"), ledger.pending("q")) == (name_of(times[1]), name_of(times[0]))
    ledger.mark([("p", times[2].astimezone(ZoneInfo("Asia/Tokyo")))], now)  # while the run of times[1] is on
    ledger.done("p", name_of(times[1]))
    assert ledger.pending("p") == name_of(times[2])
    ledger.done("p", name_of(times[2]))
    ledger.mark([("p", times[1]), ("p", times[2])], now)  # a job that had not moved on before a crash
    assert ledger.pending("p") is None
    ledger.done("p", name_of(times[0]))
    assert ledger.pending("p") is None
    assert ledger.pending("nobody") is None


# -- scheduler ---------------------------------------------------------------------------------------------


def until(what: Callable[[], bool]) -> None:
    for _ in range(6000):  # two minutes: a first cycle compiles
        if what():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not come to that in two minutes")


def settled(scheduler: Scheduler) -> None:
    """Until nothing is due in any project."""

    def nothing_is_due() -> bool:
        due = [row for row in scheduler.next_runs() if row["next"] <= datetime.now(UTC)]
        return not due and not any(scheduler.jobs[p.store].ledger.pending(p.name) for p in scheduler.projects)

    until(nothing_is_due)


def test_one_project_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    told = Told()
    store = f"sqlite:///{tmp_path}/hitl.db"
    good, bad = project(tmp_path / "good", name="good", store=store), project(tmp_path / "bad", name="bad", store=store)
    (tmp_path / "bad" / "annotations.csv").write_text("nonsense\n")
    scheduler = Scheduler(projects_of([bad, good]), told)
    scheduler.start()
    settled(scheduler)
    assert scheduler.alive
    assert scheduler.stop()
    assert [(p, s["error"]) for e, p, s in told.events if e == "failed"] == [("bad", "BadTable")]
    assert [p for e, p, _ in told.events if e == "done"] == ["good"]


def test_a_restart_keeps_the_times_and_what_was_missed_when_the_settings_change(tmp_path: Path) -> None:
    config, told = project(tmp_path, 'every = "1h"'), Told()

    def started(now: Any = None) -> Scheduler:
        scheduler = Scheduler(projects_of([config]), told)
        scheduler.start()
        settled(scheduler)
        return scheduler

    first = started()
    (row,) = first.next_runs()
    first.stop()
    second = started()
    assert second.next_runs() == [row]
    assert len(told["done"]) == 1
    second.stop()
    missed = make_due(f"sqlite:///{tmp_path}/hitl.db", "p")
    config.write_text(config.read_text().replace('every = "1h"', 'cron = "0 3 1 1 *"'))
    third = started()
    (row,) = third.next_runs()
    third.stop()
    assert row["when"] == "cron 0 3 1 1 * (UTC)"
    assert (row["next"].month, row["next"].day, row["next"].hour) == (1, 1, 3)
    assert [said["due"] for said in told["done"]] == [told["done"][0]["due"], name_of(missed)]


def test_webhooks_are_debounced_into_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    config, told = project(tmp_path, f'webhook = "127.0.0.1:{free_port()}"\ndebounce = "0.3s"'), Told()
    (found,) = projects_of([config])
    scheduler = Scheduler([found], told)
    scheduler.start()
    hint = scheduler.hint_of(found)
    for _ in range(20):
        hint()
    until(lambda: len(told["done"]) == 1)
    hint()
    until(lambda: len(told["done"]) == 2)
    assert scheduler.next_runs() == []
    scheduler.stop()
    assert len(told["began"]) == 2


def test_an_accepted_hint_survives_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    config, told = (
        project(tmp_path, f'webhook = "127.0.0.1:{free_port()}"\ndebounce = "1h"\ndebounce_at_most = "2h"'),
        Told(),
    )
    (found,) = projects_of([config])
    first = Scheduler([found], told)
    first.start()
    first.hint_of(found)()
    until(lambda: [row["kind"] for row in first.next_runs()] == ["hint"])
    first.stop()
    assert told.events == []
    make_due(f"sqlite:///{tmp_path}/hitl.db", "p", "hint")
    second = Scheduler([found], told)
    second.start()
    until(lambda: len(told["done"]) == 1)
    second.stop()


def test_two_schedulers_of_one_project_run_each_due_time_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "run_if_changed", cycle.run)  # every one is recorded
    monkeypatch.setattr(workers, "FIRST_RETRY", 0.05)
    config, told = project(tmp_path, 'every = "1s"'), Told()
    pair = [Scheduler(projects_of([config]), told) for _ in range(2)]
    for scheduler in pair:
        scheduler.start()
    until(lambda: len({said["due"] for said in told["done"]}) >= 3)
    for scheduler in pair:
        assert scheduler.alive
        assert scheduler.stop()
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        names = [each.metrics["due"] for each in store.cycles("p")]
    assert len(names) == len(set(names)) >= 3
    assert names == sorted(names)
    assert {said["error"] for said in told["waits"]} <= {"Busy"}
    assert told["failed"] == []


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
    assert process.stdout is not None
    jobs, began, done = (json.loads(process.stdout.readline()) for _ in range(3))
    address = f"http://127.0.0.1:{port}"
    with urlopen(f"{address}/health") as answer:
        assert json.load(answer) == {"status": "ok"}
    with urlopen(Request(f"{address}/webhook/p", b"{}", {"X-Hitl-Secret": "s3cret"})) as answer:
        assert json.load(answer) == {"queued": True}
    again, done_again = (json.loads(process.stdout.readline()) for _ in range(2))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert [job["when"] for job in jobs["jobs"]] == ["every 1h"]
    assert [each["url"] for each in jobs["webhooks"]] == [f"{address}/webhook/p"]
    assert [each["event"] for each in (began, done, again, done_again)] == ["began", "done"] * 2
    assert (done["labels"], done["operations"], done_again["operations"]) == (27, 3, 0)
    assert done["next"] > done["time"]


def test_list_shows_the_jobs(tmp_path: Path, run: Run) -> None:
    project(tmp_path, 'cron = "*/10 8-18 * * mon-fri"\ntimezone = "Europe/Vienna"\nafter_annotations = 50')
    assert run("schedule", "--list") == (0, "no jobs in the store yet: `hitl schedule` makes them\n", "")
    (found,) = projects_of([tmp_path / "hitl.toml"])
    scheduler = Scheduler([found], Told())
    scheduler.prepare()
    scheduler.stop()
    code, out, _ = run("schedule", "--list", "--json")
    rows = {row["kind"]: row for row in json.loads(out)["jobs"]}
    assert code == 0
    assert rows["look"]["when"] == "look every 1m for 50 new annotations"
    when = datetime.fromisoformat(rows["cron"]["next"]).astimezone(ZoneInfo("Europe/Vienna"))
    assert plainly("*/10 8-18 * * mon-fri", when)
    assert "cron */10 8-18 * * mon-fri (Europe/Vienna); next 20" in run("schedule", "--list")[1]


def test_a_list_needs_no_token_and_a_schedule_does(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\nproject = 1\n'
        '[schedule]\nevery = "15m"\nwebhook = "127.0.0.1:' + f'{port}"\n'
    )
    (found,) = projects_of([tmp_path / "hitl.toml"])
    with monkeypatch.context() as environment:
        environment.setenv("HITL_LABEL_STUDIO_TOKEN", "x" * 40)
        environment.setenv("HITL_WEBHOOK_SECRET", "s3cret")
        (whole,) = projects_of([tmp_path / "hitl.toml"])
        scheduler = Scheduler([whole], Told())
        scheduler.prepare()
        scheduler.stop()
    code, out, error = run("schedule", "--list")
    assert (code, error) == (0, "")
    assert out.startswith("p: every 15m; next 20")
    assert f"p: webhook at 127.0.0.1:{port}" in out
    assert run("status")[:2] == (0, "p: nothing pulled yet; no cycle yet: `hitl run`\n")
    code, out, error = run("schedule")
    assert (code, out) == (78, "")
    assert "HITL_LABEL_STUDIO_TOKEN is not set" in error
    scheduler = Scheduler([found], Told())
    with pytest.raises(BadSettings, match="HITL_LABEL_STUDIO_TOKEN"):
        scheduler.start()
    scheduler.stop()


def test_lines_say_what_happened(tmp_path: Path, run: Run) -> None:
    from hitl.cli.schedule import line

    base = {"time": "2026-11-20T12:00:00+00:00", "project": "p"}
    due = {"event": "began", "due": "2026-11-20T11:59:00.000000+00:00"}
    assert line(base | due) == "2026-11-20 12:00:00Z p: cycle begins, due 2026-11-20 11:59:00Z"
    waits = {"event": "waits", "error": "Busy", "message": "held", "seconds": 5.0}
    assert line(base | waits).endswith("p: Busy: held; again in 5 s")
    failed = {"event": "failed", "error": "Refused", "message": "no", "next": "2026-11-20T13:00:00+00:00"}
    assert line(base | failed).endswith("failed: Refused: no; next 2026-11-20 13:00:00Z")
    done = {"event": "done", "seconds": 0.5, "new": 3, "labels": 27, "done": 6, "items": 9, "asks": 0}
    done |= {"operations": 3, "changed": 21, "stop": None, "idle": "budget.open_questions is 0", "lacking": "a skill"}
    assert line(base | done).endswith("0 asked, 3 operations, 21 changes; nothing is asked: budget.open_questions is 0")
    ended = done | {"stop": "every item is done", "idle": None, "lacking": None, "next": "2026-11-20T13:00:00+00:00"}
    assert line(base | ended).endswith("; the project is done: every item is done; next 2026-11-20 13:00:00Z")
    assert line(base | done | {"idle": None}).endswith("; left aside: a skill")
    quiet = done | {"idle": None, "lacking": None, "problems": ["row 3: no class", "row 4: no class"]}
    assert line(base | quiet).endswith("21 changes; row 3: no class; row 4: no class")
    assert line(base | {"event": "looked", "new": 50}).endswith("p: 50 new annotations")
    assert line(base | {"event": "looked", "new": None}).endswith("p: no cycle has counted annotations yet")


def test_a_scheduled_cycle_that_finds_nothing_new_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what a real cycle reports: it was a cycle that failed, in words and not as JSON."""
    from hitl.cli.schedule import teller

    project(tmp_path)
    for as_json in (False, False, True):
        said = {"seconds": 0.5, **workers.figures(workers.once(tmp_path / "hitl.toml"))}
        teller(as_json, lambda _: None)("done", "p", said)
    first, second, third = capsys.readouterr().out.splitlines()
    assert "cycle done in 0.5 s" in first
    assert second.endswith("p: nothing has changed (a look of 0.5 s): 0 operations, 0 changes")
    assert json.loads(third)["unchanged"] is True


def test_run_once_is_run(tmp_path: Path, run: Run) -> None:
    project(tmp_path)
    assert run("run", "--json")[0] == 0
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        assert len(store.cycles("p")) == 1
        with store.lease("p"):
            code, _, error = run("run")
    assert code == Busy.exit_code == 75
    assert "is held by" in error


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    for name in [name for name in sys.modules if name.startswith(("apscheduler", "hitl.service.scheduling.scheduler"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("apscheduler", "apscheduler.executors.base"):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, error = run("schedule")
    assert (code, error) == (78, "hitl: hitl schedule needs APScheduler: pip install 'hitl-toolkit[service]'\n")


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
