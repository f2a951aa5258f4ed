"""`hitl report` of a file of labels: the same flags as `hitl combine`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_annotators import tables
from tests.command_line import Run

__all__ = ["tables"]


@pytest.mark.usefixtures("tables")
def test_a_file_of_labels_has_a_report(run: Run) -> None:
    code, out, err = run("report", "annotations.csv", "--time", "when", "--method", "vb-ibcc", "-o", "page.html")
    assert (code, err) == (0, "")
    assert "page.html" in out
    page = Path("page.html").read_text("utf-8")
    assert "method vb-ibcc" in page
    assert "Who needs training?" in page
    assert "always &#39;cow&#39;" in page
    assert len(page.encode()) < 1_000_000


@pytest.mark.usefixtures("tables")
def test_a_report_by_a_saved_consensus(run: Run) -> None:
    assert run("combine", "annotations.csv", "--method", "majority", "--save", "saved.npz")[0] == 0
    assert run("report", "annotations.csv", "--consensus", "saved.npz")[0] == 0
    assert "method majority" in Path("hitl-report.html").read_text("utf-8")


@pytest.mark.usefixtures("tables")
def test_what_does_not_fit_is_refused_and_nothing_is_written(run: Run) -> None:
    code, _, err = run("report", "annotations.csv", "--consensus", "a.npz", "--method", "majority")
    assert code == 78
    assert "exclude each other" in err
    assert run("report", "annotations.csv", "--output", "annotations.csv")[0] != 0
    assert run("report", "--method", "majority")[0] != 0
    assert not Path("hitl-report.html").exists()
