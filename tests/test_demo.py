"""`hitl demo` ends with a comparison and a report, and `hitl example` writes a folder that every command reads."""

from __future__ import annotations

import csv
import errno
import re
import shlex
from collections import Counter, defaultdict
from pathlib import Path
from unittest.mock import Mock

import pytest

from hitl.cli import main
from hitl.demo.examples import ABOUT, SIMULATED
from tests.command_line import Run


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
    ours = re.search(r"hitl: +([\d.]+) % right with ([\d,]+) labels", out)
    majority = re.search(r"majority: ([\d.]+) % right with ([\d,]+) labels, ([\d.]+) % with all 8,000", out)
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


def labels(path: Path) -> dict[str, str]:
    with path.open(newline="") as file:
        return {row["item"]: row["label"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", ABOUT)
def test_an_example_runs_as_it_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    code, out, _ = run("example", name)
    assert code == 0
    assert ("(simulated)" in out) == (name in SIMULATED)
    monkeypatch.chdir(tmp_path / name)
    assert run("doctor")[0] == 0
    code, out, err = run("run")
    assert (code, "warning" in err) == (0, False), err
    truth = labels(Path("all_truth.csv"))
    assert labels(Path("truth.csv")).items() <= truth.items()
    consensus = labels(Path("hitl-output/consensus.csv"))
    assert len(consensus) == len(truth)
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with Path("annotations.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            votes[row["item"]][row["label"]] += 1
    majority = sum(truth[item] == counts.most_common(1)[0][0] for item, counts in votes.items()) / len(votes)
    assert sum(truth[item] == label for item, label in consensus.items()) / len(truth) > max(majority, 0.85)


def test_the_command_that_an_example_prints_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = run("example", "photos", "here/pets")
    printed = re.findall(r"`hitl ([^`]*)`", out)
    monkeypatch.chdir(tmp_path / "here" / "pets")
    assert run(*shlex.split(printed[0]))[0] == 0
    assert len(labels(Path("consensus.csv"))) == 300


def test_a_full_disk_leaves_no_half_of_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("os.fsync", Mock(side_effect=[None, full]))
    code, _, err = run("example", "photos")
    assert (code, err) == (74, f"hitl: {tmp_path / 'photos' / 'truth.csv'}: No space left on device\n")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["annotations.csv"]


def test_an_example_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.txt").write_text("mine")
    code, _, err = run("example", "photos")
    assert (code, "photos exists and is not an empty folder" in err) == (78, True)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["mine.txt"]
    code, _, err = run("example", "fotos")
    assert (code, "'fotos' is unknown; expected one of rte, photos" in err) == (78, True)
    assert run("example", "--list")[1].splitlines()[0].startswith("rte ")
