"""Group the pixels of an image that got the same label from each annotator, because these carry the same information.

A pattern is the labels of one pixel, one per annotator. Five annotators who label every pixel with one of two classes
make at most 32, so the labels of a million pixels reduce to a table of patterns and a code for each pixel.

Patterns are also split by breadth: a pixel is *broad* if it lies in a `breadth` x `breadth` square of one pattern,
otherwise *thin*. Annotators miss or invent whole objects (broad patterns), and draw boundaries some pixels off (thin
ones). Nearly all pixels are far from every boundary, where annotators are nearly always right; with one error rate, two
of five who draw a boundary too wide would be believed. So each annotator counts as two, and so do the class shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hitl.annotations import Annotations, Floats, Ints, Names
from hitl.errors import BadAnnotations
from hitl.tables.encode import natural_order

PIXEL_KINDS = 2
"""Number of kinds of pixels: broad and thin."""

LARGEST = 2**40
"""Largest number of possible codes before they are renumbered."""

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class DrawnMasks:
    """Masks that the annotators of one image drew.

    Attributes:
        labels: (A, H, W) integer codes of the classes; -1 where an annotator did not label the pixel.
        annotators: A names.

    Raise BadAnnotations for another shape or type, or a repeated name.
    """

    labels: Codes
    annotators: Names

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 3 or not np.issubdtype(labels.dtype, np.integer) or 0 in labels.shape:
            raise BadAnnotations(
                "labels: expected an integer array (annotators, height, width) without empty axes, "
                f"got {labels.dtype} {labels.shape}"
            )
        if len(self.annotators) != len(labels) or len(set(self.annotators)) != len(labels):
            raise BadAnnotations(f"annotators: expected {len(labels)} different names, got {list(self.annotators)}")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "annotators", tuple(self.annotators))


@dataclass(frozen=True, eq=False)
class LabelPatterns:
    """Patterns of I images, P in total.

    Attributes:
        annotations: items are patterns; annotator k has code k for broad pixels, and K + k for thin ones.
        names: K names.
        height_i, width_i: (I,) size of each image.
        code: (sum H W,) index of the pattern of each pixel within its image.
        first_i: (I + 1,) index of each image's first pattern.
        pixels_p: (P,) number of pixels with the pattern.
        thin_p: (P,) 1 for patterns of thin pixels, else 0.
    """

    annotations: Annotations
    names: Names
    height_i: Ints
    width_i: Ints
    code: Codes
    first_i: npt.NDArray[np.int64]
    pixels_p: Floats
    thin_p: Ints

    @classmethod
    def build(cls, images: Sequence[DrawnMasks], classes: Names, breadth: int) -> LabelPatterns:
        """Build from images whose labels are codes into `classes`. Raise BadAnnotations for invalid codes."""
        names = natural_order(list({name for image in images for name in image.annotators}))
        row_of = {name: k for k, name in enumerate(names)}
        grouped = [_patterns(image.labels, len(classes), breadth) for image in images]
        first_i = np.concatenate(([0], np.cumsum([len(table) for _, table in grouped])))
        smallest = np.uint16 if np.diff(first_i).max() <= 2**16 else np.int32
        tables = zip(images, grouped, first_i[:-1], strict=True)
        triples = [_labels(image, table, row_of, int(first)) for image, (_, table), first in tables]
        item, annotator, label = (np.concatenate(column).astype(np.int32) for column in zip(*triples, strict=True))
        pixels = [np.bincount(code.ravel(), minlength=len(table)) for code, table in grouped]
        return cls(
            Annotations(
                item,
                annotator,
                label,
                tuple(range(first_i[-1])),
                tuple(range(PIXEL_KINDS * len(names))),
                classes,
                classes,
            ),
            names,
            np.array([image.labels.shape[1] for image in images], dtype=np.int32),
            np.array([image.labels.shape[2] for image in images], dtype=np.int32),
            np.concatenate([code.ravel().astype(smallest) for code, _ in grouped]),
            first_i,
            np.concatenate(pixels).astype(np.float64),
            np.concatenate([table[:, 0] for _, table in grouped]).astype(np.int32),
        )

    @cached_property
    def pixel_i(self) -> npt.NDArray[np.int64]:
        """(I + 1,) index of each image's first pixel."""
        return np.concatenate(([0], np.cumsum(self.height_i.astype(np.int64) * self.width_i)))

    @cached_property
    def belief_i(self) -> npt.NDArray[np.int64]:
        """(I + 1,) index of each image's first belief in a flat array: J planes each, with a border of one pixel."""
        planes = (self.height_i.astype(np.int64) + 2) * (self.width_i + 2) * self.annotations.n_classes
        return np.concatenate(([0], np.cumsum(planes)))


def _patterns(labels: Codes, n_classes: int, breadth: int) -> tuple[Codes, Codes]:
    """Return (H, W) code of each pixel, and (patterns, 1 + A): thin or not, and the label of each annotator."""
    low, high = int(labels.min()), int(labels.max())
    if low < -1 or high >= n_classes:
        raise BadAnnotations(f"labels: expected -1 or a code below {n_classes}, got {low if low < -1 else high}")
    code: Codes = np.zeros(labels.shape[1:], dtype=np.int64)
    size = 1
    for one in labels:
        code = code * (n_classes + 1) + one + 1
        size *= n_classes + 1
        if size > LARGEST:
            code, size = _renumbered(code)
    thin = (~is_broad(code, breadth)).astype(np.uint8)
    code, size = _renumbered(PIXEL_KINDS * code + thin)
    place = np.empty(size, dtype=np.int64)
    place[code.ravel()] = np.arange(code.size)
    table = np.stack([thin.ravel()[place], *(one.ravel()[place] for one in labels)], axis=1).astype(np.int32)
    return code, table


def _renumbered(code: Codes) -> tuple[Codes, int]:
    """Return codes from 0 on without gaps, and their number."""
    numbers, values = pd.factorize(code.ravel())
    return numbers.reshape(code.shape), len(values)


def _labels(image: DrawnMasks, table: Codes, row_of: dict[Any, int], first: int) -> tuple[Codes, Codes, Codes]:
    """Return item, annotator and label of all labels of an image's patterns."""
    row, column = np.nonzero(table[:, 1:] >= 0)
    who = np.array([row_of[name] for name in image.annotators])
    return row + first, who[column] + len(row_of) * table[row, 0], table[row, 1 + column]


def is_broad(code: Codes, side: int) -> npt.NDArray[np.bool_]:
    """Return (H, W) True for pixels in some `side` x `side` square of one code."""
    height, width = (size - side + 1 for size in code.shape)
    broad = np.zeros(code.shape, dtype=bool)
    if min(height, width) < 1:
        return broad
    line, whole = np.ones((len(code), width), dtype=bool), np.ones((height, width), dtype=bool)
    for x in range(side):
        line &= code[:, x : x + width] == code[:, :width]
    for y in range(side):
        whole &= line[y : y + height] & (code[y : y + height, :width] == code[:height, :width])
    tall = np.zeros_like(line)
    for y in range(side):
        tall[y : y + height] |= whole
    for x in range(side):
        broad[:, x : x + width] |= tall
    return broad
