"""Images that annotators painted masks on: the consensus masks and those of every annotator, as small pictures.

The image itself is not in the report, because it may be stored anywhere and the page loads nothing. A picture is an
inline PNG, at most `SIDE` pixels wide and high, with a color per class. The least certain images come first.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Name
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.masks import MaskParts
from hitl.kinds.run_length import decode
from hitl.report.contents import PartsSection, QuestionPage

IMAGES = 12
"""Images shown, least certain first."""

SIDE = 160
"""Largest side of a picture, in pixels."""

PALETTE = ("e9edf1", "0072b2", "d55e00", "00875f", "b5538e", "b98300", "3a8fc7", "6d6d6d")
"""Background color, then the class colors in turn."""

GREYS = np.linspace(235, 20, 256).astype(np.uint8)

Codes = npt.NDArray[np.uint8]


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
    answered = np.array([i for i, one in enumerate(parts.drawn) if one is not None], np.int64)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:IMAGES]
    legend = [(str(name), f"#{colour(code)}") for code, name in enumerate(parts.classes[1:], start=1)]
    return PartsSection("parts/masks.html.j2", [_pictures(page, parts, i) for i in first.tolist()], legend)


def _pictures(page: QuestionPage, parts: MaskParts, i: int) -> DrawnImage:
    item, drawn = page.evidence.annotations.items[i], parts.drawn[i]
    assert isinstance(drawn, DrawnMasks)
    found = np.zeros(drawn.labels.shape[1:], np.uint8)
    for mask in page.consensus.parts:
        if mask.item == item:
            place = mask.place
            found[decode(place["rle"], place["height"], place["width"])] = parts.classes.index(mask.label)
    share = (drawn.labels > 0).mean(axis=0)
    return DrawnImage(
        item,
        float(page.consensus.confidence[i]),
        _coloured(found),
        _address(_smaller((share * 255).astype(np.uint8)), np.stack([GREYS] * 3, axis=1)),
        tuple((who, _coloured(drawn.labels[a].astype(np.uint8))) for a, who in enumerate(drawn.annotators)),
    )


def colour(code: int) -> str:
    """Return the color of a class; 0 is the background."""
    return PALETTE[0] if code == 0 else PALETTE[1 + (code - 1) % (len(PALETTE) - 1)]


def _coloured(codes_hw: Codes) -> str:
    palette = np.array([list(bytes.fromhex(colour(code))) for code in range(256)], np.uint8)
    return _address(_smaller(codes_hw), palette)


def _smaller(codes_hw: Codes) -> Codes:
    """Subsample rows and columns so that no side is longer than `SIDE`."""
    step = -(-max(codes_hw.shape) // SIDE)
    return codes_hw[::step, ::step]


def _address(codes_hw: Codes, palette: npt.NDArray[np.uint8]) -> str:
    """Encode codes into a palette (256, 3) as a PNG data URL (PNG specification: chunks, color type 3)."""
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
