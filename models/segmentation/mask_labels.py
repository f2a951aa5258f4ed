"""Masks that annotators drew over images, and the evidence about whole images that follows.

An answer is all that one annotator drew in one image: for each kind a mask, in the run lengths of Label Studio. What
no mask covers is background; where one annotator draws two kinds over one another, the later kind counts. An image
in which they drew nothing is an answer too.

Policies, stopping rules and reports know items alone. For them an image stands for one object (`drawn_objects`): that
about which its annotators agree least. What an annotator drew there is their label of the image: a kind, or NOTHING.
Without an object all of them say NOTHING. Annotators who differ by a few pixels along a boundary agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Name, Names
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.segmentation.box_labels import annotations_of, answers_by_item, standing_for, truth_of
from hitl.models.segmentation.boxes import ClusteredImage
from hitl.models.segmentation.drawn_objects import Indices, drawn_objects
from hitl.models.segmentation.label_patterns import DrawnMasks
from hitl.models.segmentation.run_length import decode
from hitl.parts import drawn_in
from hitl.platform import Question
from hitl.texts.matched_spans import NOTHING

BACKGROUND = "background"

EMPTY = (64, 64)
"""Size of an image over which no annotator drew, which Label Studio does not tell: large enough to be broad."""

Codes = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class ImageParts:
    """The objects of images that are items, and by which of them each image is judged.

    Attributes:
        question: what was asked.
        classes: the background, and the kinds.
        drawn: for each of I images what its annotators drew; None without an answer.
        known: row of an image -> its known masks, as `drawn_as_label` says them.
        images: for each of I images its objects, known ones among them.
        pixels: for each image the pixels of each object (`drawn_objects`).
        cluster_i: (I,) number of the object that stands for the image; -1 where it has none.
    """

    question: Question
    classes: Names
    drawn: tuple[DrawnMasks | None, ...]
    known: Mapping[int, str]
    images: tuple[ClusteredImage, ...]
    pixels: tuple[tuple[Indices, ...], ...]
    cluster_i: npt.NDArray[np.int64]


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> Evidence:
    """Evidence about the images. Tables are those of the store: items, its answers and its known truth.

    `names`: key of an annotator -> shown name; answers without an annotator are those of one. Raises BadInput where
    answers to one image have different sizes, and for an answer that says no masks of these kinds.
    """
    keys = tuple(items.column("item").to_pylist())
    classes: Names = (BACKGROUND, *question.classes)
    said = answers_by_item(answers, names)
    drawn = tuple(_drawn(key, said[key], classes) if key in said else None for key in keys)
    right = {row["item"]: row["label"] for row in gold.to_pylist()}
    known = {i: right[key] for i, key in enumerate(keys) if key in right}
    codes = {i: _known(keys[i], label, classes, drawn[i]) for i, label in known.items()}
    objects = [drawn_objects(one, classes, codes.get(i)) for i, one in enumerate(drawn)]
    images = tuple(one.joined for one in objects)
    cluster_i = np.array([standing_for(image) for image in images], np.int64)
    judged: Names = (NOTHING, *question.classes)
    annotations = annotations_of(keys, images, cluster_i, judged, said)
    there = [i for i in known if codes[i] is not None]
    return Evidence(
        annotations,
        truth=truth_of(images, cluster_i, there, judged),
        parts=ImageParts(question, classes, drawn, known, images, tuple(one.pixels for one in objects), cluster_i),
    )


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
    codes: Codes = np.zeros((height, width), np.int16)
    place = {name: code for code, name in enumerate(classes)}
    for kind, rle in sorted(masks, key=lambda mask: place[mask[0]]):
        codes[decode(rle, height, width)] = place[kind]
    return codes


def _known(key: Name, label: str, classes: Names, drawn: DrawnMasks | None) -> Codes | None:
    """(H, W) known classes of the pixels; None where they are of an image of another size than was drawn over."""
    height, width, masks = _masks(key, label, classes)
    seen = EMPTY if drawn is None else drawn.labels.shape[1:]
    size = (height, width) if masks else seen
    return codes_of(masks, classes, *size) if drawn is None or size == seen else None
