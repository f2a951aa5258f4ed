"""Write the page of `hitl judge`: how many items pass, how right each judge is, and what people should read next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hitl.report.page import document, write_text
from hitl.report.plots import PERCENT, axis, figure, numbers, scatter, shown, whiskers

if TYPE_CHECKING:
    import pandas as pd

    from hitl.active.guarantees.panel import Panel


def write_page(path: Path, panel: Panel, reading: pd.DataFrame, summary: Sequence[str], state: str | None) -> None:
    """Write a self-contained HTML page, completely or not at all. `state`: whether a requirement holds, in words."""
    known = [(one, one.right) for one in panel.judges if one.right is not None][::-1]
    figures = {}
    if known:
        share, low, high = zip(*((right.share, right.low, right.high) for _, right in known), strict=True)
        bars = whiskers(share, low, high, "--c0")
        dots = scatter(
            numbers(share), list(range(len(known))), "markers", "--c0", error_x=bars, hovertemplate="%{x:.1%}"
        )
        names = axis("", [shown(one.name, 24) for one, _ in known], range=[-0.7, len(known) - 0.3])
        figures["judges"] = figure([dots], 120 + 34 * len(known), axis("right (%)", **PERCENT), names)
    content = {"title": "Judges", "subtitle": "", "command": ""}
    page = document(
        "panel.html.j2",
        {"figures": figures},
        report=content,
        panel=panel,
        reading=reading.astype(object).where(reading.notna(), None).to_dict("records"),
        summary=summary,
        state=state,
        generated=datetime.now(UTC),
    )
    write_text(path, page)
