"""Boxes on an image: an answer is all boxes that one annotator drew on one image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from hitl.errors import BadTable
from hitl.formatting import listed
from hitl.kinds.kind import Marked, PartsKind, Place, StoredAnswers
from hitl.models.segmentation import box_labels
from hitl.models.segmentation.box_consensus import of_images
from hitl.parts import BOX_DIGITS, BoxTuple, boxes_as_label, boxes_in
from hitl.tables.columns import require_columns

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.combiner import Combiner
    from hitl.parts import Part
    from hitl.platform import Question

SIDES = ("x", "y", "width", "height")


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
        tables = stored.items(), stored.answers(), stored.gold()
        return {stored.question.name: box_labels.evidence_of(stored.question, *tables, stored.names)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        return of_images(evidence, method)

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        return box_labels.answer_table(evidence, names)

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
    """Return x, y, width and height as numbers; None where they are no box within the image."""
    try:
        x, y, width, height = map(float, place)
    except (TypeError, ValueError):
        return None
    area = round(min(width, height), BOX_DIGITS) > 0  # as far as a label tells
    slack = 10.0**-BOX_DIGITS
    return (x, y, width, height) if area and min(x, y) >= 0 and max(x + width, y + height) <= 100 + slack else None
