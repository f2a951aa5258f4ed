"""Controls that mark parts of items: spans of a text, time segments of a recording, boxes and masks on an image.

Each part is a region of the result list:

    Labels on Text                   type "labels"            {"start": 0, "end": 3, "labels": ["PER"]}
    TimeSeriesLabels on TimeSeries   type "timeserieslabels"  {"start": 4, "end": 60, "timeserieslabels": ["walk"]}
    Labels on Audio                  type "labels"            {"start": 0.51, "end": 2.07, "labels": ["speech"]}
    TimelineLabels on Video          type "timelinelabels"    {"ranges": [{"start": 1, "end": 10}], ...}
    RectangleLabels on Image         type "rectanglelabels"   {"x": 10.5, "y": 20, "width": 30, "height": 25, ...}
    BrushLabels on Image             type "brushlabels"       {"format": "rle", "rle": [...], "brushlabels": ["cat"]}

An annotation without regions means that there is nothing to mark. In the consensus, a region's score is the
probability of the part; for a mask, the mean over its pixels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from hitl.connectors.label_studio.controls import Answers, Control, NotUnderstood
from hitl.errors import BadSettings
from hitl.parts import (
    BOX_DIGITS,
    LARGEST,
    Place,
    boxes_as_label,
    boxes_in,
    drawn_as_label,
    drawn_in,
    spans_as_label,
    spans_in,
)
from hitl.platform import Question

BEYOND = 1.0
"""Percent of the image by which a box may extend beyond it, as happens if it is drawn to the edge."""
MILLISECONDS, OFFSET = "%L", "%Z"
"""Codes of milliseconds and UTC offset in a timeFormat. Python lacks the first, and has %z for the second."""

Entries = Sequence[Mapping[str, Any]]
Region = tuple[str, str, dict[str, Any]]
"""A part to write: the id of its region, its label as if it were the only part, and fields of the region (`value`)."""


@dataclass(frozen=True, slots=True)
class Regions(Control):
    """A control that marks parts of an item.

    Attributes:
        field: the field of a task's data that holds the text, or the address of the image or recording.
    """

    field: str
    kind: ClassVar[str]

    @property
    def questions(self) -> tuple[Question, ...]:
        """One question about every item, about its parts."""
        return (Question(self.name, self.choices, self.choices, self.kind, self.field),)

    def read(self, result: object) -> Answers:
        """Return the parts in an annotation's result. Raises NotUnderstood for a region that is not such a part."""
        return {self.name: self._label(self.own(result))}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]]
    ) -> list[dict[str, Any]]:
        """Return the regions of these parts. `distributions`: control -> label of a single part -> its probability."""
        try:
            regions = list(self._regions(labels[self.name]))
        except (KeyError, TypeError, ValueError):
            raise BadSettings(f"{self.name!r}: {labels!r} is no answer to control {self.name!r}") from None
        sure = distributions.get(self.name, {})
        return [
            {"id": name} | self.entry({}) | fields | ({"score": sure[alone]} if alone in sure else {})
            for name, alone, fields in regions
        ]

    @abstractmethod
    def _label(self, own: Entries) -> str: ...

    @abstractmethod
    def _regions(self, label: str) -> Iterator[Region]: ...

    def _marked(self, item: Mapping[str, Any]) -> list[str]:
        labels = item["value"].get(self.type) or []
        for label in labels:
            if label not in self.choices:
                raise NotUnderstood(f"{label!r} is not among the labels of {self.name!r}")
        return list(labels)


@dataclass(frozen=True, slots=True)
class TextSpans(Regions):
    """Spans of a text. Offsets count characters (code points) from 0, and the end is exclusive."""

    kind: ClassVar[str] = "spans"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "labels"

    def _label(self, own: Entries) -> str:
        spans = []
        for item in own:
            start, end = item["value"].get("start"), item["value"].get("end")
            if not (type(start) is type(end) is int and 0 <= start < end):
                raise NotUnderstood(f"{start!r} to {end!r} is no part of a text")
            spans += [(start, end, label) for label in self._marked(item)]
        return spans_as_label(spans)

    def _regions(self, label: str) -> Iterator[Region]:
        for start, end, kind in spans_in(label):
            value = {"start": start, "end": end, self.type: [kind]}
            yield f"{start}-{end}-{self.choices.index(kind)}", spans_as_label([(start, end, kind)]), {"value": value}


@dataclass(frozen=True, slots=True)
class TimeSegments(Regions):
    """Time segments of a recording, in units of the time column, in seconds, or in frames.

    Label Studio counts frames from 1 and includes the last one, so frames 1 to 10 are 0 to 10 here. A time series with
    a timeFormat has times as text in that format (in UTC, as the page writes them). They are converted to ISO 8601
    here, and back when written.

    Attributes:
        of: tag of the recording: "TimeSeries", "Audio" or "Video".
        time_format: format of times (timeFormat); None if they are numbers.
    """

    of: str
    time_format: str | None = None
    kind: ClassVar[str] = "time_spans"

    @property
    def type(self) -> str:
        """Type of its results."""
        return {"TimeSeries": "timeserieslabels", "Audio": "labels", "Video": "timelinelabels"}[self.of]

    def _label(self, own: Entries) -> str:
        segments = []
        for item in own:
            labels = self._marked(item)
            ranges = item["value"].get("ranges") if self.of == "Video" else [item["value"]]
            if not isinstance(ranges, list) or not all(isinstance(part, dict) for part in ranges):
                raise NotUnderstood(f"{ranges!r} are no ranges of frames")
            for part in ranges:
                start, end = self._time(part.get("start")), self._time(part.get("end"))
                if self.of == "Video" and not isinstance(start, str):
                    start -= 1
                segments += [(start, end, label) for label in labels]
        return spans_as_label(segments)

    def _time(self, value: object) -> Place:
        if self.time_format is not None:
            return _iso(value, self.time_format)
        unit, expected = ("frame", "a whole number") if self.of == "Video" else ("time", "a number below 2**53")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise NotUnderstood(f"{value!r} is no {unit}; expected a number below 2**53")
        if self.of == "Video" and value != int(value):
            raise NotUnderstood(f"{value!r} is no {unit}; expected {expected}")
        return int(value) if value == int(value) else value

    def _regions(self, label: str) -> Iterator[Region]:
        for start, end, kind in spans_in(label):
            if self.time_format is None and str in (type(start), type(end)):
                raise TypeError("expected numbers")
            first, last = start, end
            if self.time_format is not None:
                first, last = (_formatted(datetime.fromisoformat(str(time)), self.time_format) for time in (start, end))
            value: dict[str, Any] = {"start": first, "end": last, self.type: [kind]}
            if self.of == "Video":
                value = {"ranges": [{"start": first + 1, "end": last}], self.type: [kind]}
            else:
                value |= {"channel": 0} if self.of == "Audio" else {"instant": False}
            name = f"{start}-{end}-{self.choices.index(kind)}".replace(":", "")
            yield name, spans_as_label([(start, end, kind)]), {"value": value}


@dataclass(frozen=True, slots=True)
class Boxes(Regions):
    """Boxes on an image. x, y is the upper left corner; all four numbers are percent of the image.

    A box that extends beyond the image by up to `BEYOND` percent is cut at the edge. A box is invalid if it extends
    further, is rotated, has no area, or does not have exactly one label.
    """

    kind: ClassVar[str] = "boxes"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "rectanglelabels"

    def _label(self, own: Entries) -> str:
        sides = {tuple(_pixels(item.get(f"original_{side}")) for side in ("height", "width")) for item in own}
        sizes = [size for size in sorted(sides) if min(size) > 0]
        if len(sizes) > 1:
            raise NotUnderstood(f"its boxes are on images of different sizes (height, width): {sizes}")
        height, width = sizes[0] if sizes else (0, 0)
        boxes = []
        for item in own:
            value, labels = item["value"], self._marked(item)
            if len(labels) != 1 or not isinstance(value[self.type], list):
                raise NotUnderstood(f"a box of the control {self.name!r} has the labels {labels!r}; expected one label")
            place: list[Any] = [value.get(side) for side in ("x", "y", "width", "height")]
            if not all(isinstance(side, int | float) and math.isfinite(side) for side in place):
                raise NotUnderstood(f"a box of {labels[0]!r} has no place: x, y, width, height are {place}")
            for name, turn in (("a box", value.get("rotation")), ("the image below a box", item.get("image_rotation"))):
                if turn:
                    raise NotUnderstood(f"{name} of {labels[0]!r} is turned by {turn} degrees; expected an upright one")
            boxes.append((*_within_image(labels[0], *place), labels[0]))
        return boxes_as_label(height, width, boxes)

    def _regions(self, label: str) -> Iterator[Region]:
        height, width, boxes = boxes_in(label)
        size = {"original_width": width, "original_height": height} if height and width else {}
        for number, box in enumerate(boxes):
            *place, kind = box
            self.choices.index(kind)
            value = dict(zip(("x", "y", "width", "height"), place, strict=True)) | {"rotation": 0, self.type: [kind]}
            fields = {**size, "image_rotation": 0, "value": value}
            yield f"box-{number}", boxes_as_label(height, width, [box]), fields


@dataclass(frozen=True, slots=True)
class Masks(Regions):
    """Masks drawn over an image, one region per stroke; the consensus has one region per class."""

    kind: ClassVar[str] = "masks"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "brushlabels"

    def _label(self, own: Entries) -> str:
        sizes = {(item.get("original_height"), item.get("original_width")) for item in own}
        if len(sizes) > 1:
            raise NotUnderstood(f"its regions are of images of different sizes: {sorted(map(str, sizes))}")
        height, width = next(iter(sizes), (0, 0))
        if not (isinstance(height, int) and isinstance(width, int)) or (own and not (height > 0 and width > 0)):
            raise NotUnderstood(f"its regions are of an image of {width!r} x {height!r} pixels")
        masks = []
        for item in own:
            rle = item["value"].get("rle")
            if item["value"].get("format") != "rle":
                raise NotUnderstood(f"{item['value'].get('format')!r} is no brush mask of the control {self.name!r}")
            if not isinstance(rle, list) or not all(isinstance(byte, int) and 0 <= byte < 256 for byte in rle):
                raise NotUnderstood(f"a mask of the control {self.name!r} is no list of bytes")
            masks += [(label, rle) for label in self._marked(item)]
        return drawn_as_label(height, width, masks)

    def _regions(self, label: str) -> Iterator[Region]:
        height, width, masks = drawn_in(label)
        for kind, rle in masks:
            value = {"format": "rle", "rle": rle, self.type: [kind]}
            fields = {"original_width": width, "original_height": height, "image_rotation": 0, "value": value}
            yield f"mask-{self.choices.index(kind)}", drawn_as_label(height, width, [(kind, rle)]), fields


def _pixels(side: object) -> int:
    """Return the length of an image's side; 0 if the region does not have it. Raises NotUnderstood if it is invalid."""
    if side is None:
        return 0
    if not isinstance(side, int | float) or not math.isfinite(side) or side != int(side) or side < 0:
        raise NotUnderstood(f"its boxes are on an image with a side of {side!r} pixels")
    return int(side)


def _within_image(kind: str, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    """Return a box (x, y, width, height) cut at the edge. Raises NotUnderstood if it extends too far or has no area."""
    box = f"the box of {kind!r} at x {x:g}, y {y:g} with width {width:g}, height {height:g}"
    if min(x, y) < -BEYOND or max(x + width, y + height) > 100 + BEYOND:
        raise NotUnderstood(f"{box} reaches beyond the image; expected 0 to 100 percent")
    if x < 0 or x + width > 100:
        x, width = max(x, 0.0), min(x + width, 100.0) - max(x, 0.0)
    if y < 0 or y + height > 100:
        y, height = max(y, 0.0), min(y + height, 100.0) - max(y, 0.0)
    if round(min(width, height), BOX_DIGITS) <= 0:
        raise NotUnderstood(f"{box} has no area within the image")
    return x, y, width, height


def is_readable(time_format: str) -> bool:
    """Return True if times in this format can be read and written."""
    now = datetime(2026, 12, 31, 23, 59, 58, 123000, tzinfo=UTC)
    try:
        _iso(_formatted(now, time_format), time_format)
    except (NotUnderstood, ValueError):
        return False
    return True


def _iso(value: object, time_format: str) -> str:
    """Return a time in this format as ISO 8601 (UTC). A number is in milliseconds since the epoch, as on the page."""
    try:
        if isinstance(value, str):
            time = datetime.strptime(value, time_format.replace(MILLISECONDS, "%f").replace(OFFSET, "%z"))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value / 1000, UTC)
        else:
            raise ValueError
    except (ValueError, OverflowError, OSError):
        raise NotUnderstood(f"{value!r} is no time in the form {time_format!r}") from None
    return (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat()


def _formatted(time: datetime, time_format: str) -> str:
    utc = (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=UTC)
    milliseconds = f"{utc.microsecond // 1000:03d}"
    return utc.strftime(time_format.replace(MILLISECONDS, milliseconds).replace(OFFSET, "%z"))
