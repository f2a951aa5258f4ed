"""Tokens, passwords and webhook secrets reach no message, log, report or store."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.command_line import Run
from tests.scheduled import free_port, project, until
from tests.security.leaks import Told, leaks

TOKEN, SECRET = "token-4f/81c=2b7e", "hook-s3cret-77a0"
SECRETS = {"token": TOKEN, "secret of the webhook": SECRET}


@pytest.mark.parametrize(
    "written",
    [
        f"text {TOKEN} text".encode(),
        json.dumps({"a": TOKEN}).encode(),
        quote(f"http://x/?t={TOKEN}").encode() + quote(TOKEN, safe="").encode(),
        *(base64.b64encode(b"x" * n + TOKEN.encode() + b"yy") for n in range(4)),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_scanner_finds_a_secret(tmp_path: Path, written: bytes, packed: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "clean.txt").write_text("nothing")
    path = tmp_path / "a" / ("log.gz" if packed else "log.txt")
    path.write_bytes(gzip.compress(written) if packed else written)
    assert leaks(tmp_path, SECRETS) == [f"{path}: token"]


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that refuses every request, and says back all that it was sent."""

    class Echo(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = json.dumps({"detail": f"no: {self.path} {dict(self.headers)}"}).encode()
            self.send_response(403)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_server_that_says_the_token_back(
    tmp_path: Path, run: Run, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", TOKEN)
    for url in (echo, f"http://127.0.0.1:{free_port()}"):
        (tmp_path / "hitl.toml").write_text(
            f'name = "p"\n[source]\nkind = "label-studio"\nurl = "{url}"\nproject = 1\n[schedule]\nevery = "1h"\n'
        )
        told = Told(run, tmp_path)
        for command in (["doctor"], ["pull"], ["run"], ["status"], ["run", "--json"], ["audit"], ["doctor", "--json"]):
            told(*command)
        assert any(told.codes)
    assert leaks(tmp_path, SECRETS) == []


def test_a_scheduler_with_a_webhook(tmp_path: Path) -> None:
    port = free_port()
    project(tmp_path, f'every = "1h"\nwebhook = "127.0.0.1:{port}"')
    environment = os.environ | {"HITL_WEBHOOK_SECRET": SECRET, "HITL_LABEL_STUDIO_TOKEN": TOKEN}
    log = tmp_path / "said.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "hitl", "schedule", "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=said,
            stderr=said,
        )
        until(lambda: '"done"' in log.read_text())
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    assert leaks(tmp_path, SECRETS) == []
