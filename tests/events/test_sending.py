"""One request: what is signed, and that no receiver and no name can hold it up, lead it elsewhere or forge its text."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from email.message import Message
from pathlib import Path

import pytest

from hitl.events.bodies import LONGEST_TEXT, as_sent, body_of, sentence, text_of
from hitl.events.sender import ask, signed
from hitl.settings.events import key_of
from tests.events.receivers import (
    OTHER,
    SECRET,
    Act,
    Got,
    answers,
    drips,
    echoes,
    hangs,
    hangs_up,
    receiving,
    speaks_something_else,
    verified,
)

SOON = 0.3


def keys(*secrets: str) -> list[bytes]:
    found = [key_of(secret) for secret in secrets]
    assert None not in found
    return [key for key in found if key is not None]


def test_the_example_of_the_specification() -> None:
    """The vector that its libraries test themselves by."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', keys(secret))
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def got(headers: dict[str, str], body: bytes) -> Got:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    return Got("/", message, body)


def test_signatures_are_as_another_verification_wants_them_and_nothing_else_passes() -> None:
    now, body = 1_700_000_000, b'{"a":"b\\u00e4"}'
    for secrets in ((SECRET,), (SECRET, OTHER)):
        headers = signed("msg_1", now, body, keys(*secrets))
        for secret in secrets:
            assert verified(got(headers, body), secret, now)
        assert not verified(got(headers, body + b" "), SECRET, now)
        assert not verified(got({**headers, "webhook-id": "msg_2"}, body), SECRET, now)
        assert not verified(got({**headers, "webhook-timestamp": str(now + 1)}, body), SECRET, now)
        assert not verified(got(headers, body), SECRET, now + 301)
    assert not verified(got(signed("msg_1", now, body, keys(OTHER)), body), SECRET, now)
    assert "webhook-signature" not in signed("msg_1", now, body, ())


@pytest.mark.parametrize(
    "bad", ["", "whsec_", "whsec_!!!!", "AAAA" * 8, f"whsec_{base64.b64encode(b'x' * 23).decode()}"]
)
def test_what_is_no_secret(bad: str) -> None:
    assert key_of(bad) is None


@pytest.mark.parametrize("status", [200, 201, 204])
def test_it_has_arrived(status: int) -> None:
    with receiving(status) as to:
        found = ask("POST", to.url, {"webhook-id": "msg_1"}, b"{}", 5.0)
        assert found.arrived
        assert (to.got[0].path, to.got[0].body, to.got[0].id) == ("/hook/T0/secret-part?a=b", b"{}", "msg_1")


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 410, 429, 500, 503])
def test_it_has_not_arrived_and_no_redirect_is_followed(status: int) -> None:
    with receiving() as elsewhere, receiving(answers(status, Location=elsewhere.url)) as to:
        found = ask("POST", to.url, {}, b"{}", 5.0)
        assert not found.arrived
        assert found.said.startswith(f"{status} ")
        assert elsewhere.got == []


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (hangs, "no answer within 0.3 s"),
        (drips, "no answer within 0.3 s"),
        (hangs_up, "the connection was closed without an answer"),
        (speaks_something_else, "the connection was closed without an answer"),
        (echoes, "what answers does not speak HTTP"),
    ],
)
def test_whatever_the_receiver_does_it_ends_and_is_said(act: Act, said: str) -> None:
    with receiving(act) as to:
        found = ask("POST", to.url, {}, b"{}", SOON)
        assert (found.status, found.said) == (None, said)


def test_one_that_only_listens_is_cut_off_with_and_without_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("http", "https"):
            found = ask("POST", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/secret", {}, b"{}", SOON)
            assert found.said == "no answer within 0.3 s"


def test_a_tls_handshake_that_drips_is_cut_off() -> None:
    done = threading.Event()

    def drip(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"\x16\x03\x03\x40\x00")
            while not done.wait(0.05):
                try:
                    peer.sendall(b"\x02")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        found = ask("POST", f"https://127.0.0.1:{server.getsockname()[1]}/", {}, b"{}", SOON)
        done.set()
        thread.join(5)
    assert not found.arrived
    assert found.status is None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_has_to_be_trusted_and_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {key}"
    named = f"{make} -out {certificate} -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(named.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiving(context=context) as to:
        url = to.url.replace("127.0.0.1", "localhost")
        assert ask("POST", url, {}, b"{}", 10.0).said.startswith("its certificate is not trusted: self")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ask("POST", url, {}, b"{}", 10.0).arrived
        assert to.got[0].headers["host"] == url.split("/")[2]
        assert "not trusted: IP address mismatch" in ask("POST", to.url, {}, b"{}", 10.0).said
        assert len(to.got) == 1


def test_a_dead_address_and_an_unknown_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = ask("POST", f"http://127.0.0.1:{port}/secret-part", {}, b"{}", 5.0)
    assert found.said == "Connection refused"
    assert ask("POST", "http://nobody.invalid/secret-part", {}, b"{}", 5.0).said == "no such host"


def test_when_the_receiver_wants_it_again() -> None:
    for header, wanted in (("120", 120.0), ("soon", None), ("99999999999", 999999999.0), ("-1", None)):
        with receiving(answers(429, Retry_After=header)) as to:
            assert ask("POST", to.url, {}, b"{}", 5.0).retry_after == wanted
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 600))
    with receiving(answers(503, Retry_After=date)) as to:
        assert 500 < (ask("POST", to.url, {}, b"{}", 5.0).retry_after or 0) <= 600


# -- words ---------------------------------------------------------------------------------------------------------

HOSTILE = [
    "<!channel>",
    "@channel",
    "@here `@all` ``` @everyone",
    "<https://evil.example|click>",
    "[click](https://evil.example)",
    "line\nbreak\r\n@channel",
    "\u202egnp.exe\u0000\u001b[31m",
    "&lt;!channel&gt;",
    "*bold* _it_ ~no~",
    "x" * 5000,
    "\ud800 alone",
    '"},"text":"forged',
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_act_on_nothing(name: str) -> None:
    item = {"item": name, "labels": {name: name}, "confidence": float("nan"), "why": name, "url": None}
    data = {
        "project": name,
        "decided": 1,
        "changed": 0,
        "reopened": 0,
        "done": 1,
        "of": 2,
        "items": [item],
        "url": None,
    }
    body = body_of("items.decided", 0.0, data)
    assert body.isascii()
    assert json.loads(body)["data"]["items"][0]["item"] == name
    item["confidence"] = 0.5
    sent = json.loads(as_sent(body_of("items.decided", 0.0, data), "slack"))
    assert list(sent) == ["text"]
    text = sent["text"]
    assert "<" not in text
    assert ">" not in text
    assert "\u202e" not in text
    assert len(text) < 1000
    for line in text.split("\n"):
        assert line.count("`") % 2 == 0
        outside = "".join(line.split("`")[::2])
        assert not any(sign in outside for sign in ("@", "[", "<", "&", "evil", "xxx", "gnp"))


def test_a_text_that_is_too_long_ends_between_lines() -> None:
    names = ["`" + "&" * 78] * 20
    items = [{"item": n, "labels": dict.fromkeys("abc", n), "confidence": 0.5, "url": None} for n in names]
    data = {"project": "p", "decided": 20, "changed": 0, "done": 1, "of": 2, "items": items, "url": "https://h/p"}
    text = text_of({"type": "items.decided", "data": data})
    assert len(text) < LONGEST_TEXT + 100
    assert text.endswith("\n…\nhttps://h/p")
    assert all(line.count("`") % 2 == 0 for line in text.split("\n"))


def test_sentences_are_cut_and_hold_no_password() -> None:
    said = sentence("postgresql://me:hunter2@host/db " + "long " * 500)
    assert "hunter2" not in said
    assert len(said) == 500
