"""Read and write masks drawn over images: `<BrushLabels>` on `<Image>`, one region of a result list per stroke.

    {"from_name": "tag", "to_name": "image", "type": "brushlabels", "original_width": 600, "original_height": 400,
     "value": {"format": "rle", "rle": [...], "brushlabels": ["cat"]}}

An annotation without regions means that there is nothing to draw. The consensus has one region per class, whose score
is the mean probability of its pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.errors import BadSettings
from hitl.parts import drawn_as_label, drawn_in
from hitl.platform import Question

TYPE = "brushlabels"


@dataclass(frozen=True, slots=True)
class BrushLabels:
    """A control to draw over the pixels of an image.

    Attributes:
        name, target: the control and the image it labels (from_name and to_name of results).
        field: the field of a task's data that holds the image's address.
        choices: the classes that can be drawn.
    """

    name: str
    target: str
    field: str
    choices: tuple[str, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about every item: one, about its pixels."""
        return (Question(self.name, self.choices, self.choices, "masks", self.field),)

    def read(self, result: object) -> Answers:
        """Return the masks in an annotation's result. Raises NotUnderstood for a region that is not a mask of the
        image.
        """
        own = results_of(self.name, result)
        sizes = {(item.get("original_height"), item.get("original_width")) for item in own}
        if len(sizes) > 1:
            raise NotUnderstood(f"its regions are of images of different sizes: {sorted(map(str, sizes))}")
        height, width = next(iter(sizes), (0, 0))
        if not (isinstance(height, int) and isinstance(width, int)) or (own and not (height > 0 and width > 0)):
            raise NotUnderstood(f"its regions are of an image of {width!r} x {height!r} pixels")
        return {self.name: drawn_as_label(height, width, [mask for item in own for mask in self._masks(item)])}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return regions for these masks; `distributions` has the mean probability of each, by its one-mask label.

        Raises BadSettings for an invalid mask.
        """
        if not labels:
            return []
        unknown = [name for name in labels if name != self.name]
        try:
            height, width, masks = drawn_in(labels.get(self.name, ""))
        except (KeyError, TypeError, ValueError):
            raise BadSettings(f"{self.name!r}: {labels!r} is no answer to the control") from None
        kinds = [kind for kind, _ in masks if kind not in self.choices]
        if unknown or kinds:
            raise BadSettings(f"{(unknown + kinds)[0]!r} is no label of control {self.name!r}")
        sure = (distributions or {}).get(self.name, {})
        alone = {kind: drawn_as_label(height, width, [(kind, rle)]) for kind, rle in masks} if sure else {}
        return [self._region(height, width, kind, rle, sure.get(alone.get(kind, ""))) for kind, rle in masks]

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return nothing: a model's masks are not combined with those of annotators yet."""
        return {}

    def _masks(self, item: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
        value = item.get("value")
        if item.get("type") != TYPE or not isinstance(value, dict) or value.get("format") != "rle":
            raise NotUnderstood(f"{item.get('type')!r} is no brush mask of the control {self.name!r}")
        rle, labels = value.get("rle"), value.get("brushlabels")
        if not isinstance(rle, list) or not all(isinstance(one, int) and 0 <= one < 256 for one in rle):
            raise NotUnderstood(f"a mask of the control {self.name!r} is no list of bytes")
        for label in labels or ():
            if label not in self.choices:
                raise NotUnderstood(f"{label!r} is not among the labels of {self.name!r}")
        return [(label, rle) for label in labels or ()]

    def _region(self, height: int, width: int, kind: str, rle: list[int], probability: float | None) -> dict[str, Any]:
        region = {
            "id": f"mask-{self.choices.index(kind)}",
            "from_name": self.name,
            "to_name": self.target,
            "type": TYPE,
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {"format": "rle", "rle": rle, "brushlabels": [kind]},
        }
        return region if probability is None else region | {"score": probability}
