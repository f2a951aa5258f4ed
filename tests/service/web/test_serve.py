"""`hitl serve` and `hitl demo --serve` as processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.command_line import COMMAND
from tests.service.web.served import Crowd

CROWD = Crowd([(item, who, "yes" if item != "c" else "no") for item in "abc" for who in ("ann", "bob")])
SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """`hitl ARGUMENTS... --address <free>` in a folder, until it is ready: its address, what it said, the process."""
    address, said = f"127.0.0.1:{free_port()}", folder / "said.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HITL_")}
    with said.open("w") as out, (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments, "--address", address],
            cwd=folder, stdout=out, stderr=log, text=True, env=environment,
        )  # fmt: skip
    try:
        yield f"http://{address}", _ready(f"http://{address}", said, process), process
    finally:
        process.kill()
        process.wait()


def _ready(address: str, said: Path, process: subprocess.Popen[str]) -> str:
    for _ in range(10 * SECONDS):
        assert process.poll() is None, (said.parent / "log.txt").read_text()
        try:
            if httpx.get(f"{address}/readyz").status_code == 200:
                return said.read_text()
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("it was not ready in time")


def log_in(address: str, said: str) -> httpx.Client:
    name, password = re.search(r"log in as '(\w+)' with the password (\S+);", said).groups()  # type: ignore[union-attr]
    client = httpx.Client(base_url=address, headers={"Accept": "text/html", "Origin": address}, follow_redirects=True)
    shown = client.post("/login", data={"name": name, "password": password})
    assert shown.status_code == 200
    assert "Log out" in shown.text
    return client


def test_it_says_how_to_log_in_shows_pages_and_ends_with_a_signal(tmp_path: Path) -> None:
    CROWD.written(tmp_path)
    with serving(tmp_path, "serve") as (address, said, process):
        assert httpx.get(address).status_code == 401
        with closing(log_in(address, said)) as client:
            assert "of 3 items" in client.get("/projects/p").text
            assert len(client.get("/projects/p/items?format=json").json()["rows"]) == 3
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=SECONDS)
        log = (tmp_path / "log.txt").read_text()
        assert process.returncode in (0, -signal.SIGTERM)
        password = re.search(r"password (\S+);", said).group(1)  # type: ignore[union-attr]
        assert password not in log
        assert "Traceback" not in log


def test_others_may_not_reach_it_without_a_user(tmp_path: Path) -> None:
    CROWD.written(tmp_path)
    command = [sys.executable, "-c", COMMAND, "serve", "--address", f"0.0.0.0:{free_port()}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 78
    assert "hitl users add" in done.stderr


@pytest.mark.parametrize("address", ["8500", "localhost", "localhost:http", "localhost:99999"])
def test_an_address_is_a_host_and_a_port(address: str, tmp_path: Path) -> None:
    CROWD.written(tmp_path)
    command = [sys.executable, "-c", COMMAND, "serve", "--address", address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 78
    assert "expected host:port" in done.stderr


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
