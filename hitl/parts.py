"""Parts of items, such as spans of a text or boxes on an image, and their representation as labels.

An answer that marks parts is stored as one label, in a canonical form, so that equal answers are equal labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.annotations import Name

Place = int | float | str
"""Start or end of a span: an offset in characters; in a recording a number of seconds, frames, ..., or ISO 8601."""

BOX_DIGITS = 4
"""Number of decimals of a box's percentages in a label: 0.01 pixels in an image that is 10,000 pixels wide."""

BoxTuple = tuple[float, float, float, float, str]
"""A box: x and y of its upper left corner, width and height, in percent of the image, and its label."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an item, either in the consensus or only marked by annotators.

    Attributes:
        item: item that contains the part.
        label: label of the part.
        place: location, as JSON values. A span has "start", "end" and, in a text, "text". A box has "x", "y", "width"
            and "height" (percent of the image), with the image's size in pixels. A mask has "height", "width" (pixels)
            and "rle" (run lengths).
        probability: probability that the part is right, in [0, 1]; for a mask the mean over its pixels.
        marked: number of annotators who marked the part; 0 if not counted.
        answers: number of annotators who answered the item; 0 if not counted.
        found: True if the part is in the consensus.
    """

    item: Name
    label: Name
    place: Mapping[str, Any]
    probability: float
    marked: int = 0
    answers: int = 0
    found: bool = True

    def at(self, *names: str) -> tuple[Any, ...]:
        """Return the values of `place` with these names."""
        return tuple(self.place[name] for name in names)


def spans_as_label(spans: Iterable[tuple[Place, Place, str]]) -> str:
    """Encode the spans of one answer (start, end, label) as a label, sorted and without duplicates.

    Example:
        >>> spans_as_label([(8, 11, "PER"), (0, 3, "PER")])
        '[[0,3,"PER"],[8,11,"PER"]]'
    """
    ordered = sorted(set(spans), key=lambda span: [(isinstance(part, str), part) for part in span])
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def spans_in(label: str) -> list[tuple[Any, Any, str]]:
    """Decode the output of `spans_as_label`."""
    return [(start, end, name) for start, end, name in json.loads(label)]


def drawn_as_label(height: int, width: int, masks: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Encode the masks of one answer (label, run lengths) as a label, sorted, with the image's size in pixels."""
    ordered = sorted((name, list(rle)) for name, rle in masks)
    return json.dumps({"height": height, "width": width, "masks": ordered}, ensure_ascii=False, separators=(",", ":"))


def drawn_in(label: str) -> tuple[int, int, list[tuple[str, list[int]]]]:
    """Decode the output of `drawn_as_label` to height, width and masks (label, run lengths)."""
    answer = json.loads(label)
    return answer["height"], answer["width"], [(name, rle) for name, rle in answer["masks"]]


def boxes_as_label(height: int, width: int, boxes: Iterable[BoxTuple]) -> str:
    """Encode the boxes of one answer as a label: rounded, sorted and without duplicates.

    `height` and `width` are the image's size in pixels, 0 if unknown.

    Example:
        >>> boxes_as_label(90, 120, [(50, 20, 10, 10, "cat"), (0, 1 / 3, 10, 10, "dog")])
        '{"height":90,"width":120,"boxes":[[0.0,0.3333,10.0,10.0,"dog"],[50.0,20.0,10.0,10.0,"cat"]]}'
    """
    ordered = sorted({(*(round(float(side), BOX_DIGITS) + 0.0 for side in place), name) for *place, name in boxes})
    return json.dumps({"height": height, "width": width, "boxes": ordered}, ensure_ascii=False, separators=(",", ":"))


def boxes_in(label: str) -> tuple[int, int, list[BoxTuple]]:
    """Decode the output of `boxes_as_label` to height, width and boxes."""
    answer = json.loads(label)
    boxes = [(x, y, width, height, name) for x, y, width, height, name in answer["boxes"]]
    return answer["height"], answer["width"], boxes


LARGEST = 2**53
"""Limit of numbers: from here on floats cannot represent every integer, so distinct places would become equal."""


def number_of(place: Any) -> float:
    """Convert a place to a number. A time in ISO 8601 becomes seconds since the epoch (UTC if it names no zone).

    Raises ValueError for anything else, and for numbers with an absolute value of LARGEST or more.

    Example:
        >>> number_of(2.5), number_of("1970-01-01T00:01:00.5")
        (2.5, 60.5)
    """
    if isinstance(place, str):
        time = datetime.fromisoformat(place)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if isinstance(place, bool) or not isinstance(place, int | float) or not abs(place) < LARGEST:
        raise ValueError(f"{place!r} is no time; expected a number below 2**53, or a time in ISO 8601")
    return float(place)
