"""`[[events]]`: what is wrong with it is said, and no secret is, wherever settings and addresses are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from hitl.errors import BadSettings
from hitl.project import load
from hitl.settings import Settings
from hitl.settings.events import KINDS
from tests.events.receivers import OTHER, SECRET

HEAD = 'name = "p"\n[source]\nkind = "tables"\npath = "labels"\n'
ONE = '[[events]]\nname = "chat"\nurl = "https://hooks.example/T0/hidden-part"\n'


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HITL_EVENTS_CHAT_SECRET", raising=False)
    monkeypatch.delenv("HITL_EVENTS_CHAT_URL", raising=False)


def loaded(folder: Path, text: str) -> Settings:
    (folder / "hitl.toml").write_text(HEAD + text)
    return load(folder / "hitl.toml")


def test_an_address_its_secret_and_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET", f"{SECRET} {OTHER}")
    found = loaded(tmp_path, ONE + 'kinds = ["cycle.failed"]\ntemplate = "slack"\n[serve]\nurl = "https://h.example"\n')
    (one,) = found.events
    assert (one.kinds, one.template, len(one.keys), one.lacks) == (("cycle.failed",), "slack", 2, None)
    assert one.address.endswith("hidden-part")
    assert one.shown == "https://hooks.example"
    assert "hidden-part" not in repr(found)
    assert SECRET[8:20] not in repr(found)
    assert found.serve.url == "https://h.example"
    assert loaded(tmp_path, "").events == ()
    assert loaded(tmp_path, ONE).events[0].kinds == KINDS


def test_the_address_may_be_in_the_environment_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("HITL_EVENTS_CHAT_URL", "https://elsewhere.example/x")
    (one,) = loaded(tmp_path, ONE).events
    assert (one.address, len(one.keys)) == ("https://elsewhere.example/x", 1)
    assert loaded(tmp_path, '[[events]]\nname = "chat"\n').events[0].address == "https://elsewhere.example/x"


def test_what_it_lacks_is_said_and_what_is_stored_can_be_used(tmp_path: Path) -> None:
    (one,) = loaded(tmp_path, '[[events]]\nname = "chat"\n').events
    assert one.lacks is not None
    assert "HITL_EVENTS_CHAT_URL" in one.lacks
    (one,) = loaded(tmp_path, ONE).events
    assert one.lacks is not None
    assert "HITL_EVENTS_CHAT_SECRET" in one.lacks
    assert "openssl rand" in one.lacks
    assert loaded(tmp_path, ONE + 'template = "slack"\n').events[0].lacks is None


BAD = [
    (ONE + "kind = 3\n", r"events.0.kind: no such key; did you mean 'kinds'\? expected one of name, url, kinds"),
    (ONE + 'kinds = ["cycle.fails"]\n', r"events.0.kinds.0: input should be 'items.decided'"),
    (ONE + "kinds = []\n", "events.0.kinds"),
    (ONE + 'template = "teams"\n', "events.0.template: input should be 'json' or 'slack'"),
    (ONE + f'secret = "{SECRET}"\n', "the secret does not belong in a file; set HITL_EVENTS_CHAT_SECRET"),
    (ONE + ONE, "events: two are called 'chat'"),
    (ONE + "".join(ONE.replace("chat", f"c{n}") for n in range(20)), "events: there are 21; expected 20 at most"),
    ('events = "https://hooks.example/hidden-part"\n', "events: "),
    ('[[events]]\nurl = "https://hooks.example/hidden-part"\n', "expected a name of small letters"),
    (ONE.replace('"chat"', '"Chat Tool"'), "expected a name of small letters"),
    (ONE.replace("https://", "ftp://"), "this is no address that can be told"),
    (ONE.replace("https://", "https://me:hunter2@"), "this is no address that can be told"),
    (ONE.replace("hidden-part", "hidden part"), "this is no address that can be told"),
    (ONE.replace("hidden-part", "hidden-ü"), "this is no address that can be told"),
    (ONE.replace("hooks.example", "hooks.example:99999"), "this is no address that can be told"),
    ('[serve]\nurl = "h.example"\n', "serve.url: this is no address of pages"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_what_is_wrong_is_said_without_secrets(tmp_path: Path, text: str, said: str) -> None:
    whole = text + HEAD if text.startswith("events") else HEAD + text
    (tmp_path / "hitl.toml").write_text(whole)
    with pytest.raises(BadSettings, match=said) as found:
        load(tmp_path / "hitl.toml")
    for secret in (SECRET[8:20], "hunter2", "hidden"):
        assert secret not in str(found.value)


@pytest.mark.parametrize("bad", ["hunter2", "whsec_short", SECRET.removeprefix("whsec_"), f"{SECRET} hunter2"])
def test_a_secret_that_is_none_is_said_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET", bad)
    with pytest.raises(
        BadSettings, match="no secret of Standard Webhooks; expected whsec_ and 24 to 64 bytes"
    ) as found:
        loaded(tmp_path, ONE)
    assert "hunter2" not in str(found.value)
    assert "short" not in str(found.value)


def test_the_whole_list_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_EVENTS", '[{"name": "chat", "url": "https://h.example/x", "template": "slack"}]')
    (one,) = loaded(tmp_path, ONE).events
    assert (one.name, one.shown, one.template) == ("chat", "https://h.example", "slack")
