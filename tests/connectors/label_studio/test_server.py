"""The local server that tests and the demo start."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from hitl.connectors.label_studio import server as local
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import BadSettings, MissingExtra


def test_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_HOME", "/somewhere")
    assert local.installed_in().parent == Path("/somewhere")
    monkeypatch.delenv("HITL_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert local.installed_in().parent == Path("/cache/hitl")


@pytest.mark.server
@pytest.mark.journey
def test_a_given_folder_is_kept_and_used_again_and_every_server_has_its_own_token(
    tmp_path: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalServer(Path("data")) as first:  # relative: the prepared data are used, in this folder
        assert not (tmp_path / "data" / "data").exists()
        person = first.sign_up("kept@example.com", "a-long-password")
        token, url = first.token, first.url
        assert first.token != server.token
        answer = httpx.get(f"{url}/api/projects/", headers={"Authorization": f"Token {server.token}"})
        assert answer.status_code == 401
        assert all(each.url.startswith("http://127.0.0.1:") for each in (first, server))
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    assert (tmp_path / "data" / "hitl.json").stat().st_mode & 0o077 == 0
    with LocalServer(Path("data")) as second:
        assert (second.token, second.url) == (token, url)
        answer = httpx.get(f"{second.url}/api/current-user/whoami", headers={"Authorization": f"Token {person.token}"})
        assert answer.json()["email"] == "kept@example.com"


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "label_studio.sqlite3").write_bytes(b"theirs")
    with pytest.raises(BadSettings, match="choose an empty folder"), LocalServer(tmp_path):
        pass
    assert (tmp_path / "label_studio.sqlite3").read_bytes() == b"theirs"


@pytest.mark.journey
@pytest.mark.server
def test_a_failed_installation_is_said_and_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HITL_HOME", str(tmp_path))
    monkeypatch.setattr(local, "VERSION", "0.0.0.nothing")
    monkeypatch.setitem(os.environ, "PIP_NO_INDEX", "1")
    seen: list[str] = []
    with pytest.raises(MissingExtra, match="pip install"):
        local.install(lambda what, done, total: seen.append(what))
    assert seen == ["install Label Studio 0.0.0.nothing"]
    assert not (tmp_path / "label-studio-0.0.0.nothing" / "installed").exists()
