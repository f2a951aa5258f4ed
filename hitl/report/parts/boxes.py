"""Images on which annotators drew boxes: the consensus boxes and those of every annotator, as small pictures.

The image itself is not in the report, because it may be stored anywhere and the page loads nothing. A picture is an
inline SVG with the image's aspect ratio, at most `SIDE` wide and high, with a color per class. The least certain images
come first. If the size of an image is unknown, it is drawn 4 : 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hitl.annotations import Name, Names
from hitl.kinds.boxes import BoxParts, Size
from hitl.parts import Part
from hitl.report.contents import PartsSection, QuestionPage
from hitl.report.parts.masks import IMAGES, SIDE, colour

UNKNOWN: Size = (3, 4)
"""Height and width, as a ratio, of an image of unknown size."""

ROOM = 30.0
"""Space that a box's text needs to its right."""


@dataclass(frozen=True)
class Shape:
    """A box in a picture: its place in units of the picture, its color, and texts.

    `words` are drawn inside the box, at `at` (left, bottom); `title` is the tooltip.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    words: str
    at: tuple[float, float]
    title: str


@dataclass(frozen=True)
class BoxedImage:
    """Pictures of an image: the consensus boxes and those of each annotator, and the confidence with its subject.

    Width and height are those of each picture.
    """

    item: Name
    confidence: float
    about: str
    width: float
    height: float
    found: tuple[Shape, ...]
    annotators: tuple[tuple[Name, tuple[Shape, ...]], ...]


def boxed_images(page: QuestionPage) -> PartsSection:
    """Draw the images that annotators answered."""
    parts = page.evidence.parts
    assert isinstance(parts, BoxParts)
    answered = np.flatnonzero(parts.matched.answers.answers_n > 0)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:IMAGES]
    found: dict[Name, list[Part]] = {}
    for box in page.consensus.parts:
        found.setdefault(box.item, []).append(box)
    legend = [(str(name), f"#{colour(code)}") for code, name in enumerate(parts.question.classes, start=1)]
    return PartsSection("parts/boxes.html.j2", [_pictures(page, parts, i, found) for i in first.tolist()], legend)


def _pictures(page: QuestionPage, parts: BoxParts, i: int, found: dict[Name, list[Part]]) -> BoxedImage:
    item, drawn = page.evidence.annotations.items[i], parts.drawn[i]
    height, width = parts.sizes[i] if min(parts.sizes[i]) > 0 else UNKNOWN
    scale = SIDE / max(height, width)
    size = width * scale, height * scale
    sure = (
        (box.place, box.label, f"{box.probability:.0%}", f", drawn by {box.marked} of {box.answers}")
        for box in found.get(item, ())
    )
    return BoxedImage(
        item,
        float(page.consensus.confidence[i]),
        "of the object about which annotators agree least"
        if parts.matched.cluster_n[i] >= 0
        else "that there is nothing",
        *size,
        _shapes(sure, parts.question.classes, size),
        tuple(
            (who, _shapes(((box, box["label"], "", "") for box in boxes), parts.question.classes, size))
            for who, boxes in drawn.items()
        ),
    )


def _shapes(
    boxes: Iterable[tuple[Mapping[str, Any], Name, str, str]], classes: Names, size: tuple[float, float]
) -> tuple[Shape, ...]:
    """Draw boxes, given as place, label, inside text and tooltip text, into a picture of this width and height."""
    wide, high = size
    shapes = []
    for box, kind, words, more in boxes:
        x, y = box["x"] * wide / 100, box["y"] * high / 100
        place = max(min(x, wide - ROOM), 0) + 2, min(y + 11, high - 2)
        tone = f"#{colour(1 + classes.index(kind))}"
        title = f"{kind}{f' ({words}{more})' if words else ''}"
        shapes.append(Shape(x, y, box["width"] * wide / 100, box["height"] * high / 100, tone, words, place, title))
    return tuple(shapes)
