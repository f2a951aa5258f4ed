"""The password of a store's address reaches no message, log, report or store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.command_line import Run
from tests.scheduled import project
from tests.security.leaks import Told, leaks

PASSWORD = "p4ss/w=rd-9d1c"


def test_a_project_whose_store_has_a_password(
    tmp_path: Path, run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that commands say and write, where all is well and where the store cannot be reached."""
    project(tmp_path)
    address = urlsplit(postgres_url)._replace(netloc=f"postgres:{quote(PASSWORD, safe='')}@").geturl()
    monkeypatch.setenv("HITL_STORE", address)
    told = Told(run, tmp_path)
    for command in (["doctor"], ["run"], ["run", "--again", "--json"], ["status"], ["status", "--json"], ["audit"]):
        assert told(*command) == 0, command
    assert told("report", "--output", "report.html") == 0
    assert told("export", "labels.csv", "--annotations", "raw.csv.gz") == 0
    for wrong in (address.replace("test_", "nothing_"), address.replace("postgresql", "postgres-what")):
        monkeypatch.setenv("HITL_STORE", wrong)
        for command in (["doctor"], ["run"], ["status"], ["schedule", "--list"]):
            assert told(*command) != 0, command
    assert leaks(tmp_path, {"password": PASSWORD}) == []
