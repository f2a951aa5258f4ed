"""`hitl serve` and `hitl demo --serve` as processes."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.command_line import Run
from tests.scheduled import free_port
from tests.service.web.processes import SECONDS, first_user, log_in, serving
from tests.service.web.served import Crowd

SECRET = "of the tests"
CROWD = Crowd([(item, who, "yes" if item != "c" else "no") for item in "abc" for who in ("ann", "bob")])


def test_it_says_how_to_log_in_shows_pages_and_ends_with_a_signal(tmp_path: Path) -> None:
    CROWD.written(tmp_path)
    with serving(tmp_path, "serve") as (address, said, process):
        assert httpx.get(address).status_code == 401
        with closing(log_in(address, said)) as client:
            assert "3 items" in client.get("/projects/p").text
            assert len(client.get("/projects/p/items?format=json").json()["rows"]) == 3
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=SECONDS)
        log = (tmp_path / "log.txt").read_text()
        assert process.returncode in (0, -signal.SIGTERM)
        assert first_user(said)[1] not in log
        assert "Traceback" not in log


def test_others_may_not_reach_it_without_a_user(tmp_path: Path, run: Run) -> None:
    CROWD.written(tmp_path)
    code, _, error = run("serve", "--address", f"0.0.0.0:{free_port()}")
    assert (code, "hitl users add" in error) == (78, True)


def test_every_line_of_the_log_is_json_with_the_same_keys(tmp_path: Path) -> None:
    CROWD.written(tmp_path)
    secrets = {"HITL_WEBHOOK_SECRET": SECRET, "HITL_WEBHOOK_SECRE": "slip"}
    with serving(tmp_path, "serve", "--json", secrets=secrets) as (address, said, process):
        first = [json.loads(line) for line in said.splitlines()]
        login = {"name": first[1]["user"], "password": first[1]["password"]}
        assert httpx.post(f"{address}/login", data=login).status_code == 303
        for name in (first[1]["user"], "a password?"):
            assert httpx.post(f"{address}/login", data={"name": name, "password": "wrong"}).status_code == 401
        assert httpx.get(f"{address}/nothing?secret=1").status_code == 404
        with httpx.Client() as client:
            for secret, body in (
                ("wrong", "{}"),
                (SECRET, "garbage"),
                (SECRET, '{"action": "x", "project": {"id": 9}}'),
            ):
                client.post(f"{address}/webhook/p", headers={"X-Hitl-Secret": secret}, content=body)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=SECONDS)
    lines = [json.loads(line) for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert all({"timestamp", "level", "event"} <= line.keys() for line in (*first, *lines))
    logins = [(line["level"], line["client"], line["user"]) for line in lines if line["event"] == "login failed"]
    assert logins == [("warning", "127.0.0.1", "admin"), ("warning", "127.0.0.1", None)]
    requests = [(line["level"], line["path"], line["client"]) for line in lines if line["event"] == "request"]
    assert next(line for line in lines if line["event"] == "request")["caller"] == first[1]["user"]
    assert requests[3:5] == [("info", "/nothing", "127.0.0.1"), ("warning", "/webhook/p", "127.0.0.1")]
    said = {line["event"]: line for line in lines}
    assert said["ready"]["loading"] == []
    assert said["webhook without readable JSON counts as a hint"]["project"] == "p"
    assert (said["webhook"]["sent_by"], said["webhook"]["queued"]) == ("9", False)
    (slip,) = [line for line in lines if "HITL_WEBHOOK_SECRE " in line["event"]]
    assert slip["event"].endswith("is ignored; did you mean HITL_WEBHOOK_SECRET?")
    assert lines[-1]["event"] == "stopping"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_port_that_is_in_use_starts_nothing(tmp_path: Path, run: Run, as_json: bool) -> None:
    CROWD.written(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, error = run("serve", "--address", f"127.0.0.1:{port}", *(["--json"] if as_json else []))
    assert (code, out) == (78, "")
    said = json.loads(error)["event"] if as_json else error
    assert f"--address: port {port} of 127.0.0.1 is in use; choose another" in said


@pytest.mark.parametrize("address", ["8500", "localhost", "localhost:http", "localhost:99999"])
def test_an_address_is_a_host_and_a_port(address: str, tmp_path: Path, run: Run) -> None:
    CROWD.written(tmp_path)
    code, _, error = run("serve", "--address", address)
    assert (code, "expected host:port" in error) == (78, True)


@pytest.mark.journey
def test_the_demo_labels_while_it_is_looked_at(tmp_path: Path) -> None:
    def labels(client: httpx.Client) -> int:
        (row,) = client.get("/?format=json").json()["rows"]
        return int(row["labels"])

    with serving(tmp_path, "demo", "--serve") as (address, said, _), closing(log_in(address, said)) as client:
        first = labels(client)
        assert first >= 1600
        for _ in range(SECONDS):
            if labels(client) > first:
                return
            time.sleep(1.0)
        raise AssertionError("no label came")
