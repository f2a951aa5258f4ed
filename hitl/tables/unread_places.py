"""Detect columns that locate something within an item. Tables of labels of whole items are read without them."""

from __future__ import annotations

from collections.abc import Collection

SPAN = ("start", "end")
BOX = ("x", "y", "width", "height")


def box_in(columns: Collection[str]) -> str | None:
    """Describe columns of boxes on images that nothing reads, or return None without any."""
    if not set(BOX) <= set(columns):
        return None
    return (
        "the columns x, y, width and height are not read: each row is a label of a whole item; hitl combines boxes on "
        "images in projects of Label Studio, and in Python (hitl.kinds.boxes)"
    )


def place_in(columns: Collection[str]) -> str | None:
    """Describe columns of boxes, or of spans, that nothing reads."""
    if set(SPAN) <= set(columns):
        return (
            "the columns start and end are not read: each row is a label of a whole item; if they are spans of "
            "texts or recordings, call the column of the items 'document', as a file of spans has it"
        )
    return box_in(columns)
