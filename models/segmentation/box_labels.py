"""Boxes that annotators drew on images, and the evidence about whole images that follows.

An answer is all boxes that one annotator drew on one image. An image on which they drew nothing is an answer too.

Policies, stopping rules and reports know items alone. For them an image stands for one cluster of boxes
(`hitl.models.segmentation.boxes`): that about which its annotators agree least. What an annotator drew there is their
label of the image: a kind, or NOTHING. Without a cluster all of them say NOTHING.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Annotations, Name, Names
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.segmentation.boxes import Box, ClusteredImage, Drawn, joined_boxes
from hitl.parts import boxes_in
from hitl.platform import Question
from hitl.tables.encoding import ANONYMOUS, natural_order
from hitl.texts.matched_spans import NOTHING

Size = tuple[int, int]
"""Height and width of an image in pixels; 0 where they are not known."""

Answer = tuple[str, float, float]
"""Label, time and duration."""


@dataclass(frozen=True, eq=False)
class BoxParts:
    """The boxes of images that are items, and by which cluster each image is judged.

    Attributes:
        question: what was asked.
        classes: NOTHING, and the kinds.
        drawn: for each of I images what its annotators drew; None without an answer.
        known: row of an image -> its known boxes.
        images: for each of I images its clusters, known ones among them.
        cluster_i: (I,) number of the cluster that stands for the image; -1 where it has none.
        sizes: for each of I images its size.
    """

    question: Question
    classes: Names
    drawn: tuple[Drawn | None, ...]
    known: Mapping[int, tuple[Box, ...]]
    images: tuple[ClusteredImage, ...]
    cluster_i: npt.NDArray[np.int64]
    sizes: tuple[Size, ...]

    @property
    def answered(self) -> list[int]:
        """Rows of the images that have an answer."""
        return [i for i, one in enumerate(self.drawn) if one is not None]


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> Evidence:
    """Evidence about the images. Tables are those of the store: items, its answers and its known truth.

    `names`: key of an annotator -> shown name; answers without an annotator are those of one. Raises BadInput for an
    answer that says no boxes of these kinds.
    """
    keys = tuple(items.column("item").to_pylist())
    classes: Names = (NOTHING, *question.classes)
    said = answers_by_item(answers, names)
    sizes: list[Counter[Size]] = [Counter() for _ in keys]
    drawn: list[Drawn | None] = []
    for key, count in zip(keys, sizes, strict=True):
        read: Drawn = {who: _boxes(key, label, classes, count) for who, (label, *_) in said.get(key, {}).items()}
        drawn.append(read or None)
    right = {row["item"]: row["label"] for row in gold.to_pylist()}
    known = {i: _boxes(key, right[key], classes, sizes[i]) for i, key in enumerate(keys) if key in right}
    images = tuple(joined_boxes(one or {}, known.get(i)) for i, one in enumerate(drawn))
    parts = BoxParts(
        question,
        classes,
        tuple(drawn),
        known,
        images,
        np.array([standing_for(image) for image in images], np.int64),
        tuple(map(_size, sizes)),
    )
    annotations = annotations_of(keys, parts.images, parts.cluster_i, classes, said)
    return Evidence(annotations, truth=truth_of(parts.images, parts.cluster_i, known, classes), parts=parts)


def standing_for(image: ClusteredImage) -> int:
    """Number of the cluster about which the annotators agree least; -1 where there is none.

    That with the smallest majority; of equals the one that more of them drew, then the first.
    """
    ranks = [
        (max(Counter(image.said(cluster)).values(), default=0), -len(cluster), c)
        for c, cluster in enumerate(image.clusters)
    ]
    return min(ranks)[-1] if ranks else -1


def answer_table(evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
    """One row a box of each answer, one without a box where an annotator drew none: item, annotator, label, place.

    The place is x, y, width and height in percent of the image. `names`: key of an item -> the user's own id.
    """
    parts = evidence.parts
    assert isinstance(parts, BoxParts)
    rows: list[tuple[Name | float | None, ...]] = []
    for item, drawn in zip(evidence.annotations.items, parts.drawn, strict=True):
        own = names.get(str(item), str(item))
        for who, boxes in (drawn or {}).items():
            rows += [(own, who, box.label, box.x, box.y, box.width, box.height) for box in boxes]
            rows += [] if boxes else [(own, who, None, None, None, None, None)]
    columns: list[tuple[Name | float | None, ...]] = list(zip(*rows, strict=True)) or [()] * 7
    kinds = [pa.string()] * 3 + [pa.float64()] * 4
    named = zip(("item", "annotator", "label", "x", "y", "width", "height"), columns, kinds, strict=True)
    return pa.table(
        {name: pa.array(map(_text, column) if kind == pa.string() else column, kind) for name, column, kind in named}
    )


def answers_by_item(answers: pa.Table, names: Mapping[str, str]) -> dict[Name, dict[Name, Answer]]:
    """Item -> annotator -> what they answered."""
    said: dict[Name, dict[Name, Answer]] = {}
    for row in answers.to_pylist():
        who = names.get(row["annotator"], row["annotator"]) or ANONYMOUS
        time, duration = (float("nan") if row[name] is None else float(row[name]) for name in ("time", "duration"))
        said.setdefault(row["item"], {})[who] = (row["label"], time, duration)
    return said


def annotations_of(
    keys: Names,
    images: Sequence[ClusteredImage],
    cluster_i: npt.NDArray[np.int64],
    classes: Names,
    said: Mapping[Name, Mapping[Name, Answer]],
) -> Annotations:
    """What annotators say of the images: of the cluster that each of them stands for."""
    annotators = natural_order(list({who for image in images for who in image.annotators}))
    code = {name: k for k, name in enumerate(annotators)}
    place = {name: j for j, name in enumerate(classes)}
    rows = [
        (i, code[who], place[label], *said[keys[i]][who][1:])
        for i, (image, c) in enumerate(zip(images, cluster_i.tolist(), strict=True))
        for who, label in zip(image.annotators, image.said(image.clusters[c] if c >= 0 else {}), strict=True)
    ]
    column_5 = np.array(rows, np.float64).reshape(-1, 5).T
    item, annotator, label = column_5[:3].astype(np.int32)
    return Annotations(
        item, annotator, label, keys, annotators, classes, classes, time=column_5[3], duration=column_5[4]
    )


def truth_of(
    images: Sequence[ClusteredImage], cluster_i: npt.NDArray[np.int64], known: Iterable[int], classes: Names
) -> npt.NDArray[np.int32]:
    """(I,) the known class of the cluster that stands for each image, -1 where it is not among the known."""
    truth_i = np.full(len(images), -1, np.int32)
    for i in known:
        c = int(cluster_i[i])
        truth_i[i] = images[i].truth(classes)[c] if c >= 0 else 0
    return truth_i


def _boxes(key: Name, label: str, classes: Names, sizes: Counter[Size]) -> tuple[Box, ...]:
    """The boxes of an answer; counts its size. Raises BadInput where it says none, or of other kinds."""
    try:
        height, width, boxes = boxes_in(label)
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            f"item {key}: a stored answer says no boxes; `hitl pull --full` reads all answers anew"
        ) from None
    for *_, kind in boxes:
        if kind not in classes[1:]:
            raise BadInput(f"item {key}: a box is of {kind!r}; expected one of {listed(classes[1:])}")
    sizes[height, width] += 1
    return tuple(Box(*box) for box in boxes)


def _size(sizes: Counter[Size]) -> Size:
    """The size that most answers tell, of equals the largest: boxes are in percent, so that all of them fit."""
    told = ((count, size) for size, count in sizes.items() if min(size) > 0)
    return max(told, default=(0, (0, 0)))[1]


def _text(value: Name | float | None) -> str | None:
    return None if value is None else str(value)
