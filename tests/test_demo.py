"""`hitl demo`: from nothing to a comparison and a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hitl.cli import main


@pytest.mark.journey
def test_the_demo_ends_with_a_comparison_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["hitl", "demo"])
    with pytest.raises(SystemExit) as ended_with:
        main()
    assert ended_with.value.code == 0
    out = capfd.readouterr().out
    ours = re.search(r"hitl: +([\d.]+)% right with ([\d,]+) labels", out)
    majority = re.search(r"majority: ([\d.]+)% right with ([\d,]+) labels, ([\d.]+)% with all 8,000", out)
    assert ours is not None
    assert majority is not None
    assert ours[2] == majority[2]
    assert float(ours[1]) > float(majority[3]) + 1.5 > float(majority[1])
    assert int(ours[2].replace(",", "")) < 4_400
    steps = [
        int(line.split()[0].replace(",", "")) for line in out.splitlines() if re.match(r" *[\d,]+ +\d+/800 ", line)
    ]
    assert steps == sorted(steps)
    assert len(steps) > 5
    page = (tmp_path / "hitl-demo-report.html").read_text()
    assert "recognising textual entailment" in page
    assert "majority, evenly" in page
    assert [path.name for path in tmp_path.iterdir()] == ["hitl-demo-report.html"]
