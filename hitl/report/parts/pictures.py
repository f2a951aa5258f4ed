"""Draw the boxes or masks on images: those of the consensus, and those of each annotator.

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
from hitl.formatting import percent
from hitl.kinds.boxes import BoxParts
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.masks import MaskParts
from hitl.kinds.run_length import decode
from hitl.parts import Part
from hitl.report.contents import PartsSection, QuestionPage

IMAGES = 12
"""Maximum number of images shown, least certain first."""

SIDE = 160
"""Largest side of a picture, in pixels."""

PALETTE = ("e9edf1", "0072b2", "d55e00", "00875f", "b5538e", "b98300", "3a8fc7", "6d6d6d")
"""Background color, then the class colors in turn."""

GREYS = np.stack([np.linspace(235, 20, 256).astype(np.uint8)] * 3, axis=1)


def colour(code: int) -> str:
    """Return the color of a class; 0 is the background."""
    return PALETTE[0] if code == 0 else PALETTE[1 + (code - 1) % (len(PALETTE) - 1)]


def legend(classes: Names) -> list[tuple[str, str]]:
    """Return name and color of each class."""
    return [(str(name), f"#{colour(code)}") for code, name in enumerate(classes, start=1)]


def least_certain(page: QuestionPage, answered: Iterable[int], most: int = IMAGES) -> list[int]:
    """Return at most `most` of the answered items, least certain first."""
    rows = np.array(list(answered), np.int64)
    first: list[int] = rows[np.argsort(page.consensus.confidence[rows], kind="stable")][:most].tolist()
    return first


@dataclass(frozen=True)
class Shape:
    """A box in percent of the picture, its color, the words inside it, and its tooltip."""

    place: Mapping[str, Any]
    colour: str
    words: str
    title: str


@dataclass(frozen=True)
class BoxedImage:
    """Boxes on an image.

    Attributes:
        item: the image.
        confidence: confidence, in [0, 1].
        about: what the confidence is about, in words.
        width, height: size of the pictures in pixels.
        found: boxes of the consensus.
        annotators: each annotator with their boxes.
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
    parts, drawn = page.evidence.parts, []
    assert isinstance(parts, BoxParts)
    boxes: dict[Name, list[Part]] = {}
    for box in page.consensus.parts:
        boxes.setdefault(box.item, []).append(box)
    colours = dict(legend(parts.question.classes))

    def shape(place: Mapping[str, Any], label: Name, words: str = "", more: str = "") -> Shape:
        return Shape(place, colours[str(label)], words, f"{label}{f' ({words}{more})' if words else ''}")

    for i in least_certain(page, np.flatnonzero(parts.matched.answers.answers_n > 0)):
        item = page.evidence.annotations.items[i]
        height, width = parts.sizes[i] if min(parts.sizes[i]) > 0 else (3, 4)  # unknown size: draw 4 to 3
        is_object = parts.matched.cluster_n[i] >= 0
        drawn.append(
            BoxedImage(
                item,
                float(page.consensus.confidence[i]),
                "of the object about which annotators agree least" if is_object else "that there is nothing",
                width * SIDE / max(height, width),
                height * SIDE / max(height, width),
                tuple(
                    shape(
                        box.place, box.label, percent(box.probability, 0), f", drawn by {box.marked} of {box.answers}"
                    )
                    for box in boxes.get(item, ())
                ),
                tuple((who, tuple(shape(box, box["label"]) for box in own)) for who, own in parts.drawn[i].items()),
            )
        )
    return PartsSection("parts/boxes.html.j2", drawn, legend(parts.question.classes))


@dataclass(frozen=True)
class DrawnImage:
    """Masks on an image. Pictures are data URLs.

    Attributes:
        item: the image.
        confidence: confidence, in [0, 1].
        found: picture of the consensus.
        votes: picture of the share of annotators who drew at each pixel; darker is more.
        annotators: each annotator with the picture of their masks.
    """

    item: Name
    confidence: float
    found: str
    votes: str
    annotators: tuple[tuple[Name, str], ...]


def drawn_images(page: QuestionPage) -> PartsSection:
    """Draw the images on which annotators painted masks."""
    parts, images = page.evidence.parts, []
    assert isinstance(parts, MaskParts)
    palette = np.array([list(bytes.fromhex(colour(code))) for code in range(256)], np.uint8)
    for i in least_certain(page, (i for i, one in enumerate(parts.drawn) if one is not None)):
        item, drawn = page.evidence.annotations.items[i], parts.drawn[i]
        assert isinstance(drawn, DrawnMasks)
        codes = np.zeros(drawn.labels.shape[1:], np.uint8)
        for mask in page.consensus.parts:
            if mask.item == item:
                place = mask.place
                codes[decode(place["rle"], place["height"], place["width"])] = parts.classes.index(mask.label)
        share = ((drawn.labels > 0).mean(axis=0) * 255).astype(np.uint8)
        own = tuple((who, _png(drawn.labels[a].astype(np.uint8), palette)) for a, who in enumerate(drawn.annotators))
        confidence = float(page.consensus.confidence[i])
        images.append(DrawnImage(item, confidence, _png(codes, palette), _png(share, GREYS), own))
    return PartsSection("parts/masks.html.j2", images, legend(parts.classes[1:]))


def _png(codes_hw: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> str:
    """Encode indices into a palette (256, 3) as a small PNG in a data URL (PNG specification: chunks, color type 3)."""
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
