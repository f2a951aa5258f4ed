"""Build the section on items with marked parts (texts, recordings, boxes, masks), least certain items first.

Each kind of answer that can be drawn has a function and a template here. Other kinds get a table of their parts.
"""

from __future__ import annotations

from collections.abc import Callable

from hitl.kinds.kind import Judged, kind_of
from hitl.report.contents import PartsSection, QuestionPage
from hitl.report.parts import pictures, spans

ROWS = 40
"""Maximum number of items in a table of parts."""

DRAWN: dict[str, Callable[[QuestionPage], PartsSection]] = {
    "spans": spans.marked_texts,
    "time_spans": spans.marked_recordings,
    "boxes": pictures.boxed_images,
    "masks": pictures.drawn_images,
}
"""Kind of answer -> function that draws it."""


def parts_section(page: QuestionPage) -> PartsSection | None:
    """Draw the parts of a question's items. Return None if its answers do not mark parts."""
    if not kind_of(page.consensus).of_parts:
        return None
    return DRAWN.get(page.consensus.kind, parts_table)(page)


def parts_table(page: QuestionPage) -> PartsSection:
    """List the ROWS least certain items, with their parts."""
    rows = kind_of(page.consensus).rows([Judged(page.name, page.evidence, page.consensus)])
    rows.sort(key=lambda row: float(row["confidence"]))
    for row in rows[:ROWS]:
        row["parts"] = [
            {name: value for name, value in part.items() if isinstance(value, int | float | str)}
            for part in row["parts"]
        ]
    return PartsSection("parts/table.html.j2", rows[:ROWS])
