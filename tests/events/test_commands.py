"""`hitl run`, `hitl plan`, `hitl schedule`, `hitl events` and `hitl doctor` with addresses that are told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import COMMAND, Run
from tests.events.receivers import SECRET, answers, receiving, verified
from tests.projects import folder_with_tables
from tests.service.web.test_serve import serving

SETTINGS = """name = "p"
[source]
kind = "tables"
path = "labels"
[budget]
open_questions = 6
target_confidence = 0.6
"""


@pytest.fixture
def project(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder_with_tables(tmp_path / "labels")
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET", SECRET)
    return tmp_path


def told(folder: Path, more: str = "", **urls: str) -> None:
    entries = "".join(f'[[events]]\nname = "{name}"\nurl = "{url}"\n' for name, url in urls.items())
    (folder / "hitl.toml").write_text(SETTINGS + more + entries)


def test_a_run_tells_at_its_end_and_says_no_secret(project: Path, run: Run) -> None:
    with receiving() as to:
        told(project, ci=to.url)
        code, out, err = run("run")
        assert code == 0
        assert to.kinds == ["items.decided"]
        assert verified(to.got[0], SECRET, time.time())
        said = (
            out + err + "".join(run(*each)[1] for each in (("events",), ("events", "--json"), ("doctor",), ("status",)))
        )
    assert "items.decided" in said
    assert "1 delivered, 0 waiting, 0 failed for good" in said
    for secret in ("secret-part", SECRET[8:20]):
        assert secret not in said


def test_a_plan_waits_and_a_dry_run_tells_nothing(project: Path, run: Run) -> None:
    with receiving() as to:
        told(project, ci=to.url)
        assert run("pull")[0] == 0
        assert run("plan", "--dry-run")[0] == 0
        assert to.got == []
        assert run("plan")[0] == 0
        assert to.kinds == ["items.decided", "plan.waits"]


def test_a_dead_address_fails_no_run_and_doctor_says_so(project: Path, run: Run) -> None:
    with receiving(500) as to:
        told(project, ci=to.url)
        assert run("run")[0] == 0
        code, out, _ = run("doctor")
        assert code == 0
        assert "1 event to be sent" in out
        assert to.other == ["HEAD /hook/T0/secret-part?a=b"]
    code, out, _ = run("events")
    assert code == 0
    assert "waiting" in out
    assert "500 Internal" in out
    code, out, _ = run("doctor")
    assert code == 1
    assert "Connection refused" in out
    assert "secret-part" not in out


def test_a_test_is_a_ping_to_each_address(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as to, receiving(404) as bad:
        told(project, ci=to.url, chat=bad.url)
        code, out, _ = run("events", "--test")
        assert code == 69
        assert "ok    ci" in out
        assert "FAIL  chat" in out
        assert "404 Not Found" in out
        bad.act = answers(200)
        code, out, _ = run("events", "--test", "--json")
        assert (code, json.loads(out)["ok"]) == (0, True)
        assert to.kinds == ["ping", "ping"]
        assert all(verified(one, SECRET, time.time()) for one in to.got)
        assert json.loads(run("events", "--json")[1])["deliveries"] == []
        monkeypatch.delenv("HITL_EVENTS_CI_SECRET")
        code, out, _ = run("events", "--test")
        assert code == 69
        assert "HITL_EVENTS_CI_SECRET" in out
        assert "HITL_EVENTS_CI_SECRET" in run("doctor")[1]


def test_what_was_given_up_is_sent_again(project: Path, run: Run) -> None:
    with receiving(410) as to:
        told(project, ci=to.url)
        assert run("run")[0] == 0
        assert "1 failed for good" in run("events")[1]
        code, out, _ = run("doctor")
        assert code == 1
        assert "410" in out
        to.act = answers(200)
        assert run("events", "--test")[0] == 0
        assert run("events", "--resend")[0] == 0
        assert to.kinds == ["items.decided", "ping", "items.decided"]
        assert to.got[0].id == to.got[2].id
    told(project)
    assert run("events")[0] == 78


@pytest.mark.journey
def test_the_service_tells_while_it_runs(tmp_path: Path) -> None:
    """The chat tool needs no secret: the service starts without any in its environment."""
    with receiving() as to:
        folder_with_tables(tmp_path / "labels")
        chat = f'[[events]]\nname = "chat"\nurl = "{to.url}"\ntemplate = "slack"\n'
        (tmp_path / "hitl.toml").write_text(f'{SETTINGS}[schedule]\nevery = "1h"\n{chat}')
        with serving(tmp_path, "serve") as (_, _, process):
            until = time.monotonic() + 120
            while not to.got and time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM)
        log = (tmp_path / "log.txt").read_text()
        assert "9 items newly decided" in to.got[0].event["text"], log
        assert "secret-part" not in log


@pytest.mark.journey
def test_the_scheduler_tells_while_it_runs(project: Path, run: Run) -> None:
    with receiving() as to:
        told(project, '[schedule]\nevery = "1h"\n', ci=to.url)
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "schedule"], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            until = time.monotonic() + 120
            while not to.got and time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert to.kinds == ["items.decided"], out.decode()
        assert process.returncode == 0
