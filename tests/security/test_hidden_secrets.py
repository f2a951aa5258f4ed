"""A secret is hidden in every form a text may hold it in. A line break at the end of a token does not count."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from hitl import formatting
from hitl.connectors.label_studio import LabelStudio
from hitl.errors import BadSettings
from hitl.formatting import masked, plain, remember
from hitl.settings.environment import secret
from hitl.settings.events import EventSettings
from tests.command_line import Run
from tests.security.leaks import Told, leaks
from tests.security.test_secrets import echo  # noqa: F401

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "Python": repr,
    "bytes": lambda text: repr(text.encode()),
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps({"a": text})),
    "repr in JSON": lambda text: json.dumps(repr(text)),
    "URL": lambda text: quote(text, safe=""),
    "path": quote,
    "form": quote_plus,
    "small letters": lambda text: "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in text),
    "HTML": html.escape,
}
TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(formatting, "_secrets", set())
    formatting._pattern.cache_clear()
    yield
    formatting._pattern.cache_clear()


@given(token=TOKENS)
def test_a_secret_is_hidden_in_every_form(token: str) -> None:
    formatting._secrets.clear()  # those of earlier examples
    remember(token)
    for form in FORMS.keys() - {"small letters"}:
        written = FORMS[form](token)
        assert token not in (text := masked(f"Illegal header value {written}: no")), form
        assert written.strip("'\"b") not in text, form
        assert text.startswith("Illegal header value "), form
        assert text.endswith(": no"), form


@given(token=st.from_regex(r"[a-z0-9/=+:]{8,40}", fullmatch=True))
def test_codes_of_an_address_may_be_in_small_letters(token: str) -> None:
    remember(token)
    assert masked(quote(token, safe="").lower()) == "***"


@given(token=TOKENS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_of_a_secret_in_base64_at_most_its_ends_are_seen(token: str, before: bytes, after: bytes) -> None:
    remember(token)
    text = masked(base64.b64encode(before + token.encode() + after).decode())
    assert "***" in text
    assert len(text) <= 3 + 4 * ((len(before) + len(after)) // 3 + 4)


def test_a_secret_of_any_characters_is_hidden() -> None:
    remember("t\ud800ken \x00 'é\"\\")
    assert masked("it is t\ud800ken \x00 'é\"\\!") == "it is ***!"


def test_words_are_not_hidden_and_what_is_forgotten_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    remember("secret")
    assert plain("secret") == "secret", "too short"
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "correct horse battery")
    assert secret("HITL_WEBHOOK_SECRET") == "correct horse battery"
    assert plain("a horse and correct horse battery") == "a horse and ***"
    monkeypatch.setenv("HITL_STORE", "postgresql://ann:pass-word@db/x")
    assert secret("HITL_STORE") == "postgresql://ann:pass-word@db/x"
    assert plain("postgresql://ann:pass-word@db/x: no such host") == "postgresql://ann:***@db/x: no such host"


def test_an_address_without_a_path_is_no_secret() -> None:
    EventSettings(name="ci", url=SecretStr("https://receiver.example"))
    EventSettings(name="chat", url=SecretStr("https://chat.example/T0/abcdefgh"))
    told = "https://receiver.example and https://chat.example/T0/abcdefgh"
    assert masked(told) == "https://receiver.example and ***"


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", "\t"])
def test_a_line_break_at_the_end_of_a_secret_does_not_count(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_X_TOKEN", f"token-4f81{end}")
    assert secret("HITL_X_TOKEN") == "token-4f81"
    assert LabelStudio("http://localhost:1", f"token-4f81{end}", 1).client is not None


@pytest.mark.parametrize("token", ["token-4f\n81c2", "token-4f81é", "token 4f81", "token-\x004f81", "\ud800token"])
def test_a_token_no_request_can_carry_is_a_clear_error(token: str) -> None:
    with pytest.raises(BadSettings, match=r"the token of Label Studio holds .*HITL_LABEL_STUDIO_TOKEN") as refused:
        LabelStudio("http://localhost:1", token, 1)
    assert "4f" not in str(refused.value)


@pytest.mark.parametrize("token", ["token-4f81c-2b7e\n", "token-4f\n81c-2b7e", "töken-4f81c-2b7e"])
def test_no_command_says_or_stores_it(
    token: str,
    tmp_path: Path,
    run: Run,
    echo: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", token)
    (tmp_path / "hitl.toml").write_text(
        f'name = "p"\n[source]\nkind = "label-studio"\nurl = "{echo}"\nproject = 1\n[schedule]\nevery = "1h"\n'
    )
    told = Told(run, tmp_path)
    for command in (["doctor"], ["pull"], ["run"], ["run", "--json"], ["audit"], ["doctor", "--json"]):
        told(*command)
    monkeypatch.delenv("HITL_LABEL_STUDIO_TOKEN")
    told("status")
    told("status", "--json")
    assert any(told.codes)
    assert leaks(tmp_path, {"token": token.strip(), "its end": "81c-2b7e"}) == []
