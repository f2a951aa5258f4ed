"""Boxes on an image: an answer is all boxes that one annotator drew on one image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from hitl.consensus import Consensus
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.kinds.box_matching import Box, BoxConsensus, Drawn, joined_boxes
from hitl.kinds.images import ImageParts, StoredImages, judge_images, least_agreed, marks_in
from hitl.kinds.kind import Marked, PartsKind, Place, StoredAnswers
from hitl.models.combiner import Combiner
from hitl.parts import BOX_DIGITS, BoxTuple, Part, boxes_as_label, boxes_in
from hitl.tables.columns import require_columns

if TYPE_CHECKING:
    from hitl.annotations import Name
    from hitl.platform import Question

SIDES = ("x", "y", "width", "height")

Size = tuple[int, int]
"""Height and width of an image in pixels; 0 if unknown."""


@dataclass(frozen=True, eq=False)
class BoxParts(ImageParts):
    """Boxes of I images.

    Attributes:
        drawn: for each image what its annotators drew.
        known: row of an image -> its known boxes.
        sizes: for each image its size.
    """

    drawn: tuple[Drawn, ...]
    known: Mapping[int, tuple[Box, ...]]
    sizes: tuple[Size, ...]


class Boxes(PartsKind):
    """Boxes, in percent of the image."""

    noun: ClassVar[str] = "boxes"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {
        "label": None,
        "confidence": None,
        **dict.fromkeys(SIDES, pa.float64()),
        "marked": None,
        "answers": None,
        "image_width": pa.int64(),
        "image_height": pa.int64(),
    }

    def read(self, answer: str) -> list[Marked]:
        height, width, boxes = boxes_in(answer)
        size = {"image_width": width, "image_height": height}
        return [{"label": label, **dict(zip(SIDES, place, strict=True)), **size} for *place, label in boxes]

    def write(self, parts: Iterable[Marked]) -> str:
        parts = list(parts)
        height, width = (parts[0]["image_height"], parts[0]["image_width"]) if parts else (0, 0)
        boxes = [(part["x"], part["y"], part["width"], part["height"], str(part["label"])) for part in parts]
        return boxes_as_label(height, width, boxes)

    def shown(self, part: Part) -> dict[str, Any]:
        place = {side: round(part.place[side], BOX_DIGITS) for side in SIDES}
        return super().shown(part) | place

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        question, images = stored.question, StoredImages.of(stored)
        sizes: dict[Name, Counter[Size]] = {item: Counter() for item in images.items}

        def boxes_of(item: Name, answer: str) -> tuple[Box, ...]:
            marks = marks_in(self, self.noun, item, answer, question.classes)
            sizes[item][boxes_in(answer)[:2]] += 1
            return tuple(Box(mark["x"], mark["y"], mark["width"], mark["height"], mark["label"]) for mark in marks)

        drawn: tuple[Drawn, ...] = tuple(
            {who: boxes_of(item, answer) for who, (answer, *_) in images.answers.get(item, {}).items()}
            for item in images.items
        )
        known = {i: boxes_of(item, images.gold[item]) for i, item in enumerate(images.items) if item in images.gold}
        joined = tuple(joined_boxes(own, known.get(i)) for i, own in enumerate(drawn))
        parts = BoxParts(question, joined, least_agreed(joined), drawn, known, tuple(map(_size, sizes.values())))
        return {question.name: images.evidence(parts, known)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Fit the clusters, and place the objects that exist; a known image has its known boxes."""
        parts, items = evidence.parts, evidence.annotations.items
        assert isinstance(parts, BoxParts)
        judged = judge_images(evidence, method)
        drawn = [parts.images[i] for i in parts.answered]
        placed: Sequence[Sequence[Box | None]] = [[] for _ in drawn]
        if any(image.clusters for image in drawn):
            placed = BoxConsensus(combiner=method).placed(drawn, judged.clusters)
        objects = dict(zip(parts.answered, placed, strict=True)) | {i: parts.images[i].known or () for i in parts.known}
        return replace(
            judged.images, parts=tuple(b for i in sorted(objects) for b in _found(parts, i, items[i], objects[i]))
        )

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Return one row per box of each answer, and one without a box if an annotator drew none."""
        assert isinstance(evidence.parts, BoxParts)
        rows: list[tuple[Any, ...]] = []
        for item, drawn in zip(evidence.annotations.items, evidence.parts.drawn, strict=True):
            own = names.get(str(item), str(item))
            for who, boxes in drawn.items():
                places: list[tuple[Any, ...]] = [(str(b.label), b.x, b.y, b.width, b.height) for b in boxes]
                rows += [(own, str(who), *place) for place in places or [(None,) * 5]]
        columns = list(zip(*rows, strict=True)) or [()] * 7
        kinds = dict.fromkeys(("item", "annotator", "label"), pa.string()) | dict.fromkeys(SIDES, pa.float64())
        pairs = zip(kinds.items(), columns, strict=True)
        return pa.table({name: pa.array(column, kind) for (name, kind), column in pairs})

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read the columns item, x, y, width, height (percent of the image) and label."""
        require_columns(table, SIDES, where, f"{question.name!r} asks about boxes, in percent of the image")
        boxes: dict[str, list[BoxTuple]] = {}
        for row, given in enumerate(table.select(["item", *SIDES, "label"]).to_pylist()):
            item, *place, label = (None if part == "" else part for part in given.values())
            own = boxes.setdefault(str(item), [])
            if label is None and place == [None] * 4:
                continue
            if label not in question.classes:
                raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
            box = _within(place)
            if box is None:
                raise BadTable(
                    f"{place_of(row)}: x, y, width, height are {', '.join(map(str, place))}; expected a box with an "
                    "area from 0 to 100 percent of the image"
                )
            own.append((*box, label))
        return {item: boxes_as_label(0, 0, own) for item, own in boxes.items()}


def _within(place: Sequence[Any]) -> tuple[float, float, float, float] | None:
    """Return x, y, width and height as numbers; None unless they are a box within the image."""
    try:
        x, y, width, height = map(float, place)
    except (TypeError, ValueError):
        return None
    area = round(min(width, height), BOX_DIGITS) > 0  # to the precision of a label
    slack = 10.0**-BOX_DIGITS
    return (x, y, width, height) if area and min(x, y) >= 0 and max(x + width, y + height) <= 100 + slack else None


def _found(parts: BoxParts, i: int, item: Name, boxes: Sequence[Box | None]) -> list[Part]:
    """Return the objects of an image, most certain first. `boxes`: those of its clusters, or all known ones."""
    image, (height, width) = parts.images[i], parts.sizes[i]
    found = []
    for box, cluster in zip(boxes, image.clusters, strict=True):
        if box is not None:
            place = {side: float(getattr(box, side)) for side in SIDES}
            place |= {"image_width": width, "image_height": height}
            found.append(Part(item, box.label, place, float(box.confidence), len(cluster), len(image.annotators)))
    return sorted(found, key=lambda box: (-box.probability, *box.at(*SIDES)))


def _size(sizes: Counter[Size]) -> Size:
    """Return the size that most answers report; ties go to the largest. Boxes are in percent, so all of them fit."""
    told = ((count, size) for size, count in sizes.items() if min(size) > 0)
    return max(told, default=(0, (0, 0)))[1]
