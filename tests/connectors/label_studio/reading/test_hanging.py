"""A server, or a proxy before it, that accepts connections and never answers."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hitl.connectors.label_studio import client as client_module
from hitl.connectors.label_studio.client import Client
from hitl.errors import Unreachable
from tests.command_line import Run
from tests.connectors.label_studio.test_client import TOKEN


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
    monkeypatch.setattr(client_module, "WAITS", (0.1, 0.1))
    monkeypatch.setattr(client_module, "CHECK_SECONDS", 0.3)
    with hanging() as (url, connections):
        assert run("init", "--label-studio", url, "--project", "1")[0] == 0  # without a token
        monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", TOKEN)
        monkeypatch.setenv("HITL_SOURCE__TIMEOUT", "2")
        code, _, err = run("run")
        assert (code, err.count("no answer from"), len(connections)) == (69, 2, 3)
        assert re.search(r"did not answer GET /api/projects/1/: waited \d s\. Check that Label Studio runs", err)
        code, out, err = run("doctor")
        assert (code, err, len(connections)) == (1, "", 4)
        assert out.splitlines()[0].startswith("ok    settings")
        assert re.search(r"FAIL  label studio: .* did not answer GET /api/version/: waited \d s\n      -> Check", out)
        assert run("init", "--label-studio", url, "--project", "1", "--config", "other.toml")[0] == 69
        assert len(connections) == 5
        client = Client(url, TOKEN, request_seconds=2)
        with pytest.raises(Unreachable, match="waited 2 s"):
            client.post("/x", {})
