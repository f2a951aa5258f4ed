"""A server that nobody reaches, or that accepts connections and never answers, as a proxy may."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hitl.connectors.label_studio import client as client_module
from hitl.connectors.label_studio.client import Client
from hitl.errors import Unreachable
from tests.command_line import Run
from tests.connectors.label_studio.test_client import TOKEN


def configured(url: str) -> None:
    """Write a hitl.toml for project 1 of this server here; `hitl init` would ask it."""
    Path("hitl.toml").write_text(f'name = "p"\n[source]\nkind = "label-studio"\nurl = "{url}"\nproject = 1\n')


def test_the_command_line_says_that_it_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is a line, once for all threads; at the end stands what to do."""
    monkeypatch.setattr(client_module, "WAITS", (0.6, 0.6))
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", TOKEN)
    configured("http://127.0.0.1:9")
    code, _, err = run("run")
    waits, end = err.splitlines()[:-1], err.splitlines()[-1]
    assert code == 69
    assert waits == [f"hitl: no answer from http://127.0.0.1:9, trying again in 1 s ({n} of 2)" for n in (1, 2)]
    assert end.startswith("hitl: http://127.0.0.1:9 did not answer GET ")
    assert "Check that Label Studio runs" in end


@contextmanager
def hanging() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that accepts every connection and never answers: its address, and the connections."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connections.append(listening.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
        listening.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


def test_a_server_that_never_answers_is_given_up_early(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are, with a line for each retry; writes, which Label Studio answers when they are done, are not."""
    monkeypatch.setattr(client_module, "WAITS", (0.1,))
    monkeypatch.setattr(client_module, "CHECK_SECONDS", 0.3)
    with hanging() as (url, connections):
        configured(url)
        monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", TOKEN)
        monkeypatch.setenv("HITL_SOURCE__TIMEOUT", "6")
        code, _, err = run("run")
        assert (code, err.count("no answer from"), len(connections)) == (69, 1, 2)
        assert re.search(r"did not answer GET /api/projects/1/: waited [1-4] s\. Check that Label Studio runs", err)
        code, out, err = run("doctor")
        assert (code, err, len(connections)) == (1, "", 3)
        assert out.splitlines()[0].startswith("ok    settings")
        assert re.search(
            r"FAIL  label studio: .* did not answer GET /api/version/: waited [0-4] s\n      -> Check", out
        )
        assert run("init", "--label-studio", url, "--project", "1", "--config", "other.toml")[0] == 69
        assert len(connections) == 4
        client = Client(url, TOKEN, request_seconds=2)
        with pytest.raises(Unreachable, match="waited 2 s"):
            client.post("/x", {})
