"""Read and write boxes drawn on images: `<RectangleLabels>` on `<Image>`, one region of a result list per box.

    {"from_name": "box", "to_name": "image", "type": "rectanglelabels", "original_width": 600, "original_height": 400,
     "value": {"x": 10.5, "y": 20, "width": 30, "height": 25, "rotation": 0, "rectanglelabels": ["cat"]}}

x, y is the upper left corner; all four numbers are percent of the image. A box that extends up to `BEYOND` percent
beyond the image is cut. One that extends further, is rotated, has no area, or does not have exactly one label, is
invalid. An annotation without regions means that there are no objects. The consensus has one region per object, whose
score is its probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.errors import BadSettings
from hitl.parts import BOX_DIGITS, BoxTuple, boxes_as_label, boxes_in
from hitl.platform import Question

TYPE = "rectanglelabels"

BEYOND = 1.0
"""Percent of the image that a box may extend beyond it, as happens when it is drawn to the edge."""


@dataclass(frozen=True, slots=True)
class RectangleLabels:
    """A control to draw boxes on an image.

    Attributes:
        name, target: the control and the image it labels (from_name and to_name of results).
        field: the field of a task's data that holds the image's address.
        choices: the classes of boxes.
    """

    name: str
    target: str
    field: str
    choices: tuple[str, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about every item: one, about its boxes."""
        return (Question(self.name, self.choices, self.choices, "boxes", self.field),)

    def read(self, result: object) -> Answers:
        """Return the boxes in an annotation's result. Raises NotUnderstood if a region is not a box in the image."""
        own = results_of(self.name, result)
        told = {(_pixels(item.get("original_height")), _pixels(item.get("original_width"))) for item in own}
        sizes = [size for size in sorted(told) if min(size) > 0]
        if len(sizes) > 1:
            raise NotUnderstood(f"its boxes are on images of different sizes (height, width): {sizes}")
        height, width = sizes[0] if sizes else (0, 0)
        return {self.name: boxes_as_label(height, width, [self._box(item) for item in own])}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return regions for these boxes; `distributions` has the probability of each, by its one-box label.

        Raises BadSettings for an invalid box.
        """
        if not labels:
            return []
        unknown = [name for name in labels if name != self.name]
        try:
            height, width, boxes = boxes_in(labels.get(self.name, ""))
        except (KeyError, TypeError, ValueError):
            raise BadSettings(f"{self.name!r}: {labels!r} is no answer to the control") from None
        kinds = [kind for *_, kind in boxes if kind not in self.choices]
        if unknown or kinds:
            raise BadSettings(f"{(unknown + kinds)[0]!r} is no label of control {self.name!r}")
        sure = (distributions or {}).get(self.name, {})
        size = {"original_width": width, "original_height": height} if height and width else {}
        return [
            self._region(n, size, box, sure.get(boxes_as_label(height, width, [box]))) for n, box in enumerate(boxes)
        ]

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return nothing: a model's boxes are not combined with those of annotators yet."""
        return {}

    def _box(self, item: Mapping[str, Any]) -> BoxTuple:
        value = item.get("value")
        if item.get("type") != TYPE or not isinstance(value, dict):
            raise NotUnderstood(f"{item.get('type')!r} is no box of the control {self.name!r}")
        kind = self._kind(value.get(TYPE))
        place: list[Any] = [value.get(side) for side in ("x", "y", "width", "height")]
        if not all(isinstance(side, int | float) and math.isfinite(side) for side in place):
            raise NotUnderstood(f"a box of {kind!r} has no place: x, y, width, height are {place}")
        for name, turn in (("a box", value.get("rotation")), ("the image below a box", item.get("image_rotation"))):
            if turn:
                raise NotUnderstood(f"{name} of {kind!r} is turned by {turn} degrees; expected an upright one")
        return (*_within(kind, place), kind)

    def _kind(self, labels: object) -> str:
        if not isinstance(labels, list) or len(labels) != 1:
            raise NotUnderstood(f"a box of the control {self.name!r} has the labels {labels!r}; expected one label")
        if labels[0] not in self.choices:
            raise NotUnderstood(f"{labels[0]!r} is not among the labels of {self.name!r}")
        return str(labels[0])

    def _region(self, number: int, size: Mapping[str, int], box: BoxTuple, probability: float | None) -> dict[str, Any]:
        x, y, width, height, kind = box
        region = {
            "id": f"box-{number}",
            "from_name": self.name,
            "to_name": self.target,
            "type": TYPE,
            **size,
            "image_rotation": 0,
            "value": {"x": x, "y": y, "width": width, "height": height, "rotation": 0, TYPE: [kind]},
        }
        return region if probability is None else region | {"score": probability}


def _pixels(side: object) -> int:
    """Return a side of an image, or 0 if a region has none. Raises NotUnderstood for an invalid size."""
    if side is None:
        return 0
    if not isinstance(side, int | float) or not math.isfinite(side) or side != int(side) or side < 0:
        raise NotUnderstood(f"its boxes are on an image with a side of {side!r} pixels")
    return int(side)


def _within(kind: str, place: Sequence[float]) -> tuple[float, float, float, float]:
    """Return a box cut to its image. Raises NotUnderstood if too much of it is cut off."""
    x, y, width, height = place
    said = f"the box of {kind!r} at x {x:g}, y {y:g} with width {width:g}, height {height:g}"
    if min(x, y) < -BEYOND or max(x + width, y + height) > 100 + BEYOND:
        raise NotUnderstood(f"{said} reaches beyond the image; expected 0 to 100 percent")
    left, width = _cut(x, width)
    top, height = _cut(y, height)
    if round(min(width, height), BOX_DIGITS) <= 0:
        raise NotUnderstood(f"{said} has no area within the image")
    return left, top, width, height


def _cut(start: float, length: float) -> tuple[float, float]:
    """Return start and length of the part within 0 to 100, unchanged if all of it is."""
    if start >= 0 and start + length <= 100:
        return start, length
    first = max(start, 0.0)
    return first, min(start + length, 100.0) - first
