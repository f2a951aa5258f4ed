"""The receiver of docs/howto/events.md works as printed; the pages name every kind and every setting."""

from __future__ import annotations

import re
import threading
import time
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hitl.events.bodies import body_of, ping
from hitl.events.sender import PAUSES, ask, signed
from hitl.settings.events import KINDS, EventSettings, key_of
from hitl.settings.times import spelled
from tests.events.receivers import OTHER, SECRET

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("howto/events.md", "reference/events.md"))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the page prints, as a module."""
    monkeypatch.setenv("HITL_EVENTS_PIPELINE_SECRET", SECRET)
    (code,) = re.findall(r"<!--run:receiver-->\n```python\n(.*?)```", PAGE, re.DOTALL)
    module: dict[str, Any] = {"__name__": "receiver"}
    exec(code, module)
    return module


def test_the_receiver_takes_what_is_genuine_once_and_nothing_else(
    receiver: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver["Receiver"].log_message = lambda *said: None
    server = HTTPServer(("127.0.0.1", 0), receiver["Receiver"])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    body, now = ping("pets").body.encode(), int(time.time())

    def answer(secret: str = SECRET, at: int = now, sent: bytes = body, identity: str = "msg_1") -> int | None:
        key = key_of(secret)
        assert key is not None
        url = f"http://127.0.0.1:{server.server_port}/"
        return ask("POST", url, signed(identity, at, body, [key]), sent, 5.0).status

    try:
        assert [answer(), answer(), answer(identity="msg_2")] == [204, 204, 204]
        assert answer(OTHER) == 401
        assert answer(at=now - 400) == 401
        assert answer(sent=body_of("ping", 0.0, {"project": "evil"}).encode()) == 401
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
    assert capsys.readouterr().out.count("ping {'project': 'pets'}") == 2


def test_the_page_names_all_there_is() -> None:
    for kind in (*KINDS, "ping"):
        assert f"| {kind} |" in PAGE
    for key in EventSettings.model_fields:
        assert key in PAGE
    said = [spelled(seconds).replace("s", " s").replace("m", " min").replace("h", " h") for seconds in PAUSES]
    assert f"after {', '.join(said[:-1])} and {said[-1].replace('1d', '24 h')}, each" in PAGE, said
