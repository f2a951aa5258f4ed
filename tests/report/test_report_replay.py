"""The page and the picture of replays: names stay text, and every curve fits its figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hitl.report.contents import Curve
from hitl.report.plots import ticks
from hitl.report.replay import ReplayReport, ends_of, figure, write_page, write_svg


def test_a_name_from_outside_stays_text_in_the_picture(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    curve = Curve(evil, np.array([0.0, 10.0]), np.array([0.5, 0.9]))
    report = ReplayReport("t", evil, (curve,), (curve,), (), "b", evil)
    write_page(report, tmp_path / "e.html")
    write_svg(report, tmp_path / "e.svg")
    for name in ("e.html", "e.svg"):
        assert "<script>alert" not in (tmp_path / name).read_text()


def test_every_line_has_its_name_inside_the_figure() -> None:
    """A steep start is cut off; names stand apart by the height that is shown, not by that of the whole."""
    ends = {"expected-gain": 0.96, "evenly": 0.958, "random": 0.957, "majority vote, evenly": 0.95}
    lines = [Curve(name, np.arange(100.0), np.append(np.full(4, 0.3), np.full(96, end))) for name, end in ends.items()]
    layout = figure("labels", lines)["layout"]
    low, high = layout["yaxis"]["range"]
    assert [name["text"] for name in layout["annotations"]] == list(ends)[::-1]
    at = [name["y"] for name in layout["annotations"]]
    assert low <= at[0]
    assert at[-1] <= high
    assert min(np.diff(at)) > 0.07 * (high - low)
    assert max(abs(y - ends[name["text"]]) for y, name in zip(at, layout["annotations"], strict=True)) < 0.02
    crowd = [Curve(str(n), np.arange(100.0), np.full(100, 0.55)) for n in range(8)]
    layout = figure("labels", [*crowd, Curve("top", np.arange(100.0), np.full(100, 0.99))])["layout"]
    low, high = layout["yaxis"]["range"]
    at = [name["y"] for name in layout["annotations"]]
    assert low <= min(at)
    assert max(at) <= high
    assert min(np.diff(at)) > 0.07 * (high - low)


def test_ticks_are_round_and_ends_hold_the_curves() -> None:
    np.testing.assert_allclose(ticks(0, 8000), [0, 2000, 4000, 6000, 8000])
    np.testing.assert_allclose(ticks(0.53, 1.0), [0.6, 0.7, 0.8, 0.9, 1.0])
    np.testing.assert_allclose(ticks(0.951, 0.999), [0.96, 0.97, 0.98, 0.99])
    for low, high in ((0.0, 3.0), (0.2, 0.9), (0.0, 123456.0), (0.949, 0.951)):
        found = ticks(low, high)
        assert 3 <= len(found) <= 7
        assert low <= found[0]
        assert found[-1] <= high * (1 + 1e-9)
    steep = Curve("a", np.arange(100.0), np.append([0.1, 0.2], np.full(98, 0.9)))
    low, high = ends_of([steep])
    assert 0.85 < low < 0.9 < high < 0.95
