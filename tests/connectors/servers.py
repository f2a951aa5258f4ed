"""Servers from PyPI on loopback, each in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import httpx

START_SECONDS = 120.0

KILLED = """
import os, signal, sys
from hitl.cli import main
from hitl.connectors.rest import Rest

sent, left = Rest._sent, int(sys.argv.pop(1))

def counted(*given, **named):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return sent(*given, **named)

Rest._sent = counted
sys.argv[0] = "hitl"
main()
"""
"""`forked(KILLED, str(n), ARGUMENTS...)` is `hitl ARGUMENTS...`, killed before its n-th request."""


def installed(package: str, version: str) -> Path:
    """The `bin` of the package's environment in HITL_HOME. The first of several processes makes it; the others wait."""
    home = Path(os.environ.get("HITL_HOME") or Path.home() / ".cache" / "hitl").absolute()
    folder = home / f"{package}-{version}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{package}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            python, uv = str(folder / "bin" / "python"), Path(sys.executable).with_name("uv")
            pip = [str(uv), "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
            subprocess.run([*pip, "-q", f"{package}=={version}"], check=True)
            (folder / "ready").touch()
    return folder / "bin"


def free_port() -> int:
    """A port that nobody listens on."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def served(
    command: Sequence[str], folder: Path, more: Mapping[str, str], url: str, health: str
) -> Iterator[httpx.Client]:
    """A client of a server that runs in this folder until the block ends; once up, it has the page `health`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HITL_")} | more
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        with httpx.Client(base_url=url, timeout=60.0) as http:
            until = time.monotonic() + START_SECONDS
            while True:
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < until, f"{command[0]} does not start"
                try:
                    if http.get(health).status_code == 200:
                        break
                except httpx.HTTPError:
                    time.sleep(0.3)
            yield http
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
