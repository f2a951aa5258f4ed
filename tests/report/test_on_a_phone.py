"""The page at the width of a phone, in a browser: nothing sticks out, no text is cut, no column is a letter wide."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.plan import Ask, Done, Plan
from hitl.report import Curve, Report, render
from tests.report.samples import sample

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium"), reason="needs chromium (Debian: apt-get install chromium)"
)

MEASURE = """
const frame = document.querySelector("iframe"), round = Math.round;
frame.addEventListener("load", () => {
  const inner = frame.contentWindow, page = inner.document, box = (e) => e.getBoundingClientRect();
  ["beforeprint", "afterprint"].forEach((name) => inner.dispatchEvent(new inner.Event(name)));  // draws all figures
  const cut = [...page.querySelectorAll(".plot svg text")].filter((text) => {
    const [own, whole] = [box(text), box(text.ownerSVGElement)];
    return own.right > whole.right + 2 || own.left < whole.left - 2;
  });
  const cells = [...page.querySelectorAll(".scroll td:not(.n)")].filter((cell) => cell.textContent.trim().length > 12);
  const found = {
    width: page.documentElement.scrollWidth, figures: page.querySelectorAll(".plot svg").length,
    cut: cut.map((text) => text.textContent), narrow: cells.filter((cell) => box(cell).width && box(cell).width < 80)
      .map((cell) => [cell.textContent.trim(), round(box(cell).width)]),
    empty: [...page.querySelectorAll(".plot")].filter((place) => /Too few points/.test(place.textContent))
      .map((place) => place.id),
    dark: inner.getComputedStyle(page.body).backgroundColor,
  };
  document.title = JSON.stringify(found);
});
"""


def measured(page: str, width: int, folder: Path) -> dict[str, Any]:
    """What a browser says of the page in a window of this width."""
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    (folder / "frame.html").write_text(f"<title></title>{frame}<script>{MEASURE}</script>")
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=10000 --dump-dom"
    command = ["chromium", *flags.split(), f"--user-data-dir={folder}/profile", f"file://{folder}/frame.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None, done.stdout[:500]
    found: dict[str, Any] = json.loads(html.unescape(title.group(1)))
    return found


@pytest.mark.parametrize("width", [390, 700])
def test_nothing_sticks_out_and_every_text_has_room(tmp_path: Path, width: int) -> None:
    page, truth = sample(classes=("cat", "a rather long name of a class"))
    asks = tuple(Ask(f"item-{n}", f"an.annotator.with.a.name{n}@example.com", 0.1, 0.9, "least sure") for n in range(9))
    plan = Plan(asks, tuple(Done(f"item-{n}", ("cat", "cat"), 0.9, "sure") for n in range(15)), 45)
    questions = (replace(page, name="a first question", truth=truth), replace(page, name="another"))
    links = {str(ask.annotator): "https://labels.example.com/projects/12/data?tab=104" for ask in asks}
    found = measured(render(Report("A title of some length", questions, plan, links=links)), width, tmp_path)
    assert found["width"] <= width
    assert found["figures"] >= 4
    assert found["cut"] == []
    assert found["narrow"] == []


def test_nothing_is_drawn_from_fewer_than_three_points(tmp_path: Path) -> None:
    page, _ = sample()
    for points, empty in ((2, ["curves"]), (3, [])):
        curve = Curve("ours", np.arange(points) * 10.0, np.linspace(0.5, 0.9, points))
        found = measured(render(Report("r", (page,), curves=(curve,))), 700, tmp_path)
        assert found["empty"] == empty
