"""`hitl demo --label-studio`: a real server, people who answer what it serves, and a project left to look at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hitl.cli import main
from hitl.demo import on_label_studio
from hitl.project import load
from hitl.store import Store

pytestmark = [pytest.mark.server, pytest.mark.journey]

LEAST = 10
"""The fewest items that the command takes."""


@pytest.mark.parametrize("items", [4, pytest.param(LEAST, marks=pytest.mark.trust)])
def test_the_demo_through_label_studio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], items: int
) -> None:
    monkeypatch.chdir(tmp_path)
    if items < LEAST:  # than the command takes
        monkeypatch.setattr(on_label_studio, "PEOPLE", 8)
        on_label_studio.run(tmp_path / "hitl-demo-report.html", items, keep=False)
    else:
        monkeypatch.setattr("sys.argv", ["hitl", "demo", "--label-studio", "--items", str(items), "--stop"])
        with pytest.raises(SystemExit) as ended_with:
            main()
        assert ended_with.value.code == 0
    out = capfd.readouterr().out
    assert f"{items} tasks, " in out
    ended = re.search(r"hitl: +[\d.]+ % right with (\d+) labels", out)
    assert ended is not None
    assert re.search(r"starting Label Studio [\d.]+ from /\S+", out)
    assert not re.search(r"login|or as:|project: http|HITL_LABEL_STUDIO_TOKEN", out)  # there is no server any more
    assert out.endswith(
        "Label Studio has stopped. To see the stored results: cd hitl-demo && hitl status\n"
        "To start it again: hitl demo --resume hitl-demo\n"
    )
    assert 20_000 < (tmp_path / "hitl-demo-report.html").stat().st_size < 1_000_000  # no plotting library in it
    settings = load(tmp_path / "hitl-demo" / "hitl.toml")
    with Store(f"sqlite:///{tmp_path}/hitl-demo/hitl.db") as store:
        assert store.counts(settings.name)["annotations"] == int(ended[1])
        assert store.pending(settings.name) == []
        latest = store.latest(settings.name)
    assert latest is not None
    assert latest[1].asks  # the last plan is left for whoever looks
