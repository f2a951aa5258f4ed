"""Group pixels of an image that have the same labels, because they carry the same information.

A pattern is the labels that all annotators of an image gave to a pixel. Five annotators who label every pixel with one
of two classes make at most 32 patterns. So the labels of a million pixels reduce to a table of patterns and a pattern
code for each pixel.

Patterns are also split by breadth: a pixel is *broad* if it lies in a `breadth` x `breadth` square of one pattern,
otherwise *thin*. If annotators miss or invent whole objects, the pixels are broad. If they draw a boundary some pixels
off, the pixels are thin. Nearly all pixels are far from every boundary, and annotators are nearly always right about
them. With one error rate for both kinds of pixels, two of five annotators who draw a boundary too wide would outweigh
the others. Therefore each annotator has two error rates and is treated as two annotators, and there are two sets of
class shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import ndimage

from hitl.annotations import Annotations, Floats, Ints, Names
from hitl.errors import BadAnnotations
from hitl.tables.encode import natural_order

PIXEL_KINDS = 2
"""Number of kinds of pixels: broad and thin."""

LARGEST = 2**40
"""Number of possible codes above which codes are renumbered, so that they do not overflow."""

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class DrawnMasks:
    """Masks that the annotators of one image drew.

    Attributes:
        labels: (A, H, W) integer class codes; -1 where an annotator did not label the pixel.
        annotators: names of the A annotators.

    Raise BadAnnotations if the labels have another shape or type, or a name is repeated.
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
        annotations: labels of the patterns as items. Annotator k has code k for broad pixels, K + k for thin ones.
        names: names of the K annotators.
        height_i, width_i: (I,) size of each image in pixels.
        code: (sum H W,) pattern of each pixel, as an index into the patterns of its image.
        first_i: (I + 1,) index of each image's first pattern among all P; the last entry is P.
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
        """(I + 1,) index of each image's first pixel in `code`; the last entry is the number of pixels."""
        return np.concatenate(([0], np.cumsum(self.height_i.astype(np.int64) * self.width_i)))

    @cached_property
    def belief_i(self) -> npt.NDArray[np.int64]:
        """(I + 1,) index of each image's first belief in a flat array of all images.

        An image has J planes of beliefs, one per class, each with a border of one pixel.
        """
        planes = (self.height_i.astype(np.int64) + 2) * (self.width_i + 2) * self.annotations.n_classes
        return np.concatenate(([0], np.cumsum(planes)))


def _patterns(labels: Codes, n_classes: int, breadth: int) -> tuple[Codes, Codes]:
    """Return (H, W) the pattern of each pixel, and (patterns, 1 + A) 1 if it is thin, else 0, and its A labels."""
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
    """Return codes without gaps, starting at 0, and the number of different codes."""
    numbers, values = pd.factorize(code.ravel())
    return numbers.reshape(code.shape), len(values)


def _labels(image: DrawnMasks, table: Codes, row_of: dict[Any, int], first: int) -> tuple[Codes, Codes, Codes]:
    """Return the codes of item, annotator and label of all labels of an image's patterns.

    `first`: index of the image's first pattern.
    """
    row, column = np.nonzero(table[:, 1:] >= 0)
    who = np.array([row_of[name] for name in image.annotators])
    return row + first, who[column] + len(row_of) * table[row, 0], table[row, 1 + column]


def is_broad(code: Codes, side: int) -> npt.NDArray[np.bool_]:
    """Return (H, W) True for pixels that lie in a `side` x `side` square of equal codes, which are 0 or more."""
    least, most = (of(code, side, mode="constant", cval=-1) for of in (ndimage.minimum_filter, ndimage.maximum_filter))
    is_middle = (least == most).astype(np.uint8)  # of a square within the image
    broad: npt.NDArray[np.bool_] = ndimage.maximum_filter(is_middle, side, mode="constant", origin=side % 2 - 1) > 0
    return broad
