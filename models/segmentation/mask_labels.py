"""Masks that annotators drew over images, and the evidence about whole images that follows.

An answer is all that one annotator drew in one image: for each kind a mask, in the run lengths of Label Studio. What
no mask covers is background; where one annotator draws two kinds over one another, the later kind counts. An image
in which they drew nothing is an answer too.

Policies, stopping rules and reports know items alone. For them an image stands for one pixel: that deepest within an
area about which annotators differ. Where they differ along boundaries alone, it stands for the deepest pixel of what
most of them drew: annotators who differ by a few pixels agree about the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import ndimage

from hitl.annotations import Annotations, Name, Names
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.exchange import Question, drawn_in
from hitl.models.segmentation.label_patterns import DrawnMasks
from hitl.models.segmentation.run_length import decode
from hitl.shown import listed
from hitl.tables.encoding import ANONYMOUS, natural_order

BACKGROUND = "background"

BOUNDARY = 2
"""Steps to the edge of an area, at most, within which it is a boundary: `MaskConsensus.breadth` is twice that and 1."""

EMPTY = (64, 64)
"""Size of an image over which no annotator drew, which Label Studio does not tell: large enough to be broad."""

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class ImageParts:
    """The pixels of images that are items, and by which pixel each image is judged.

    Attributes:
        question: what was asked.
        classes: the background, and the kinds.
        drawn: for each of I images what its annotators drew; None without an answer.
        known: row of an image -> its known masks, as `drawn_as_label` says them.
        pixel_i2: (I, 2) row and column of the pixel that stands for each image.
    """

    question: str
    classes: Names
    drawn: tuple[DrawnMasks | None, ...]
    pixel_i2: npt.NDArray[np.int64]
    known: Mapping[int, str]


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> Evidence:
    """Evidence about the images. Tables are those of the store: items, its answers and its known truth.

    `names`: key of an annotator -> shown name; answers without an annotator are those of one. Raises BadInput where
    answers to one image have different sizes, and for an answer that says no masks of these kinds.
    """
    keys = tuple(items.column("item").to_pylist())
    classes: Names = (BACKGROUND, *question.classes)
    said: dict[Name, dict[Name, tuple[str, float, float]]] = {}
    for row in answers.to_pylist():
        who = names.get(row["annotator"], row["annotator"]) or ANONYMOUS
        time, duration = (float("nan") if row[name] is None else float(row[name]) for name in ("time", "duration"))
        said.setdefault(row["item"], {})[who] = (row["label"], time, duration)
    drawn = tuple(_drawn(key, said[key], classes) if key in said else None for key in keys)
    pixel_i2 = np.array([(0, 0) if one is None else standing_for(one) for one in drawn], np.int64).reshape(-1, 2)
    known = {row["item"]: row["label"] for row in gold.to_pylist()}
    by_row = {i: known[key] for i, key in enumerate(keys) if key in known}
    truth = np.full(len(keys), -1, np.int32)
    for i, label in by_row.items():
        truth[i] = _truth(keys[i], label, classes, *pixel_i2[i])
    annotators = natural_order(list({who for one in drawn if one is not None for who in one.annotators}))
    code = {name: k for k, name in enumerate(annotators)}
    rows = [
        (i, code[who], int(one.labels[a, y, x]), *said[keys[i]][who][1:])
        for i, (one, (y, x)) in enumerate(zip(drawn, pixel_i2.tolist(), strict=True))
        if one is not None
        for a, who in enumerate(one.annotators)
    ]
    column_5 = np.array(rows, np.float64).reshape(-1, 5).T
    item, annotator, label = column_5[:3].astype(np.int32)
    annotations = Annotations(
        item, annotator, label, keys, annotators, classes, classes, time=column_5[3], duration=column_5[4]
    )
    return Evidence(annotations, truth=truth, parts=ImageParts(question.name, classes, drawn, pixel_i2, by_row))


def standing_for(drawn: DrawnMasks) -> tuple[int, int]:
    """Row and column of the pixel that stands for the image."""
    labels_ahw = drawn.labels
    differ_hw = (labels_ahw != labels_ahw[0]).any(axis=0)
    depth_hw = _depth(differ_hw)
    if depth_hw.max(initial=0) <= BOUNDARY:
        most_hw = (labels_ahw > 0).sum(axis=0) * 2 > len(labels_ahw)
        depth_hw = _depth(most_hw & ~differ_hw)
    y, x = np.unravel_index(int(depth_hw.argmax()), depth_hw.shape)
    return int(y), int(x)


def _depth(area_hw: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """(H, W) steps to the nearest pixel outside of the area, diagonal ones too; the border of the image is outside."""
    padded = np.pad(area_hw, 1)
    depth: npt.NDArray[np.int32] = ndimage.distance_transform_cdt(padded, metric="chessboard")[1:-1, 1:-1]
    return depth


def _drawn(key: Name, said: Mapping[Name, tuple[str, float, float]], classes: Names) -> DrawnMasks:
    """What the annotators of one image drew; background where none of them drew anything."""
    read = {who: _masks(key, label, classes) for who, (label, *_) in said.items()}
    sizes = {(height, width) for height, width, masks in read.values() if masks}
    if len(sizes) > 1:
        first, other, *_ = sorted(sizes)
        raise BadInput(
            f"item {key}: one annotator drew on an image of {first[1]} x {first[0]} pixels, another on one of "
            f"{other[1]} x {other[0]}; was the image replaced? Delete the older annotations, then `hitl pull`"
        )
    size = next(iter(sizes), EMPTY)
    layers = [codes_of(masks, classes, *size) for _, _, masks in read.values()]
    return DrawnMasks(np.stack(layers), tuple(read))


def _masks(key: Name, label: str, classes: Names) -> tuple[int, int, list[tuple[str, list[int]]]]:
    """Height, width and masks of an answer. Raises BadInput where it says none, or of other kinds."""
    try:
        height, width, masks = drawn_in(label)
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            f"item {key}: a stored answer says no masks; `hitl pull --full` reads all answers anew"
        ) from None
    for kind, _ in masks:
        if kind not in classes:
            raise BadInput(f"item {key}: a mask is of {kind!r}; expected one of {listed(classes[1:])}")
    return height, width, masks


def codes_of(masks: Sequence[tuple[str, Sequence[int]]], classes: Names, height: int, width: int) -> Codes:
    """(H, W) class codes of masks: kind and run lengths of each."""
    codes: Codes = np.zeros((height, width), np.int8)
    place = {name: code for code, name in enumerate(classes)}
    for kind, rle in sorted(masks, key=lambda mask: place[mask[0]]):
        codes[decode(rle, height, width)] = place[kind]
    return codes


def _truth(key: Name, label: str, classes: Names, y: int, x: int) -> int:
    """The known class of a pixel; -1 where the known masks are of an image of another size."""
    height, width, masks = _masks(key, label, classes)
    if not masks:
        return 0
    return int(codes_of(masks, classes, height, width)[y, x]) if y < height and x < width else -1
