"""`hitl serve` as a process, and somebody who logs in to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.command_line import COMMAND
from tests.scheduled import free_port

SECONDS = 60


@contextmanager
def serving(
    folder: Path, *arguments: str, secrets: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """`hitl ARGUMENTS... --address <free>` in a folder, until it is ready: its address, what it said, the process.

    `secrets`: variables HITL_... of its environment; it has no others.
    """
    address, said = f"127.0.0.1:{free_port()}", folder / "said.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HITL_")}
    with said.open("w") as out, (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments, "--address", address],
            cwd=folder, stdout=out, stderr=log, text=True, env={**environment, **(secrets or {})},
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


def first_user(said: str) -> tuple[str, str]:
    """Name and password of the user that it has made."""
    name, password = re.search(r"log in as '(\w+)' with the password (\S+);", said).groups()  # type: ignore[union-attr]
    return name, password


def log_in(address: str, said: str) -> httpx.Client:
    """A program that is logged in as the first user."""
    name, password = first_user(said)
    client = httpx.Client(
        base_url=address, headers={"Accept": "text/html", "Origin": address}, follow_redirects=True, timeout=60
    )
    shown = client.post("/login", data={"name": name, "password": password})
    assert shown.status_code == 200
    assert "Log out" in shown.text
    return client
