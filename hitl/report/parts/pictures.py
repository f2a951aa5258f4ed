"""Images on which annotators drew boxes or painted masks: those of the consensus and of every annotator.

The image itself is not in the report, because it may be stored anywhere and the page loads nothing. A picture is an
inline SVG (boxes) or PNG (masks), at most `SIDE` wide and high, with a color per class. The least certain images come
first.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Name, Names
from hitl.kinds.boxes import BoxParts, Size
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.masks import MaskParts
from hitl.kinds.run_length import decode
from hitl.parts import Part
from hitl.report.contents import PartsSection, QuestionPage

IMAGES = 12
"""Images shown, least certain first."""

SIDE = 160
"""Largest side of a picture, in pixels."""

PALETTE = ("e9edf1", "0072b2", "d55e00", "00875f", "b5538e", "b98300", "3a8fc7", "6d6d6d")
"""Background color, then the class colors in turn."""

GREYS = np.linspace(235, 20, 256).astype(np.uint8)

UNKNOWN: Size = (3, 4)
"""Height and width, as a ratio, of an image of unknown size."""

ROOM = 30.0
"""Space that a box's text needs to its right."""

Codes = npt.NDArray[np.uint8]


def colour(code: int) -> str:
    """Return the color of a class; 0 is the background."""
    return PALETTE[0] if code == 0 else PALETTE[1 + (code - 1) % (len(PALETTE) - 1)]


def legend(classes: Names) -> list[tuple[str, str]]:
    """Return name and color of each class."""
    return [(str(name), f"#{colour(code)}") for code, name in enumerate(classes, start=1)]


def least_certain(page: QuestionPage, answered: Iterable[int]) -> list[int]:
    """Return the first IMAGES of the answered items, least certain first."""
    rows = np.array(list(answered), np.int64)
    first: list[int] = rows[np.argsort(page.consensus.confidence[rows], kind="stable")][:IMAGES].tolist()
    return first


# -- boxes -------------------------------------------------------------------------------------------------


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
    boxes: dict[Name, list[Part]] = {}
    for box in page.consensus.parts:
        boxes.setdefault(box.item, []).append(box)
    images = [
        _boxes(page, parts, i, boxes)
        for i in least_certain(page, np.flatnonzero(parts.matched.answers.answers_n > 0).tolist())
    ]
    return PartsSection("parts/boxes.html.j2", images, legend(parts.question.classes))


def _boxes(page: QuestionPage, parts: BoxParts, i: int, boxes: Mapping[Name, list[Part]]) -> BoxedImage:
    item, drawn = page.evidence.annotations.items[i], parts.drawn[i]
    height, width = parts.sizes[i] if min(parts.sizes[i]) > 0 else UNKNOWN
    scale = SIDE / max(height, width)
    wide, high, classes = width * scale, height * scale, parts.question.classes

    def shape(box: Mapping[str, Any], kind: Name, words: str = "", more: str = "") -> Shape:
        x, y = box["x"] * wide / 100, box["y"] * high / 100
        place = max(min(x, wide - ROOM), 0) + 2, min(y + 11, high - 2)
        tone = f"#{colour(1 + classes.index(kind))}"
        title = f"{kind}{f' ({words}{more})' if words else ''}"
        return Shape(x, y, box["width"] * wide / 100, box["height"] * high / 100, tone, words, place, title)

    return BoxedImage(
        item,
        float(page.consensus.confidence[i]),
        "of the object about which annotators agree least"
        if parts.matched.cluster_n[i] >= 0
        else "that there is nothing",
        wide,
        high,
        tuple(
            shape(box.place, box.label, f"{box.probability:.0%}", f", drawn by {box.marked} of {box.answers}")
            for box in boxes.get(item, ())
        ),
        tuple((who, tuple(shape(box, box["label"]) for box in own)) for who, own in drawn.items()),
    )


# -- masks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnImage:
    """Pictures of an image: the consensus, the share of annotators who drew there, and each annotator's masks."""

    item: Name
    confidence: float
    found: str
    votes: str
    annotators: tuple[tuple[Name, str], ...]


def drawn_images(page: QuestionPage) -> PartsSection:
    """Draw the images that annotators answered."""
    parts = page.evidence.parts
    assert isinstance(parts, MaskParts)
    first = least_certain(page, (i for i, one in enumerate(parts.drawn) if one is not None))
    return PartsSection("parts/masks.html.j2", [_masks(page, parts, i) for i in first], legend(parts.classes[1:]))


def _masks(page: QuestionPage, parts: MaskParts, i: int) -> DrawnImage:
    item, drawn = page.evidence.annotations.items[i], parts.drawn[i]
    assert isinstance(drawn, DrawnMasks)
    codes = np.zeros(drawn.labels.shape[1:], np.uint8)
    for mask in page.consensus.parts:
        if mask.item == item:
            place = mask.place
            codes[decode(place["rle"], place["height"], place["width"])] = parts.classes.index(mask.label)
    palette = np.array([list(bytes.fromhex(colour(code))) for code in range(256)], np.uint8)
    share = (drawn.labels > 0).mean(axis=0)
    return DrawnImage(
        item,
        float(page.consensus.confidence[i]),
        _png(codes, palette),
        _png((share * 255).astype(np.uint8), np.stack([GREYS] * 3, axis=1)),
        tuple((who, _png(drawn.labels[a].astype(np.uint8), palette)) for a, who in enumerate(drawn.annotators)),
    )


def _png(codes_hw: Codes, palette: Codes) -> str:
    """Encode codes into a palette (256, 3) as a small PNG data URL (PNG specification: chunks, color type 3)."""
    step = -(-max(codes_hw.shape) // SIDE)
    codes_hw = codes_hw[::step, ::step]
    height, width = codes_hw.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with a filter byte, 0 for none
    rows[:, 1:] = codes_hw
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
